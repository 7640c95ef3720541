//! The status of each object: its digest as last observed, the desired status, and the objects whose status may have to
//! be written. Of the observed status only a hash is kept.

mod affected;
mod enforced;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tidegate_config::object::{Kind, ObjectName, ObjectRef, Uid};
use tidegate_config::project::gateway::{OwnStatus, StatusDigests, Transitions};
use tidegate_config::project::{Projected, PublicAddress};

use super::infrastructure::KnownServices;
use super::listing::Listing;
use super::model::Model;
use crate::attachment::{Key, ListenerRef, Verdict};
use crate::compile::Unit;
use crate::options::{Options, Publish};
use crate::sources::parent_of;

/// Public addresses, in order.
pub type Addresses = Arc<[PublicAddress]>;

/// The desired status of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Desired {
    /// The addresses in the status of an Ingress.
    Addresses {
        /// The Ingress: a later one of the same name may be another controller's.
        uid: Option<Uid>,
        /// The addresses.
        addresses: Addresses,
    },
    /// The part of a status that this controller writes.
    Status {
        /// `controllerName`.
        controller: Arc<str>,
        /// The observed generation.
        generation: i64,
        /// The conditions and the rest of the part.
        status: Arc<OwnStatus>,
        /// Whether it is written only in place of an earlier one of ours.
        only_in_place_of_ours: bool,
        /// What has to be known of the status before, if it is known.
        known: Option<KnownStatus>,
    },
}

/// What a new status keeps of the one that was observed last: nobody else writes to its lists, so that the object need
/// not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownStatus {
    /// The resourceVersion of the object.
    pub resource_version: Arc<str>,
    /// The times of its conditions.
    pub transitions: Arc<Transitions>,
}

impl Desired {
    /// The same, only in place of an earlier status of ours.
    fn in_place_of_ours(mut self) -> Self {
        if let Self::Status { only_in_place_of_ours, .. } = &mut self {
            *only_in_place_of_ours = true;
        }
        self
    }
}

/// The known statuses.
#[derive(Debug, Default)]
pub(super) struct Reporting {
    /// The Service whose addresses are published.
    service: Option<ObjectName>,
    /// The name of the controller that writes conditions.
    controller: Option<Arc<str>>,
    /// The addresses to publish, with their hash. While no address is known nothing is written: a load balancer that is
    /// being replaced must not empty the DNS records of a domain.
    addresses: Option<(Addresses, u64)>,
    /// The hash of our part of an object's status, if there is one.
    observed: BTreeMap<ObjectRef, u64>,
    /// What a new status keeps of the last one, of objects in whose status nobody else has a part.
    known: BTreeMap<ObjectRef, KnownStatus>,
    /// Objects that have been compiled, and may be served by this controller now.
    judged: BTreeSet<ObjectRef>,
    /// Objects whose number of attached routes may have changed.
    counting: BTreeSet<ObjectRef>,
    /// Objects whose observed status has changed.
    rewritten: BTreeSet<ObjectRef>,
    /// Objects that had the desired status when it was last observed, and whose desired status has not changed since.
    settled: BTreeSet<ObjectRef>,
    /// Whether all objects were queued since every kind was listed, and since the last change of `addresses`.
    queued_all: bool,
    /// Whether all objects with findings were queued since every kind was listed.
    pub(super) queued_findings: bool,
}

/// Objects whose status differs from the desired one, by the reason they were checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PendingStatusUpdates {
    /// Found by a check of all objects.
    pub all: Vec<ObjectRef>,
    /// Changed a moment ago, or new.
    pub changed: Vec<ObjectRef>,
    /// Objects with a changed number of attached routes.
    pub counting: Vec<ObjectRef>,
    /// Objects whose status was changed by another client, or late by us.
    pub rewritten: Vec<ObjectRef>,
    /// Those of them that had the desired status before, so that it was another client.
    pub overwritten: Vec<ObjectRef>,
}

impl Reporting {
    pub(super) fn new(options: &Options) -> Self {
        let (service, addresses) = match &options.publish {
            Publish::Nothing => (None, None),
            Publish::Addresses(addresses) => (None, hashed(addresses)),
            Publish::Service(service) => (Some(service.clone()), None),
        };
        let controller = options.sources.gateway.as_ref().map(|gateway| Arc::clone(&gateway.controller));
        // The status of a policy has no entries by controller.
        let controller = controller.or_else(|| options.sources.kuadrant.map(|_| Arc::default()));
        Self { service, controller, addresses, ..Self::default() }
    }

    /// Records the addresses of an object, and its status as observed.
    pub(super) fn observe(&mut self, projected: &Projected) {
        let (object, addresses) = (&projected.meta.object, &projected.addresses);
        if object.kind.has_addresses() {
            self.set_observed(object, hashed(addresses).map(|(_, hash)| hash));
        } else if object.kind == Kind::Service && self.service.as_ref() == Some(&object.name) {
            let now = hashed(addresses);
            if now.is_some() && self.addresses != now {
                self.addresses = now;
                self.queued_all = false;
            }
        } else if object.kind.has_conditions() {
            match self.known_of(projected) {
                Some(known) => self.known.insert(object.clone(), known),
                None => self.known.remove(object),
            };
            let digest = self.own(object.kind, &projected.status.digests);
            self.set_observed(object, digest);
        }
    }

    /// Records the deletion of an object.
    pub(super) fn gone(&mut self, object: &ObjectRef) {
        self.set_observed(object, None);
        self.settled.remove(object);
        self.known.remove(object);
    }

    fn set_observed(&mut self, object: &ObjectRef, now: Option<u64>) {
        let before = match now {
            Some(hash) => self.observed.insert(object.clone(), hash),
            None => self.observed.remove(object),
        };
        if before != now {
            self.rewritten.insert(object.clone());
        }
    }

    fn known_of(&self, projected: &Projected) -> Option<KnownStatus> {
        let (kind, status) = (projected.meta.object.kind, &projected.status);
        let is_ours = |name: &Arc<str>| !kind.has_parents() || Some(name) == self.controller.as_ref();
        let transitions = status.transitions.as_ref().filter(|_| status.digests.keys().all(is_ours))?;
        let resource_version = Arc::clone(&projected.meta.resource_version);
        Some(KnownStatus { resource_version, transitions: Arc::new(transitions.clone()) })
    }

    fn own(&self, kind: Kind, digests: &StatusDigests) -> Option<u64> {
        let controller = self.controller.as_ref()?;
        digests.get(if kind.has_parents() { &**controller } else { "" }).copied()
    }

    /// These units have been compiled.
    pub(super) fn judged<'u>(&mut self, units: impl IntoIterator<Item = &'u Unit>) {
        let objects = units.into_iter().filter_map(Unit::object);
        self.judged.extend(objects.filter(|object| has_status(object.kind)).cloned());
    }

    /// The number of routes attached to the listeners of an object may have changed.
    pub(super) fn counts_differ(&mut self, object: ObjectRef) {
        self.counting.insert(object);
    }
}

/// Whether this controller writes to the status of objects of a kind.
fn has_status(kind: Kind) -> bool {
    kind.has_addresses() || kind.has_conditions()
}

/// Addresses in order with their hash; `None` if there are none.
fn hashed(addresses: &[PublicAddress]) -> Option<(Addresses, u64)> {
    if addresses.is_empty() {
        return None;
    }
    let addresses: BTreeSet<PublicAddress> = addresses.iter().cloned().collect();
    let mut hasher = DefaultHasher::new();
    addresses.hash(&mut hasher);
    Some((addresses.into_iter().collect(), hasher.finish()))
}

/// The desired reports to the cluster. There are none before the first model.
#[derive(Clone, Copy, Debug)]
pub struct DesiredReports<'a> {
    pub(super) model: &'a Model,
    pub(super) listing: &'a Listing,
    pub(super) reporting: &'a Reporting,
    pub(super) gateway_services: &'a KnownServices,
}

impl DesiredReports<'_> {
    /// The status to write to an object. `None` if the object has it already, is not ours, or no addresses are known;
    /// and until every kind has been listed, except those denied in other namespaces.
    #[must_use]
    pub fn status(self, object: &ObjectRef) -> Option<Desired> {
        self.listing.may_report_in(&object.name.namespace).then(|| self.known_status(object)).flatten()
    }

    /// The status to write to an object. `None` if the object has it already, is not ours, or no addresses are known.
    fn known_status(self, object: &ObjectRef) -> Option<Desired> {
        let observed = self.reporting.observed.get(object).copied();
        match self.model.compiled.verdicts.get(object) {
            Some(Verdict::Served(_)) if object.kind.has_addresses() => {
                let (addresses, hash) = self.reporting.addresses.as_ref()?;
                let (uid, addresses) = (self.model.world.uid_of(object), Arc::clone(addresses));
                (observed != Some(*hash)).then_some(Desired::Addresses { uid, addresses })
            }
            Some(Verdict::Served(_) | Verdict::Others) => None,
            Some(Verdict::Status(status)) => self.desired_of(object, observed, self.counted(object, status)),
            Some(Verdict::Route(status)) => {
                let status = affected::of_route(self.model, object, status.written());
                self.desired_of(object, observed, Arc::new(status))
            }
            Some(Verdict::Orphaned(status)) => {
                let desired = self.desired_of(object, observed, Arc::clone(status));
                let knows = object.kind != Kind::ListenerSet || self.reads_parent(object);
                desired.filter(|_| observed.is_some() && knows).map(Desired::in_place_of_ours)
            }
            // Our entries for parents that the route no longer has are removed.
            None if object.kind.has_parents() && observed.is_some() => self.desired(object, Arc::default()),
            None => None,
        }
    }

    /// Whether the Gateways in the namespace of a ListenerSet's parent are read, and were listed.
    fn reads_parent(self, set: &ObjectRef) -> bool {
        let read = self.listing.namespaces_of(Kind::Gateway);
        let parent = self.model.world.listener_sets.get(&set.name).and_then(|set| parent_of(set));
        parent.is_some_and(|parent| {
            let namespace = &parent.name.namespace;
            (read.is_empty() || read.contains(namespace)) && self.listing.may_report_in(namespace)
        })
    }

    /// The status of an object, if it differs from the observed one.
    fn desired_of(self, object: &ObjectRef, observed: Option<u64>, status: Arc<OwnStatus>) -> Option<Desired> {
        let empty = object.kind.has_parents() && status.parents.is_empty();
        let desired = (!empty).then(|| status.digest());
        (observed != desired).then(|| self.desired(object, status)).flatten()
    }

    fn desired(self, object: &ObjectRef, status: Arc<OwnStatus>) -> Option<Desired> {
        let controller = self.reporting.controller.clone()?;
        let generation = self.model.world.generation_of(object).unwrap_or_default();
        let known = self.reporting.known.get(object).cloned();
        Some(Desired::Status { controller, generation, status, only_in_place_of_ours: false, known })
    }

    /// A status with the parts that depend on other objects: the number of routes that are attached to each listener,
    /// for a class whether Gateways use it, and for a policy whether it is in effect.
    fn counted(self, object: &ObjectRef, status: &Arc<OwnStatus>) -> Arc<OwnStatus> {
        if object.kind.is_inherited_policy() {
            return Arc::new(enforced::with_effect(self.model, object, status));
        }
        if object.kind == Kind::GatewayClass {
            return Arc::new(OwnStatus { in_use: Some(self.in_use(object)), ..OwnStatus::clone(status) });
        }
        let mut status = OwnStatus::clone(status);
        for listener in &mut status.listeners {
            let name = ListenerRef { owner: object.clone(), section: Arc::clone(&listener.name) };
            let key = Key::Listener(Arc::new(name));
            listener.attached_routes = self.model.topology.attached_count(&key) as u64;
        }
        Arc::new(affected::of_listeners(self.model, object, status))
    }

    /// Whether Gateways use a class.
    fn in_use(self, class: &ObjectRef) -> bool {
        let mut dependents = self.model.topology.dependents(&Key::Object(class.clone()));
        let class_of = |gateway: &ObjectRef| self.model.world.gateways.get(&gateway.name).map(|gateway| &gateway.class);
        dependents.any(|object| object.kind == Kind::Gateway && class_of(object) == Some(&class.name))
    }
}

/// The objects about which something may have to be reported to the cluster.
#[derive(Debug)]
pub struct PendingReports<'a> {
    pub(super) model: &'a mut Model,
    pub(super) listing: &'a Listing,
    pub(super) reporting: &'a mut Reporting,
    pub(super) gateway_services: &'a mut KnownServices,
}

impl PendingReports<'_> {
    /// The objects whose status may have to be written since the last call.
    pub fn status_updates(&mut self) -> PendingStatusUpdates {
        let Reporting { judged, counting, rewritten, queued_all, .. } = &mut *self.reporting;
        let [judged, counting, rewritten] = [judged, counting, rewritten].map(std::mem::take);
        let queued_all = std::mem::replace(queued_all, true);
        if !self.listing.may_report() {
            self.reporting.queued_all = false;
            return PendingStatusUpdates::default();
        }
        if !queued_all {
            self.reporting.settled.clear();
        }
        let Self { model, listing, reporting, gateway_services } = &*self;
        let reports = DesiredReports { model, listing, reporting, gateway_services };
        let differing = |objects: &mut dyn Iterator<Item = &ObjectRef>| -> Vec<ObjectRef> {
            objects.filter(|object| reports.status(object).is_some()).cloned().collect()
        };
        if !queued_all {
            let judged = model.compiled.verdicts.keys();
            let observed = reporting.observed.keys().filter(|object| !model.compiled.verdicts.contains_key(*object));
            return PendingStatusUpdates {
                all: differing(&mut judged.chain(observed)),
                ..PendingStatusUpdates::default()
            };
        }
        let changed = differing(&mut judged.iter());
        let counting = differing(&mut counting.difference(&judged));
        let settled = rewritten.iter().filter(|object| reporting.observed.contains_key(*object));
        let settled: Vec<ObjectRef> = settled.filter(|object| reports.status(object).is_none()).cloned().collect();
        let rewritten = differing(&mut rewritten.difference(&judged));
        for object in changed.iter().chain(&counting) {
            self.reporting.settled.remove(object);
        }
        let overwritten = rewritten.iter().filter(|object| self.reporting.settled.remove(*object)).cloned().collect();
        self.reporting.settled.extend(settled);
        PendingStatusUpdates { all: Vec::new(), changed, counting, rewritten, overwritten }
    }

    /// Queues every object, every object with findings and every Gateway for the next call.
    pub fn look_again(&mut self) {
        self.reporting.queued_all = false;
        self.reporting.queued_findings = false;
        self.gateway_services.look_again();
    }

    /// Empties the queues: this process does not write reports.
    pub fn drop_all(&mut self) {
        self.reporting.judged.clear();
        self.reporting.counting.clear();
        self.reporting.rewritten.clear();
        self.gateway_services.forget();
        self.model.compiled.findings.take_changed();
    }
}
