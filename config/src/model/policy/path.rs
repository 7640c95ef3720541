//! The policies of paths. A path leads from a Gateway through a listener and a route to a rule, and policies attach to
//! any of these. The policies of a path are an entry of the snapshot beside the routes, so a changed policy of a
//! Gateway replaces one entry, however many routes inherit it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use rpds::HashTrieMapSync;
use serde::Serialize;

use super::super::listener::ListenerOrigin;
use super::auth::PathAuth;
use super::{Limit, Predicate, ValueExpression};
use crate::object::{ObjectName, ObjectRef};

/// The policies by the object that they attach to: a Gateway, or the object of routes. The entry of a route includes
/// the policies that it inherits.
pub type PolicyMap = HashTrieMapSync<ObjectRef, Arc<TargetPolicies>, foldhash::fast::RandomState>;

/// The policies of a path that refuses every request.
static CLOSED: LazyLock<Arc<PathPolicies>> =
    LazyLock::new(|| Arc::new(PathPolicies { closed: true, ..PathPolicies::default() }));

/// No policies.
pub(in crate::model) fn no_policies() -> PolicyMap {
    PolicyMap::new_with_hasher_and_ptr_kind(foldhash::fast::RandomState::default())
}

/// The policies in effect on a path.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PathPolicies {
    /// Whether every request is refused: an object of the path names a policy that does not exist or cannot be used.
    pub closed: bool,
    /// Authentication and authorisation, if a policy of the path asks for it.
    pub auth: Option<Arc<PathAuth>>,
    /// The limits that do not depend on the identity of the client, in the order of their names.
    pub limits: Box<[Arc<Limit>]>,
    /// The limits that depend on the identity of the client, in the order of their names.
    pub identity_limits: Box<[Arc<Limit>]>,
    /// Limits that are not in effect, because they depend on the identity of the client and no policy of the path
    /// determines it.
    pub without_identity: Box<[Arc<Limit>]>,
    /// The entries of policies of the path that are not in effect.
    pub overridden: Box<[Overridden]>,
    /// Policies of the path whose kind is not served, so that they have no effect.
    pub not_served: Box<[ObjectRef]>,
    /// The names in lower case of the headers by which these policies decide, as far as a header can be mistaken for
    /// one of them. See [`Self::with_headers`].
    #[serde(skip)]
    pub headers: Box<[Box<str>]>,
}

/// An entry of a policy that another policy of the path overrides.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Overridden {
    /// The policy.
    pub policy: ObjectRef,
    /// The name of the entry in the policy.
    pub name: Arc<str>,
    /// The policy that is in effect instead.
    pub winner: ObjectRef,
}

/// The policies of the paths through one object.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct TargetPolicies {
    listeners: Box<[ListenerPolicies]>,
}

/// The policies of the paths through one object that come over some listeners.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ListenerPolicies {
    /// The Gateway of the listeners; `None` for those of the operator.
    pub gateway: Option<ObjectName>,
    /// The listener of the Gateway that policies attach to; `None` for all its other listeners, and those of its
    /// ListenerSets.
    pub section: Option<Arc<str>>,
    /// The policies of the rules that no policy attaches to.
    pub whole: Arc<PathPolicies>,
    /// The policies of the other rules.
    pub rules: BTreeMap<RuleKey, Arc<PathPolicies>>,
}

/// A rule of a route. A named one is found by its name, so that a route that serves on for a moment, although its rules
/// have other positions by now, keeps its own policies.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(untagged)]
pub enum RuleKey {
    /// Its name.
    Name(Arc<str>),
    /// The index of one without a name.
    Index(u32),
}

impl RuleKey {
    /// The key of a rule with this name and index.
    #[must_use]
    pub fn new(name: Option<&Arc<str>>, index: u32) -> Self {
        name.map_or(Self::Index(index), |name| Self::Name(Arc::clone(name)))
    }

    fn is(&self, name: Option<&Arc<str>>, index: u32) -> bool {
        match self {
            Self::Name(own) => Some(own) == name,
            Self::Index(own) => name.is_none() && *own == index,
        }
    }
}

impl ListenerPolicies {
    fn cmp_listener(&self, gateway: Option<&ObjectName>, section: Option<&str>) -> Ordering {
        (self.gateway.as_ref(), self.section.as_deref()).cmp(&(gateway, section))
    }

    /// The policies of each path.
    pub fn paths(&self) -> impl Iterator<Item = &Arc<PathPolicies>> {
        std::iter::once(&self.whole).chain(self.rules.values())
    }
}

impl TargetPolicies {
    /// The policies of the paths through an object. Listeners that are not among these have none.
    #[must_use]
    pub fn new(mut listeners: Vec<ListenerPolicies>) -> Self {
        listeners.sort_unstable_by(|a, b| a.cmp_listener(b.gateway.as_ref(), b.section.as_deref()));
        Self { listeners: listeners.into() }
    }

    /// By listener.
    #[must_use]
    pub fn listeners(&self) -> &[ListenerPolicies] {
        &self.listeners
    }

    /// The policies of the paths over a listener: those for its section, else those for the rest of its Gateway.
    #[must_use]
    pub fn over(&self, listener: Option<&ListenerOrigin>) -> Option<&ListenerPolicies> {
        let gateway = listener.map(|listener| &listener.gateway.name);
        let section = listener.filter(|listener| listener.set.is_none()).map(|listener| &*listener.name);
        let find = |section: Option<&str>| {
            let index = self.listeners.binary_search_by(|it| it.cmp_listener(gateway, section)).ok()?;
            self.listeners.get(index)
        };
        section.and_then(|section| find(Some(section))).or_else(|| find(None))
    }

    /// The policies of the path over a listener to the rule with this name and index. A listener of a Gateway that the
    /// object has only just been attached to has no entry until the policies are compiled: where others restrict
    /// access, the path is closed until then.
    #[must_use]
    pub fn of(
        &self,
        listener: Option<&ListenerOrigin>,
        name: Option<&Arc<str>>,
        index: u32,
    ) -> Option<&Arc<PathPolicies>> {
        let Some(over) = self.over(listener) else {
            let restricts = |path: &Arc<PathPolicies>| path.closed || path.auth.is_some();
            return self.paths().any(restricts).then(|| &*CLOSED);
        };
        let own = over.rules.iter().find(|(rule, _)| rule.is(name, index)).map(|(_, policies)| policies);
        Some(own.unwrap_or(&over.whole))
    }

    /// The policies of each path.
    pub fn paths(&self) -> impl Iterator<Item = &Arc<PathPolicies>> {
        self.listeners.iter().flat_map(ListenerPolicies::paths)
    }
}

impl PathPolicies {
    /// The same with the names of the headers that its rules and limits read.
    #[must_use]
    pub fn with_headers(mut self) -> Self {
        let mut names = BTreeSet::new();
        // Servers mistake names for each other that differ in characters besides letters and digits.
        let mut note = |name: &str| {
            if !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                names.insert(Box::from(name));
            }
        };
        self.auth.iter().for_each(|auth| auth.each_header(&mut note));
        for limit in self.limits.iter().chain(&self.identity_limits) {
            limit.when.iter().flat_map(Predicate::headers).for_each(|name| note(name));
            limit.counters.iter().flat_map(ValueExpression::headers).for_each(|name| note(name));
        }
        self.headers = names.into_iter().collect();
        self
    }

    /// The policies that have an entry here, in effect or not, with duplicates.
    pub fn policies(&self) -> impl Iterator<Item = &ObjectRef> {
        let limits = self.limits.iter().chain(&self.identity_limits).chain(&self.without_identity);
        let limits = limits.map(|limit| limit.id.policy());
        let rules = self.auth.iter().flat_map(|auth| auth.ids()).map(|rule| rule.policy);
        limits.chain(rules).chain(self.overridden.iter().map(|overridden| &overridden.policy)).chain(&self.not_served)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Kind;

    fn policies(winner: &str) -> Arc<PathPolicies> {
        let policy = |name: &str| ObjectRef::new(Kind::RateLimitPolicy, ObjectName::new("shop", name));
        let overridden = Overridden { policy: policy("any"), name: "x".into(), winner: policy(winner) };
        Arc::new(PathPolicies { overridden: [overridden].into(), ..PathPolicies::default() })
    }

    fn over(gateway: Option<&str>, section: Option<&str>, whole: &str, rule_1: Option<&str>) -> ListenerPolicies {
        ListenerPolicies {
            gateway: gateway.map(|name| ObjectName::new("infra", name)),
            section: section.map(Into::into),
            whole: policies(whole),
            rules: rule_1.map(|name| (RuleKey::Index(1), policies(name))).into_iter().collect(),
        }
    }

    #[test]
    fn a_named_rule_is_found_by_its_name_and_another_by_its_index() {
        let mut over = over(None, None, "whole", None);
        over.rules.insert(RuleKey::Name("b".into()), policies("b"));
        over.rules.insert(RuleKey::Index(1), policies("second"));
        let target = TargetPolicies::new(vec![over]);
        for (name, index, want) in
            [(Some("b"), 0, "b"), (Some("b"), 1, "b"), (Some("a"), 1, "whole"), (None, 1, "second"), (None, 0, "whole")]
        {
            let name: Option<Arc<str>> = name.map(Into::into);
            let got = target.of(None, name.as_ref(), index).unwrap();
            assert_eq!(&*got.overridden[0].winner.name.name, want, "{name:?} {index}");
        }
    }

    #[test]
    fn without_an_entry_for_its_gateway_a_path_is_closed_if_others_restrict_access() {
        let origin = ListenerOrigin {
            gateway: ObjectRef::new(Kind::Gateway, ObjectName::new("infra", "new")),
            set: None,
            name: "web".into(),
        };
        let check = |path: PathPolicies, want: Option<bool>| {
            let over = ListenerPolicies { whole: Arc::new(path), ..over(Some("edge"), None, "all", None) };
            let got = TargetPolicies::new(vec![over]).of(Some(&origin), None, 0).map(|policies| policies.closed);
            assert_eq!(got, want);
        };
        check(PathPolicies::default(), None);
        check(PathPolicies { auth: Some(Arc::default()), ..PathPolicies::default() }, Some(true));
        check(PathPolicies { closed: true, ..PathPolicies::default() }, Some(true));
    }

    #[test]
    fn the_most_specific_entry_of_a_path_counts() {
        let target = TargetPolicies::new(vec![
            over(Some("edge"), Some("web"), "web", Some("web-1")),
            over(Some("edge"), None, "rest", None),
            over(Some("other"), Some("web"), "other-web", None),
        ]);
        let check = |gateway: Option<&str>, set: Option<&str>, section: &str, rule: u32, want: Option<&str>| {
            let object = |kind, name: &str| ObjectRef::new(kind, ObjectName::new("infra", name));
            let origin = gateway.map(|gateway| ListenerOrigin {
                gateway: object(Kind::Gateway, gateway),
                set: set.map(|set| object(Kind::ListenerSet, set)),
                name: section.into(),
            });
            let got = target.of(origin.as_ref(), None, rule).and_then(|policies| policies.overridden.first());
            assert_eq!(got.map(|overridden| &*overridden.winner.name.name), want, "{gateway:?} {section} {rule}");
        };
        check(Some("edge"), None, "web", 0, Some("web"));
        check(Some("edge"), None, "web", 1, Some("web-1"));
        check(Some("edge"), None, "db", 1, Some("rest"));
        check(Some("edge"), Some("more"), "web", 1, Some("rest"));
        check(Some("other"), None, "web", 1, Some("other-web"));
        check(Some("other"), None, "db", 0, None);
        check(Some("third"), None, "web", 0, None);
        check(None, None, "http", 0, None);
        let of_operator = TargetPolicies::new(vec![over(None, None, "all", None)]);
        assert!(of_operator.of(None, None, 7).is_some());
    }
}
