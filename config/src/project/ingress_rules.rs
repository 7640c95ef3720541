//! `spec.rules` of an Ingress, in the order of their hosts.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use super::ingress::BackendRef;
use crate::model::{HostPattern, PathMatch};

/// The rules of an Ingress, one for each host in the order of hosts, so that looking up those of a host takes no walk over
/// the others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules(Box<[Rule]>);

/// What an Ingress says of one host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// `host`, or no host.
    pub host: HostPattern,
    /// The paths of all rules for it, in the order of the object; none means that everything goes to the default backend.
    pub paths: Box<[RulePath]>,
}

/// One path of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RulePath {
    /// The field, such as `spec.rules[0].http.paths[1]`.
    pub field: Arc<str>,
    /// What it matches.
    pub path: PathMatch,
    /// Where it leads; `None` when that cannot be used (a finding says why), and the route answers 503.
    pub backend: Option<BackendRef>,
}

impl Rules {
    /// What is said of exactly this host.
    #[must_use]
    pub fn of(&self, host: &HostPattern) -> Option<&Rule> {
        let number = self.0.binary_search_by(|rule| rule.host.cmp(host)).ok()?;
        self.0.get(number)
    }
}

impl Rules {
    /// Every path of all rules.
    pub(super) fn paths_mut(&mut self) -> impl Iterator<Item = &mut RulePath> {
        self.0.iter_mut().flat_map(|rule| &mut rule.paths)
    }
}

impl FromIterator<Rule> for Rules {
    /// Rules in the order of the object, some of them for the same host.
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        let mut by_host: BTreeMap<HostPattern, Vec<RulePath>> = BTreeMap::new();
        for Rule { host, paths } in rules {
            by_host.entry(host).or_default().extend(paths);
        }
        Self(by_host.into_iter().map(|(host, paths)| Rule { host, paths: paths.into() }).collect())
    }
}

impl Deref for Rules {
    type Target = [Rule];

    fn deref(&self) -> &[Rule] {
        &self.0
    }
}
