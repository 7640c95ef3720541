//! A persistent map by host pattern.

use std::fmt;
use std::sync::Arc;

use rpds::HashTrieMapSync;

use super::host::{HostPattern, WildcardDepth, parents};
use super::host_expression::HostExpression;

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
    first_label: Names<T>,
    /// Ordered from the oldest. All may have to be tried for a name that no other pattern matches.
    expressions: Arc<Vec<(HostExpression, T)>>,
    any: Option<T>,
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        Self {
            exact: names(),
            wildcard_one: names(),
            wildcard_any: names(),
            first_label: names(),
            expressions: Arc::default(),
            any: None,
        }
    }
}

impl<T> fmt::Debug for HostMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostMap({} patterns)", self.len())
    }
}

impl<T: Clone> HostMap<T> {
    /// Sets the value of a pattern.
    pub fn insert(&mut self, pattern: &HostPattern, value: T) {
        match pattern {
            HostPattern::Exact(name) => self.exact.insert_mut(Arc::clone(name), value),
            HostPattern::Wildcard(suffix, WildcardDepth::One) => {
                self.wildcard_one.insert_mut(Arc::clone(suffix), value);
            }
            HostPattern::Wildcard(suffix, WildcardDepth::Any) => {
                self.wildcard_any.insert_mut(Arc::clone(suffix), value);
            }
            HostPattern::FirstLabel(label) => self.first_label.insert_mut(Arc::clone(label), value),
            HostPattern::Expression(expression) => {
                let all = Arc::make_mut(&mut self.expressions);
                match all.binary_search_by(|(own, _)| own.cmp(expression)) {
                    Ok(index) => all[index].1 = value,
                    Err(index) => all.insert(index, (expression.clone(), value)),
                }
            }
            HostPattern::Any => self.any = Some(value),
        }
    }

    /// Removes a pattern. Returns `true` if it was there.
    pub fn remove(&mut self, pattern: &HostPattern) -> bool {
        match pattern {
            HostPattern::Exact(name) => self.exact.remove_mut(name),
            HostPattern::Wildcard(suffix, WildcardDepth::One) => self.wildcard_one.remove_mut(suffix),
            HostPattern::Wildcard(suffix, WildcardDepth::Any) => self.wildcard_any.remove_mut(suffix),
            HostPattern::FirstLabel(label) => self.first_label.remove_mut(label),
            HostPattern::Expression(expression) => {
                let index = self.expressions.binary_search_by(|(own, _)| own.cmp(expression));
                index.map(|index| drop(Arc::make_mut(&mut self.expressions).remove(index))).is_ok()
            }
            HostPattern::Any => self.any.take().is_some(),
        }
    }
}

impl<T> HostMap<T> {
    /// The value of exactly this pattern.
    #[must_use]
    pub fn get(&self, pattern: &HostPattern) -> Option<&T> {
        match pattern {
            HostPattern::Exact(name) => self.exact.get(name),
            HostPattern::Wildcard(suffix, WildcardDepth::One) => self.wildcard_one.get(suffix),
            HostPattern::Wildcard(suffix, WildcardDepth::Any) => self.wildcard_any.get(suffix),
            HostPattern::FirstLabel(label) => self.first_label.get(label),
            HostPattern::Expression(expression) => {
                let index = self.expressions.binary_search_by(|(own, _)| own.cmp(expression)).ok()?;
                self.expressions.get(index).map(|(_, value)| value)
            }
            HostPattern::Any => self.any.as_ref(),
        }
    }

    /// The values of the patterns that match a name in lower case, the most specific first: the exact name, the
    /// one-label wildcard, wildcards of any depth from the longest suffix, the first label, expressions from the
    /// oldest, [`HostPattern::Any`].
    pub fn matching<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a T> + use<'a, 'n, T> {
        let one = parents(name).take(1).filter_map(|suffix| self.wildcard_one.get(suffix));
        let deep = (!self.wildcard_any.is_empty())
            .then(|| parents(name).filter_map(|suffix| self.wildcard_any.get(suffix)))
            .into_iter()
            .flatten();
        let first = (!self.first_label.is_empty())
            .then(|| name.split_once('.').and_then(|(label, _)| self.first_label.get(label)))
            .flatten();
        let expressions = self.expressions.iter().filter(move |(own, _)| own.matches(name)).map(|(_, value)| value);
        let named = self.exact.get(name).into_iter().chain(one).chain(deep).chain(first);
        named.chain(expressions).chain(self.any.as_ref())
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
        let first = self.first_label.iter().map(|(label, value)| (HostPattern::FirstLabel(Arc::clone(label)), value));
        let expressions = self.expressions.iter().map(|(own, value)| (HostPattern::Expression(own.clone()), value));
        exact
            .chain(one)
            .chain(deep)
            .chain(first)
            .chain(expressions)
            .chain(self.any.as_ref().map(|value| (HostPattern::Any, value)))
    }

    /// The number of patterns.
    #[must_use]
    pub fn len(&self) -> usize {
        let wildcards = self.wildcard_one.size() + self.wildcard_any.size();
        self.exact.size()
            + wildcards
            + self.first_label.size()
            + self.expressions.len()
            + usize::from(self.any.is_some())
    }

    /// Returns `true` if it has no patterns.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::super::host::request_host;
    use super::super::host::tests::{name, pattern};
    use super::*;

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

    proptest! {
        #[test]
        fn a_pattern_matches_like_its_map_entry(patterns in vec(pattern(), 1..6), authority in name()) {
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
    }
}
