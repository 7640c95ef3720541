//! The limit of the sources of keys that the policies of a namespace name: each is fetched, and its keys are held in
//! memory and on disk.
//!
//! The oldest policies have the first claim, so that what is fetched is a function of the objects as they are now. A
//! source that several policies of a namespace name counts once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::model::auth::{AuthenticationMethod, KeySource};
use tidegate_config::object::ObjectName;
use tidegate_config::project::kuadrant::AuthPolicy;

/// The maximum number of sources of keys that the policies of one namespace have.
pub(crate) const KEY_SOURCES_MAX: usize = 100;

/// The sources of all namespaces.
#[derive(Debug, Default)]
pub(super) struct KeySourceLimits(BTreeMap<Arc<str>, OfNamespace>);

/// The sources of one namespace.
#[derive(Debug, Default)]
struct OfNamespace {
    policies: BTreeMap<Arc<str>, Naming>,
    /// The policies that name a source.
    users: BTreeMap<KeySource, BTreeSet<Rank>>,
    /// The sources by their oldest policies.
    by_age: BTreeSet<Aged>,
    /// The sources whose keys are used: the first ones.
    admitted: BTreeSet<KeySource>,
}

/// A policy with the sources that it names.
#[derive(Debug)]
struct Naming {
    rank: Rank,
    sources: BTreeSet<KeySource>,
}

/// The place of a policy in the order of ages.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rank {
    created_s: i64,
    policy: Arc<str>,
}

/// A source in the order of the ages of oldest policies.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Aged {
    oldest: Rank,
    source: KeySource,
}

impl KeySourceLimits {
    /// Replaces the sources that a policy names, or removes them. Returns the other policies whose sources are used
    /// from now on, or no longer.
    pub(super) fn put(&mut self, name: &ObjectName, policy: Option<&AuthPolicy>) -> Vec<ObjectName> {
        let sources = policy.map(sources_of).filter(|sources| !sources.is_empty());
        if sources.is_none() && !self.0.contains_key(&name.namespace) {
            return Vec::new();
        }
        let own = self.0.entry(Arc::clone(&name.namespace)).or_default();
        let created_s = policy.map_or(0, |policy| policy.age.created_s);
        own.replace(&name.name, created_s, sources);
        let changed = own.changed();
        if own.users.is_empty() {
            self.0.remove(&name.namespace);
        }
        let others = changed.into_iter().filter(|other| *other != name.name);
        others.map(|other| name.beside(other)).collect()
    }

    /// Whether the keys of a source are used in a namespace.
    pub(super) fn admits(&self, namespace: &str, source: &KeySource) -> bool {
        self.0.get(namespace).is_none_or(|own| !own.users.contains_key(source) || own.admitted.contains(source))
    }
}

impl OfNamespace {
    fn replace(&mut self, name: &Arc<str>, created_s: i64, sources: Option<BTreeSet<KeySource>>) {
        if let Some(Naming { rank, sources }) = self.policies.remove(name) {
            sources.iter().for_each(|source| self.edit(source, |users| users.remove(&rank)));
        }
        let Some(sources) = sources else { return };
        let rank = Rank { created_s, policy: Arc::clone(name) };
        sources.iter().for_each(|source| self.edit(source, |users| users.insert(rank.clone())));
        self.policies.insert(Arc::clone(name), Naming { rank, sources });
    }

    /// Changes the policies that name a source.
    fn edit(&mut self, source: &KeySource, edit: impl FnOnce(&mut BTreeSet<Rank>) -> bool) {
        let mut users = self.users.remove(source).unwrap_or_default();
        let aged = |users: &BTreeSet<Rank>| Some(Aged { oldest: users.first()?.clone(), source: source.clone() });
        if let Some(before) = aged(&users) {
            self.by_age.remove(&before);
        }
        edit(&mut users);
        self.by_age.extend(aged(&users));
        if !users.is_empty() {
            self.users.insert(source.clone(), users);
        }
    }

    /// Decides which sources are within the limit. Returns the policies that a change of them concerns.
    fn changed(&mut self) -> BTreeSet<Arc<str>> {
        let admitted = self.by_age.iter().take(KEY_SOURCES_MAX).map(|aged| aged.source.clone()).collect();
        let before = std::mem::replace(&mut self.admitted, admitted);
        let differing = before.symmetric_difference(&self.admitted);
        let concerned = differing.filter_map(|source| self.users.get(source)).flatten();
        concerned.map(|rank| Arc::clone(&rank.policy)).collect()
    }
}

/// The sources that the rules of a policy name.
fn sources_of(policy: &AuthPolicy) -> BTreeSet<KeySource> {
    let entries = policy.rules.iter().flat_map(|block| block.entries.values());
    let methods = entries.filter_map(|entry| entry.authentication()).map(|rule| &rule.rule.method);
    let sources = methods.filter_map(|method| match method {
        AuthenticationMethod::Jwt(jwt) => Some(jwt.source.clone()),
        AuthenticationMethod::Introspection(_)
        | AuthenticationMethod::TokenReview { .. }
        | AuthenticationMethod::Anonymous
        | AuthenticationMethod::Plain(_)
        | AuthenticationMethod::ApiKey(_) => None,
    });
    sources.collect()
}
