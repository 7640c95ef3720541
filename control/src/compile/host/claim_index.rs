//! The claims for a host with many claims, as they were compiled last, indexed so that a change finds its neighbours:
//! the cost of a recompilation depends on the changed claims, not on all of them.
//!
//! [`super::whole`] is the reference: after any changes the index gives the same result as the compilation of all
//! claims.

#![allow(
    clippy::mutable_key_type,
    reason = "what can change within a route (caches of its expressions) is no part of its order"
)]

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::finding::Finding;
use tidegate_config::model::{BackendKey, Certificate, HostPattern, HostRoutes, Route, VirtualHost};
use tidegate_config::object::{Age, ObjectRef};

use super::whole::{Prices, Rights, certificates, default_lost, host_owned, rule_lost};
use crate::attachment::{Claim, backends};

/// A certificate, and its server name.
type ServerCertificate = (HostPattern, Arc<Certificate>);

/// A change of more than one in this number of its claims compiles a host whole, unless the change has at most this
/// number of claims.
const MUCH: usize = 4;

/// The claims for one host.
#[derive(Debug)]
pub(crate) struct ClaimIndex {
    rights: Rights,
    /// The number of claims and routes up to which a host is compiled whole.
    whole_max: usize,
    /// All claims, by object.
    claims: BTreeMap<ObjectRef, Claim>,
    /// The routes of the claims in effect. The first of those with equal matches serves.
    contenders: BTreeSet<RankedRoute>,
    /// The claims in effect with a fallback, the oldest first.
    fallbacks: BTreeSet<AgedClaim>,
    /// Those of them whose fallback is a last resort.
    last_resorts: BTreeSet<AgedClaim>,
    /// The claims in effect with certificates.
    certified: BTreeSet<AgedClaim>,
    /// The number of serving routes to each Service port.
    routes_to: BTreeMap<BackendKey, usize>,
    /// The prices of the serving routes; `None` if routes were dropped because of theirs.
    prices: Option<Prices>,
}

/// The effect of changed claims on their host.
#[derive(Debug, Default)]
pub(crate) struct HostChange {
    claims: BTreeMap<ObjectRef, Option<Claim>>,
    removed: IndexEntries,
    added: IndexEntries,
    /// The serving route among those with the same match as a removed or added one.
    winners: BTreeMap<RankedRoute, Option<RankedRoute>>,
    /// The claim whose fallback serves.
    fallback: Option<AgedClaim>,
    /// Whether the certificates differ.
    certificates: bool,
    /// Routes that no longer serve.
    pub(super) routes_removed: Vec<Arc<Route>>,
    /// Routes that serve now, which may replace others.
    pub(super) routes_added: Vec<Arc<Route>>,
    /// The new findings about owners of claims, where they may have changed.
    pub(super) findings: BTreeMap<ObjectRef, Vec<Finding>>,
}

/// The entries of some claims in effect in the orders of the index.
#[derive(Debug, Default)]
struct IndexEntries {
    contenders: BTreeSet<RankedRoute>,
    fallbacks: BTreeSet<AgedClaim>,
    last_resorts: BTreeSet<AgedClaim>,
    certified: BTreeSet<AgedClaim>,
}

/// A route with possible rivals: ordered by its match, then by age.
#[derive(Clone, Debug)]
struct RankedRoute {
    route: Arc<Route>,
    /// Its index in its claim; `None` for the lower bound of all with the same match.
    index: Option<u32>,
}

impl RankedRoute {
    fn all_of(claim: &Claim) -> impl Iterator<Item = Self> {
        (0..).zip(&claim.routes).map(|(index, route)| Self { route: Arc::clone(route), index: Some(index) })
    }

    /// The lower bound of all with the same match.
    fn first(route: &Arc<Route>) -> Self {
        Self { route: Arc::clone(route), index: None }
    }

    fn has_match(&self, other: &Self) -> bool {
        self.route.same_match(&other.route)
    }
}

impl Ord for RankedRoute {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_age = || {
            let key = |it: &Self| (it.route.origin.position, it.index);
            let [a, b] = [&self.route.origin, &other.route.origin];
            (&a.age, key(self).0, &a.object, key(self).1).cmp(&(&b.age, key(other).0, &b.object, key(other).1))
        };
        self.route.cmp_match(&other.route).then_with(|| match (self.index, other.index) {
            (None, other) => other.map_or(Ordering::Equal, |_| Ordering::Less),
            (Some(_), None) => Ordering::Greater,
            (Some(_), Some(_)) => by_age(),
        })
    }
}

impl PartialOrd for RankedRoute {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RankedRoute {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for RankedRoute {}

/// A claim in the order of precedence of claims.
#[derive(Clone, Debug)]
struct AgedClaim(Claim);

impl Ord for AgedClaim {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.by_age(&other.0)
    }
}

impl PartialOrd for AgedClaim {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for AgedClaim {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for AgedClaim {}

impl HostChange {
    /// The Service ports of the routes of the changed claims, and of those that serve now.
    pub(super) fn backends_of_host(&self) -> BTreeSet<BackendKey> {
        let claims = self.claims.values().flatten();
        let added = self.routes_added.iter().flat_map(|route| backends(route));
        claims.flat_map(|claim| claim.backends()).chain(added).cloned().collect()
    }
}

impl IndexEntries {
    fn add(&mut self, claim: &Claim) {
        self.contenders.extend(RankedRoute::all_of(claim));
        let by_age = || AgedClaim(Claim::clone(claim));
        self.fallbacks.extend(claim.fallback.is_some().then(by_age));
        self.last_resorts.extend((claim.fallback.is_some() && claim.last_resort).then(by_age));
        self.certified.extend((!claim.certificates.is_empty()).then(by_age));
    }
}

impl ClaimIndex {
    /// The index of these claims of one host, which compile to these routes; `None` if there are few.
    pub(super) fn of(rights: Rights, claims: &[&Claim], routes: &HostRoutes, whole_max: usize) -> Option<Self> {
        if claims.len().max(routes.len()) <= whole_max {
            return None;
        }
        let mut sides = IndexEntries::default();
        claims.iter().filter(|claim| rights.has_effect(claim)).for_each(|claim| sides.add(claim));
        let IndexEntries { contenders, fallbacks, last_resorts, certified } = sides;
        let claims = claims.iter().map(|claim| (claim.object.clone(), Claim::clone(claim))).collect();
        let mut routes_to = BTreeMap::new();
        for key in routes.all().flat_map(|route| backends(route)) {
            *routes_to.entry(key.clone()).or_default() += 1;
        }
        let mut winners: Vec<&RankedRoute> = contenders.iter().collect();
        winners.dedup_by(|next, first| next.has_match(first));
        let prices = Prices::of(winners.into_iter().map(|it| &it.route));
        let prices = Some(prices).filter(Prices::are_within_limits);
        Some(Self { rights, whole_max, claims, contenders, fallbacks, last_resorts, certified, routes_to, prices })
    }

    /// The effect of new claims of these objects on the host. `None` if the host must be compiled whole: it may
    /// have another owner, the change is large, the host has become small, or its expressions exceed a limit.
    pub(super) fn change(
        &self,
        host: &VirtualHost,
        claims: BTreeMap<ObjectRef, Option<Claim>>,
        before: &HostRoutes,
    ) -> Option<HostChange> {
        if claims.len() > (self.claims.len() / MUCH).max(MUCH) {
            return None;
        }
        let mut change = HostChange { claims, ..HostChange::default() };
        let mut count = self.claims.len();
        for (object, now) in &change.claims {
            let was = self.claims.get(object);
            if self.rights.moves(object, now.as_ref()) {
                return None;
            }
            count = (count + usize::from(now.is_some())).saturating_sub(usize::from(was.is_some()));
            let [was, now] = [was, now.as_ref()].map(|claim| claim.filter(|claim| self.rights.has_effect(claim)));
            change.certificates |= certified(was) != certified(now);
            was.into_iter().for_each(|claim| change.removed.add(claim));
            now.into_iter().for_each(|claim| change.added.add(claim));
        }
        drop_unchanged(&mut change.removed.contenders, &mut change.added.contenders);
        let affected = self.settle(&mut change);
        if count.max((before.len() + change.routes_added.len()).saturating_sub(change.routes_removed.len()))
            <= self.whole_max
        {
            return None;
        }
        if !self.prices.as_ref()?.admit(&change.routes_removed, &change.routes_added) {
            return None;
        }
        change.findings =
            affected.into_iter().map(|object| (object.clone(), self.findings(host, &object, &change))).collect();
        Some(change)
    }

    /// Determines the serving routes after a change, once for each affected match. Returns the objects whose findings
    /// may have changed.
    fn settle(&self, change: &mut HostChange) -> BTreeSet<ObjectRef> {
        let HostChange { claims, removed, added, winners, fallback, routes_removed, routes_added, .. } = change;
        let mut affected: BTreeSet<ObjectRef> = claims.keys().cloned().collect();
        for contender in removed.contenders.iter().chain(&added.contenders) {
            let first = RankedRoute::first(&contender.route);
            if winners.contains_key(&first) {
                continue;
            }
            let (was, now) = (self.contenders_for(&first).next(), self.winner_after(removed, added, &first));
            if was.map(|it| &it.route) != now.map(|it| &it.route) {
                routes_removed.extend(was.map(|it| Arc::clone(&it.route)));
                routes_added.extend(now.map(|it| Arc::clone(&it.route)));
            }
            if was.map(|it| &it.route.origin.object) != now.map(|it| &it.route.origin.object) {
                affected.extend(self.contenders_for(&first).map(|it| it.route.origin.object.clone()));
            }
            let now = now.cloned();
            winners.insert(first, now);
        }
        *fallback = first_of(&self.fallbacks, &removed.fallbacks, &added.fallbacks).cloned();
        if fallback.as_ref().map(|it| &it.0.object) != self.fallbacks.first().map(|it| &it.0.object) {
            affected.extend(self.fallbacks.iter().map(|it| it.0.object.clone()));
        }
        affected
    }

    /// The serving contender after a change, among those with the same match.
    fn winner_after<'a>(
        &'a self,
        removed: &IndexEntries,
        added: &'a IndexEntries,
        first: &'a RankedRoute,
    ) -> Option<&'a RankedRoute> {
        let stays = self.contenders_for(first).find(|it| !removed.contenders.contains(*it));
        let arrives = added.contenders.range(first..).next().filter(|it| it.has_match(first));
        stays.into_iter().chain(arrives).min()
    }

    /// The host after a change.
    pub(super) fn routes(&self, change: &HostChange, before: &HostRoutes) -> HostRoutes {
        let HostChange { removed, added, routes_removed, routes_added, .. } = change;
        let route = |it: Option<&AgedClaim>| it.and_then(|it| it.0.fallback.clone());
        let mut routes = before.changed(routes_removed, routes_added);
        routes.fallback = route(change.fallback.as_ref());
        routes.last_resort = route(first_of(&self.last_resorts, &removed.last_resorts, &added.last_resorts));
        if change.certificates {
            let stay = self.certified.iter().filter(|it| !removed.certified.contains(*it));
            let all: BTreeSet<&AgedClaim> = stay.chain(&added.certified).collect();
            routes.certificates = certificates(all.into_iter().map(|it| &it.0));
        }
        routes
    }

    /// Applies a change, which gave `after`. Returns the Service ports that are no longer used, and those that are used
    /// now.
    pub(super) fn apply(
        &mut self,
        change: HostChange,
        (before, after): (&HostRoutes, &HostRoutes),
    ) -> [BTreeSet<BackendKey>; 2] {
        for (object, claim) in change.claims {
            match claim {
                Some(claim) => self.claims.insert(object, claim),
                None => self.claims.remove(&object),
            };
        }
        replace(&mut self.contenders, &change.removed.contenders, change.added.contenders);
        replace(&mut self.fallbacks, &change.removed.fallbacks, change.added.fallbacks);
        replace(&mut self.last_resorts, &change.removed.last_resorts, change.added.last_resorts);
        replace(&mut self.certified, &change.removed.certified, change.added.certified);
        if let Some(prices) = &mut self.prices {
            change.routes_removed.iter().for_each(|route| prices.remove(route));
            change.routes_added.iter().for_each(|route| prices.add(route));
        }
        let mut changed_claims: BTreeMap<&BackendKey, [usize; 2]> = BTreeMap::new();
        for (side, routes, host) in [(0, &change.routes_removed, before), (1, &change.routes_added, after)] {
            let all = routes.iter().chain(&host.fallback).chain(&host.last_resort);
            for key in all.flat_map(|route| backends(route)) {
                if let Some(count) = changed_claims.entry(key).or_default().get_mut(side) {
                    *count += 1;
                }
            }
        }
        let mut sides = [BTreeSet::new(), BTreeSet::new()];
        for (key, [removed, added]) in changed_claims {
            let was = self.routes_to.get(key).copied().unwrap_or(0);
            let now = (was + added).saturating_sub(removed);
            let [left, new] = &mut sides;
            if now == 0 {
                self.routes_to.remove(key);
                left.extend((was > 0).then(|| key.clone()));
            } else {
                self.routes_to.insert(key.clone(), now);
                new.extend((was == 0).then(|| key.clone()));
            }
        }
        sides
    }

    fn contenders_for<'a>(&'a self, first: &'a RankedRoute) -> impl Iterator<Item = &'a RankedRoute> {
        self.contenders.range(first..).take_while(|it| it.has_match(first))
    }

    /// The findings about a claim after a change.
    fn findings(&self, host: &VirtualHost, object: &ObjectRef, change: &HostChange) -> Vec<Finding> {
        let changed = change.claims.get(object).map(|claim| claim.as_ref());
        let Some(claim) = changed.unwrap_or_else(|| self.claims.get(object)) else { return Vec::new() };
        let mut findings = Vec::new();
        findings.extend(host_owned(host, claim, &self.rights));
        if !self.rights.has_effect(claim) {
            return findings;
        }
        let winner = change.fallback.as_ref().filter(|it| it.0.object != *object).and_then(|it| it.0.fallback.as_ref());
        findings.extend(
            claim.fallback.as_ref().zip(winner).map(|(route, winner)| default_lost(host, claim, route, winner)),
        );
        for contender in RankedRoute::all_of(claim) {
            let first = RankedRoute::first(&contender.route);
            let winner =
                change.winners.get(&first).map_or_else(|| self.contenders_for(&first).next(), |now| now.as_ref());
            let winner = winner.filter(|winner| **winner != contender);
            findings.extend(winner.map(|winner| rule_lost(host, &contender.route, &winner.route)));
        }
        findings
    }
}

/// The part of a claim that the certificates of a host depend on.
fn certified(claim: Option<&Claim>) -> Option<(&Age, &[ServerCertificate])> {
    claim.filter(|claim| !claim.certificates.is_empty()).map(|claim| (&claim.age, &*claim.certificates))
}

/// Removes the routes that are removed and added unchanged.
fn drop_unchanged(removed: &mut BTreeSet<RankedRoute>, added: &mut BTreeSet<RankedRoute>) {
    let alike = |it: &RankedRoute| added.get(it).is_some_and(|other| it.route == other.route);
    let alike: Vec<RankedRoute> = removed.iter().filter(|it| alike(it)).cloned().collect();
    for it in alike {
        removed.remove(&it);
        added.remove(&it);
    }
}

/// The first of an order after a change.
fn first_of<'a, T: Ord>(there: &'a BTreeSet<T>, removed: &BTreeSet<T>, added: &'a BTreeSet<T>) -> Option<&'a T> {
    let stays = there.iter().find(|it| !removed.contains(*it));
    stays.into_iter().chain(added.first()).min()
}

/// Replaces entries: an added one that is equal to a removed one is another object.
fn replace<T: Ord>(there: &mut BTreeSet<T>, removed: &BTreeSet<T>, added: BTreeSet<T>) {
    for it in removed {
        there.remove(it);
    }
    there.extend(added);
}
