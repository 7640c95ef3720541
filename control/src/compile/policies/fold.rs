//! The effective policy of a path: the entries of its policies, combined by their defaults and overrides.
//!
//! The fold begins with the most specific policy and goes up. At each step the strategy of the upper policy decides, so
//! an override of a Gateway has the last word.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_config::model::auth::AuthEntry;
use tidegate_config::model::{Limit, Overridden};
use tidegate_config::object::ObjectRef;
use tidegate_config::project::kuadrant::{MergeStrategy, PolicyBlock, PolicyScope};

/// A policy of a path, with its entries.
#[derive(Debug)]
pub(super) struct Source<'a, V> {
    pub(super) policy: &'a ObjectRef,
    pub(super) block: &'a PolicyBlock<V>,
}

impl<V> Clone for Source<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Source<'_, V> {}

/// An entry with the policy that it comes from.
#[derive(Debug)]
pub(super) struct Entry<'a, V> {
    pub(super) policy: &'a ObjectRef,
    pub(super) value: &'a Arc<V>,
}

impl<V> Clone for Entry<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Entry<'_, V> {}

/// Entries by name.
pub(super) type Entries<'a, V> = BTreeMap<&'a Arc<str>, Entry<'a, V>>;

/// An entry of a policy, which may be in shadow mode with its policy.
pub(super) trait PolicyEntry {
    /// Whether its policy only counts and refuses nothing.
    fn is_shadow(&self) -> bool;
}

impl PolicyEntry for Limit {
    fn is_shadow(&self) -> bool {
        self.shadow
    }
}

impl PolicyEntry for AuthEntry {
    fn is_shadow(&self) -> bool {
        self.id().shadow
    }
}

/// The effective entries of a path, and the entries that lost.
#[derive(Debug)]
pub(super) struct Effective<'a, V> {
    /// Those of enforced policies.
    pub(super) entries: Entries<'a, V>,
    /// Those of policies in shadow mode that would be in effect if these policies were enforced.
    pub(super) shadow: Vec<Entry<'a, V>>,
    pub(super) overridden: Vec<Overridden>,
}

impl<'a, V> Effective<'a, V> {
    /// Combines the policies of a path: the least specific target first, and on one target the oldest policy first. A
    /// policy in shadow mode overrides no enforced one: to try it must not open what it would replace.
    pub(super) fn of(path: &[Source<'a, V>]) -> Self
    where
        V: PolicyEntry,
    {
        let is_shadow = |source: &&Source<'a, V>| source.block.entries.values().any(|entry| entry.is_shadow());
        let enforced: Vec<Source<'a, V>> = path.iter().filter(|source| !is_shadow(source)).copied().collect();
        if enforced.len() == path.len() {
            return Self::merged(path);
        }
        let (mut effective, all) = (Self::merged(&enforced), Self::merged(path));
        effective.shadow = all.entries.into_values().filter(|entry| entry.value.is_shadow()).collect();
        let tried: Vec<&ObjectRef> = path.iter().filter(is_shadow).map(|source| source.policy).collect();
        effective.overridden.extend(all.overridden.into_iter().filter(|lost| tried.contains(&&lost.policy)));
        effective.overridden.sort_unstable();
        effective
    }

    fn merged(path: &[Source<'a, V>]) -> Self {
        let mut effective = Self { entries: Entries::new(), shadow: Vec::new(), overridden: Vec::new() };
        path.iter().rev().for_each(|source| effective.add(*source));
        effective.name_last_winners();
        effective.overridden.sort_unstable();
        effective
    }

    /// A policy that won may have lost to one above it, which then is the one that is in effect.
    fn name_last_winners(&mut self) {
        let in_effect = |policy: &ObjectRef| self.entries.values().any(|entry| entry.policy == policy);
        let beaten = self.overridden.iter().filter(|lost| !in_effect(&lost.policy));
        let beaten: BTreeMap<ObjectRef, ObjectRef> =
            beaten.map(|lost| (lost.policy.clone(), lost.winner.clone())).collect();
        for lost in &mut self.overridden {
            // Each loses at a later step than the one before, so that this ends.
            while let Some(winner) = beaten.get(&lost.winner) {
                lost.winner = winner.clone();
            }
        }
    }

    /// Adds the policy above those so far. Without entries it neither gives nor takes any.
    fn add(&mut self, source: Source<'a, V>) {
        let Source { policy, block } = source;
        if block.entries.is_empty() {
            return;
        }
        let own = block.entries.iter().map(|(name, value)| (name, Entry { policy, value }));
        let below = std::mem::take(&mut self.entries);
        let (first, second): (Entries<'a, V>, Entries<'a, V>) = match block.scope {
            PolicyScope::Overrides => (own.collect(), below),
            PolicyScope::Defaults => (below, own.collect()),
        };
        self.entries = first;
        let is_alone = block.strategy == MergeStrategy::Atomic;
        let winner = self.entries.values().next().map(|entry| entry.policy).filter(|_| is_alone);
        for (name, entry) in second {
            match self.entries.get(name).map(|same| same.policy).or(winner) {
                Some(winner) => self.overridden.push(Overridden {
                    policy: entry.policy.clone(),
                    name: Arc::clone(name),
                    winner: winner.clone(),
                }),
                None => drop(self.entries.insert(name, entry)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;
    use tidegate_config::object::{Kind, ObjectName};

    use super::*;

    fn block(scope: PolicyScope, strategy: MergeStrategy, entries: &[(&str, u32)]) -> PolicyBlock<u32> {
        let entries = entries.iter().map(|(name, value)| ((*name).into(), Arc::new(*value))).collect();
        PolicyBlock { scope, strategy, entries }
    }

    /// Reads `D/merge ip 600, login 20`: the scope (D or O), the strategy and the entries.
    fn read(text: &str) -> PolicyBlock<u32> {
        let (how, entries) = text.split_once(' ').unwrap();
        let (scope, strategy) = how.split_once('/').unwrap();
        let scope = if scope == "O" { PolicyScope::Overrides } else { PolicyScope::Defaults };
        let strategy = if strategy == "merge" { MergeStrategy::Merge } else { MergeStrategy::Atomic };
        let entries: Vec<(&str, u32)> = entries
            .split(", ")
            .filter_map(|entry| entry.split_once(' '))
            .map(|(name, value)| (name, value.parse().unwrap()))
            .collect();
        block(scope, strategy, &entries)
    }

    impl PolicyEntry for u32 {
        /// The values from 1,000 on are of policies in shadow mode.
        fn is_shadow(&self) -> bool {
            *self >= 1000
        }
    }

    fn policy(name: &str) -> ObjectRef {
        ObjectRef::new(Kind::RateLimitPolicy, ObjectName::new("shop", name))
    }

    /// Folds policies, `name: block` each, and compares the entries as `name value (policy)`, then the lost ones as
    /// `policy.name < winner`.
    #[track_caller]
    fn check(path: &[&str], want: &[&str], lost: &[&str]) {
        let policies: Vec<(ObjectRef, PolicyBlock<u32>)> = path
            .iter()
            .map(|text| text.split_once(": ").unwrap())
            .map(|(name, block)| (policy(name), read(block)))
            .collect();
        let path: Vec<Source<'_, u32>> = policies.iter().map(|(policy, block)| Source { policy, block }).collect();
        let effective = Effective::of(&path);
        let got: Vec<String> = effective
            .entries
            .iter()
            .map(|(name, it)| format!("{name} {} ({})", it.value, it.policy.name.name))
            .collect();
        assert_eq!(got, want, "{path:?}");
        let got: Vec<String> = effective
            .overridden
            .iter()
            .map(|it| format!("{}.{} < {}", it.policy.name.name, it.name, it.winner.name.name))
            .collect();
        assert_eq!(got, lost, "{path:?}");
    }

    #[test]
    fn the_strategy_of_the_upper_policy_decides() {
        check(&[], &[], &[]);
        check(&["g: D/merge ip 600, login 20", "l: D/atomic ip 60"], &["ip 60 (l)", "login 20 (g)"], &["g.ip < l"]);
        check(
            &["g: D/atomic ip 600", "l: D/merge login 20", "r: D/atomic upload 5"],
            &["login 20 (l)", "upload 5 (r)"],
            &["g.ip < l"],
        );
        check(
            &["g: O/merge ip 600", "l: O/atomic login 20", "u: D/atomic ip 9, upload 5"],
            &["ip 600 (g)", "login 20 (l)"],
            &["u.ip < l", "u.upload < l"],
        );
        check(&["g: O/atomic ip 6", "l: D/atomic ip 60", "u: D/atomic ip 9"], &["ip 6 (g)"], &["l.ip < g", "u.ip < g"]);
        check(
            &["g: D/merge ip 600", "l: O/atomic login 20", "r: D/atomic upload 5"],
            &["ip 600 (g)", "login 20 (l)"],
            &["r.upload < l"],
        );
        check(&["l: O/merge ip 600", "u: D/atomic ip 9"], &["ip 600 (l)"], &["u.ip < l"]);
        check(&["g: D/atomic ip 1"], &["ip 1 (g)"], &[]);
    }

    #[test]
    fn on_one_target_the_newest_default_and_the_oldest_override_win() {
        check(&["old: D/atomic ip 1", "new: D/atomic ip 2"], &["ip 2 (new)"], &["old.ip < new"]);
        check(&["old: O/atomic ip 1", "new: O/atomic ip 2"], &["ip 1 (old)"], &["new.ip < old"]);
        check(
            &["old: O/merge ip 10", "new: D/atomic ip 20, upload 5"],
            &["ip 10 (old)", "upload 5 (new)"],
            &["new.ip < old"],
        );
        check(
            &["old: D/merge ip 10, login 3", "new: O/atomic ip 20"],
            &["ip 20 (new)", "login 3 (old)"],
            &["old.ip < new"],
        );
    }

    #[test]
    fn a_policy_in_shadow_mode_overrides_no_enforced_one() {
        let check = |path: &[&str], want: &[&str], shadow: &[&str], lost: &[&str]| {
            check(path, want, lost);
            let policies: Vec<(ObjectRef, PolicyBlock<u32>)> = path
                .iter()
                .map(|text| text.split_once(": ").unwrap())
                .map(|(name, block)| (policy(name), read(block)))
                .collect();
            let path: Vec<Source<'_, u32>> = policies.iter().map(|(policy, block)| Source { policy, block }).collect();
            let got = Effective::of(&path).shadow;
            let got: Vec<String> =
                got.iter().map(|entry| format!("{} ({})", entry.value, entry.policy.name.name)).collect();
            assert_eq!(got, shadow, "{path:?}");
        };
        check(&["g: O/atomic ip 1000", "r: D/atomic ip 1"], &["ip 1 (r)"], &["1000 (g)"], &[]);
        check(&["g: O/merge ip 1000", "r: D/atomic ip 1, up 2"], &["ip 1 (r)", "up 2 (r)"], &["1000 (g)"], &[]);
        check(&["g: O/atomic ip 1", "r: D/atomic ip 1000"], &["ip 1 (g)"], &[], &["r.ip < g"]);
        check(&["g: D/atomic ip 1000"], &[], &["1000 (g)"], &[]);
    }

    #[test]
    fn a_policy_without_entries_changes_nothing() {
        check(&["g: O/atomic ", "r: D/atomic ip 1"], &["ip 1 (r)"], &[]);
        check(&["g: D/atomic ip 1", "r: D/atomic "], &["ip 1 (g)"], &[]);
    }

    /// The merge table, read top-down for one name: which policy of a path gives the value.
    fn naive(path: &[Source<'_, u32>], name: &str) -> Option<usize> {
        let mut effective: Vec<(String, usize)> = Vec::new();
        for (index, source) in path.iter().enumerate().rev() {
            let own: Vec<(String, usize)> = source.block.entries.keys().map(|name| (name.to_string(), index)).collect();
            let has = |list: &[(String, usize)], name: &str| list.iter().any(|(other, _)| other == name);
            let overrides = source.block.scope == PolicyScope::Overrides;
            let (first, second) = if overrides { (own, effective) } else { (effective, own) };
            effective = match source.block.strategy {
                MergeStrategy::Atomic => {
                    if first.is_empty() {
                        second
                    } else {
                        first
                    }
                }
                MergeStrategy::Merge => {
                    let more: Vec<_> = second.into_iter().filter(|(name, _)| !has(&first, name)).collect();
                    first.into_iter().chain(more).collect()
                }
            };
        }
        effective.iter().find(|(other, _)| other == name).map(|(_, index)| *index)
    }

    proptest! {
        #[test]
        fn the_fold_equals_the_merge_table(
            path in vec((any::<bool>(), any::<bool>(), btree_set(0_u8..5, 0..4)), 0..6)
        ) {
            const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
            let policies: Vec<(ObjectRef, PolicyBlock<u32>)> = path.iter().enumerate().map(|(index, (overrides, merges, names))| {
                let scope = if *overrides { PolicyScope::Overrides } else { PolicyScope::Defaults };
                let strategy = if *merges { MergeStrategy::Merge } else { MergeStrategy::Atomic };
                let entries: Vec<(&str, u32)> = names.iter().map(|name| (NAMES[usize::from(*name)], index as u32)).collect();
                (policy(&format!("p{index}")), block(scope, strategy, &entries))
            }).collect();
            let sources: Vec<Source<'_, u32>> = policies.iter().map(|(policy, block)| Source { policy, block }).collect();
            let effective = Effective::of(&sources);
            for name in NAMES {
                let key: Arc<str> = name.into();
                let got = effective.entries.get(&key).map(|entry| **entry.value as usize);
                prop_assert_eq!(got, naive(&sources, name), "{}", name);
            }
            let entries: usize = sources.iter().map(|source| source.block.entries.len()).sum();
            prop_assert_eq!(effective.overridden.len() + effective.entries.len(), entries);
        }
    }
}
