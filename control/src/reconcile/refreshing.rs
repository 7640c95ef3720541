//! Refreshing: a change finds the dependent objects, whose attachments are derived again; if the result differs, units
//! are queued for compilation.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use super::Reconciler;
use super::attachment_diff::AttachmentDiff;
use super::backlog::Reason;
use crate::addresses::KUBERNETES;
use crate::attachment::{Attachment, Key};
use crate::compile::Unit;
use crate::history::Cause;
use crate::queue::Lane;
use crate::sources::{attach, conflicting};

impl Reconciler {
    /// An object has changed. Before the first model nothing is queued: the model is made of all objects.
    pub(super) fn changed(&mut self, object: &ObjectRef, cause: Cause, lane: Lane, received: Instant) {
        if !self.running() {
            return;
        }
        let reason = Reason { cause: Arc::new(cause), lane, received, own: true };
        self.backlog.mark_stale(object, &reason);
        if object.kind == Kind::EndpointSlice && object.name == *KUBERNETES {
            self.recheck_endpoint_addresses(received);
        }
        let reason = Reason { own: false, ..reason };
        self.wake_waiting(object, &reason);
        let in_namespace = Key::in_namespace(object.kind, &object.name.namespace);
        let keys = [Key::Object(object.clone()), in_namespace, Key::Any(object.kind)];
        for key in keys {
            let dependents = self.model.topology.dependents(&key).cloned().collect();
            self.backlog.refresh_all(&dependents, &reason, &self.model);
        }
    }

    /// Refreshes the dependents of a changed key that is not an object.
    pub(super) fn refresh_dependents(
        &mut self,
        objects: &BTreeSet<ObjectRef>,
        cause: Cause,
        lane: Lane,
        received: Instant,
    ) {
        if self.running() {
            let reason = Reason { cause: Arc::new(cause), lane, received, own: false };
            self.backlog.refresh_all(objects, &reason, &self.model);
        }
    }

    /// The API server's sockets have changed: the endpoints of every Service are compiled again. They are many and this
    /// is rare, so they wait in the slow lane.
    pub(super) fn recheck_endpoint_addresses(&mut self, received: Instant) {
        let reason = Reason { cause: Arc::new(Cause::ApiServer), lane: Lane::Slow, received, own: false };
        for service in self.model.compiled.used_services(&self.model.frozen_backends) {
            self.backlog.compile(Unit::Service(service), &reason, &self.model);
        }
    }

    /// A DNS name has other addresses.
    pub(super) fn resolved(&mut self, name: &Arc<str>, now: Instant) {
        let cause = Arc::new(Cause::Resolved { name: Arc::clone(name) });
        let reason = Reason { cause, lane: Lane::Fast, received: now, own: false };
        let dependents = self.model.topology.dependents(&Key::of_name(name)).cloned();
        let (services, policies): (BTreeSet<ObjectRef>, BTreeSet<ObjectRef>) =
            dependents.partition(|object| object.kind == Kind::Service);
        self.refresh_dependents(&policies, Cause::Resolved { name: Arc::clone(name) }, Lane::Fast, now);
        for service in services {
            self.wake_waiting(&service, &reason);
            self.endpoints_changed(service.name, &reason);
        }
    }

    /// Refreshes the objects that must be refreshed before anything is compiled.
    pub(super) fn refresh_stale(&mut self) {
        while let Some((object, reason)) = self.backlog.next_stale() {
            self.refresh(&object, &reason);
        }
    }

    /// Derives the attachment of an object again, and queues the affected units.
    pub(super) fn refresh(&mut self, object: &ObjectRef, reason: &Reason) {
        let attachment = attach(&self.model.world, &self.model.options, &self.model.topology, object);
        let replaced = self.model.replace(object, attachment);
        let nothing = Attachment::default();
        let after = self.model.topology.get(object).unwrap_or(&nothing);
        let before = replaced.as_ref().unwrap_or(after);
        let diff = match &replaced {
            Some(before) => AttachmentDiff::between(object, before, after),
            None => AttachmentDiff::unchanged(after),
        };
        let conflicting = if reason.own || diff.moved {
            conflicting(&self.model.world, &self.model.topology, object, [before, after])
        } else {
            BTreeSet::new()
        };
        let affected = if replaced.is_some() {
            self.model.affected_by_policies(object, [before, after], &diff)
        } else {
            BTreeSet::new()
        };
        if diff.infrastructure {
            self.gateway_services.differs(object);
        }
        self.names.note(&diff.links, &self.model.topology);
        self.key_sources.note(&diff.links);
        self.secrets.note(&diff.links);
        for (unit, services) in diff.leaving {
            self.backlog.note_leaving(&unit, services.into_iter());
        }
        for unit in diff.units {
            self.backlog.compile(unit, reason, &self.model);
        }
        // The policies of a route include those of its Gateways.
        let other_gateways = diff.links.iter().any(|link| link.gateway_listeners().is_some());
        if other_gateways && self.model.topology.has_policies(object) {
            self.backlog.compile(Unit::Policies(object.clone()), reason, &self.model);
        }
        for owner in diff.owners.into_iter().chain(affected) {
            self.reporting.counts_differ(owner);
        }
        let others = Reason { own: false, ..reason.clone() };
        for key in &diff.keys {
            let dependents = self.model.topology.dependents(key).cloned().collect();
            self.backlog.refresh_all(&dependents, &others, &self.model);
        }
        self.backlog.refresh_all(&conflicting, &others, &self.model);
        // Dependencies of a Service, such as settings of its routes, do not change its endpoints.
        if object.kind == Kind::Service && reason.own {
            self.endpoints_changed(object.name.clone(), reason);
        }
        for service in diff.endpoints_of {
            self.wake_waiting(&ObjectRef::new(Kind::Service, service.clone()), reason);
            self.endpoints_changed(service, reason);
        }
    }

    /// The endpoints of a Service may have changed; that matters if it is used.
    fn endpoints_changed(&mut self, service: ObjectName, reason: &Reason) {
        if self.model.uses(&service) {
            self.backlog.compile(Unit::Service(service), reason, &self.model);
        }
    }

    /// An awaited object has arrived.
    fn wake_waiting(&mut self, object: &ObjectRef, reason: &Reason) {
        for unit in self.waits.awaiting(object) {
            self.backlog.compile(unit, reason, &self.model);
        }
    }
}
