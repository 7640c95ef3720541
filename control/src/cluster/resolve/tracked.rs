//! The state of one DNS name, and the transition after a lookup. Pure.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::ResolveLimits;
use crate::backoff::Backoff;

/// The answer for the control loop: addresses, sorted and without duplicates, or the reason for none.
pub(super) type Answer = Result<Box<[IpAddr]>, String>;

const NO_SUCH_NAME: &str = "the name has no addresses in DNS";
const LOOKUP_FAILED: &str = "DNS does not answer";

/// The result of one lookup of one address family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LookupResult {
    /// These addresses, with their TTL.
    Addresses { addresses: Vec<IpAddr>, ttl: Duration },
    /// No addresses: an answer like any other (NXDOMAIN, or no record of the family).
    Nothing,
    /// No answer. It says nothing about the name.
    Failed,
}

/// The state of a name that is wanted.
#[derive(Debug)]
pub(super) struct Tracked {
    /// IPv4, then IPv6.
    families: [Family; 2],
    last_answer: Option<Answer>,
    backoff: Backoff,
}

/// The last answer for one address family.
#[derive(Default, Debug)]
struct Family {
    addresses: Vec<IpAddr>,
    /// Until when the addresses are kept while lookups fail.
    kept_until: Option<Instant>,
}

impl Tracked {
    pub(super) fn new(limits: &ResolveLimits) -> Self {
        let (first, max) = (*limits.retry.start(), *limits.retry.end());
        Self { families: <[Family; 2]>::default(), last_answer: None, backoff: Backoff::new(first, first, max) }
    }

    /// The same, with the addresses from before a restart: the control loop has them, and they are kept like those of
    /// an answer that came now.
    pub(super) fn knowing(mut self, addresses: Box<[IpAddr]>, limits: &ResolveLimits, now: Instant) -> Self {
        let (v4, v6) = addresses.iter().copied().partition(IpAddr::is_ipv4);
        for (family, addresses) in self.families.iter_mut().zip([v4, v6]) {
            *family = Family { addresses, kept_until: now.checked_add(limits.keep) };
        }
        self.last_answer = Some(Ok(addresses));
        self
    }

    /// Takes the result of a lookup, for IPv4 and IPv6. Returns the answer if it has changed, and the delay until the
    /// next lookup: the TTL of the answer, or the back-off of a failed family if that is shorter, so that a family that
    /// answers does not hide for an hour that the other one does not.
    ///
    /// A family without an answer keeps its addresses for a bounded time (in the spirit of RFC 8767): a resolver that
    /// is unavailable must not break a working route.
    pub(super) fn take(
        &mut self,
        found: [LookupResult; 2],
        limits: &ResolveLimits,
        now: Instant,
        draw: u64,
    ) -> (Option<Answer>, Duration) {
        let failed = found.contains(&LookupResult::Failed);
        let mut ttl: Option<Duration> = None;
        for (family, found) in self.families.iter_mut().zip(found) {
            if let LookupResult::Addresses { ttl: this, .. } = &found {
                ttl = Some(ttl.map_or(*this, |other| other.min(*this)));
            }
            family.take(found, now, limits.keep);
        }
        let mut addresses: Vec<IpAddr> = self.families.iter().flat_map(|family| &family.addresses).copied().collect();
        addresses.sort_unstable();
        addresses.dedup();
        let answer = if !addresses.is_empty() {
            Ok(addresses.into_boxed_slice())
        } else if failed {
            Err(LOOKUP_FAILED.to_owned())
        } else {
            Err(NO_SUCH_NAME.to_owned())
        };
        let delay = match ttl.map(|ttl| ttl.clamp(*limits.ttl.start(), *limits.ttl.end())) {
            Some(ttl) if failed => ttl.min(self.backoff.next(draw)),
            Some(ttl) => {
                self.backoff.reset();
                ttl
            }
            None => self.backoff.next(draw),
        };
        if self.last_answer.as_ref() == Some(&answer) {
            return (None, delay);
        }
        self.last_answer = Some(answer.clone());
        (Some(answer), delay)
    }
}

impl Family {
    fn take(&mut self, found: LookupResult, now: Instant, keep: Duration) {
        match found {
            LookupResult::Addresses { addresses, .. } => {
                self.addresses = addresses;
                self.kept_until = now.checked_add(keep);
            }
            LookupResult::Nothing => *self = Self::default(),
            LookupResult::Failed => {
                if self.kept_until.is_none_or(|until| now >= until) {
                    *self = Self::default();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn found(addresses: &[&str], ttl_s: u32) -> LookupResult {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        LookupResult::Addresses { addresses, ttl: SECOND * ttl_s }
    }

    /// Takes one lookup after another, each `after_s` seconds after the previous one, and compares the answers (the
    /// addresses, or the reason; empty if unchanged) and the delays in seconds. The random draw is the lowest.
    #[track_caller]
    fn check(steps: &[(u32, [LookupResult; 2], &str, u64)]) {
        let limits = ResolveLimits::default();
        let mut tracked = Tracked::new(&limits);
        let mut now = crate::clock::now();
        for (n, (after_s, found, last_answer, delay_s)) in steps.iter().enumerate() {
            now += SECOND * *after_s;
            let (answer, delay) = tracked.take(found.clone(), &limits, now, 0);
            let answer = answer.map_or(String::new(), |answer| match answer {
                Ok(addresses) => addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
                Err(why) => why,
            });
            assert_eq!((answer.as_str(), delay.as_secs()), (*last_answer, *delay_s), "step {n}");
        }
    }

    #[test]
    fn addresses_are_sorted_deduplicated_and_reported_once() {
        let both = || [found(&["10.0.0.2", "10.0.0.1", "10.0.0.2"], 30), found(&["2001:db8::1"], 20)];
        let turned = [found(&["10.0.0.1", "10.0.0.2"], 30), found(&["2001:db8::1"], 20)];
        check(&[(0, both(), "10.0.0.1 10.0.0.2 2001:db8::1", 20), (20, turned, "", 20), (20, both(), "", 20)]);
    }

    #[test]
    fn the_ttl_is_clamped() {
        check(&[
            (0, [found(&["10.0.0.1"], 0), LookupResult::Nothing], "10.0.0.1", 1),
            (1, [found(&["10.0.0.1"], 86_400), LookupResult::Nothing], "", 3600),
        ]);
    }

    #[test]
    fn a_missing_name_is_an_answer() {
        check(&[
            (0, [LookupResult::Nothing, LookupResult::Nothing], NO_SUCH_NAME, 5),
            (5, [LookupResult::Nothing, LookupResult::Nothing], "", 5),
            (5, [found(&["10.0.0.1"], 9), LookupResult::Nothing], "10.0.0.1", 9),
            (9, [LookupResult::Nothing, LookupResult::Nothing], NO_SUCH_NAME, 5),
        ]);
    }

    #[test]
    fn a_failed_look_up_keeps_the_addresses_for_an_hour() {
        check(&[
            (0, [LookupResult::Failed, LookupResult::Failed], LOOKUP_FAILED, 5),
            (5, [found(&["10.0.0.1"], 9), LookupResult::Nothing], "10.0.0.1", 9),
            (9, [LookupResult::Failed, LookupResult::Failed], "", 5),
            (3589, [LookupResult::Failed, LookupResult::Failed], "", 5),
            (2, [LookupResult::Failed, LookupResult::Failed], LOOKUP_FAILED, 5),
        ]);
    }

    #[test]
    fn restored_addresses_count_as_a_fresh_answer() {
        let (limits, now) = (ResolveLimits::default(), crate::clock::now());
        let kept: Box<[IpAddr]> = ["10.0.0.1", "2001:db8::1"].map(|address| address.parse().unwrap()).into();
        let knowing = || Tracked::new(&limits).knowing(kept.clone(), &limits, now);
        let failed = || [LookupResult::Failed, LookupResult::Failed];
        let mut tracked = knowing();
        assert_eq!(tracked.take(failed(), &limits, now, 0).0, None, "it is no news, and stands");
        let later = now + limits.keep;
        assert_eq!(tracked.take(failed(), &limits, later, 0).0, Some(Err(LOOKUP_FAILED.to_owned())));
        let same = [found(&["10.0.0.1"], 9), found(&["2001:db8::1"], 9)];
        assert_eq!(knowing().take(same, &limits, now, 0).0, None);
        let other: Box<[IpAddr]> = ["10.0.0.1", "2001:db8::2"].map(|address| address.parse().unwrap()).into();
        let half = [LookupResult::Failed, found(&["2001:db8::2"], 9)];
        assert_eq!(knowing().take(half, &limits, now, 0).0, Some(Ok(other)));
    }

    #[test]
    fn address_families_are_independent() {
        check(&[
            (0, [found(&["10.0.0.1"], 9), found(&["2001:db8::1"], 9)], "10.0.0.1 2001:db8::1", 9),
            (9, [found(&["10.0.0.2"], 9), LookupResult::Failed], "10.0.0.2 2001:db8::1", 5),
            (5, [found(&["10.0.0.2"], 3), LookupResult::Failed], "", 3),
            (3, [LookupResult::Nothing, LookupResult::Failed], "2001:db8::1", 5),
            (9, [LookupResult::Failed, LookupResult::Nothing], LOOKUP_FAILED, 5),
        ]);
        check(&[
            (0, [LookupResult::Failed, found(&["2001:db8::1"], 3600)], "2001:db8::1", 5),
            (5, [found(&["10.0.0.1"], 3600), found(&["2001:db8::1"], 3600)], "10.0.0.1 2001:db8::1", 3600),
        ]);
    }
}
