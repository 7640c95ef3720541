//! The control loop's state machine: events go in, parts of the next snapshot come out. Synchronous, and time is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use tidegate_config::model::{Action, HostPattern, Route, SnapshotParts};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::{Projected, ServiceKind};

use crate::compile::{Compiled, Dirty, HostUnit, Touched, compile};
use crate::event::{Event, Source};
use crate::options::Options;
use crate::queue::{Lane, Queue, Share};
use crate::topology::{Key, Topology, references};
use crate::world::World;

/// What waits to be compiled.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Work {
    Object(ObjectRef),
    Name(Arc<str>),
}

/// Owns World, topology and the last compilation; nobody else changes them.
#[derive(Debug)]
pub struct Reconciler {
    options: Options,
    world: World,
    topology: Topology,
    compiled: Compiled,
    queue: Queue<Work>,
    /// Sources that have not been listed yet.
    unsynced: BTreeSet<Source>,
    started: Option<Instant>,
    /// When the first model was compiled; nothing is published before.
    running: bool,
    /// Hosts whose next routes lead to what World has never seen, and until when they wait for it.
    deferred: BTreeMap<HostPattern, Instant>,
    /// Sources whose last list would have removed so much that another one has to confirm it.
    doubted: BTreeSet<Source>,
}

/// What one call of [`Reconciler::reconcile`] did.
#[derive(Debug)]
pub struct Step {
    /// What to publish, where anything differs.
    pub parts: Option<SnapshotParts>,
    /// What was compiled.
    pub touched: Touched,
    /// When the oldest of the changes arrived.
    pub oldest: Option<Instant>,
    /// Whether the names that are looked up may be different.
    pub names_moved: bool,
}

impl Reconciler {
    /// A loop that waits for these sources to be listed.
    #[must_use]
    pub fn new(options: Options, sources: impl IntoIterator<Item = Source>) -> Self {
        let compiled = Compiled::empty(&options);
        Self {
            options,
            world: World::default(),
            topology: Topology::default(),
            compiled,
            queue: Queue::default(),
            unsynced: sources.into_iter().collect(),
            started: None,
            running: false,
            deferred: BTreeMap::new(),
            doubted: BTreeSet::new(),
        }
    }

    /// Takes an event into World. Returns a source that has to be listed again before its last list is believed.
    pub fn observe(&mut self, event: Event, now: Instant) -> Option<Source> {
        match event {
            Event::Applied { projected, received } => self.apply(*projected, Lane::Fast, received),
            Event::Deleted { object, received, .. } => {
                if self.world.delete(&object) {
                    self.queue.add(Work::Object(object), Lane::Fast, received);
                }
            }
            Event::Listed { source, objects, received, .. } => return self.list(source, objects, received),
            Event::Resolved { name, addresses } => {
                if self.world.resolve(Arc::clone(&name), addresses) {
                    self.queue.add(Work::Name(name), Lane::Fast, now);
                }
            }
            Event::Bookmark { .. } | Event::Failing { .. } => {}
        }
        None
    }

    /// Compiles the next batch. `None` when there is nothing to do now.
    pub fn reconcile(&mut self, now: Instant) -> Option<Step> {
        if !self.running {
            return self.start(now);
        }
        let due = self.deferred.values().any(|deadline| *deadline <= now);
        if self.queue.is_empty() && !due {
            return None;
        }
        let pace = self.options.pace;
        let share = Share {
            batch_max: pace.batch_max,
            fast_batches_max: pace.fast_batches_max,
            slow_age_max: pace.slow_age_max,
        };
        let batch = self.queue.take(share, now);
        let oldest = batch.iter().map(|(_, since)| *since).min();
        let (mut dirty, mut moved) = self.dirty(batch.into_iter().map(|(work, _)| work));
        let names_moved = !dirty.services.is_empty();
        for host in self.deferred.keys() {
            dirty.services.extend(self.compiled.services_of(host));
            moved.insert(host.clone());
        }
        dirty.hosts.extend(self.deferred.keys().cloned());
        let Self { world, topology, compiled, options, deferred, .. } = self;
        let waits = |host: &HostPattern, compiled: &Compiled, unit: &HostUnit| {
            moved.contains(host)
                && deferred.get(host).is_none_or(|deadline| now < *deadline)
                && would_break(world, topology, compiled, unit, host)
        };
        let (touched, still) = compiled.recompile(world, options, topology, &dirty, waits);
        deferred.retain(|host, _| still.contains(host));
        for host in still {
            deferred.entry(host).or_insert(now + pace.settle);
        }
        let parts = touched.parts.then(|| compiled.parts.clone());
        Some(Step { parts, touched, oldest, names_moved })
    }

    /// When [`Reconciler::reconcile`] has to be called even if nothing happens until then.
    #[must_use]
    pub fn wake(&self) -> Option<Instant> {
        if self.running {
            return self.deferred.values().min().copied();
        }
        let optional = self.unsynced.iter().all(|source| !required(source.kind));
        self.started.filter(|_| optional).map(|started| started + self.options.pace.optional_grace)
    }

    /// Whether keys wait.
    #[must_use]
    pub fn busy(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Keys that wait in a lane.
    #[must_use]
    pub fn depth(&self, lane: Lane) -> usize {
        self.queue.depth(lane)
    }

    /// Whether the first complete model has been compiled.
    #[must_use]
    pub const fn running(&self) -> bool {
        self.running
    }

    /// Sources that have not been listed yet.
    #[must_use]
    pub const fn unsynced(&self) -> &BTreeSet<Source> {
        &self.unsynced
    }

    /// Every object as it is now.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// Who refers to whom.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The last compilation.
    #[must_use]
    pub const fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// What the operator decided.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// The DNS names to look up: those of ExternalName Services that an Ingress leads to. Others are left alone,
    /// so that a Service that nobody uses makes the edge ask nothing.
    #[must_use]
    pub fn names(&self) -> BTreeSet<Arc<str>> {
        let led_to = |name: &&Arc<str>| {
            let services = self.topology.referrers(&Key::Name((*name).clone())).cloned();
            services.into_iter().any(|service| self.topology.referrers_of(service, Kind::Ingress).next().is_some())
        };
        self.topology.names().filter(led_to).cloned().collect()
    }

    fn apply(&mut self, projected: Projected, lane: Lane, received: Instant) {
        let key = projected.meta.object.clone();
        if self.world.apply(projected) {
            self.queue.add(Work::Object(key), lane, received);
        }
    }

    /// A completed list: what it names is there, then what it does not name is gone.
    fn list(&mut self, source: Source, objects: Vec<Projected>, received: Instant) -> Option<Source> {
        let named: BTreeSet<ObjectRef> = objects.iter().map(|object| object.meta.object.clone()).collect();
        for projected in objects {
            self.apply(projected, Lane::Slow, received);
        }
        let held: Vec<ObjectRef> = self.world.names_of(source.kind, source.namespace.as_deref()).cloned().collect();
        let gone: Vec<&ObjectRef> = held.iter().filter(|object| !named.contains(object)).collect();
        if self.doubtful(gone.len(), held.len()) && self.doubted.insert(source.clone()) {
            return Some(source);
        }
        self.doubted.remove(&source);
        for object in gone {
            if self.world.delete(object) {
                self.queue.add(Work::Object(object.clone()), Lane::Slow, received);
            }
        }
        if self.unsynced.remove(&source) && source.kind == Kind::IngressClass {
            self.know_classes(received);
        }
        self.started.get_or_insert(received);
        None
    }

    #[allow(clippy::cast_precision_loss, reason = "a share of counts needs no more precision")]
    fn doubtful(&self, gone: usize, held: usize) -> bool {
        let pace = self.options.pace;
        gone > pace.sweep_free && gone as f64 > pace.sweep_share_max * held as f64
    }

    /// From now on classes are compared by their objects: every Ingress that refers to one is looked at again.
    fn know_classes(&mut self, received: Instant) {
        self.world.classes_known = !self.unsynced.iter().any(|source| source.kind == Kind::IngressClass);
        for name in self.world.ingresses.keys().filter(|_| self.running) {
            self.queue.add(Work::Object(ObjectRef::new(Kind::Ingress, name.clone())), Lane::Slow, received);
        }
    }

    /// The first model, once every kind that routing cannot do without has been listed, and the others too or their grace is over.
    fn start(&mut self, now: Instant) -> Option<Step> {
        let missing = |source: &Source| required(source.kind);
        let patient = self.wake().is_none_or(|deadline| now < deadline);
        if self.unsynced.iter().any(missing) || !self.unsynced.is_empty() && patient {
            return None;
        }
        self.running = true;
        while !self.queue.is_empty() {
            let share = Share { batch_max: usize::MAX, fast_batches_max: 0, slow_age_max: std::time::Duration::ZERO };
            for (work, _) in self.queue.take(share, now) {
                if let Work::Object(object) = work {
                    self.relink(&object);
                }
            }
        }
        self.compiled = compile(&self.world, &self.options);
        let touched =
            Touched { parts: true, hosts: self.compiled.parts.hosts.len(), services: self.world.services.len() };
        Some(Step { parts: Some(self.compiled.parts.clone()), touched, oldest: None, names_moved: true })
    }

    fn relink(&mut self, object: &ObjectRef) -> Box<[Key]> {
        let keys = self.world.get(object).map(|object| references(&object)).unwrap_or_default();
        self.topology.relink(object, keys)
    }

    /// What a batch makes dirty, and the hosts whose claimants themselves have changed.
    fn dirty(&mut self, batch: impl Iterator<Item = Work>) -> (Dirty, BTreeSet<HostPattern>) {
        let mut dirty = Dirty::default();
        let mut moved = BTreeSet::new();
        for work in batch {
            match work {
                Work::Name(name) => dirty.name(&name, &self.topology),
                Work::Object(object) => {
                    let before = self.relink(&object);
                    dirty.object(&object, &before, &self.topology, &self.options);
                    if object.kind == Kind::Ingress {
                        moved.extend(self.topology.references_of(&object).iter().filter_map(|key| match key {
                            Key::Host(host) => Some(host.clone()),
                            Key::Object(_) | Key::InNamespace(..) | Key::Any(_) | Key::Name(_) => None,
                        }));
                    }
                }
            }
        }
        (dirty, moved)
    }
}

/// Whether routing makes no sense without a kind.
fn required(kind: Kind) -> bool {
    match kind {
        Kind::Ingress | Kind::Service | Kind::EndpointSlice => true,
        Kind::Secret | Kind::IngressClass => false,
    }
}

/// Whether a route that works now would move to a Service or to endpoints that World has never seen. Kinds arrive in
/// no order, so these are probably on their way.
fn would_break(world: &World, topology: &Topology, compiled: &Compiled, unit: &HostUnit, host: &HostPattern) -> bool {
    let (Some(before), Some(after)) = (compiled.parts.hosts.get(host), &unit.routes) else { return false };
    let unseen = |route: &&Arc<Route>| match &route.action {
        Action::Redirect(_) => false,
        Action::Forward(targets) => targets.iter().all(|weighted| {
            let service = &weighted.target.backend.service;
            let external = world.services.get(service).is_some_and(|s| matches!(s.kind, ServiceKind::ExternalName(_)));
            let key = ObjectRef::new(Kind::Service, service.clone());
            !external && topology.referrers_of(key, Kind::EndpointSlice).next().is_none()
        }),
    };
    let mut unseen = after.routes().iter().chain(after.fallback()).filter(unseen).peekable();
    if unseen.peek().is_none() {
        return false;
    }
    let works = |route: &Arc<Route>| match &route.action {
        Action::Redirect(_) => true,
        Action::Forward(targets) => targets.iter().any(|weighted| {
            let backend = compiled.parts.backends.get(&weighted.target.backend);
            backend.is_some_and(|backend| !backend.endpoints.is_empty())
        }),
    };
    let now: BTreeMap<(&str, &str), &Arc<Route>> =
        before.routes().iter().chain(before.fallback()).map(|r| ((r.path.kind(), r.path.text()), r)).collect();
    unseen.any(|route| {
        let old = now.get(&(route.path.kind(), route.path.text()));
        old.is_some_and(|old| old.action != route.action && works(old))
    })
}
