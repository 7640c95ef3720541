//! What a client and the log learn of a limit: the header fields of a response, and the limit's name.

use std::fmt;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tidegate_config::model::{Exceeded, Limit, Rate};
use tidegate_config::object::ObjectName;

use super::RateState;

/// The state of a rate after a request, apart from the snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LimitNotice {
    /// The limit.
    pub(crate) name: LimitName,
    rate: Rate,
    remaining: u32,
    resets_in: Duration,
}

/// The name of a limit. Printed as `shop/api/login`: namespace and name of its policy, and its name there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LimitName {
    policy: ObjectName,
    limit: Arc<str>,
}

impl From<&Limit> for LimitName {
    fn from(limit: &Limit) -> Self {
        Self { policy: limit.id.policy().name.clone(), limit: Arc::clone(limit.id.name()) }
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.policy, self.limit)
    }
}

impl From<RateState<'_>> for LimitNotice {
    fn from(state: RateState<'_>) -> Self {
        let RateState { limit, rate, remaining, resets_in } = state;
        Self { name: limit.into(), rate, remaining, resets_in }
    }
}

impl From<Exceeded<'_>> for LimitNotice {
    fn from(Exceeded { limit, rate, resets_in }: Exceeded<'_>) -> Self {
        Self { name: limit.into(), rate, remaining: 0, resets_in }
    }
}

impl LimitNotice {
    /// Returns `true` if it has fewer requests left.
    pub(crate) const fn is_tighter_than(&self, other: &Self) -> bool {
        self.remaining < other.remaining
    }

    /// `Retry-After` in seconds (RFC 9110 section 10.2.3), rounded up: before that, another request would be refused.
    pub(crate) fn retry_after(&self) -> HeaderValue {
        HeaderValue::from(seconds(self.resets_in))
    }

    /// Appends the value of `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10 section 3): the maximum and the
    /// window in seconds.
    pub(crate) fn policy_field(&self, out: &mut Vec<u8>) {
        self.field(out, ["q", "w"], [u64::from(self.rate.max), seconds(self.rate.window)]);
    }

    /// Appends the value of `RateLimit` (the same draft, section 4): the requests left, and the seconds until the
    /// window ends.
    pub(crate) fn state_field(&self, out: &mut Vec<u8>) {
        self.field(out, ["r", "t"], [u64::from(self.remaining), seconds(self.resets_in)]);
    }

    /// An item of structured fields with two integers as parameters: a string (RFC 9651 section 4.1.6), in which other
    /// characters than those of ASCII that are printed become `?`.
    fn field(&self, out: &mut Vec<u8>, [one, other]: [&str; 2], [first, second]: [u64; 2]) {
        out.push(b'"');
        for char in self.name.limit.chars() {
            match char {
                '"' | '\\' => out.extend_from_slice(&[b'\\', char as u8]),
                ' '..='~' => out.push(char as u8),
                _ => out.push(b'?'),
            }
        }
        // A vector takes everything.
        write!(out, "\";{one}={first};{other}={second}").ok();
    }
}

/// Whole seconds, rounded up.
const fn seconds(time: Duration) -> u64 {
    time.as_secs() + (time.subsec_nanos() > 0) as u64
}

#[cfg(test)]
impl LimitNotice {
    /// That of a limit `login` of the policy `shop/api` that is exhausted: 5 in a minute, of which 12.3 s are left.
    pub(crate) fn sample() -> Self {
        let name = LimitName { policy: ObjectName::new("shop", "api"), limit: "login".into() };
        let rate = Rate { max: 5, window: Duration::from_secs(60) };
        Self { name, rate, remaining: 0, resets_in: Duration::from_millis(12_300) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(notice: &LimitNotice, want: [&str; 3]) {
        let (mut policy, mut state) = (Vec::new(), Vec::new());
        notice.policy_field(&mut policy);
        notice.state_field(&mut state);
        let retry_after = notice.retry_after();
        let got = [&*policy, &*state, retry_after.as_bytes()].map(|text| std::str::from_utf8(text).unwrap());
        assert_eq!(got, want);
    }

    #[test]
    fn fields_name_the_limit_and_round_seconds_up() {
        let notice = LimitNotice::sample();
        assert_eq!(notice.name.to_string(), "shop/api/login");
        check(&notice, [r#""login";q=5;w=60"#, r#""login";r=0;t=13"#, "13"]);
        let short = Rate { max: u32::MAX, window: Duration::from_millis(1) };
        let short = LimitNotice { rate: short, resets_in: Duration::from_millis(1), remaining: 7, ..notice.clone() };
        check(&short, [r#""login";q=4294967295;w=1"#, r#""login";r=7;t=1"#, "1"]);
        let whole = LimitNotice { resets_in: Duration::from_secs(12), ..notice.clone() };
        check(&whole, [r#""login";q=5;w=60"#, r#""login";r=0;t=12"#, "12"]);
        let name = LimitName { limit: "a \"b\"\\\r\nü".into(), ..notice.name.clone() };
        check(&LimitNotice { name, ..notice }, [r#""a \"b\"\\???";q=5;w=60"#, r#""a \"b\"\\???";r=0;t=13"#, "13"]);
    }
}
