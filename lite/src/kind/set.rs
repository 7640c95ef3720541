//! All kinds that are served at one moment.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use super::{BUILT_IN, KindId};

/// The collection of the store that has the objects of a kind. Never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StoreIndex(usize);

impl StoreIndex {
    pub(super) fn built_in(nth: usize) -> Self {
        Self(nth)
    }

    /// The first place that no built-in kind has.
    pub(crate) fn first_custom() -> Self {
        Self(BUILT_IN.len())
    }

    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The kinds in the order of discovery: groups stay together, and within a group the preferred version comes first.
#[derive(Clone)]
pub(crate) struct Kinds(Arc<[KindId]>);

static WITHOUT_CUSTOM: LazyLock<Kinds> = LazyLock::new(|| Kinds(BUILT_IN.iter().cloned().collect()));

impl Kinds {
    /// The built-in kinds alone.
    pub(crate) fn built_in() -> Self {
        WITHOUT_CUSTOM.clone()
    }

    /// None.
    pub(crate) fn none() -> Self {
        Self(Arc::default())
    }

    /// These and one more that is read.
    pub(crate) fn with(&self, kind: KindId) -> Self {
        let mut kinds: Vec<KindId> = self.0.iter().cloned().chain([kind]).collect();
        kinds.sort_by_cached_key(by_name);
        Self(kinds.into())
    }

    /// These without one of them.
    pub(crate) fn without(&self, kind: &KindId) -> Self {
        Self(self.0.iter().filter(|one| *one != kind).cloned().collect())
    }

    /// The built-in kinds and these.
    pub(crate) fn with_custom(mut custom: Vec<KindId>) -> Self {
        let rank = |kind: &KindId| {
            let description = kind.description();
            (description.group.clone(), Precedence::of(&description.version), description.plural.clone())
        };
        custom.sort_by_cached_key(rank);
        Self(BUILT_IN.iter().cloned().chain(custom).collect())
    }

    /// The kind with this plural name, if it is served.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<KindId> {
        let is = |kind: &&KindId| {
            let description = kind.description();
            description.group == group && description.version == version && description.plural == plural
        };
        self.0.iter().find(is).cloned()
    }

    /// Every kind in every version.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &KindId> {
        self.0.iter()
    }

    /// Every kind once, whatever the number of its versions.
    pub(crate) fn places(&self) -> impl Iterator<Item = &KindId> {
        let mut seen = BTreeSet::new();
        self.0.iter().filter(move |kind| seen.insert(kind.place()))
    }

    /// The kinds of one group and version.
    pub(crate) fn of<'a>(&'a self, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a KindId> {
        self.iter().filter(move |kind| kind.description().group == group && kind.description().version == version)
    }

    /// The groups and versions served, each once, in the order of the kinds.
    pub(crate) fn group_versions(&self) -> Vec<(&str, &str)> {
        let mut seen = BTreeSet::new();
        let all = self.iter().map(KindId::description);
        all.map(|kind| (&*kind.group, &*kind.version)).filter(|pair| seen.insert(*pair)).collect()
    }
}

fn by_name(kind: &KindId) -> (String, String) {
    (kind.description().group.clone(), kind.description().plural.clone())
}

/// The order of versions: `v2`, `v1`, `v1beta2`, `v1beta1`, `v1alpha1`, then everything else by name.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Precedence {
    Stable(std::cmp::Reverse<u64>),
    Beta(std::cmp::Reverse<(u64, u64)>),
    Alpha(std::cmp::Reverse<(u64, u64)>),
    Other(String),
}

impl Precedence {
    pub(crate) fn of(version: &str) -> Self {
        use std::cmp::Reverse;
        let other = || Self::Other(version.to_owned());
        let Some(rest) = version.strip_prefix('v') else { return other() };
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let (major, rest) = rest.split_at(digits);
        let Ok(major) = major.parse::<u64>() else { return other() };
        if rest.is_empty() {
            return Self::Stable(Reverse(major));
        }
        let minor = |name: &str| rest.strip_prefix(name)?.parse::<u64>().ok();
        match (minor("beta"), minor("alpha")) {
            (Some(minor), _) => Self::Beta(Reverse((major, minor))),
            (None, Some(minor)) => Self::Alpha(Reverse((major, minor))),
            (None, None) => other(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_clients_expect() {
        let wanted = ["v10", "v2", "v1", "v11beta2", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"];
        let mut found = wanted;
        found.reverse();
        found.sort_by_key(|version| Precedence::of(version));
        assert_eq!(found, wanted);
    }

    #[test]
    fn every_built_in_kind_has_a_place_of_its_own() {
        let kinds = Kinds::built_in();
        assert_eq!(kinds.places().count(), kinds.iter().count());
        assert!(kinds.iter().all(|kind| kind.place() < StoreIndex::first_custom()));
    }
}
