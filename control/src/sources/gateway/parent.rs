//! Parents of routes: which listeners take a route, and what its owner is told of each parent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{Certificate, HostPattern, TableName, VirtualHost};
use tidegate_config::object::{Age, Kind, ObjectRef};
use tidegate_config::project::gateway::{GroupKind, Hostnames, ParentRef, ParentStatus, WrittenRef};

use super::condition::{Conditions, Fault};
use super::gateway_object::parent_of;
use super::offer::{Offer, Offered};
use super::rival;
use crate::sources::reader::Reader;
use crate::topology::Key;

/// A route while its parents are looked for.
pub(super) struct Seeker<'r> {
    /// The route.
    pub(super) object: &'r ObjectRef,
    /// How old it is.
    pub(super) age: &'r Age,
    /// `spec.parentRefs`.
    pub(super) parents: &'r [ParentRef],
    /// `spec.hostnames`.
    pub(super) hostnames: &'r Hostnames,
}

/// What became of a route for all of its parents.
#[derive(Default)]
pub(super) struct Joined<'r> {
    /// The parents that are ours, each with why it does not take the route.
    pub(super) parents: Vec<(&'r ParentRef, Option<Fault>)>,
    /// The virtual hosts that it has.
    pub(super) hosts: BTreeSet<VirtualHost>,
    /// The tables, among those of the hosts, of listeners that pass TLS on.
    pub(super) passed_on: BTreeSet<TableName>,
    /// The certificates that Gateways show to endpoints, by the tables of their listeners.
    pub(super) clients: BTreeMap<TableName, Arc<Certificate>>,
    /// The listeners that it counts for.
    pub(super) listeners: BTreeSet<Key>,
    /// The listeners that older routes of another kind keep it off, with the route that does.
    lost: BTreeMap<Key, ObjectRef>,
}

impl<'r> Seeker<'r> {
    /// Looks at all parents.
    pub(super) fn join(&self, reader: &mut Reader<'_>) -> Joined<'r> {
        let mut joined = Joined::default();
        for parent in self.parents {
            let Some((owner, offer)) = offer_of(reader, parent) else { continue };
            let fault = self.join_one(reader, parent, &owner, &offer, &mut joined).err();
            joined.parents.push((parent, fault));
        }
        joined
    }

    fn join_one(
        &self,
        reader: &mut Reader<'_>,
        parent: &ParentRef,
        owner: &ObjectRef,
        offer: &Offer,
        joined: &mut Joined<'r>,
    ) -> Result<(), Fault> {
        let mut listeners: Vec<&Offered> = offer.of(owner).collect();
        listeners.retain(|it| parent.section.as_ref().is_none_or(|section| *section == it.section));
        listeners.retain(|it| parent.port.is_none_or(|port| port == it.port));
        if listeners.is_empty() {
            return Err(Fault::new("NoMatchingParent", format!("{owner} has no such listener")));
        }
        let Self { object, age, hostnames, .. } = self;
        listeners.retain(|it| {
            it.kinds.contains(&object.kind)
                && reader.allows(&it.namespaces, &it.owner.name.namespace, &object.name.namespace)
        });
        if listeners.is_empty() {
            let message =
                format!("no listener of {owner} allows {}s of namespace {}", object.kind, object.name.namespace);
            return Err(Fault::new("NotAllowedByListeners", message));
        }
        let patterns = rival::patterns(hostnames);
        let (mut taken, mut lost) = (false, None);
        for listener in listeners {
            // The host of the listener decides which requests come to its table, so that the route's own is what stands there.
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
                let hosts = common
                    .into_iter()
                    .map(|pattern| VirtualHost { table: listener.table.clone(), pattern: pattern.clone() });
                joined.hosts.extend(hosts);
                if let Some(client) = &offer.client {
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
                "{winner} is older and has hostnames of this route on listener {} of {owner}, which an HTTPRoute and a GRPCRoute cannot share",
                listener.section
            );
            return Err(Fault::new("HostnameConflict", message));
        }
        let message = format!("none of its hostnames is one of a listener of {owner}");
        Err(Fault::new("NoMatchingListenerHostname", message))
    }
}

impl Joined<'_> {
    /// What the owner of the route is told of the listeners that others keep it off.
    pub(super) fn findings(&self, object: &ObjectRef) -> impl Iterator<Item = Finding> {
        self.lost.iter().map(move |(listener, winner)| {
            let problem = Problem::ListenerLost { listener: listener.to_string(), winner: winner.clone() };
            Finding::new(object.clone(), "spec.hostnames", problem)
        })
    }
}

/// The Gateway or ListenerSet that a reference names, with what its Gateway offers; `None` where that is not ours.
fn offer_of(reader: &mut Reader<'_>, parent: &ParentRef) -> Option<(ObjectRef, Arc<Offer>)> {
    match &parent.parent.kind {
        GroupKind::Known(Kind::Gateway) => {
            let gateway = ObjectRef::new(Kind::Gateway, parent.parent.name.clone());
            let offer = reader.offer(&gateway)?;
            Some((gateway, offer))
        }
        GroupKind::Known(Kind::ListenerSet) => {
            let gateway = parent_of(reader.listener_set(&parent.parent.name)?)?;
            let offer = reader.offer(&gateway)?;
            Some((ObjectRef::new(Kind::ListenerSet, parent.parent.name.clone()), offer))
        }
        GroupKind::Known(_) | GroupKind::Other { .. } => None,
    }
}

/// A reference as the status repeats it.
fn written(parent: &ParentRef) -> WrittenRef {
    WrittenRef {
        group: parent.parent.kind.group().to_owned().into(),
        kind: parent.parent.kind.kind().to_owned().into(),
        namespace: Some(Arc::clone(&parent.parent.name.namespace)),
        name: Arc::clone(&parent.parent.name.name),
        section_name: parent.section.clone(),
        port: parent.port,
    }
}

/// What a route's status says of the route itself, to every parent.
#[derive(Clone, Copy, Default)]
pub(super) struct Said<'a> {
    /// Why it is not accepted.
    pub(super) refused: Option<&'a Fault>,
    /// The first reference that cannot be used.
    pub(super) unresolved: Option<&'a Fault>,
    /// Which rules are not in effect.
    pub(super) partly: Option<&'a str>,
    /// What else is not in effect, although it is accepted; most often nothing.
    pub(super) accepted: &'a str,
}

/// What a route's status says of its parents, in order. A route that is wrong by itself is so for every parent.
pub(super) fn statuses(joined: &Joined<'_>, generation: i64, said: &Said<'_>) -> Vec<ParentStatus> {
    let status = |(parent, fault): &(&ParentRef, Option<Fault>)| {
        let mut conditions = Conditions::about(generation);
        match fault.as_ref().or(said.refused) {
            None => conditions.put("Accepted", "True", "Accepted", said.accepted.to_owned()),
            refused => conditions.judge("Accepted", "Accepted", refused),
        }
        conditions.judge("ResolvedRefs", "ResolvedRefs", said.unresolved);
        if let Some(message) = said.partly.filter(|_| fault.is_none() && said.refused.is_none()) {
            conditions.put("PartiallyInvalid", "True", "UnsupportedValue", message.to_owned());
        }
        ParentStatus { parent: written(parent), conditions: conditions.into_list() }
    };
    let mut statuses: Vec<ParentStatus> = joined.parents.iter().map(status).collect();
    statuses.sort_unstable();
    statuses
}
