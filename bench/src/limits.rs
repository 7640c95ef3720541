//! Limits of requests that Tidegate enforces while it is measured. None of them ever refuses a request.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde_json::{Value, json};

/// A maximum that no measurement reaches in a window.
pub(crate) const UNREACHED: u32 = u32::MAX;

/// The limits of a request: written as their number, with `-native` or `-interpreted` behind it if they have
/// expressions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Limits {
    count: u16,
    expressions: Expressions,
}

/// The expressions of a limit: a condition and a counter, both true to their name for each request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Expressions {
    /// None: all requests share its counter.
    #[default]
    None,
    /// Forms that are evaluated without the interpreter of CEL.
    Native,
    /// Forms that the interpreter evaluates.
    Interpreted,
}

impl Limits {
    /// The most limits of one request: those of one policy.
    const MAX: u16 = 100;
    /// The most limits without an allocation.
    const UNALLOCATED_MAX: u16 = 16;

    /// Their number.
    #[must_use]
    pub(crate) const fn count(self) -> u16 {
        self.count
    }

    /// Returns `true` if they have conditions and counters.
    #[must_use]
    pub(crate) const fn have_expressions(self) -> bool {
        !matches!(self.expressions, Expressions::None)
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub(crate) const fn is_none(self) -> bool {
        self.count == 0
    }

    /// Returns `true` if a decision by them must not allocate.
    #[must_use]
    pub(crate) const fn allocate_nothing(self) -> bool {
        self.count <= Self::UNALLOCATED_MAX && !matches!(self.expressions, Expressions::Interpreted)
    }

    /// The text that they are read from.
    #[must_use]
    pub(crate) fn as_written(self) -> String {
        format!("{}{}", self.count, self.expressions.as_str())
    }

    /// A name with them: of a row, for example.
    #[must_use]
    pub(crate) fn named(self, name: &str) -> String {
        if self.is_none() { name.to_owned() } else { format!("{name}, {self}") }
    }

    /// The specification of a policy with them.
    pub(crate) fn spec(self, target: &Value) -> Value {
        let limits: serde_json::Map<String, Value> =
            (0..self.count).map(|number| (format!("limit-{number:03}"), self.expressions.limit())).collect();
        json!({"targetRef": target, "limits": limits})
    }
}

impl Expressions {
    fn limit(self) -> Value {
        let rates = json!([{"limit": UNREACHED, "window": "1h"}]);
        let of = |when: &str, counter: &str| json!({"when": [{"predicate": when}], "counters": [{"expression": counter}], "rates": rates});
        match self {
            Self::None => json!({"rates": rates}),
            Self::Native => of("request.method == 'GET' && request.url_path.startsWith('/')", "source.remote_address"),
            Self::Interpreted => of("request.size < 1000", "connection.mtls ? 'mtls' : source.remote_address"),
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Native => "-native",
            Self::Interpreted => "-interpreted",
        }
    }
}

impl FromStr for Limits {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let forms = [Expressions::Interpreted, Expressions::Native];
        let form = forms.into_iter().find_map(|form| Some((text.strip_suffix(form.as_str())?, form)));
        let (count, expressions) = form.unwrap_or((text, Expressions::None));
        let count = count.parse().context("a number of limits is followed by nothing, -native or -interpreted")?;
        if count > Self::MAX {
            bail!("a policy has at most {} limits", Self::MAX);
        }
        Ok(Self { count, expressions })
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} limits", self.as_written())
    }
}

impl Serialize for Limits {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::object::Kind;

    use super::*;
    use crate::peer::of_gateway;
    use crate::subject::edge::projected;

    #[track_caller]
    fn check(text: &str, want: Option<(u16, Expressions)>) {
        let limits = text.parse().ok();
        assert_eq!(limits, want.map(|(count, expressions)| Limits { count, expressions }), "{text}");
    }

    #[test]
    fn limits_are_a_number_and_the_form_of_their_expressions() {
        check("0", Some((0, Expressions::None)));
        check("10", Some((10, Expressions::None)));
        check("100-native", Some((100, Expressions::Native)));
        check("1-interpreted", Some((1, Expressions::Interpreted)));
        check("101", None);
        check("-native", None);
        check("10-fast", None);
    }

    #[test]
    fn every_limit_can_be_enforced() {
        for text in ["100", "100-native", "100-interpreted"] {
            let policy = of_gateway(text.parse().unwrap());
            assert_eq!(projected(Kind::RateLimitPolicy, &[policy]).unwrap().len(), 1, "{text}");
        }
    }
}
