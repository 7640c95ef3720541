//! Hosts: the patterns of rules, and the host of a request.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::host_expression::HostExpression;

/// The number of labels that the star of a wildcard stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WildcardDepth {
    /// Exactly one label, as in Ingress.
    One,
    /// One or more labels, as in the Gateway API and the Deis router.
    Any,
}

/// The host of a rule. Names are lower case, without port and trailing dot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    /// One name.
    Exact(Arc<str>),
    /// `*.suffix`; only the suffix is kept.
    Wildcard(Arc<str>, WildcardDepth),
    /// Every name of two or more labels whose first label is this one, in lower case.
    FirstLabel(Arc<str>),
    /// Every name that matches an expression.
    Expression(HostExpression),
    /// No host: every name that no other pattern of the map matches.
    Any,
}

impl HostPattern {
    /// The place of a pattern among others, the most specific first: exact names by name, then wildcards, those of a
    /// longer suffix first, then the others, and the pattern for every name last.
    #[must_use]
    pub fn precedence(&self) -> (u8, Reverse<usize>, &str) {
        match self {
            Self::Exact(name) => (0, Reverse(0), name),
            Self::Wildcard(suffix, _) => (1, Reverse(suffix.len()), suffix),
            Self::FirstLabel(_) | Self::Expression(_) => (2, Reverse(0), ""),
            Self::Any => (3, Reverse(0), ""),
        }
    }

    /// Parses a host of an Ingress: a DNS name (RFC 1123), or `*.` before one, which stands for one label.
    ///
    /// # Errors
    /// If the text is not such a host: a predicate that says why.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let lower = text.to_ascii_lowercase();
        if let Some(suffix) = lower.strip_prefix("*.") {
            check_name(suffix)?;
            return Ok(Self::Wildcard(suffix.into(), WildcardDepth::One));
        }
        if lower.contains('*') {
            return Err("has a star that is not its whole first label");
        }
        check_name(&lower)?;
        if lower.parse::<std::net::IpAddr>().is_ok() {
            return Err("is an IP address, not a DNS name");
        }
        Ok(Self::Exact(lower.into()))
    }

    /// The same pattern, in which a star stands for one label or more, as in the Gateway API.
    #[must_use]
    pub fn at_any_depth(self) -> Self {
        if let Self::Wildcard(suffix, _) = self { Self::Wildcard(suffix, WildcardDepth::Any) } else { self }
    }

    /// The pattern of the names that match both, if any.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, narrow) | (narrow, Self::Any) => Some(narrow.clone()),
            (Self::Exact(name), pattern) | (pattern, Self::Exact(name)) => {
                pattern.matches(name).then(|| Self::Exact(Arc::clone(name)))
            }
            (Self::Wildcard(a, deep_a), Self::Wildcard(b, deep_b)) if a == b => {
                Some(Self::Wildcard(Arc::clone(a), *deep_a.min(deep_b)))
            }
            (narrow @ Self::Wildcard(suffix, _), wide @ Self::Wildcard(_, WildcardDepth::Any))
            | (wide @ Self::Wildcard(_, WildcardDepth::Any), narrow @ Self::Wildcard(suffix, _))
                if wide.matches(suffix) =>
            {
                Some(narrow.clone())
            }
            (Self::Wildcard(..), Self::Wildcard(..)) => None,
            (Self::Expression(a), Self::Expression(b)) => (a == b).then(|| Self::Expression(a.clone())),
            // An expression and a wildcard have no common pattern, and no caller needs one.
            (Self::Expression(_), _) | (_, Self::Expression(_)) => None,
            (Self::FirstLabel(a), Self::FirstLabel(b)) => (a == b).then(|| Self::FirstLabel(Arc::clone(a))),
            // With one label before the suffix there is one such name; with any number there is no pattern, and no
            // caller needs one.
            (Self::FirstLabel(label), Self::Wildcard(suffix, depth))
            | (Self::Wildcard(suffix, depth), Self::FirstLabel(label)) => {
                (*depth == WildcardDepth::One).then(|| Self::Exact(format!("{label}.{suffix}").into()))
            }
        }
    }

    /// Returns `true` if a name in lower case matches the pattern.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *name,
            Self::Any => true,
            Self::Expression(expression) => expression.matches(name),
            Self::FirstLabel(label) => {
                name.split_once('.').is_some_and(|(first, rest)| first == &**label && !rest.is_empty())
            }
            Self::Wildcard(suffix, depth) => name
                .strip_suffix(&**suffix)
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|rest| !rest.is_empty() && (*depth == WildcardDepth::Any || !rest.contains('.'))),
        }
    }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > 253 {
        return Err("is not between 1 and 253 characters long");
    }
    for label in name.split('.') {
        if label.is_empty() || label.len() > 63 {
            return Err("has a label that is not between 1 and 63 characters long");
        }
        let inner = label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !inner || label.starts_with('-') || label.ends_with('-') {
            return Err("has a label with characters other than letters, digits and inner hyphens");
        }
    }
    Ok(())
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Wildcard(suffix, WildcardDepth::One) => write!(f, "*.{suffix}"),
            Self::Wildcard(suffix, WildcardDepth::Any) => write!(f, "**.{suffix}"),
            Self::FirstLabel(label) => write!(f, "{label}.*"),
            Self::Expression(expression) => expression.fmt(f),
            Self::Any => f.write_str("*"),
        }
    }
}

impl fmt::Debug for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for HostPattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The routing name of a `Host` header or an `:authority`: without port and trailing dot, in lower case. `None` if the
/// text is not a `uri-host [":" port]` of RFC 9110 section 7.2, or has an empty label; such a request is malformed.
#[must_use]
pub fn request_host(authority: &str) -> Option<Cow<'_, str>> {
    let name = if authority.starts_with('[') {
        let (literal, rest) = authority.split_at(authority.find(']')? + 1);
        check_port(rest)?;
        literal.get(1..literal.len() - 1)?.parse::<std::net::Ipv6Addr>().ok()?;
        literal
    } else {
        let (name, rest) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
        check_port(rest)?;
        name.strip_suffix('.').unwrap_or(name)
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'[' | b']' | b':');
    if name.len() > 253 || !name.bytes().all(plain) || name.split('.').any(str::is_empty) {
        return None;
    }
    Some(if name.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    })
}

fn check_port(rest: &str) -> Option<()> {
    let Some(digits) = rest.strip_prefix(':') else { return rest.is_empty().then_some(()) };
    (digits.is_empty() || digits.bytes().all(|b| b.is_ascii_digit()) && digits.parse::<u16>().is_ok()).then_some(())
}

/// The names above a name, from the nearest one: the suffixes of wildcards that may match it.
pub fn parents(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(parent(name), |suffix| parent(suffix))
}

/// A name without its first label.
pub(super) fn parent(name: &str) -> Option<&str> {
    name.split_once('.').map(|(_, suffix)| suffix).filter(|suffix| !suffix.is_empty())
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::{Just, Strategy, prop_assert_eq, prop_oneof, proptest};

    use super::*;

    #[track_caller]
    fn check_request(authority: &str, want: Option<&str>) {
        assert_eq!(request_host(authority).as_deref(), want, "{authority:?}");
    }

    #[test]
    fn a_request_host_is_normalised() {
        check_request("Example.COM", Some("example.com"));
        check_request("example.com.:8080", Some("example.com"));
        check_request("example.com:", Some("example.com"));
        check_request("10.0.0.1:80", Some("10.0.0.1"));
        check_request("[2001:db8::1]:443", Some("[2001:db8::1]"));
        check_request("a_b.example", Some("a_b.example"));
    }

    #[test]
    fn invalid_authorities_are_refused() {
        for text in
            ["", ".", "a b", "a/b", "a:b", "a:99999", "[::1", "[zz]", "u@h", "a,b", "a:1:2", ".a", "a..b", "a.."]
        {
            check_request(text, None);
        }
    }

    #[track_caller]
    fn check_pattern(text: &str, want: Option<&str>) {
        assert_eq!(HostPattern::parse(text).ok().map(|p| p.to_string()).as_deref(), want, "{text:?}");
    }

    #[test]
    fn patterns_are_dns_names_or_one_leading_star() {
        check_pattern("Shop.Example", Some("shop.example"));
        check_pattern("*.example", Some("*.example"));
        check_pattern("xn--bcher-kva.example", Some("xn--bcher-kva.example"));
        for text in ["", "*", "*.", "a.*.b", "*a.b", "-a.b", "a-.b", "a..b", "a_b.c", "1.2.3.4", "a.b.", "a b"] {
            check_pattern(text, None);
        }
        check_pattern(&"a".repeat(64), None);
    }

    #[test]
    fn a_wildcard_matches_whole_labels() {
        assert!(HostPattern::parse("*.b.c").unwrap().matches("a.b.c"));
        assert!(!HostPattern::parse("*.b.c").unwrap().matches("b.c"));
        assert!(!HostPattern::parse("*.b.c").unwrap().matches("x.a.b.c"));
        assert!(!HostPattern::parse("*.b.c").unwrap().matches("ab.c"));
        assert!(HostPattern::Wildcard("b.c".into(), WildcardDepth::Any).matches("x.a.b.c"));
    }

    /// Names of few labels, so that they meet, sometimes with a label too few.
    pub(in crate::model) fn name() -> impl Strategy<Value = String> {
        proptest::string::string_regex("[ab]?(\\.[ab]?){0,3}").unwrap()
    }

    pub(in crate::model) fn pattern() -> impl Strategy<Value = HostPattern> {
        let suffix = || proptest::string::string_regex("[ab](\\.[ab]){0,2}").unwrap();
        let label = proptest::string::string_regex("[ab]").unwrap();
        prop_oneof![
            label.prop_map(|label| HostPattern::FirstLabel(label.into())),
            suffix().prop_map(|name| HostPattern::Exact(name.into())),
            suffix().prop_map(|name| HostPattern::Wildcard(name.into(), WildcardDepth::One)),
            suffix().prop_map(|name| HostPattern::Wildcard(name.into(), WildcardDepth::Any)),
            Just(HostPattern::Any),
        ]
    }

    proptest! {
        #[test]
        fn the_intersection_matches_the_names_that_both_match(a in pattern(), b in pattern(), name in name()) {
            prop_assert_eq!(a.meet(&b), b.meet(&a));
            let meet = a.meet(&b).is_some_and(|pattern| pattern.matches(&name));
            let expressible = !matches!((&a, &b),
                (HostPattern::FirstLabel(_), HostPattern::Wildcard(_, WildcardDepth::Any))
                | (HostPattern::Wildcard(_, WildcardDepth::Any), HostPattern::FirstLabel(_)));
            prop_assert_eq!(meet, expressible && a.matches(&name) && b.matches(&name));
        }
    }
}
