//! The limit of the sources of keys that the policies of a namespace name: each is fetched, and its keys are held in
//! memory and on disk.
//!
//! The oldest policies have the first claim, so that what is fetched is a function of the objects as they are now. A
//! source that several policies of a namespace name counts once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::model::auth::{AuthEntry, AuthenticationMethod, KeySource};
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
    created_s: BTreeMap<Arc<str>, i64>,
    /// In the order of the ages of their policies.
    by_age: BTreeMap<(i64, Arc<str>), Box<[KeySource]>>,
    /// The number of policies that name a source.
    uses: BTreeMap<KeySource, usize>,
    /// The sources that are beyond the limit.
    refused: BTreeSet<KeySource>,
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
        if own.uses.is_empty() {
            self.0.remove(&name.namespace);
        }
        let others = changed.into_iter().filter(|other| *other != name.name);
        others.map(|other| name.beside(other)).collect()
    }

    /// Whether the keys of a source are used in a namespace.
    pub(super) fn admits(&self, namespace: &str, source: &KeySource) -> bool {
        self.0.get(namespace).is_none_or(|own| !own.refused.contains(source))
    }
}

impl OfNamespace {
    fn replace(&mut self, name: &Arc<str>, created_s: i64, sources: Option<BTreeSet<KeySource>>) {
        let before =
            self.created_s.remove(name).and_then(|created_s| self.by_age.remove(&(created_s, Arc::clone(name))));
        for source in before.unwrap_or_default() {
            if let Some(uses) = self.uses.get_mut(&source) {
                *uses -= 1;
                if *uses == 0 {
                    self.uses.remove(&source);
                }
            }
        }
        let Some(sources) = sources else { return };
        sources.iter().for_each(|source| *self.uses.entry(source.clone()).or_default() += 1);
        self.created_s.insert(Arc::clone(name), created_s);
        self.by_age.insert((created_s, Arc::clone(name)), sources.into_iter().collect());
    }

    /// Decides which sources are beyond the limit. Returns the policies that a change of them concerns.
    fn changed(&mut self) -> Vec<Arc<str>> {
        let mut refused = BTreeSet::new();
        if self.uses.len() > KEY_SOURCES_MAX {
            let mut admitted = BTreeSet::new();
            for source in self.by_age.values().flatten() {
                if admitted.len() < KEY_SOURCES_MAX || admitted.contains(source) {
                    admitted.insert(source);
                } else {
                    refused.insert(source.clone());
                }
            }
        }
        let before = std::mem::replace(&mut self.refused, refused);
        let differing: BTreeSet<&KeySource> = before.symmetric_difference(&self.refused).collect();
        if differing.is_empty() {
            return Vec::new();
        }
        let concerned = self.by_age.iter().filter(|(_, sources)| sources.iter().any(|it| differing.contains(it)));
        concerned.map(|((_, name), _)| Arc::clone(name)).collect()
    }
}

/// The sources that the rules of a policy name.
fn sources_of(policy: &AuthPolicy) -> BTreeSet<KeySource> {
    let entries = policy.rules.iter().flat_map(|block| block.entries.values());
    let methods = entries.filter_map(|entry| match &**entry {
        AuthEntry::Authentication(rule) => Some(&rule.rule.method),
        AuthEntry::Metadata(_)
        | AuthEntry::Callback(_)
        | AuthEntry::Authorization(_)
        | AuthEntry::Success(_)
        | AuthEntry::Unauthenticated(_)
        | AuthEntry::Unauthorized(_)
        | AuthEntry::Unusable(_) => None,
    });
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
