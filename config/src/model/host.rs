//! Hosts: the patterns that rules name, the host of a request, and a persistent map from one to the other.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use rpds::HashTrieMapSync;
use serde::Serialize;

/// How many labels the star of a wildcard stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WildcardDepth {
    /// Exactly one label: the rule of Ingress.
    One,
    /// One or more labels: the rule of Gateway API and of the Deis router.
    Any,
}

/// The host that a rule is for. Names are lower case, without port and trailing dot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    /// One name.
    Exact(Arc<str>),
    /// `*.suffix`; only the suffix is kept.
    Wildcard(Arc<str>, WildcardDepth),
    /// No host: every name that no other pattern of the map matches.
    Any,
}

impl HostPattern {
    /// Reads a host as Ingress writes it: a DNS name (RFC 1123), or `*.` before one, which stands for one label.
    ///
    /// # Errors
    /// A sentence fragment that says why the text is no such host.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let lower = text.to_ascii_lowercase();
        if let Some(suffix) = lower.strip_prefix("*.") {
            check_name(suffix)?;
            return Ok(Self::Wildcard(suffix.into(), WildcardDepth::One));
        }
        if lower.contains('*') {
            return Err("has a star elsewhere than as its whole first label");
        }
        check_name(&lower)?;
        if lower.parse::<std::net::IpAddr>().is_ok() {
            return Err("is an IP address, not a DNS name");
        }
        Ok(Self::Exact(lower.into()))
    }

    /// The pattern of the names that fall under both, where there are any.
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
        }
    }

    /// Whether a name in lower case falls under the pattern.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *name,
            Self::Any => true,
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

/// The name to route by, from a `Host` header or an `:authority`: without port and trailing dot, in
/// lower case. `None` when the text is no `uri-host [":" port]` of RFC 9110 section 7.2, or has an empty label; such a
/// request is malformed.
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

type Names<T> = HashTrieMapSync<Arc<str>, T, foldhash::fast::RandomState>;

fn names<T>() -> Names<T> {
    Names::new_with_hasher_and_ptr_kind(foldhash::fast::RandomState::default())
}

/// A persistent map by host pattern: a clone shares everything, an insertion copies one path of the trie.
#[derive(Clone)]
pub struct HostMap<T> {
    exact: Names<T>,
    wildcard_one: Names<T>,
    wildcard_any: Names<T>,
    any: Option<T>,
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        Self { exact: names(), wildcard_one: names(), wildcard_any: names(), any: None }
    }
}

impl<T> fmt::Debug for HostMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostMap({} patterns)", self.len())
    }
}

impl<T: Clone> HostMap<T> {
    /// Sets what a pattern leads to.
    pub fn insert(&mut self, pattern: &HostPattern, value: T) {
        match pattern {
            HostPattern::Exact(name) => self.exact.insert_mut(Arc::clone(name), value),
            HostPattern::Wildcard(suffix, WildcardDepth::One) => {
                self.wildcard_one.insert_mut(Arc::clone(suffix), value);
            }
            HostPattern::Wildcard(suffix, WildcardDepth::Any) => {
                self.wildcard_any.insert_mut(Arc::clone(suffix), value);
            }
            HostPattern::Any => self.any = Some(value),
        }
    }

    /// Forgets a pattern; whether it was there.
    pub fn remove(&mut self, pattern: &HostPattern) -> bool {
        match pattern {
            HostPattern::Exact(name) => self.exact.remove_mut(name),
            HostPattern::Wildcard(suffix, WildcardDepth::One) => self.wildcard_one.remove_mut(suffix),
            HostPattern::Wildcard(suffix, WildcardDepth::Any) => self.wildcard_any.remove_mut(suffix),
            HostPattern::Any => self.any.take().is_some(),
        }
    }
}

impl<T> HostMap<T> {
    /// What exactly this pattern leads to.
    #[must_use]
    pub fn get(&self, pattern: &HostPattern) -> Option<&T> {
        match pattern {
            HostPattern::Exact(name) => self.exact.get(name),
            HostPattern::Wildcard(suffix, WildcardDepth::One) => self.wildcard_one.get(suffix),
            HostPattern::Wildcard(suffix, WildcardDepth::Any) => self.wildcard_any.get(suffix),
            HostPattern::Any => self.any.as_ref(),
        }
    }

    /// The values of the patterns that match a name in lower case, the most specific first: the exact name,
    /// the one-label wildcard, wildcards of any depth from the longest suffix, no host.
    pub fn matching<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a T> + use<'a, 'n, T> {
        let parents = move || std::iter::successors(parent(name), |suffix| parent(suffix));
        let one = parents().take(1).filter_map(|suffix| self.wildcard_one.get(suffix));
        let deep = (!self.wildcard_any.is_empty())
            .then(|| parents().filter_map(|suffix| self.wildcard_any.get(suffix)))
            .into_iter()
            .flatten();
        self.exact.get(name).into_iter().chain(one).chain(deep).chain(self.any.as_ref())
    }

    /// Every value with its pattern, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (HostPattern, &T)> {
        let exact = self.exact.iter().map(|(name, value)| (HostPattern::Exact(Arc::clone(name)), value));
        let one = self
            .wildcard_one
            .iter()
            .map(|(suffix, value)| (HostPattern::Wildcard(Arc::clone(suffix), WildcardDepth::One), value));
        let deep = self
            .wildcard_any
            .iter()
            .map(|(suffix, value)| (HostPattern::Wildcard(Arc::clone(suffix), WildcardDepth::Any), value));
        exact.chain(one).chain(deep).chain(self.any.as_ref().map(|value| (HostPattern::Any, value)))
    }

    /// How many patterns there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.exact.size() + self.wildcard_one.size() + self.wildcard_any.size() + usize::from(self.any.is_some())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A name without its first label.
pub(super) fn parent(name: &str) -> Option<&str> {
    name.split_once('.').map(|(_, suffix)| suffix).filter(|suffix| !suffix.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{Just, Strategy, prop_assert_eq, prop_oneof, proptest};

    use super::*;

    #[track_caller]
    fn check_request(authority: &str, want: Option<&str>) {
        assert_eq!(request_host(authority).as_deref(), want, "{authority:?}");
    }

    #[test]
    fn a_request_host_loses_port_dot_and_case() {
        check_request("Example.COM", Some("example.com"));
        check_request("example.com.:8080", Some("example.com"));
        check_request("example.com:", Some("example.com"));
        check_request("10.0.0.1:80", Some("10.0.0.1"));
        check_request("[2001:db8::1]:443", Some("[2001:db8::1]"));
        check_request("a_b.example", Some("a_b.example"));
    }

    #[test]
    fn what_is_no_authority_is_refused() {
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

    fn map(patterns: &[(&str, WildcardDepth)]) -> HostMap<String> {
        let mut map = HostMap::default();
        for (text, depth) in patterns {
            let pattern = match text.strip_prefix("*.") {
                Some(suffix) => HostPattern::Wildcard(suffix.into(), *depth),
                None if text.is_empty() => HostPattern::Any,
                None => HostPattern::Exact((*text).into()),
            };
            map.insert(&pattern, pattern.to_string());
        }
        map
    }

    #[track_caller]
    fn check_matching(map: &HostMap<String>, name: &str, want: &[&str]) {
        assert_eq!(map.matching(name).collect::<Vec<_>>(), want, "{name}");
    }

    #[test]
    fn the_most_specific_pattern_comes_first() {
        use WildcardDepth::{Any, One};
        let map = map(&[("a.b.c", One), ("*.b.c", One), ("*.c", Any), ("*.b.c", Any), ("", One)]);
        check_matching(&map, "a.b.c", &["a.b.c", "*.b.c", "**.b.c", "**.c", "*"]);
        check_matching(&map, "x.b.c", &["*.b.c", "**.b.c", "**.c", "*"]);
        check_matching(&map, "x.y.b.c", &["**.b.c", "**.c", "*"]);
        check_matching(&map, "b.c", &["**.c", "*"]);
        check_matching(&map, "c", &["*"]);
        assert_eq!(map.len(), 5);
    }

    #[test]
    fn a_clone_does_not_see_later_changes() {
        let before = map(&[("a", WildcardDepth::One)]);
        let mut after = before.clone();
        assert!(after.remove(&HostPattern::Exact("a".into())));
        assert!(!after.remove(&HostPattern::Exact("a".into())));
        check_matching(&before, "a", &["a"]);
        check_matching(&after, "a", &[]);
    }

    #[test]
    fn a_star_stands_for_whole_labels() {
        assert!(HostPattern::parse("*.b.c").unwrap().matches("a.b.c"));
        assert!(!HostPattern::parse("*.b.c").unwrap().matches("b.c"));
        assert!(!HostPattern::parse("*.b.c").unwrap().matches("x.a.b.c"));
        assert!(!HostPattern::parse("*.b.c").unwrap().matches("ab.c"));
        assert!(HostPattern::Wildcard("b.c".into(), WildcardDepth::Any).matches("x.a.b.c"));
    }

    /// Names of few labels, so that they meet, with now and then a label too few.
    fn name() -> impl Strategy<Value = String> {
        proptest::string::string_regex("[ab]?(\\.[ab]?){0,3}").unwrap()
    }

    fn pattern() -> impl Strategy<Value = HostPattern> {
        let suffix = || proptest::string::string_regex("[ab](\\.[ab]){0,2}").unwrap();
        prop_oneof![
            suffix().prop_map(|name| HostPattern::Exact(name.into())),
            suffix().prop_map(|name| HostPattern::Wildcard(name.into(), WildcardDepth::One)),
            suffix().prop_map(|name| HostPattern::Wildcard(name.into(), WildcardDepth::Any)),
            Just(HostPattern::Any),
        ]
    }

    proptest! {
        #[test]
        fn a_pattern_matches_what_its_map_entry_would(patterns in vec(pattern(), 1..6), authority in name()) {
            let Some(name) = request_host(&authority) else { return Ok(()) };
            let mut map = HostMap::default();
            patterns.iter().for_each(|pattern| map.insert(pattern, pattern.clone()));
            let mut found: Vec<HostPattern> = map.matching(&name).cloned().collect();
            let mut want: Vec<HostPattern> = patterns.into_iter().filter(|pattern| pattern.matches(&name)).collect();
            found.sort();
            want.sort();
            want.dedup();
            prop_assert_eq!(found, want);
        }

        #[test]
        fn patterns_meet_in_the_names_that_both_match(a in pattern(), b in pattern(), name in name()) {
            prop_assert_eq!(a.meet(&b), b.meet(&a));
            let meet = a.meet(&b).is_some_and(|pattern| pattern.matches(&name));
            prop_assert_eq!(meet, a.matches(&name) && b.matches(&name));
        }
    }
}
