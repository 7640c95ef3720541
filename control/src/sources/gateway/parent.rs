//! Parents of routes: the listeners that a route is attached to, and the status for each parent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{Certificate, HostPattern, TableName, VirtualHost};
use tidegate_config::object::{Age, Kind, ObjectRef};
use tidegate_config::project::gateway::{GroupKind, Hostnames, ObjectReference, ParentRef};

use super::conflict;
use super::gateway_object::parent_of;
use crate::attachment::{ConditionReason, GatewayListeners, Key, MergedListener};
use crate::sources::reader::Reader;
use crate::topology::Topology;
use crate::world::World;

/// A route whose parents are resolved.
pub(super) struct RouteParents<'r> {
    /// The route.
    pub(super) object: &'r ObjectRef,
    /// Its age.
    pub(super) age: &'r Age,
    /// `spec.parentRefs`.
    pub(super) parents: &'r Arc<[ParentRef]>,
    /// `spec.hostnames`.
    pub(super) hostnames: &'r Hostnames,
}

/// The attachment of a route to all of its parents.
#[derive(Default)]
pub(super) struct ResolvedParents {
    /// The parents that are ours, by index, each with the reason if the route is not accepted there.
    pub(super) parents: Vec<(usize, Option<ConditionReason>)>,
    /// The virtual hosts that the route claims.
    pub(super) hosts: BTreeSet<VirtualHost>,
    /// The tables, among those of the hosts, of listeners with TLS passthrough.
    pub(super) passed_on: BTreeSet<TableName>,
    /// The client certificates of Gateways, by the tables of their listeners.
    pub(super) clients: BTreeMap<TableName, Arc<Certificate>>,
    /// The listeners that count the route as attached.
    pub(super) listeners: BTreeSet<Key>,
    /// The listeners that an older route of another kind keeps it off, with that route.
    lost: BTreeMap<Key, ObjectRef>,
}

impl RouteParents<'_> {
    /// Resolves all parents.
    pub(super) fn join(&self, reader: &mut Reader<'_>) -> ResolvedParents {
        let mut joined = ResolvedParents::default();
        for (index, parent) in self.parents.iter().enumerate() {
            let Some((owner, merged)) = listeners_of_parent(reader, parent) else { continue };
            let fault = self.join_one(reader, parent, &owner, &merged, &mut joined).err();
            joined.parents.push((index, fault));
        }
        joined
    }

    fn join_one(
        &self,
        reader: &mut Reader<'_>,
        parent: &ParentRef,
        owner: &ObjectRef,
        merged: &GatewayListeners,
        joined: &mut ResolvedParents,
    ) -> Result<(), ConditionReason> {
        let mut listeners: Vec<&MergedListener> = merged.of(owner).collect();
        listeners.retain(|it| parent.section.as_ref().is_none_or(|section| *section == it.listener.section));
        listeners.retain(|it| parent.port.is_none_or(|port| port == it.port));
        if listeners.is_empty() {
            return Err(ConditionReason::new("NoMatchingParent", format!("{owner} has no such listener")));
        }
        let Self { object, age, hostnames, .. } = self;
        listeners.retain(|it| {
            it.kinds.contains(&object.kind)
                && reader.allows(&it.namespaces, &it.listener.owner.name.namespace, &object.name.namespace)
        });
        if listeners.is_empty() {
            let message =
                format!("no listener of {owner} allows {}s of namespace {}", object.kind, object.name.namespace);
            return Err(ConditionReason::new("NotAllowedByListeners", message));
        }
        let patterns = conflict::patterns(hostnames);
        let (mut taken, mut lost) = (false, None);
        for listener in listeners {
            // The listener's hostname selects the requests for its table, so the route's own hostnames suffice there.
            let common = patterns.iter().filter_map(|pattern| Some((pattern, pattern.meet(&listener.host)?)));
            let (common, hosts): (Vec<&HostPattern>, Vec<HostPattern>) = common.unzip();
            if common.is_empty() {
                continue;
            }
            if let Some(winner) = reader.winner((object, age), listener, &hosts) {
                joined.lost.insert(listener.key(), winner.clone());
                lost.get_or_insert((listener, winner));
                continue;
            }
            taken = true;
            joined.listeners.insert(listener.key());
            if listener.serves() {
                let hosts = common.into_iter().map(|pattern| VirtualHost::new(listener.table.clone(), pattern.clone()));
                joined.hosts.extend(hosts);
                if let Some(client) = &merged.client {
                    joined.clients.insert(listener.table.clone(), Arc::clone(client));
                }
                if listener.passes_on {
                    joined.passed_on.insert(listener.table.clone());
                }
            }
        }
        if taken {
            return Ok(());
        }
        if let Some((listener, winner)) = lost {
            let message = format!(
                "{winner} is older and has some of the hostnames on listener {} of {owner}, which an HTTPRoute and a GRPCRoute cannot share",
                listener.listener.section
            );
            return Err(ConditionReason::new("HostnameConflict", message));
        }
        let message = format!("no hostname intersects a listener of {owner}");
        Err(ConditionReason::new("NoMatchingListenerHostname", message))
    }
}

impl ResolvedParents {
    /// The findings about the listeners that other routes keep it off.
    pub(super) fn findings(&self, object: &ObjectRef) -> impl Iterator<Item = Finding> {
        self.lost.iter().map(move |(listener, winner)| {
            let problem = Problem::ListenerLost { listener: listener.to_string(), winner: winner.clone() };
            Finding::new(object.clone(), "spec.hostnames", problem)
        })
    }
}

/// The reason why none of a route's parents is ours; `None` if one is.
pub(crate) fn not_attached(world: &World, topology: &Topology, parents: &[ParentRef]) -> Option<String> {
    let mut reasons = parents.iter().map(|parent| not_ours(world, topology, parent));
    let Some(first) = reasons.next() else { return Some("it has no parentRefs".to_owned()) };
    first.filter(|_| reasons.all(|reason| reason.is_some()))
}

/// The reason why a parent is not ours.
fn not_ours(world: &World, topology: &Topology, parent: &ParentRef) -> Option<String> {
    let ObjectReference { kind, name } = &parent.parent;
    let gateway = match kind {
        GroupKind::Known(Kind::Gateway) => parent.parent.name.clone(),
        GroupKind::Known(Kind::ListenerSet) => {
            let object = ObjectRef::new(Kind::ListenerSet, name.clone());
            let Some(set) = world.listener_sets.get(name) else { return Some(format!("{object} does not exist")) };
            let Some(gateway) = parent_of(set) else { return Some(format!("{object} has no Gateway")) };
            gateway.name
        }
        GroupKind::Known(_) | GroupKind::Other { .. } => return Some(format!("{} is not a Gateway", parent.parent)),
    };
    let object = ObjectRef::new(Kind::Gateway, gateway);
    if topology.gateway_listeners(&object).is_some() {
        return None;
    }
    let Some(found) = world.gateways.get(&object.name) else { return Some(format!("{object} does not exist")) };
    let class = &found.class;
    let why = if world.gateway_classes.contains_key(class) { "is of another controller" } else { "does not exist" };
    Some(format!("{object} is of GatewayClass {}, which {why}", class.name))
}

/// Whether a parent is a Gateway of ours, or a ListenerSet of one.
pub(in crate::sources) fn is_ours(reader: &mut Reader<'_>, parent: &ParentRef) -> bool {
    listeners_of_parent(reader, parent).is_some()
}

/// The Gateway or ListenerSet of a reference, with the listeners of its Gateway; `None` if that is not ours.
fn listeners_of_parent(reader: &mut Reader<'_>, parent: &ParentRef) -> Option<(ObjectRef, Arc<GatewayListeners>)> {
    match &parent.parent.kind {
        GroupKind::Known(Kind::Gateway) => {
            let gateway = ObjectRef::new(Kind::Gateway, parent.parent.name.clone());
            let merged = reader.gateway_listeners(&gateway)?;
            Some((gateway, merged))
        }
        GroupKind::Known(Kind::ListenerSet) => {
            let gateway = parent_of(reader.listener_set(&parent.parent.name)?)?;
            let merged = reader.gateway_listeners(&gateway)?;
            Some((ObjectRef::new(Kind::ListenerSet, parent.parent.name.clone()), merged))
        }
        GroupKind::Known(_) | GroupKind::Other { .. } => None,
    }
}
