//! Seeded simulation of the control loop: a die plays events, repeats, deletions, batches, lost events, lists, lists that
//! come late, new lives, and an operator who holds and thaws routes, and after each quiet point the incremental result must equal a compilation from scratch.
//!
//! `SIM_SEED=7` replays one seed, `SIM_SEEDS=10000` plays that many; the default is a sample that takes seconds.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

mod cluster;
mod naive;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::Cluster;
use tidegate_config::model::{Action, Backend, BackendKey, Generation, HostPattern, HostRoutes, SnapshotParts};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_control::options::{HostOwnership, Options, Pace};
use tidegate_control::{Cause, Changes, Command, Compiled, Event, Reconciler, Share, Source, World, compile};

const STEPS: usize = 300;

fn options(die: &mut fastrand::Rng) -> Options {
    let host_ownership = if die.bool() { HostOwnership::Shared } else { HostOwnership::Namespace };
    let default_certificate = die.bool().then(|| ObjectName::new("red", "s0"));
    // Small batches, so that related changes land in different ones.
    let pace = Pace::default();
    let share = Share { batch_max: die.usize(1..6), slow_batch_max: die.usize(1..6), ..pace.share };
    let pace = Pace { share, sweep_free: 3, ..pace };
    Options { host_ownership, default_certificate, pace, ..Options::default() }
}

struct Simulation {
    seed: u64,
    die: fastrand::Rng,
    now: Instant,
    cluster: Cluster,
    reconciler: Reconciler,
    /// Kinds of which an event was lost: they are listed before the next quiet point, as an informer would.
    lost: BTreeSet<Kind>,
    /// Kinds that cannot be listed yet, so that no event of them arrives: routing can do without.
    held: BTreeSet<Kind>,
    /// Events that were sent and not yet delivered.
    pending: Vec<Event>,
    /// Every model that was published, the newest last.
    published: Vec<SnapshotParts>,
    /// The routes that an operator holds.
    frozen: Option<SnapshotParts>,
}

impl Simulation {
    #[allow(clippy::disallowed_methods, reason = "a simulation needs some instant to start from")]
    fn new(seed: u64) -> Self {
        let mut die = fastrand::Rng::with_seed(seed);
        let sources = Kind::ALL.map(|kind| Source { kind, namespace: None });
        let reconciler = Reconciler::new(options(&mut die), sources);
        let now = Instant::now();
        let held = [Kind::Secret, Kind::IngressClass].into_iter().filter(|_| die.bool()).collect();
        let (cluster, lost, pending) = (Cluster::default(), BTreeSet::new(), Vec::new());
        Self { seed, die, now, cluster, reconciler, lost, held, pending, published: Vec::new(), frozen: None }
    }

    fn run(mut self) {
        for _ in 0..self.die.usize(0..20) {
            drop(self.cluster.change(&mut self.die, self.now));
        }
        for kind in Kind::ALL {
            if !self.held.contains(&kind) {
                self.list(kind);
            }
        }
        let pace = self.reconciler.options().pace;
        self.now += pace.optional_grace.max(pace.optional_slow_grace);
        self.quiet();
        for _ in 0..STEPS {
            self.step();
        }
        self.quiet();
    }

    fn step(&mut self) {
        match self.die.u32(0..100) {
            0..60 => {
                let event = self.cluster.change(&mut self.die, self.now);
                self.pending.extend(event);
            }
            60..65 => {
                if let Some(event) = self.cluster.change(&mut self.die, self.now) {
                    self.lost.extend(kind_of(&event));
                }
            }
            65..70 => self.pending.extend(self.cluster.repeat(&mut self.die, self.now)),
            70..74 => {
                let kind = self.die.choice(Kind::ALL).unwrap_or(Kind::Ingress);
                self.deliver();
                self.list(kind);
            }
            74..76 => {
                let kind = self.die.choice(Kind::ALL).unwrap_or(Kind::Ingress);
                let source = Source { kind, namespace: None };
                self.pending.push(Event::Failing { source, why: "the list was cut short".to_owned() });
            }
            76 => {
                self.reconciler.start_over(Kind::ALL.map(|kind| Source { kind, namespace: None }));
                self.pending.clear();
                self.list_all();
            }
            77 => self.command(),
            78..80 => self.now += Duration::from_millis(self.die.u64(0..1500)),
            80..92 => {
                self.deliver();
                self.reconcile_once();
            }
            _ => self.quiet(),
        }
    }

    /// An operator goes back to some model, or thaws.
    fn command(&mut self) {
        let (now, earlier) = (self.now, self.die.choice(&self.published).cloned());
        if !self.reconciler.running() {
            return;
        }
        match earlier.filter(|_| self.die.bool()) {
            Some(routes) => {
                let generation = Generation(self.die.u64(1..9));
                self.reconciler.hold(Command::Rollback(generation), generation, routes.clone(), now);
                assert_eq!(self.reconciler.held(), Some(generation));
                self.frozen = Some(routes);
            }
            None => {
                self.reconciler.thaw(Command::Thaw, now);
                assert_eq!(self.reconciler.held(), None);
                self.frozen = None;
            }
        }
    }

    fn deliver(&mut self) {
        for event in std::mem::take(&mut self.pending) {
            if kind_of(&event).is_some_and(|kind| self.held.contains(&kind)) {
                continue;
            }
            assert_eq!(self.reconciler.observe(event, self.now), None, "seed {}", self.seed);
        }
    }

    /// A completed list; one that is doubted is followed by the second that confirms it.
    fn list(&mut self, kind: Kind) {
        self.lost.remove(&kind);
        self.held.remove(&kind);
        let event = self.cluster.list(kind, self.now);
        if self.reconciler.observe(event, self.now).is_some() {
            let again = self.cluster.list(kind, self.now);
            assert_eq!(self.reconciler.observe(again, self.now), None, "seed {}: a confirmed list acts", self.seed);
        }
    }

    fn list_all(&mut self) {
        for kind in Kind::ALL {
            self.list(kind);
        }
    }

    fn reconcile_once(&mut self) -> bool {
        let before = pointers(self.reconciler.compiled());
        let step = self.reconciler.reconcile(self.now);
        let stepped = step.is_some();
        if let Some((parts, changes)) = step.as_ref().and_then(|step| step.published.as_ref()) {
            if self.frozen.is_none() && !changes.causes.first.iter().any(whole) {
                self.check_changes(parts, changes);
            }
            self.published.push(parts.clone());
        }
        for name in step.and_then(|step| step.names).iter().flat_map(|names| &**names) {
            let answer = self.cluster.resolved(name);
            assert_eq!(answer.and_then(|event| self.reconciler.observe(event, self.now)), None);
        }
        for (host, after) in pointers(self.reconciler.compiled()) {
            if let Some(before) = before.get(&host).filter(|before| **before == after) {
                assert!(Arc::ptr_eq(before, &after), "seed {}: {host} did not move but was replaced", self.seed);
            }
        }
        stepped
    }

    /// Everything is delivered, nothing waits any more: now incremental must equal full.
    fn quiet(&mut self) {
        self.deliver();
        for kind in std::mem::take(&mut self.lost).difference(&self.held.clone()) {
            self.list(*kind);
        }
        while self.reconcile_once() {}
        self.now += self.reconciler.options().pace.settle;
        while self.reconcile_once() {}
        assert!(!self.reconciler.busy(), "seed {}: the queue is not empty", self.seed);
        self.check();
    }

    fn check(&self) {
        let seed = self.seed;
        let (world, options) = (self.reconciler.world(), self.reconciler.options());
        self.cluster.check_world(world, &self.held, seed);
        let (live, full) = (self.reconciler.compiled(), compile(world, options));
        assert_eq!(pointers(live), pointers(&full), "seed {seed}: hosts");
        assert_eq!(live.parts.default_certificate, full.parts.default_certificate, "seed {seed}: default certificate");
        assert_eq!(live.findings, full.findings, "seed {seed}: findings");
        assert_eq!(live.verdicts, full.verdicts, "seed {seed}: verdicts");
        assert_eq!(backends(&live.parts), backends(&full.parts), "seed {seed}: backends");
        for finding in live.all_findings() {
            let known = world.holds(&finding.object);
            let named = options.default_certificate.as_ref() == Some(&finding.object.name);
            assert!(known || named, "seed {seed}: a finding about nothing: {finding}");
        }
        naive::check(world, options, live, seed);
        self.check_published(&live.parts);
    }

    /// What serves: the routes of the cluster, or those that are held; and the endpoints of today in any case, of every
    /// Service port that these routes lead to.
    fn check_published(&self, live: &SnapshotParts) {
        let seed = self.seed;
        let published = self.published.last().expect("a model");
        let routes = self.frozen.as_ref().unwrap_or(live);
        assert_eq!(hosts(published), hosts(routes), "seed {seed}: the routes that serve");
        assert_eq!(published.default_certificate, routes.default_certificate, "seed {seed}");
        assert_eq!(backends(published), backends(live), "seed {seed}: the endpoints that serve");
        let followed = &self.reconciler.options().followed;
        for route in published.hosts.iter().flat_map(|(_, host)| host.all().cloned().collect::<Vec<_>>()) {
            let Action::Forward(targets) = &route.action else { continue };
            for key in targets.iter().map(|weighted| &weighted.target.backend) {
                assert!(self.frozen.is_none() || followed.contains(key), "seed {seed}: {key}");
                let service = self.reconciler.world().services.get(&key.service);
                let there = service.is_some_and(|service| service.ports.iter().any(|port| port.number == key.port));
                assert!(!there || published.backends.contains_key(key), "seed {seed}: nobody follows {key}");
            }
        }
    }

    /// What is said to have changed is what has.
    fn check_changes(&self, after: &SnapshotParts, changes: &Changes) {
        let Some(before) = self.published.last() else { return };
        let (before, after) = (hosts(before), hosts(after));
        let differ = before.keys().chain(after.keys()).collect::<BTreeSet<_>>();
        let differ = differ.into_iter().filter(|host| before.get(host) != after.get(host)).count();
        assert_eq!(changes.hosts.total, differ, "seed {}: {changes:?}", self.seed);
        assert!(changes.causes.total > 0, "seed {}: nothing caused {changes:?}", self.seed);
    }
}

/// Whether a model is not told by its difference from the one before.
fn whole(cause: &Cause) -> bool {
    matches!(cause, Cause::Started | Cause::Commanded { .. })
}

fn hosts(parts: &SnapshotParts) -> BTreeMap<HostPattern, Arc<HostRoutes>> {
    parts.hosts.iter().map(|(host, routes)| (host, Arc::clone(routes))).collect()
}

fn backends(parts: &SnapshotParts) -> BTreeMap<BackendKey, Arc<Backend>> {
    parts.backends.iter().map(|(key, backend)| (key.clone(), Arc::clone(backend))).collect()
}

fn pointers(compiled: &Compiled) -> BTreeMap<HostPattern, Arc<HostRoutes>> {
    hosts(&compiled.parts)
}

fn kind_of(event: &Event) -> Option<Kind> {
    match event {
        Event::Applied { projected, .. } => Some(projected.meta.object.kind),
        Event::Deleted { object, .. } => Some(object.kind),
        Event::Listed { .. }
        | Event::Bookmark { .. }
        | Event::Watching { .. }
        | Event::Failing { .. }
        | Event::Resolved { .. } => None,
    }
}

#[test]
fn incremental_equals_full() {
    let number = |name: &str| option_env(name).and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("SIM_SEED") {
        return Simulation::new(seed).run();
    }
    let seeds = number("SIM_SEEDS").unwrap_or(if cfg!(debug_assertions) { 60 } else { 400 });
    for seed in 0..seeds {
        Simulation::new(seed).run();
    }
    println!("{seeds} seeds of {STEPS} events each: incremental equals full");
}

#[allow(clippy::disallowed_methods, reason = "the seed of a replay comes from the environment")]
fn option_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The list of a kind may be held back for ever: the loop must not start before.
#[test]
fn nothing_is_published_before_every_required_kind_was_listed() {
    let mut simulation = Simulation::new(1);
    for kind in [Kind::Ingress, Kind::Service] {
        simulation.list(kind);
        assert!(!simulation.reconcile_once());
    }
    simulation.now += Duration::from_secs(3600);
    assert!(!simulation.reconcile_once());
    simulation.list(Kind::EndpointSlice);
    assert!(!simulation.reconcile_once(), "the grace of the optional kinds has begun");
    simulation.now = simulation.reconciler.wake().expect("an end of the grace");
    assert!(simulation.reconcile_once(), "the grace of the optional kinds is over");
}

#[test]
fn a_list_that_removes_most_acts_only_when_confirmed() {
    let mut simulation = Simulation::new(2);
    for number in 0..8 {
        let object = ObjectRef::new(Kind::Service, ObjectName::new("red", format!("b{number}")));
        simulation.cluster.put_service(&object);
    }
    for kind in Kind::ALL {
        simulation.list(kind);
    }
    simulation.quiet();
    simulation.cluster.clear(Kind::Service);
    let source = Source { kind: Kind::Service, namespace: None };
    let event = simulation.cluster.list(Kind::Service, simulation.now);
    assert_eq!(simulation.reconciler.observe(event, simulation.now), Some(source));
    assert_eq!(services(simulation.reconciler.world()), 8);
    let event = simulation.cluster.list(Kind::Service, simulation.now);
    assert_eq!(simulation.reconciler.observe(event, simulation.now), None);
    assert_eq!(services(simulation.reconciler.world()), 0);
}

fn services(world: &World) -> usize {
    world.names_of(Kind::Service, None).count()
}
