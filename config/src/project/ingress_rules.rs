//! `spec.rules` of an Ingress, in the order of their hosts.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use super::ingress::BackendRef;
use crate::model::{HostPattern, PathMatch};

/// The rules of an Ingress, one for each host in the order of hosts, so that a look-up by host is a binary search.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules(Box<[Rule]>);

/// The rules of an Ingress for one host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// `host`; [`HostPattern::Any`] if there is none.
    pub host: HostPattern,
    /// The paths of all rules for it, in the order of the object; if empty, all requests go to the default backend.
    pub paths: Box<[RulePath]>,
}

/// One path of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RulePath {
    /// The field, such as `spec.rules[0].http.paths[1]`.
    pub field: Arc<str>,
    /// The path match.
    pub path: PathMatch,
    /// The backend; `None` if it cannot be used (a finding says why), and the route answers 503.
    pub backend: Option<BackendRef>,
}

impl Rules {
    /// The rule for exactly this host.
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
    /// From rules in the order of the object; several may have the same host.
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
