//! Attaching: a change finds the dependent objects, which are attached again; if the result differs, units are queued
//! for compilation.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use tidegate_config::model::BindKey;
use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use super::backlog::Reason;
use super::{Reconciler, rank};
use crate::addresses::KUBERNETES;
use crate::attachment::{Attachment, Claim, Key};
use crate::compile::{Unit, globals_read};
use crate::event::ClosedSockets;
use crate::history::Cause;
use crate::queue::Lane;
use crate::sources::{attach, disturbed};

impl Reconciler {
    /// An object has changed. Before the first model nothing is queued: the model is made of all objects.
    pub(super) fn changed(&mut self, object: &ObjectRef, cause: Cause, lane: Lane, received: Instant) {
        if !self.running {
            return;
        }
        let reason = Reason { cause: Arc::new(cause), lane, received, own: true };
        self.backlog.attach_next(object, &reason);
        if globals_read(&self.options).any(|read| read == *object) {
            self.compile_later(Unit::Globals(()), &reason);
        }
        if object.kind == Kind::EndpointSlice && object.name == *KUBERNETES {
            self.recheck_endpoint_addresses(received);
        }
        let reason = Reason { own: false, ..reason };
        self.wake_waiting(object, &reason);
        let in_namespace = Key::in_namespace(object.kind, &object.name.namespace);
        let keys = [Key::Object(object.clone()), in_namespace, Key::Any(object.kind)];
        for key in keys {
            let dependents: Vec<ObjectRef> = self.topology.dependents(&key).cloned().collect();
            self.attach_all(&dependents, &reason);
        }
    }

    /// A kind has been listed for the first time, after the first model.
    pub(super) fn kind_listed(&mut self, kind: Kind, received: Instant) {
        if self.running {
            let dependents: Vec<ObjectRef> = self.topology.dependents_of_kind(kind).cloned().collect();
            let cause = Arc::new(Cause::Listed { listed: kind });
            self.attach_all(&dependents, &Reason { cause, lane: Lane::Slow, received, own: false });
        }
    }

    /// Something that is no object has changed: its dependents are attached again, in the slow lane.
    pub(super) fn key_changed(&mut self, key: &Key, cause: Cause, received: Instant) {
        if self.running {
            let dependents: Vec<ObjectRef> = self.topology.dependents(key).cloned().collect();
            self.attach_all(&dependents, &Reason { cause: Arc::new(cause), lane: Lane::Slow, received, own: false });
        }
    }

    /// The API server's sockets have changed: the endpoints of every Service are compiled again. They are many and this
    /// is rare, so they wait in the slow lane.
    pub(super) fn recheck_endpoint_addresses(&mut self, received: Instant) {
        let reason = Reason { cause: Arc::new(Cause::ApiServer), lane: Lane::Slow, received, own: false };
        for service in self.compiled.used_services(&self.held_backends) {
            self.compile_later(Unit::Service(service), &reason);
        }
    }

    /// The data plane cannot open other sockets than before, which the status of their Gateways reports.
    pub(super) fn opened_or_not(&mut self, before: &ClosedSockets, received: Instant) {
        let after = Arc::clone(&self.world.unopened);
        let other = |one: &ClosedSockets, other: &ClosedSockets| {
            let keys = one.iter().filter(|(key, error)| other.get(key) != Some(error)).map(|(key, _)| *key);
            keys.collect::<Vec<BindKey>>()
        };
        let keys: BTreeSet<BindKey> = [other(before, &after), other(&after, before)].concat().into_iter().collect();
        let objects: BTreeSet<ObjectRef> =
            keys.iter().flat_map(|key| self.topology.dependents(&Key::Bind(Box::new(*key)))).cloned().collect();
        if self.running && !objects.is_empty() {
            let objects: Vec<ObjectRef> = objects.into_iter().collect();
            let cause = Arc::new(Cause::Unopened);
            self.attach_all(&objects, &Reason { cause, lane: Lane::Fast, received, own: false });
        }
    }

    /// A DNS name has other addresses.
    pub(super) fn resolved(&mut self, name: &Arc<str>, now: Instant) {
        let cause = Arc::new(Cause::Resolved { name: Arc::clone(name) });
        let reason = Reason { cause, lane: Lane::Fast, received: now, own: false };
        let services: Vec<ObjectRef> = self.topology.dependents(&Key::of_name(name)).cloned().collect();
        for service in services {
            self.wake_waiting(&service, &reason);
            self.endpoints_changed(service.name, &reason);
        }
    }

    /// Attaches the dependents of one key at once, if they fit into a turn of the slow lane. Otherwise they and the
    /// resulting units wait in the slow lane, so that live changes are not delayed.
    fn attach_all(&mut self, objects: &[ObjectRef], reason: &Reason) {
        if objects.len() <= self.options.pace.share.slow_batch_max {
            objects.iter().for_each(|object| self.backlog.attach_next(object, reason));
            return;
        }
        let reason = Reason { lane: Lane::Slow, ..reason.clone() };
        for object in objects {
            let rank = rank::of_object(&self.options.order, object, &self.topology);
            self.backlog.attach_later(object, &reason, rank);
        }
    }

    /// Attaches the objects that must be attached before anything is compiled.
    pub(super) fn attach_stale(&mut self) {
        while let Some((object, reason)) = self.backlog.next_stale() {
            self.attach(&object, &reason);
        }
    }

    /// Attaches an object again, and queues the affected units.
    pub(super) fn attach(&mut self, object: &ObjectRef, reason: &Reason) {
        let attachment = attach(&self.world, &self.options, &self.topology, object);
        let before = self.topology.replace(object, attachment);
        let nothing = Attachment::default();
        let after = self.topology.get(object).unwrap_or(&nothing);
        let mut units = Vec::new();
        for claim in before.claims.iter().chain(&after.claims) {
            if !holds(&before, claim) || !holds(after, claim) {
                units.push(Unit::Host(claim.host.clone()));
            }
        }
        units.dedup();
        let (was, is) = (before.besides(), after.besides());
        let scopes = was.scopes.iter().chain(&is.scopes).map(|(scope, _)| scope);
        let scopes = scopes.filter(|scope| before.settings_of(scope) != after.settings_of(scope));
        units.extend(scopes.cloned().map(Unit::Scope));
        let hosts = was.streams.iter().chain(&is.streams).map(|(host, _)| host);
        units.extend(hosts.filter(|host| before.stream(host) != after.stream(host)).cloned().map(Unit::Stream));
        let binds = was.binds.iter().chain(&is.binds).map(|(bind, _)| bind);
        units.extend(binds.filter(|bind| before.bind(bind) != after.bind(bind)).copied().map(Unit::Bind));
        if before.report != after.report {
            units.push(Unit::Object(object.clone()));
        }
        if was.infrastructure != is.infrastructure || was.offer.is_some() != is.offer.is_some() {
            self.making.differs(object);
        }
        let [old, new] = [&before.links, &after.links];
        let others: Vec<Key> = on_one_side(old, new).cloned().collect();
        self.names.note(&others, &self.topology);
        self.secrets.note(&others);
        let endpoints_of: Vec<ObjectName> =
            old.iter().chain(new.iter()).filter_map(Key::endpoints_of).cloned().collect();
        for unit in &units {
            let [old, new] = [&before, after].map(|of| unit.services_in(of));
            self.backlog.note_leaving(unit, old.difference(&new).map(|service| (*service).clone()));
        }
        let counting = counting(object.kind, &others, (&before, after));
        let offers_else = was.offer != is.offer;
        // Others depend on the hosts that it claims, which a listener that begins to serve gives it.
        let hosts_differ =
            !before.claims.iter().map(|claim| &claim.host).eq(after.claims.iter().map(|claim| &claim.host));
        let disturbed = if reason.own || hosts_differ || before.listeners != after.listeners {
            disturbed(&self.world, &self.topology, object, [&before, after])
        } else {
            BTreeSet::new()
        };
        let named_else = named_elsewhere(object.kind, &before, after);
        for unit in units {
            self.compile_later(unit, reason);
        }
        for owner in counting {
            self.reporting.counts_differ(owner);
        }
        let offer = offers_else.then(|| Key::Offer(object.name.clone()));
        for key in offer.into_iter().chain(named_else.into_iter().map(Key::RoutesTo)) {
            let dependents: Vec<ObjectRef> = self.topology.dependents(&key).cloned().collect();
            self.attach_all(&dependents, &Reason { own: false, ..reason.clone() });
        }
        if !disturbed.is_empty() {
            let disturbed: Vec<ObjectRef> = disturbed.into_iter().collect();
            self.attach_all(&disturbed, &Reason { own: false, ..reason.clone() });
        }
        // Dependencies of a Service, such as settings of its routes, do not change its endpoints.
        if object.kind == Kind::Service && reason.own {
            self.endpoints_changed(object.name.clone(), reason);
        }
        for service in endpoints_of {
            self.wake_waiting(&ObjectRef::new(Kind::Service, service.clone()), reason);
            self.endpoints_changed(service, reason);
        }
    }

    /// The endpoints of a Service may have changed; that matters if it is used.
    fn endpoints_changed(&mut self, service: ObjectName, reason: &Reason) {
        if self.compiled.uses(&service, &self.held_backends) {
            self.compile_later(Unit::Service(service), reason);
        }
    }

    /// An awaited object has arrived.
    fn wake_waiting(&mut self, object: &ObjectRef, reason: &Reason) {
        for unit in self.waits.awaiting(object) {
            self.compile_later(unit, reason);
        }
    }

    pub(super) fn compile_later(&mut self, unit: Unit, reason: &Reason) {
        let rank =
            if reason.lane == Lane::Slow { rank::of_unit(&self.options.order, &unit, &self.topology) } else { 0 };
        self.backlog.compile(unit, reason, rank);
    }
}

/// The Gateways and ListenerSets that count an object as attached to different listeners than before, and the classes that it
/// uses only before or only after a change, by the keys that differ.
fn counting(kind: Kind, others: &[Key], (before, after): (&Attachment, &Attachment)) -> BTreeSet<ObjectRef> {
    let owners =
        on_one_side(&before.listeners, &after.listeners).filter_map(Key::listener).map(|listener| &listener.owner);
    let classes = others.iter().filter(|_| kind == Kind::Gateway).filter_map(|key| key.object(Kind::GatewayClass));
    owners.chain(classes).cloned().collect()
}

/// The Services that a route refers to only before or only after a change, or all if its listeners differ.
fn named_elsewhere(kind: Kind, before: &Attachment, after: &Attachment) -> BTreeSet<ObjectName> {
    if !kind.is_route() {
        return BTreeSet::new();
    }
    let [old, new] = [before.named_services(), after.named_services()];
    if before.listeners == after.listeners {
        return old.symmetric_difference(&new).map(|service| (*service).clone()).collect();
    }
    old.union(&new).map(|service| (*service).clone()).collect()
}

/// The keys that are only in one of two ascending lists.
fn on_one_side<'k>(one: &'k [Key], other: &'k [Key]) -> impl Iterator<Item = &'k Key> {
    let gone = one.iter().filter(|key| other.binary_search(key).is_err());
    gone.chain(other.iter().filter(|key| one.binary_search(key).is_err()))
}

/// Returns `true` if an attachment has the same claim: the same terms, and not only equal ones.
fn holds(attachment: &Attachment, claim: &Claim) -> bool {
    attachment.claim(&claim.host).is_some_and(|other| Arc::ptr_eq(&other.terms, &claim.terms))
}
