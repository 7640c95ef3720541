//! One virtual host: its routes and its certificates, from the claims for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{
    BackendKey, Certificate, HostPattern, HostRoutes, Route, ServerCertificates, SnapshotParts, VirtualHost,
};
use tidegate_config::object::ObjectRef;

use super::unit::{Kind, Unit, beyond};
use super::{Compiled, Inputs, Pass, User};
use crate::options::HostOwnership;
use crate::sources::{Claim, backends};

/// What is compiled of a host.
#[derive(Debug)]
pub struct HostUnit {
    /// Its routes and certificates, where anybody claims it.
    pub routes: Option<HostRoutes>,
    /// What the owners of its claims should be told.
    pub findings: Vec<Finding>,
}

/// Virtual hosts.
pub(super) struct Hosts;

impl Kind for Hosts {
    type Key = VirtualHost;
    type Made = HostUnit;
    const LABEL: &'static str = "host";
    const ROUTING: bool = true;

    fn after(last: Option<&VirtualHost>, inputs: Inputs<'_>, compiled: &Compiled) -> Option<VirtualHost> {
        let there = compiled.hosts.range::<VirtualHost, _>(beyond(last)).next();
        [inputs.topology.host_after(last), there].into_iter().flatten().min().cloned()
    }

    fn made_of(inputs: Inputs<'_>, host: &VirtualHost) -> Vec<ObjectRef> {
        inputs.topology.claims_of(host).map(|claim| claim.object.clone()).collect()
    }

    fn make(inputs: Inputs<'_>, _: &Compiled, host: &VirtualHost) -> HostUnit {
        compile(inputs.options.host_ownership, host, inputs.topology.claims_of(host).collect())
    }

    fn put(compiled: &mut Compiled, host: &VirtualHost, unit: HostUnit, pass: &mut Pass<'_>) -> bool {
        if (pass.defer.decide)(host, compiled, &unit) {
            pass.touched.deferred.insert(host.clone());
            return false;
        }
        let HostUnit { routes, findings } = unit;
        compiled.findings.put(Unit::Host(host.clone()), findings);
        let before = compiled.parts.hosts.get(host).cloned();
        if before.as_deref() == routes.as_ref() {
            return false;
        }
        let after = routes.map(Arc::new);
        match &after {
            Some(after) => {
                compiled.parts.hosts.insert(host, Arc::clone(after));
                compiled.hosts.insert(host.clone());
            }
            None => {
                compiled.parts.hosts.remove(host);
                compiled.hosts.remove(host);
            }
        }
        let [old, new] = [&before, &after].map(|routes| routes.as_deref().map(used).unwrap_or_default());
        compiled.use_instead(&User::Host(host.clone()), &old, &new, pass);
        // A Service may have come back that had gone while the host waited.
        let unknown = new.iter().filter(|key| !compiled.parts.backends.contains_key(*key));
        pass.further.extend(unknown.map(|key| Unit::Service(key.service.clone())));
        let [replaced, added] = [&before, &after].map(|routes| routes.as_ref().map_or(0, |it| it.routes().len()));
        pass.touched.changes.replaced += replaced;
        pass.touched.changes.added += added;
        true
    }

    fn serves(host: &VirtualHost, compiled: &Compiled, serving: &SnapshotParts) -> bool {
        same(host, serving, &compiled.parts)
    }

    fn only_in(one: &SnapshotParts, other: &SnapshotParts) -> Vec<VirtualHost> {
        if one.hosts.len() <= other.hosts.len() {
            return Vec::new();
        }
        one.hosts.iter().map(|(host, _)| host).filter(|host| other.hosts.get(host).is_none()).collect()
    }

    fn unlike(one: &SnapshotParts, other: &SnapshotParts) -> Vec<VirtualHost> {
        one.hosts.iter().map(|(host, _)| host).filter(|host| !same(host, one, other)).collect()
    }

    fn weight(host: &VirtualHost, parts: &SnapshotParts) -> usize {
        parts.hosts.get(host).map_or(0, |routes| routes.routes().len())
    }

    fn describe(host: &VirtualHost, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {host}")
    }
}

fn same(host: &VirtualHost, one: &SnapshotParts, other: &SnapshotParts) -> bool {
    one.hosts.get(host).map(Arc::as_ptr) == other.hosts.get(host).map(Arc::as_ptr)
}

/// What the routes of a host lead to, each once.
fn used(routes: &HostRoutes) -> BTreeSet<BackendKey> {
    routes.all().flat_map(|route| backends(route)).cloned().collect()
}

/// What the routes of a host lead to, some of it several times.
pub(crate) fn led_to<'a>(
    parts: &'a SnapshotParts,
    host: &VirtualHost,
) -> impl Iterator<Item = &'a BackendKey> + use<'a> {
    let routes = parts.hosts.get(host).into_iter().flat_map(|routes| routes.all());
    routes.flat_map(|route| backends(route))
}

/// Compiles a host from the claims for it, in whatever order.
fn compile(ownership: HostOwnership, host: &VirtualHost, mut claims: Vec<&Arc<Claim>>) -> HostUnit {
    let mut findings = Vec::new();
    claims.sort_by(|a, b| (&a.age, &a.object).cmp(&(&b.age, &b.object)));
    let oldest = claims.iter().find(|claim| !claim.guest).or(claims.first());
    let Some(oldest) = oldest.map(|claim| claim.object.clone()) else {
        return HostUnit { routes: None, findings };
    };
    // Whose a host is in the table of a listener is what the listener allows.
    let owned = host.table.is_shared();
    let shared = ownership == HostOwnership::Shared || !owned;
    claims.retain(|claim| {
        let at_home = !owned || claim.object.name.namespace == oldest.name.namespace;
        if !at_home {
            let shared = shared && !claim.guest;
            let problem = Problem::HostOwned { host: host.to_string(), owner: oldest.clone(), shared };
            findings.push(Finding::new(claim.object.clone(), claim.field, problem));
        }
        at_home || shared && !claim.guest
    });
    let paths = claims.iter().flat_map(|claim| &claim.routes).cloned().collect();
    let (fallback, last_resort) = fallbacks(host, &claims, &mut findings);
    let mut routes = HostRoutes::new(host.clone(), settle_conflicts(host, paths, &mut findings), fallback);
    routes.last_resort = last_resort;
    routes.owner = (!shared).then(|| Arc::clone(&oldest.name.namespace));
    routes.certificates = certificates(&claims);
    HostUnit { routes: Some(routes), findings }
}

/// Where requests go that no path takes: to the oldest fallback for the host itself; and for other hosts that have none, to the
/// oldest one that is for them too.
fn fallbacks(
    host: &VirtualHost,
    claims: &[&Arc<Claim>],
    findings: &mut Vec<Finding>,
) -> (Option<Arc<Route>>, Option<Arc<Route>>) {
    let mut fallback: Option<Arc<Route>> = None;
    let mut last_resort: Option<Arc<Route>> = None;
    for claim in claims {
        let Some(route) = &claim.fallback else { continue };
        if let Some(winner) = &fallback {
            let problem = Problem::DefaultLost { host: host.to_string(), winner: winner.origin.object.clone() };
            findings.push(Finding::new(claim.object.clone(), &*route.origin.field, problem));
        }
        if claim.last_resort {
            last_resort.get_or_insert_with(|| Arc::clone(route));
        }
        fallback.get_or_insert_with(|| Arc::clone(route));
    }
    (fallback, last_resort)
}

/// Of routes that take the same requests, the first in order of precedence stays: the oldest object's.
fn settle_conflicts(host: &VirtualHost, mut routes: Vec<Arc<Route>>, findings: &mut Vec<Finding>) -> Vec<Arc<Route>> {
    routes.sort_by(|a, b| a.precedence().cmp(&b.precedence()));
    let mut kept: Vec<Arc<Route>> = Vec::with_capacity(routes.len());
    for route in routes {
        let rivals = kept.iter().rev().take_while(|rival| rival.path == route.path);
        match rivals.into_iter().find(|rival| rival.same_match(&route)) {
            None => kept.push(route),
            Some(winner) => {
                let path = route.path.to_string();
                let winner = winner.origin.object.clone();
                let problem = Problem::RuleLost { host: host.to_string(), path, winner };
                findings.push(Finding::new(route.origin.object.clone(), &*route.origin.field, problem));
            }
        }
    }
    kept
}

/// The certificates of the claims, the oldest one's first, each once for a name.
fn certificates(claims: &[&Arc<Claim>]) -> ServerCertificates {
    let mut by_name: BTreeMap<HostPattern, Vec<Arc<Certificate>>> = BTreeMap::new();
    for (name, certificate) in claims.iter().flat_map(|claim| &claim.certificates) {
        let all = by_name.entry(name.clone()).or_default();
        if !all.contains(certificate) {
            all.push(Arc::clone(certificate));
        }
    }
    ServerCertificates::new(by_name)
}
