//! What waits to be compiled, and what a batch of it leads to.
//!
//! World and the topology are always what was told last; only the compiled model waits its turn. So what is compiled is never
//! between two states: when an object goes and another takes its place, a host has the one or the other.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use tidegate_config::model::{BackendKey, HostPattern};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use super::{Deferred, Reconciler, follow};
use crate::compile::{Dirty, KUBERNETES};
use crate::history::{Cause, Sample};
use crate::names;
use crate::queue::Lane;
use crate::topology::{Key, references};

/// What waits to be compiled.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Work {
    Object(ObjectRef),
    Name(Arc<str>),
    /// The backends of a Service, which it may be that nobody needs any more.
    Endpoints(ObjectName),
    /// A Service, which must not lead to the API server, which is somewhere else than before.
    Guarded(ObjectName),
}

/// An object that waits to be compiled.
#[derive(Debug)]
pub(super) struct Waiting {
    /// What was told of it last.
    cause: Cause,
    /// What it referred to when it was compiled last.
    before: Box<[Key]>,
    /// What it has referred to since, and no longer does.
    since: BTreeSet<Key>,
}

/// What a batch of changes leads to.
#[derive(Debug, Default)]
pub(super) struct Affected {
    pub(super) dirty: Dirty,
    /// Hosts whose claimants themselves have changed.
    pub(super) moved: BTreeSet<HostPattern>,
    /// Whether an edge on the way to a DNS name has come or gone.
    pub(super) names: bool,
    /// Secrets that a changed Ingress referred to until now.
    pub(super) secrets: BTreeSet<ObjectName>,
    pub(super) causes: Sample<Cause>,
}

impl Reconciler {
    /// Lets an object wait that is another one now. Before the first model nothing has to wait: that is made of all there is.
    pub(super) fn wait(&mut self, object: ObjectRef, cause: Cause, lane: Lane, received: Instant) {
        if !self.running {
            return;
        }
        if object.kind == Kind::EndpointSlice && object.name == *KUBERNETES {
            self.guard(received);
        }
        let before = self.relink(&object);
        self.left(&object, &before);
        match self.waiting.entry(object.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Waiting { cause, before, since: BTreeSet::new() });
            }
            Entry::Occupied(waiting) => {
                let waiting = waiting.into_mut();
                waiting.since.extend(before);
                waiting.cause = cause;
            }
        }
        self.add(object, lane, received);
    }

    /// Lets an object wait that is as it was, to be looked at again.
    pub(super) fn wait_again(&mut self, object: ObjectRef, lane: Lane, received: Instant) {
        let before = self.topology.references_of(&object).into();
        let cause = Cause::Changed { object: object.clone(), resource_version: None };
        let waiting = Waiting { cause, before, since: BTreeSet::new() };
        self.waiting.entry(object.clone()).or_insert(waiting);
        self.add(object, lane, received);
    }

    fn add(&mut self, object: ObjectRef, lane: Lane, received: Instant) {
        let rank = if lane == Lane::Slow { self.options.order.of(&object, &self.topology) } else { 0 };
        self.queue.add(Work::Object(object), lane, rank, received);
    }

    /// Looks again at what every Service leads to, because the API server is somewhere else than before. They are many and it
    /// moves rarely, so they wait in the slow lane, where no live change waits for them; what is led to goes first.
    pub(super) fn guard(&mut self, received: Instant) {
        for name in self.world.services.keys().filter(|_| self.running) {
            let led_to = self.compiled.backends_of(name).next().is_some();
            let object = ObjectRef::new(Kind::Service, name.clone());
            let rank = if led_to { self.options.order.of(&object, &self.topology) } else { u64::MAX };
            self.queue.add(Work::Guarded(object.name), Lane::Slow, rank, received);
        }
    }

    /// Links an object as World has it; what it referred to before.
    pub(super) fn relink(&mut self, object: &ObjectRef) -> Box<[Key]> {
        let keys = self.world.get(object).map(|object| references(&object)).unwrap_or_default();
        self.topology.relink(object, keys)
    }

    /// Notes the Services that an Ingress led to until now: its hosts do until they are compiled.
    fn left(&mut self, object: &ObjectRef, before: &[Key]) {
        if object.kind == Kind::Ingress {
            let services = before.iter().filter_map(Key::service);
            self.left.extend(services.map(|service| (service.name.clone(), object.name.clone())));
        }
    }

    /// The backends of dirty Services that hosts need which stay as they are, whether an Ingress leads there or not.
    pub(super) fn needed(&self, dirty: &BTreeSet<ObjectName>) -> BTreeSet<BackendKey> {
        let stay = self.deferred.keys().flat_map(|host| self.compiled.led_to(host));
        stay.filter(|key| dirty.contains(&key.service)).cloned().collect()
    }

    /// The Services that are followed because Ingresses which wait led to them when they were compiled last.
    pub(super) fn left_compiled(&self) -> impl Iterator<Item = &ObjectName> {
        let services = self.left.iter().map(|(service, _)| service);
        services.filter(|service| self.compiled.backends_of(service).next().is_some())
    }

    /// The Ingresses that wait and led to a Service when they were compiled last.
    fn led_to(&self, service: &ObjectName) -> impl Iterator<Item = ObjectRef> {
        let all =
            self.left.range((service.clone(), ObjectName::default())..).take_while(move |(left, _)| left == service);
        all.map(|(_, ingress)| ObjectRef::new(Kind::Ingress, ingress.clone()))
    }

    /// What is to be compiled for a batch.
    pub(super) fn affected(&mut self, batch: impl Iterator<Item = Work>) -> Affected {
        let mut affected = Affected::default();
        for work in batch {
            match work {
                Work::Name(name) => {
                    affected.dirty.name(&name, &self.topology);
                    affected.causes.note(Cause::Resolved { name });
                }
                Work::Endpoints(service) => {
                    affected.dirty.services.insert(service.clone());
                    affected.causes.note(Cause::Released { service });
                }
                Work::Guarded(service) => {
                    affected.dirty.services.insert(service);
                    affected.causes.note(Cause::ApiServer);
                }
                Work::Object(object) => self.changed(&object, &mut affected),
            }
        }
        affected
    }

    fn changed(&mut self, object: &ObjectRef, affected: &mut Affected) {
        let Some(Waiting { cause, before, since }) = self.waiting.remove(object) else { return };
        affected.causes.note(cause);
        affected.names |= names::moved(&self.topology, object, &before, &since);
        let before: Vec<Key> = before.into_iter().chain(since).collect();
        affected.secrets.extend(follow::secrets(&before).cloned());
        affected.dirty.object(object, &before, &self.topology, &self.options);
        if object.kind == Kind::Ingress {
            for service in before.iter().filter_map(Key::service) {
                self.left.remove(&(service.name.clone(), object.name.clone()));
            }
            let claimed = before.iter().chain(self.topology.references_of(object)).filter_map(Key::host);
            affected.moved.extend(claimed.cloned());
        }
    }

    /// Takes along all that stands with what is compiled, and gives the hosts that waited to be settled among it.
    pub(super) fn accompany(&mut self, affected: &mut Affected, now: Instant) -> BTreeMap<HostPattern, Deferred> {
        let mut all = BTreeMap::new();
        loop {
            self.take_along(affected);
            let mut woken = self.wake_hosts(affected, now);
            if woken.is_empty() {
                return all;
            }
            all.append(&mut woken);
        }
    }

    /// Takes along what waits and stands with what is compiled: who claims a host, where the host leads or led, and the classes that
    /// say whose all of it is. These are compiled as World has them, so what of them changed has changed for the host too.
    fn take_along(&mut self, affected: &mut Affected) {
        let class = |object: &&ObjectRef| object.kind == Kind::IngressClass;
        let first = ObjectRef::new(Kind::IngressClass, ObjectName::default());
        let classes: Vec<ObjectRef> =
            self.waiting.range(first..).map(|(it, _)| it).take_while(class).cloned().collect();
        classes.iter().for_each(|class| self.changed(class, affected));
        let (mut hosts, mut services, mut claimants) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        while !self.waiting.is_empty() {
            let new_hosts: Vec<HostPattern> = affected.dirty.hosts.difference(&hosts).cloned().collect();
            let new_services: Vec<ObjectName> = affected.dirty.services.difference(&services).cloned().collect();
            if new_hosts.is_empty() && new_services.is_empty() {
                return;
            }
            let mut with: Vec<ObjectRef> = Vec::new();
            for claimant in new_hosts.iter().flat_map(|host| self.topology.referrers(&Key::Host(host.clone()))) {
                // One object may claim thousands of hosts and lead to as many Services.
                if claimants.insert(claimant.clone()) {
                    let led_to = self.topology.references_of(claimant).iter().filter_map(Key::service);
                    with.extend(std::iter::once(claimant).chain(led_to).cloned());
                }
            }
            with.extend(new_services.iter().map(|name| ObjectRef::new(Kind::Service, name.clone())));
            with.extend(new_services.iter().flat_map(|name| self.led_to(name)));
            with.iter().for_each(|object| self.changed(object, affected));
            hosts.extend(new_hosts);
            services.extend(new_services);
        }
    }

    /// Takes the hosts that need to wait no longer, or may not: their time is over, what they wait for is in the batch, or they
    /// are compiled anyway. All others stay as they are and are not compiled.
    fn wake_hosts(&mut self, affected: &mut Affected, now: Instant) -> BTreeMap<HostPattern, Deferred> {
        let Affected { dirty, moved, .. } = affected;
        let comes = |object: &ObjectRef| match object.kind {
            Kind::Service => dirty.services.contains(&object.name),
            Kind::Ingress | Kind::IngressClass | Kind::EndpointSlice | Kind::Secret => dirty.objects.contains(object),
        };
        let wakes = |host: &HostPattern, wait: &mut Deferred| {
            wait.until <= now || dirty.hosts.contains(host) || wait.awaited.iter().any(comes)
        };
        let woken: BTreeMap<HostPattern, Deferred> = self.deferred.extract_if(.., wakes).collect();
        for (host, wait) in &woken {
            let awaited = wait.awaited.iter().filter(|object| object.kind == Kind::Service);
            dirty.services.extend(awaited.map(|service| service.name.clone()));
            dirty.services.extend(self.compiled.led_to(host).map(|key| key.service.clone()));
            dirty.hosts.insert(host.clone());
            moved.insert(host.clone());
        }
        woken
    }
}
