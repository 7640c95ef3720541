//! A host from all claims for it. This is the simple reference for the incremental compilation.

#![allow(
    clippy::mutable_key_type,
    reason = "what can change within a route (caches of its expressions) is no part of its order"
)]

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem, printable};
use tidegate_config::model::{
    Certificate, Conditions, HostPattern, HostRoutes, PathMatch, ROUTES_STEPS_MAX, Route, ServerCertificates,
    VirtualHost,
};
use tidegate_config::object::{Age, ObjectRef};

use crate::attachment::Claim;
use crate::options::HostOwnership;

/// The rules for which claims for a host are in effect.
#[derive(Debug)]
pub(super) struct Rights {
    /// Whether the host belongs to the namespace of one of them.
    owned: bool,
    /// Whether claims of other namespaces are in effect too.
    shared: bool,
    /// The oldest claim that is not a guest, or else the oldest.
    oldest: Oldest,
}

/// The claim that determines the owner of a host.
#[derive(Debug)]
struct Oldest {
    object: ObjectRef,
    age: Age,
    guest: bool,
}

impl Rights {
    /// The rules for a host with these claims, the oldest first; `None` if there are none.
    pub(super) fn of(ownership: HostOwnership, host: &VirtualHost, claims: &[&Claim]) -> Option<Self> {
        let oldest = claims.iter().find(|claim| !claim.guest).or(claims.first())?;
        let oldest = Oldest { object: oldest.object.clone(), age: oldest.age.clone(), guest: oldest.guest };
        // In the table of a listener, the listener decides about claims.
        let owned = host.table.is_shared();
        Some(Self { owned, shared: ownership == HostOwnership::Shared || !owned, oldest })
    }

    fn is_at_home(&self, claim: &Claim) -> bool {
        !self.owned || claim.object.name.namespace == self.oldest.object.name.namespace
    }

    /// Returns `true` if a claim is in effect.
    pub(super) fn has_effect(&self, claim: &Claim) -> bool {
        self.is_at_home(claim) || self.shared && !claim.guest
    }

    /// Returns `true` if another claim determines the owner after an object's claim becomes `now`.
    pub(super) fn moves(&self, object: &ObjectRef, now: Option<&Claim>) -> bool {
        if !self.owned {
            return false;
        }
        let Oldest { object: oldest, age, guest } = &self.oldest;
        if object == oldest {
            return now.is_none_or(|claim| (&claim.age, claim.guest) != (age, *guest));
        }
        now.is_some_and(|claim| (claim.guest, &claim.age, object) < (*guest, age, oldest))
    }
}

/// Compiles a host from the claims for it, the oldest first.
pub(super) fn compile(rights: &Rights, host: &VirtualHost, claims: &[&Claim]) -> (HostRoutes, Vec<Finding>) {
    let mut findings: Vec<Finding> = claims.iter().filter_map(|claim| host_owned(host, claim, rights)).collect();
    let claims: Vec<&Claim> = claims.iter().copied().filter(|claim| rights.has_effect(claim)).collect();
    let paths = claims.iter().flat_map(|claim| &claim.routes).cloned().collect();
    let (fallback, last_resort) = fallbacks(host, &claims, &mut findings);
    let paths = affordable(host, settle_conflicts(host, paths, &mut findings), &mut findings);
    let mut routes = HostRoutes::new(host.clone(), paths, fallback);
    routes.last_resort = last_resort;
    routes.owner = (!rights.shared).then(|| Arc::clone(&rights.oldest.object.name.namespace));
    routes.certificates = certificates(claims.iter().copied());
    (routes, findings)
}

/// The finding about a claim for a host that belongs to another namespace.
pub(super) fn host_owned(host: &VirtualHost, claim: &Claim, rights: &Rights) -> Option<Finding> {
    let owner = rights.oldest.object.clone();
    let problem = Problem::HostOwned { host: host.to_string(), owner, shared: rights.shared && !claim.guest };
    (!rights.is_at_home(claim)).then(|| Finding::new(claim.object.clone(), claim.field, problem))
}

/// The finding about a fallback that does not serve.
pub(super) fn default_lost(host: &VirtualHost, claim: &Claim, route: &Route, winner: &Route) -> Finding {
    let problem = Problem::DefaultLost { host: host.to_string(), winner: winner.origin.object.clone() };
    Finding::new(claim.object.clone(), &*route.origin.field, problem)
}

/// The finding about a route that does not serve.
pub(super) fn rule_lost(host: &VirtualHost, route: &Route, winner: &Route) -> Finding {
    let (path, winner) = (route.path.to_string(), winner.origin.object.clone());
    let problem = Problem::RuleLost { host: host.to_string(), path, winner };
    Finding::new(route.origin.object.clone(), &*route.origin.field, problem)
}

/// The fallbacks for requests that no path matches: the oldest one for the host itself, and, for other hosts without
/// one, the oldest that is for them too.
fn fallbacks(
    host: &VirtualHost,
    claims: &[&Claim],
    findings: &mut Vec<Finding>,
) -> (Option<Arc<Route>>, Option<Arc<Route>>) {
    let mut fallback: Option<Arc<Route>> = None;
    let mut last_resort: Option<Arc<Route>> = None;
    for claim in claims {
        let Some(route) = &claim.fallback else { continue };
        if let Some(winner) = &fallback {
            findings.push(default_lost(host, claim, route, winner));
        }
        if claim.last_resort {
            last_resort.get_or_insert_with(|| Arc::clone(route));
        }
        fallback.get_or_insert_with(|| Arc::clone(route));
    }
    (fallback, last_resort)
}

/// A key by which routes with the same match are equal.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Match<'r>(&'r PathMatch, &'r Conditions);

/// Of routes with the same match, the first in order of precedence stays: that of the oldest object.
fn settle_conflicts(host: &VirtualHost, mut routes: Vec<Arc<Route>>, findings: &mut Vec<Finding>) -> Vec<Arc<Route>> {
    routes.sort_by(|a, b| a.precedence().cmp(&b.precedence()));
    let mut winners: BTreeMap<Match<'_>, &Arc<Route>> = BTreeMap::new();
    let mut kept: Vec<Arc<Route>> = Vec::with_capacity(routes.len());
    for route in &routes {
        match winners.entry(Match(&route.path, &route.conditions)) {
            Entry::Vacant(entry) => {
                entry.insert(route);
                kept.push(Arc::clone(route));
            }
            Entry::Occupied(winner) => findings.push(rule_lost(host, route, winner.get())),
        }
    }
    kept
}

/// The prices of the expressions of routes, by the literal path at which they are tried together; see
/// [`Route::tried_at`].
#[derive(Clone, Debug, Default)]
pub(super) struct Prices(BTreeMap<Option<PathMatch>, u64>);

impl Prices {
    /// The prices of these routes.
    pub(super) fn of<'r>(routes: impl IntoIterator<Item = &'r Arc<Route>>) -> Self {
        let mut prices = Self::default();
        routes.into_iter().for_each(|route| prices.add(route));
        prices
    }

    /// Returns `true` if a route can be added.
    fn have_room(&self, route: &Route) -> bool {
        let before = self.0.get(&route.tried_at().cloned()).copied().unwrap_or(0);
        before + route.price() <= ROUTES_STEPS_MAX
    }

    /// Returns `true` if nothing exceeds its limit.
    pub(super) fn are_within_limits(&self) -> bool {
        self.0.values().all(|price| *price <= ROUTES_STEPS_MAX)
    }

    /// Returns `true` if nothing exceeds its limit after these routes are removed and added. The cost grows with these
    /// routes alone.
    pub(super) fn admit(&self, removed: &[Arc<Route>], added: &[Arc<Route>]) -> bool {
        let mut changes: BTreeMap<Option<&PathMatch>, [u64; 2]> = BTreeMap::new();
        for (side, routes) in [removed, added].into_iter().enumerate() {
            for route in routes.iter().filter(|route| route.price() > 0) {
                if let Some(sum) = changes.entry(route.tried_at()).or_default().get_mut(side) {
                    *sum += route.price();
                }
            }
        }
        changes.into_iter().all(|(path, [removed, added])| {
            let before = self.0.get(&path.cloned()).copied().unwrap_or(0);
            (before + added).saturating_sub(removed) <= ROUTES_STEPS_MAX
        })
    }

    pub(super) fn add(&mut self, route: &Route) {
        let price = route.price();
        if price > 0 {
            *self.0.entry(route.tried_at().cloned()).or_default() += price;
        }
    }

    pub(super) fn remove(&mut self, route: &Route) {
        let price = route.price();
        if price > 0
            && let Entry::Occupied(mut sum) = self.0.entry(route.tried_at().cloned())
        {
            *sum.get_mut() = sum.get().saturating_sub(price);
            if *sum.get() == 0 {
                sum.remove();
            }
        }
    }
}

/// Drops routes whose expressions, with those of older routes that a request may try as well, would take more steps
/// than one request may. Those of the oldest objects stay.
fn affordable(host: &VirtualHost, mut routes: Vec<Arc<Route>>, findings: &mut Vec<Finding>) -> Vec<Arc<Route>> {
    if Prices::of(&routes).are_within_limits() {
        return routes;
    }
    let mut by_age: Vec<&Arc<Route>> = routes.iter().filter(|route| route.price() > 0).collect();
    by_age.sort_by(|a, b| {
        let key = |route: &'_ Route| (route.origin.age.clone(), route.origin.object.clone(), route.origin.position);
        key(a).cmp(&key(b)).then_with(|| a.cmp_match(b))
    });
    let mut prices = Prices::default();
    let mut dropped = BTreeSet::new();
    for route in by_age {
        if prices.have_room(route) {
            prices.add(route);
        } else {
            dropped.insert(Arc::as_ptr(route));
            findings.push(too_dear(host, route));
        }
    }
    routes.retain(|route| !dropped.contains(&Arc::as_ptr(route)));
    routes
}

/// The finding about a route whose expressions take too many steps.
fn too_dear(host: &VirtualHost, route: &Route) -> Finding {
    let (value, price) = (printable(&route.path.to_string()), route.price());
    let why = format!(
        "has expressions of {price} steps, which with those of older rules of {host} exceeds the limit of \
         {ROUTES_STEPS_MAX} for a request"
    );
    Finding::new(route.origin.object.clone(), &*route.origin.field, Problem::RuleDropped { value, why })
}

/// The certificates of the claims, the oldest one's first, each once per name.
pub(super) fn certificates<'c>(claims: impl Iterator<Item = &'c Claim>) -> ServerCertificates {
    let mut by_name: BTreeMap<HostPattern, Vec<Arc<Certificate>>> = BTreeMap::new();
    let mut seen: BTreeSet<(&HostPattern, &Arc<Certificate>)> = BTreeSet::new();
    for (name, certificate) in claims.flat_map(|claim| &claim.certificates) {
        if seen.insert((name, certificate)) {
            by_name.entry(name.clone()).or_default().push(Arc::clone(certificate));
        }
    }
    ServerCertificates::new(by_name)
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::TableName;
    use tidegate_config::object::{Kind, ObjectName};

    use super::*;
    use crate::attachment::ClaimTerms;

    fn claim(host: &VirtualHost, name: &str, created_s: i64) -> Claim {
        let object = ObjectRef::new(Kind::HttpRoute, ObjectName::new("shop", name));
        let age = Age { created_s, name: object.name.clone() };
        Claim { host: host.clone(), terms: Arc::new(ClaimTerms::sample(object, age)) }
    }

    /// Whether the owner of a host with the claims of two objects may change when the older one's is deleted, when the
    /// younger one's is, and when an object that is older than both claims the host.
    #[track_caller]
    fn check(table: TableName, want: [bool; 3]) {
        let host = VirtualHost::new(table, HostPattern::Exact("a.example".into()));
        let [older, younger, eldest] =
            [("older", 2), ("younger", 3), ("eldest", 1)].map(|(name, at)| claim(&host, name, at));
        let rights = Rights::of(HostOwnership::Namespace, &host, &[&older, &younger]).unwrap();
        let moves = |claim: &Claim, now: Option<&Claim>| rights.moves(&claim.object, now);
        assert_eq!([moves(&older, None), moves(&younger, None), moves(&eldest, Some(&eldest))], want, "{host}");
    }

    #[test]
    fn only_hosts_of_the_shared_table_have_an_owner() {
        check(TableName::Shared, [true, false, true]);
        check(TableName::Named("listener".into()), [false; 3]);
    }
}
