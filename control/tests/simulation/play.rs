//! One run of a loop, step by step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_config::model::{Bind, BindKey, BindProtocol, Generation, Listener, SnapshotParts};
use tidegate_config::object::{Kind, ObjectName};
use tidegate_config::published::{self, Publisher};
use tidegate_control::options::{
    Deis, GatewayApi, GatewayServices, HostOwnership, Ingresses, Kuadrant, Options, Pace, Sources, UnconfirmedRemovals,
};
use tidegate_control::{Collection, Command, Event, LaneShares, Order, Reconciler};

use crate::check::{pointers, whole};
use crate::cluster::Cluster;
use crate::schedule::{Act, Schedule, Step};

fn options(die: &mut fastrand::Rng) -> Options {
    let host_ownership = if die.bool() { HostOwnership::Shared } else { HostOwnership::Namespace };
    let default_certificate = die.bool().then(|| ObjectName::new("red", "s0"));
    // Small batches, so that related changes land in different ones.
    let pace = Pace::default();
    let share = LaneShares { batch_max: die.usize(1..6), slow_batch_max: die.usize(1..6), ..pace.share };
    let unconfirmed_removals = UnconfirmedRemovals { count: 3, ..pace.unconfirmed_removals };
    let pace = Pace { share, unconfirmed_removals, audit: Duration::from_millis(20), ..pace };
    let deis = (die.u32(0..3) == 0).then(|| {
        let builder = ObjectName::new("blue", ["s0", "s1"][die.usize(0..2)]);
        Deis {
            router: ObjectName::new("blue", "deis-router"),
            builder: die.bool().then(|| (builder, ([127, 0, 0, 1], 2222).into())),
        }
    });
    let gateway = (die.u32(0..3) == 0).then(|| GatewayApi {
        controller: "tidegate.io/gateway".into(),
        addresses: [[127, 0, 0, 1].into(), [127, 0, 1, 1].into(), [127, 0, 1, 2].into()].into(),
        services: GatewayServices::Off,
        optional: false,
    });
    let kuadrant = (die.u32(0..4) > 0).then(Kuadrant::default);
    let sources = Sources { ingress: Some(Ingresses::default()), deis, gateway, kuadrant };
    let key = BindKey { address: ([127, 0, 0, 1], 80).into(), protocol: BindProtocol::Http };
    let binds = [Bind { key, listeners: [Listener::for_every_host("http")].into() }].into();
    // The limit is usually low, so that hosts are compiled incrementally.
    let whole_host_max = [0, 0, 3, Options::default().whole_host_max][die.usize(0..4)];
    Options { sources, host_ownership, default_certificate, binds, pace, whole_host_max, ..Options::default() }
}

/// An order of units in use first, which must not affect the result.
fn order(die: &mut fastrand::Rng) -> Order {
    let salt = die.u8(..);
    let in_use = move |name: &str| name.bytes().fold(salt, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)) % 3;
    Order::by(move |object| u64::from(in_use(&object.name.name)))
}

pub(crate) const fn all_of(kind: Kind) -> Collection {
    Collection { kind, namespace: None }
}

pub(crate) struct Simulation {
    pub(crate) seed: u64,
    /// The operator's options.
    pub(crate) options: Options,
    pub(crate) now: Instant,
    pub(crate) cluster: Cluster,
    pub(crate) reconciler: Reconciler,
    /// Kinds of which an event was lost: they are listed before the next quiet point, as an informer would.
    pub(crate) lost: BTreeSet<Kind>,
    /// Kinds that cannot be listed yet, so that no event of them arrives. Routing does not require them.
    pub(crate) held: BTreeSet<Kind>,
    /// Kinds that the cluster does not serve.
    pub(crate) unserved: BTreeSet<Kind>,
    /// Kinds whose last complete list must be confirmed by another one.
    pub(crate) unconfirmed: BTreeSet<Kind>,
    /// Events that were sent and not yet delivered. The streams of kinds overtake each other; each stream keeps its
    /// order.
    pub(crate) pending: BTreeMap<Option<Kind>, VecDeque<Event>>,
    /// Every published model, the newest last.
    pub(crate) published: Vec<SnapshotParts>,
    publisher: Publisher,
    /// The routes that an operator holds.
    pub(crate) frozen: Option<SnapshotParts>,
}

impl Simulation {
    /// A loop without any events, in a cluster with a few objects.
    #[allow(clippy::disallowed_methods, reason = "a simulation needs some instant to start from")]
    pub(crate) fn new(seed: u64) -> Self {
        let mut die = fastrand::Rng::with_seed(seed);
        let (options, order) = (options(&mut die), order(&mut die));
        let crowded = die.u32(0..3) == 0;
        let reconciler = Reconciler::new(options.clone(), Kind::ALL.map(all_of)).ordered(order);
        let mut simulation = Self {
            seed,
            options,
            now: Instant::now(),
            cluster: Cluster::new(crowded),
            reconciler,
            lost: BTreeSet::new(),
            held: [Kind::Secret, Kind::IngressClass].into_iter().filter(|_| die.bool()).collect(),
            unserved: BTreeSet::new(),
            unconfirmed: BTreeSet::new(),
            pending: BTreeMap::new(),
            published: Vec::new(),
            publisher: published::channel().0,
            frozen: None,
        };
        for _ in 0..die.usize(if crowded { 40..80 } else { 0..20 }) {
            drop(simulation.cluster.change(&mut die, simulation.now));
        }
        simulation
    }

    /// Plays a schedule, with a quiet point at its end.
    pub(crate) fn play(schedule: &Schedule) {
        let mut simulation = Self::new(schedule.seed);
        simulation.begin();
        for step in &schedule.steps {
            simulation.step(*step);
        }
        simulation.quiet();
        simulation.tell_all();
        // Finishes the current round of the audit, and then runs a whole one.
        while !simulation.audit_next() {}
        while !simulation.audit_next() {}
    }

    /// Lists every kind that can be listed; the loop stops waiting for the others.
    fn begin(&mut self) {
        for kind in Kind::ALL.into_iter().filter(|kind| !self.held.contains(kind)).collect::<Vec<_>>() {
            self.list(kind);
        }
        let pace = self.reconciler.model().options().pace;
        self.now += pace.optional_grace.max(pace.optional_slow_grace);
        self.quiet();
    }

    fn step(&mut self, Step { act, draw }: Step) {
        let mut die = fastrand::Rng::with_seed(draw);
        let kind = *die.choice(&Kind::ALL).expect("a kind");
        match act {
            Act::Change => {
                let event = self.cluster.change(&mut die, self.now);
                event.into_iter().for_each(|event| self.send(event));
            }
            Act::Lose => {
                if let Some(event) = self.cluster.change(&mut die, self.now) {
                    self.lost.extend(kind_of(&event));
                }
            }
            Act::Repeat => {
                let event = self.cluster.repeat(&mut die, self.now);
                event.into_iter().for_each(|event| self.send(event));
            }
            Act::List => self.list(kind),
            Act::ListPart => self.list_part(kind, &mut die),
            Act::ListLacking => self.list_lacking(kind, &mut die),
            Act::Unserve => self.unserve(kind, &mut die),
            Act::Serve => self.serve(&mut die),
            Act::Fail => {
                let why = "the list was cut short".to_owned();
                self.send(Event::Failing { collection: all_of(kind), why, denied: false });
            }
            Act::NewLife => {
                self.reconciler.start_over(Kind::ALL.map(all_of));
                self.unconfirmed.clear();
                self.list_all();
            }
            Act::Restart => {
                self.reconciler = Reconciler::new(self.options.clone(), Kind::ALL.map(all_of));
                self.frozen = None;
                self.unconfirmed.clear();
                self.list_all();
            }
            Act::Command => self.command(&mut die),
            Act::Wait => self.now += Duration::from_millis(die.u64(0..1500)),
            Act::Sleep => self.now += Duration::from_secs(die.u64(60..1_000_000)),
            Act::Deliver => self.deliver(Some(kind), die.usize(1..4)),
            Act::Reconcile => {
                self.deliver_all();
                self.reconcile_or_audit(&mut die);
            }
            Act::ReconcileOnly => self.reconcile_or_audit(&mut die),
            Act::Quiet => self.quiet(),
        }
    }

    /// An operator rolls back to some model, or thaws.
    fn command(&mut self, die: &mut fastrand::Rng) {
        if !self.reconciler.running() {
            return;
        }
        match die.choice(&self.published).cloned().filter(|_| die.bool()) {
            Some(routes) => {
                let generation = Generation(die.u64(1..9));
                self.reconciler.hold(Command::Rollback(generation), generation, routes.clone(), self.now);
                assert_eq!(self.reconciler.held(), Some(generation));
                self.frozen = Some(routes);
            }
            None => {
                self.reconciler.thaw(Command::Thaw, self.now);
                assert_eq!(self.reconciler.held(), None);
                self.frozen = None;
            }
        }
    }

    fn send(&mut self, event: Event) {
        self.pending.entry(kind_of(&event)).or_default().push_back(event);
    }

    /// Delivers the next few events of one stream.
    pub(crate) fn deliver(&mut self, stream: Option<Kind>, events: usize) {
        let Some(waiting) = self.pending.get_mut(&stream) else { return };
        let events: Vec<Event> = waiting.drain(..events.min(waiting.len())).collect();
        for event in events {
            if kind_of(&event).is_none_or(|kind| self.heard(kind)) {
                assert_eq!(self.reconciler.observe(event, self.now), None, "seed {}", self.seed);
            }
        }
    }

    fn deliver_all(&mut self) {
        for stream in self.pending.keys().copied().collect::<Vec<_>>() {
            self.deliver(stream, usize::MAX);
        }
    }

    pub(crate) fn reconcile_once(&mut self) -> bool {
        let before = pointers(self.reconciler.model().compiled());
        let parts = self.reconciler.model().compiled().parts.clone();
        let step = self.reconciler.reconcile(self.now);
        let stepped = step.is_some();
        if let Some((parts, changes)) = step.as_ref().and_then(|step| step.published.as_ref()) {
            if self.frozen.is_none() && !changes.causes.first.iter().any(whole) {
                self.check_changes(parts, changes);
            }
            self.published.push(parts.clone());
            let ready = self.publisher.prepare(parts.clone());
            self.publisher.publish(ready);
        }
        for name in step.and_then(|step| step.names).iter().flat_map(|names| names.keys()) {
            let answer = self.cluster.resolved(name);
            assert_eq!(answer.and_then(|event| self.reconciler.observe(event, self.now)), None);
        }
        for (host, after) in pointers(self.reconciler.model().compiled()) {
            if let Some(before) = before.get(&host).filter(|before| **before == after) {
                assert!(Arc::ptr_eq(before, &after), "seed {}: {host} did not move but was replaced", self.seed);
            }
        }
        self.check_routed(&parts);
        stepped
    }

    fn reconcile_or_audit(&mut self, die: &mut fastrand::Rng) {
        if !self.reconcile_once() {
            self.audit(die.u64(..));
        }
    }

    /// A turn of the audit, if it is due: it must not find a difference. Returns whether its round has ended.
    fn audit(&mut self, draw: u64) -> bool {
        let before = pointers(self.reconciler.model().compiled());
        let audit = self.reconciler.audit(&self.publisher.serving(), self.now, draw);
        let Some(audit) = audit else { return false };
        assert!(audit.drifted.is_empty() && audit.step.is_none(), "seed {}: {:?}", self.seed, audit.drifted);
        let after = pointers(self.reconciler.model().compiled());
        let kept = before.len() == after.len() && before.iter().all(|(host, routes)| Arc::ptr_eq(routes, &after[host]));
        assert!(kept, "seed {}: an audit has replaced what had not drifted", self.seed);
        audit.whole
    }

    /// The next turn of the audit.
    fn audit_next(&mut self) -> bool {
        self.now = self.now.max(self.reconciler.audit_due().expect("nothing waits"));
        self.audit(0)
    }

    /// Delivers everything and empties the queue: now the incremental result must equal the Pingora driver.
    pub(crate) fn quiet(&mut self) {
        self.deliver_all();
        for kind in std::mem::take(&mut self.lost).difference(&self.held.clone()) {
            self.list(*kind);
        }
        self.compile_all();
        self.check();
        self.audit_next();
    }

    /// Compiles until the queue is empty.
    pub(crate) fn compile_all(&mut self) {
        while self.reconcile_once() {}
        self.now += self.reconciler.model().options().pace.settle;
        while self.reconcile_once() {}
        assert!(!self.reconciler.busy(), "seed {}: the queue is not empty", self.seed);
    }
}

fn kind_of(event: &Event) -> Option<Kind> {
    match event {
        Event::Applied { projected, .. } => Some(projected.meta.object.kind),
        Event::Deleted { object, .. } => Some(object.kind),
        Event::Failing { collection, .. } => Some(collection.kind),
        Event::Listed { .. }
        | Event::Resumed { .. }
        | Event::Unserved { .. }
        | Event::Unreadable { .. }
        | Event::Unlisted { .. }
        | Event::Defined { .. }
        | Event::Bookmark { .. }
        | Event::Watching { .. }
        | Event::Resolved { .. }
        | Event::KeySet { .. }
        | Event::ApiServer { .. }
        | Event::BindFailures { .. } => None,
    }
}
