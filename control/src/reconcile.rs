//! The control loop's state machine: events go in, parts of the next snapshot come out. Synchronous, and time is an argument.

mod audit;
mod batch;
mod follow;
mod found;
mod hold;
mod listing;
mod observe;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

pub use audit::Audit;
use audit::Round;
use batch::{Affected, Waiting, Work};
use follow::Followed;
pub use found::{Found, Standing};
use hold::Hold;
use listing::Listing;
use report::Reporting;
pub use report::{Addresses, Amiss};
use tidegate_config::model::{HostPattern, SnapshotParts};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use crate::compile::{Compiled, HostUnit, Touched, compile};
use crate::event::Source;
use crate::history::{Cause, Changes};
use crate::informer::Follow;
use crate::names::{self, Names};
use crate::options::Options;
use crate::queue::{Meter, Queue, Retries};
use crate::settle::awaited;
use crate::topology::{Topology, references};
use crate::withheld::{Wait, Withheld};
use crate::world::World;

/// Owns World, topology and the last compilation; nobody else changes them.
#[derive(Debug)]
pub struct Reconciler {
    options: Options,
    world: World,
    topology: Topology,
    compiled: Compiled,
    queue: Queue<Work>,
    /// The objects that wait in the queue.
    waiting: BTreeMap<ObjectRef, Waiting>,
    /// Services that Ingresses which wait led to when they were compiled last, each with its Ingress.
    left: BTreeSet<(ObjectName, ObjectName)>,
    /// Which sources have been listed.
    listing: Listing,
    /// When the first model was compiled; nothing is published before.
    running: bool,
    /// Hosts whose next routes lead to what World has never seen.
    deferred: BTreeMap<HostPattern, Deferred>,
    /// Sources whose last list would have removed so much that another one has to confirm it.
    doubted: BTreeSet<Source>,
    /// The DNS names that are looked up.
    names: Arc<Names>,
    /// Routes that serve instead of the cluster's.
    hold: Option<Hold>,
    /// Services whose endpoints a held route needs and nobody knows yet.
    missing: BTreeSet<ObjectName>,
    /// What an operator's command changes, until it is published.
    commanded: Option<Changes>,
    /// What the status of Ingresses says, and which of it may have to be written.
    reporting: Reporting,
    /// How far the audit has come.
    round: Round,
    /// Which Secrets are followed by name, where they are.
    followed: Followed,
}

/// What a host waits for.
#[derive(Debug)]
struct Deferred {
    until: Instant,
    awaited: BTreeSet<ObjectRef>,
}

/// What one call of [`Reconciler::reconcile`] did.
#[derive(Debug)]
pub struct Step {
    /// What to publish and how it differs from what was published before, where it does.
    pub published: Option<(SnapshotParts, Changes)>,
    /// What was compiled.
    pub touched: Touched,
    /// When the oldest of the changes arrived.
    pub oldest: Option<Instant>,
    /// The DNS names to look up, where they may be others than before.
    pub names: Option<Arc<Names>>,
    /// Which Secrets are followed by name, where others are than before; at first, also when none is.
    pub secrets: Option<Vec<Follow>>,
}

impl Reconciler {
    /// A loop that waits for these sources to be listed.
    #[must_use]
    pub fn new(options: Options, sources: impl IntoIterator<Item = Source>) -> Self {
        let compiled = Compiled::empty(&options);
        let reporting = Reporting::new(&options.publish);
        Self {
            options,
            world: World::default(),
            topology: Topology::default(),
            compiled,
            queue: Queue::default(),
            waiting: BTreeMap::new(),
            left: BTreeSet::new(),
            listing: Listing::new(sources),
            running: false,
            deferred: BTreeMap::new(),
            doubted: BTreeSet::new(),
            names: Arc::default(),
            hold: None,
            missing: BTreeSet::new(),
            commanded: None,
            reporting,
            round: Round::default(),
            followed: Followed::default(),
        }
    }

    /// The same loop, with its queue counted by this meter. To be called before anything else.
    #[must_use]
    pub fn metered(mut self, meter: Meter) -> Self {
        self.queue = Queue::new(meter, Retries::default());
        self
    }

    /// Begins a new life after a panic or a lost task: everything that follows from World is forgotten, because a panic
    /// may have left it half done, and every source has to be listed again. World stays. It is changed object by object,
    /// and the lists correct it before anything is published; without it a list that lost most of a kind would find
    /// nothing to be measured against, and what cannot be listed now, such as Secrets, would be gone from what serves. What an
    /// operator holds stays held.
    pub fn start_over(&mut self, sources: impl IntoIterator<Item = Source>) {
        let (world, mut queue) = (std::mem::take(&mut self.world), std::mem::take(&mut self.queue));
        let hold = self.hold.take();
        queue.clear();
        *self = Self { world, queue, hold, ..Self::new(self.options.clone(), sources) };
    }

    /// Compiles the next batch. `None` when there is nothing to do now.
    pub fn reconcile(&mut self, now: Instant) -> Option<Step> {
        if !self.running {
            return self.start(now);
        }
        let due = self.deferred.values().any(|wait| wait.until <= now);
        if self.queue.is_empty() && !due && self.commanded.is_none() {
            return None;
        }
        let pace = self.options.pace;
        let batch = self.queue.take(pace.share, now);
        let oldest = batch.iter().map(|(_, since)| *since).min();
        let mut affected = self.affected(batch.into_iter().map(|(work, _)| work));
        let woken = self.accompany(&mut affected, now);
        let Affected { mut dirty, moved, mut names, secrets, mut causes } = affected;
        dirty.services.append(&mut self.missing);
        dirty.needed = self.needed(&dirty.services);
        let Self { world, topology, compiled, options, deferred, .. } = self;
        let mut waiting = BTreeMap::new();
        let waits = |host: &HostPattern, compiled: &Compiled, unit: &HostUnit| {
            let until = woken.get(host).map_or(now + pace.settle, |wait| wait.until);
            if !moved.contains(host) || until <= now {
                return false;
            }
            let awaited = awaited(world, topology, compiled, unit, host);
            let waits = awaited.is_some();
            waiting.extend(awaited.map(|awaited| (host.clone(), Deferred { until, awaited })));
            waits
        };
        let (mut touched, still) = compiled.recompile(world, options, topology, &dirty, waits);
        self.reporting.judged(&dirty.objects);
        for host in woken.keys().filter(|host| !still.contains(host)) {
            causes.note(Cause::Settled { host: host.clone() });
        }
        deferred.append(&mut waiting);
        touched.changes.causes = causes;
        names |= touched.members || self.commanded.is_some() || !still.iter().eq(woken.keys());
        let names = names.then(|| self.name());
        let secrets = self.follow_others(secrets, &dirty.objects);
        let published = self.outgoing(std::mem::take(&mut touched.changes));
        Some(Step { published, touched, oldest, names, secrets })
    }

    /// When [`Reconciler::reconcile`] has to be called even if nothing happens until then.
    #[must_use]
    pub fn wake(&self) -> Option<Instant> {
        if self.running {
            return self.deferred.values().map(|wait| wait.until).min();
        }
        self.listing.patience(&self.options.pace)
    }

    /// Whether keys wait.
    #[must_use]
    pub fn busy(&self) -> bool {
        !self.queue.is_empty()
    }

    /// What has been compiled and does not serve. Of times, so much is to go or has gone by as of `now`, which is `wall` on
    /// the clock of people.
    #[must_use]
    pub fn withheld(&self, now: Instant, wall: SystemTime) -> Withheld {
        let waits = self.deferred.iter().map(|(host, Deferred { until, awaited })| Wait {
            host: host.clone(),
            until: wall.checked_add(until.saturating_duration_since(now)).unwrap_or(wall),
            awaited: awaited.iter().cloned().collect(),
        });
        let held = self.hold.as_ref().map(|hold| hold.by_command(now, wall));
        Withheld { held, waits: waits.collect() }
    }

    /// Ends the batch that was compiled last: what it changed is published.
    pub fn finish(&mut self, now: Instant) {
        self.queue.finish(now);
    }

    /// Whether the first complete model has been compiled.
    #[must_use]
    pub const fn running(&self) -> bool {
        self.running
    }

    /// Sources that have not been listed yet.
    #[must_use]
    pub const fn unsynced(&self) -> &BTreeSet<Source> {
        self.listing.unsynced()
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

    /// Makes out again which DNS names are looked up, and forgets what the others led to.
    fn name(&mut self) -> Arc<Names> {
        let kept = self.deferred.keys().flat_map(|host| self.compiled.led_to(host)).chain(&*self.options.followed);
        let kept = kept.map(|key| &key.service).chain(self.left_compiled());
        let names = names::in_use(&self.topology, &self.compiled, kept);
        self.world.names.retain(|name, _| names.contains_key(name));
        self.names = Arc::new(names);
        Arc::clone(&self.names)
    }

    /// The first model, once what routing cannot do without has been listed, and the rest too or its grace is over.
    fn start(&mut self, now: Instant) -> Option<Step> {
        let patient = self.wake().is_none_or(|deadline| now < deadline);
        if self.listing.waits() {
            return None;
        }
        if let Some(secrets) = self.follow_first() {
            let (published, touched, oldest, names) = (None, Touched::default(), None, None);
            return Some(Step { published, touched, oldest, names, secrets: Some(secrets) });
        }
        if !self.unsynced().is_empty() && patient {
            return None;
        }
        for source in self.unsynced() {
            tracing::warn!(%source, "it could not be listed in time; the first model is made without it");
        }
        self.running = true;
        self.world.compact();
        let objects = Kind::ALL.into_iter().flat_map(|kind| self.world.names_of(kind, None));
        let known = objects.filter_map(|object| Some((object.clone(), self.world.get(object)?)));
        self.topology = known.map(|(object, projection)| (object, references(&projection))).collect();
        self.compiled = compile(&self.world, &self.options);
        let touched = Touched {
            changes: Changes::default(),
            hosts: self.compiled.parts.hosts.len(),
            services: self.world.services.len(),
            members: true,
        };
        let names = Some(self.name());
        self.begin_audit(now);
        self.commanded.get_or_insert_with(|| Changes::of(Cause::Started));
        let secrets = self.follow_all();
        let published = self.outgoing(Changes::default());
        Some(Step { published, touched, oldest: None, names, secrets })
    }
}
