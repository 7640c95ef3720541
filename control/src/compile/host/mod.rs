//! One virtual host: its routes and its certificates, from the claims for it. A host with many claims is compiled from
//! the changed ones ([`claim_index`]), any other from all of them ([`whole`]).

pub(super) mod claim_index;
mod whole;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use claim_index::{ClaimIndex, HostChange};
use tidegate_config::finding::Finding;
use tidegate_config::model::{BackendKey, HostRoutes, Route, SnapshotParts, VirtualHost};
use tidegate_config::object::{ObjectName, ObjectRef};
use whole::Rights;

use super::unit::{Unit, UnitKind, beyond};
use super::{BackendUser, Compiled, Inputs, Next, Pass};
use crate::attachment::{Attachment, Claim, Key, backends};
use crate::topology::Topology;

/// The compiled form of a host.
#[derive(Debug)]
pub struct HostUnit {
    /// Its routes and certificates, if it has a claim.
    pub(crate) routes: Option<Arc<HostRoutes>>,
    extent: Extent,
}

/// The claims that it was compiled from.
#[derive(Debug)]
enum Extent {
    /// All claims, with the findings about them, and their index if they are many.
    Whole(Vec<Finding>, Option<ClaimIndex>),
    /// The changed claims.
    Changed(HostChange),
}

/// Virtual hosts.
pub(super) struct Hosts;

impl UnitKind for Hosts {
    type Key = VirtualHost;
    type Output = HostUnit;
    const LABEL: &'static str = "host";
    const ROUTING: bool = true;

    fn after(last: Option<&VirtualHost>, inputs: Inputs<'_>, compiled: &Compiled) -> Option<VirtualHost> {
        let there = compiled.hosts.range::<VirtualHost, _>(beyond(last)).next();
        [inputs.topology.host_after(last), there].into_iter().flatten().min().cloned()
    }

    fn owners_of(inputs: Inputs<'_>, host: &VirtualHost) -> Vec<ObjectRef> {
        inputs.topology.claims_of(host).map(|claim| claim.object.clone()).collect()
    }

    fn make(inputs: Inputs<'_>, compiled: &Compiled, host: &VirtualHost) -> HostUnit {
        if let Some(unit) = changed(inputs, compiled, host) {
            return unit;
        }
        let mut claims: Vec<&Claim> = inputs.topology.claims_of(host).collect();
        claims.sort_by(|a, b| a.by_age(b));
        let Some(rights) = Rights::of(inputs.options.host_ownership, host, &claims) else {
            return HostUnit { routes: None, extent: Extent::Whole(Vec::new(), None) };
        };
        let (routes, findings) = whole::compile(&rights, host, &claims);
        let index = ClaimIndex::of(rights, &claims, &routes, inputs.options.whole_host_max);
        HostUnit { routes: Some(Arc::new(routes)), extent: Extent::Whole(findings, index) }
    }

    fn put(compiled: &mut Compiled, host: &VirtualHost, unit: HostUnit, pass: &mut Pass<'_>) -> bool {
        if pass.defers(compiled, &Next::Host(host, &unit)) {
            return false;
        }
        compiled.changed_claims.remove(host);
        match unit.extent {
            Extent::Whole(findings, index) => put_whole(compiled, host, unit.routes, (findings, index), pass),
            Extent::Changed(change) => unit.routes.is_some_and(|after| put_change(compiled, host, after, change, pass)),
        }
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

    fn changed_between(one: &SnapshotParts, other: &SnapshotParts) -> Vec<VirtualHost> {
        one.hosts.iter().map(|(host, _)| host).filter(|host| !same(host, one, other)).collect()
    }

    fn differing(_: &ObjectRef, before: &Attachment, after: &Attachment) -> Vec<VirtualHost> {
        let differs = |claim: &&Claim| !holds(before, claim) || !holds(after, claim);
        before.claims.iter().chain(&after.claims).filter(differs).map(|claim| claim.host.clone()).collect()
    }

    fn dependent_objects<'t>(
        host: &'t VirtualHost,
        topology: &'t Topology,
    ) -> Box<dyn Iterator<Item = &'t ObjectRef> + 't> {
        Box::new(topology.dependents(&Key::Host(host.clone())))
    }

    fn services_in<'a>(host: &VirtualHost, attachment: &'a Attachment) -> BTreeSet<&'a ObjectName> {
        attachment.claim(host).map(|claim| claim.services()).unwrap_or_default()
    }

    fn services(host: &VirtualHost, topology: &Topology, parts: &SnapshotParts) -> BTreeSet<ObjectName> {
        let now = topology.claims_of(host).flat_map(|claim| claim.backends());
        now.chain(backends_of_host(parts, host)).map(|key| key.service.clone()).collect()
    }

    fn backends_in(parts: &SnapshotParts) -> Vec<BackendKey> {
        let routes = parts.hosts.iter().flat_map(|(_, routes)| routes.all());
        routes.flat_map(|route| backends(route)).cloned().collect()
    }

    fn invalidate(host: &VirtualHost, compiled: &mut Compiled) {
        compiled.claims.remove(host);
        compiled.changed_claims.remove(host);
    }

    fn weight(host: &VirtualHost, parts: &SnapshotParts) -> usize {
        parts.hosts.get(host).map_or(0, |routes| routes.len())
    }

    fn describe(host: &VirtualHost, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {host}")
    }
}

/// Compiles a host with an index from its changed claims.
fn changed(inputs: Inputs<'_>, compiled: &Compiled, host: &VirtualHost) -> Option<HostUnit> {
    let (index, before) = (compiled.claims.get(host)?, compiled.parts.hosts.get(host)?);
    let claim = |object: &ObjectRef| inputs.topology.get(object).and_then(|it| it.claim(host)).cloned();
    let changed_claims = compiled.changed_claims.get(host).into_iter().flatten();
    let change = index.change(host, changed_claims.map(|object| (object.clone(), claim(object))).collect(), before)?;
    let after = index.routes(&change, before);
    let same =
        change.routes_removed.is_empty() && change.routes_added.is_empty() && after.differs_in_routes_alone(before);
    let routes = Some(if same { Arc::clone(before) } else { Arc::new(after) });
    Some(HostUnit { routes, extent: Extent::Changed(change) })
}

/// Stores a host that was compiled from all claims.
fn put_whole(
    compiled: &mut Compiled,
    host: &VirtualHost,
    after: Option<Arc<HostRoutes>>,
    (findings, index): (Vec<Finding>, Option<ClaimIndex>),
    pass: &mut Pass<'_>,
) -> bool {
    compiled.findings.put(Unit::Host(host.clone()), findings);
    match index {
        Some(index) => compiled.claims.insert(host.clone(), index),
        None => compiled.claims.remove(host),
    };
    let before = compiled.parts.hosts.get(host).cloned();
    if before == after {
        return false;
    }
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
    compiled.use_instead(&BackendUser::Host(host.clone()), &old, &new, pass);
    compiled.compile_unknown(&new, pass);
    let [replaced, added] = [&before, &after].map(|routes| routes.as_ref().map_or(0, |it| it.len()));
    pass.touched.changed.replaced += replaced;
    pass.touched.changed.added += added;
    true
}

/// Stores a host that was compiled from its changed claims.
fn put_change(
    compiled: &mut Compiled,
    host: &VirtualHost,
    after: Arc<HostRoutes>,
    mut change: HostChange,
    pass: &mut Pass<'_>,
) -> bool {
    let Some(before) = compiled.parts.hosts.get(host).cloned() else { return false };
    let Some(index) = compiled.claims.get_mut(host) else { return false };
    for (object, findings) in std::mem::take(&mut change.findings) {
        compiled.findings.put_about(&Unit::Host(host.clone()), &object, findings);
    }
    let backends_of_host = change.backends_of_host();
    let [replaced, added] = [&change.routes_removed, &change.routes_added].map(Vec::len);
    let [left, new] = index.apply(change, (&before, &after));
    if Arc::ptr_eq(&before, &after) {
        return false;
    }
    compiled.parts.hosts.insert(host, after);
    compiled.use_instead(&BackendUser::Host(host.clone()), &left, &new, pass);
    compiled.compile_unknown(&backends_of_host, pass);
    pass.touched.changed.replaced += replaced;
    pass.touched.changed.added += added;
    true
}

impl HostUnit {
    /// The added routes compared with `before`, without fallback and last resort.
    pub(crate) fn routes_added<'u>(&'u self, before: &HostRoutes) -> Vec<&'u Arc<Route>> {
        match &self.extent {
            Extent::Changed(change) => change.routes_added.iter().collect(),
            Extent::Whole(..) => {
                let was: BTreeSet<*const Route> = before.all().map(Arc::as_ptr).collect();
                let after = self.routes.iter().flat_map(|routes| routes.routes());
                after.filter(|route| !was.contains(&Arc::as_ptr(route))).collect()
            }
        }
    }
}

/// Returns `true` if an attachment has the same claim: the same terms, and not only equal ones.
fn holds(attachment: &Attachment, claim: &Claim) -> bool {
    attachment.claim(&claim.host).is_some_and(|other| Arc::ptr_eq(&other.terms, &claim.terms))
}

fn same(host: &VirtualHost, one: &SnapshotParts, other: &SnapshotParts) -> bool {
    one.hosts.get(host).map(Arc::as_ptr) == other.hosts.get(host).map(Arc::as_ptr)
}

/// The backends of a host's routes, each once.
fn used(routes: &HostRoutes) -> BTreeSet<BackendKey> {
    routes.all().flat_map(|route| backends(route)).cloned().collect()
}

/// The backends of a host's routes, with duplicates.
fn backends_of_host<'a>(
    parts: &'a SnapshotParts,
    host: &VirtualHost,
) -> impl Iterator<Item = &'a BackendKey> + use<'a> {
    let routes = parts.hosts.get(host).into_iter().flat_map(|routes| routes.all());
    routes.flat_map(|route| backends(route))
}
