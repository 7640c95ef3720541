//! The backlog: objects whose attachments are to be refreshed and units to compile, each with the reason.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use tidegate_config::object::{Layer, ObjectName, ObjectRef};

use super::model::Model;
use super::rank;
use crate::compile::Unit;
use crate::history::Cause;
use crate::order::Order;
use crate::queue::{Lane, LaneShares, Meter, Queue, Retries};
use crate::sample::Sample;

/// Work in the queue.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Work {
    /// An object whose attachment is to be refreshed, because a key with very many dependents changed.
    Refresh(ObjectRef),
    Compile(Unit),
}

/// The reason of some work, and its lane.
#[derive(Clone, Debug)]
pub(super) struct Reason {
    pub(super) cause: Arc<Cause>,
    pub(super) lane: Lane,
    /// When the change arrived.
    pub(super) received: Instant,
    /// Whether the object itself changed, as opposed to its dependencies.
    pub(super) own: bool,
}

/// A waiting unit.
#[derive(Debug, Default)]
struct WaitingUnit {
    causes: Causes,
    /// Whether an object's own change is among the causes, as opposed to its dependencies.
    own: bool,
    /// The Services that its claims no longer use.
    left: BTreeSet<ObjectName>,
}

/// Objects whose attachments are out of date, those of earlier layers first: one is refreshed after the objects that it
/// attaches to.
#[derive(Debug, Default)]
struct StaleObjects(BTreeMap<(Layer, ObjectRef), Reason>);

impl StaleObjects {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an object. The latest of several changes is the cause.
    fn add(&mut self, object: &ObjectRef, reason: &Reason) {
        match self.0.entry((object.kind.layer(), object.clone())) {
            Entry::Vacant(entry) => drop(entry.insert(reason.clone())),
            Entry::Occupied(mut entry) => entry.get_mut().join(reason),
        }
    }

    /// Takes the first object.
    fn take(&mut self) -> Option<(ObjectRef, Reason)> {
        self.0.pop_first().map(|((_, object), reason)| (object, reason))
    }
}

/// The queue of changes.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    queue: Queue<Work>,
    /// The order of the slow lane.
    order: Order,
    /// The units in the queue.
    units: BTreeMap<Unit, WaitingUnit>,
    /// The objects in the queue.
    objects: BTreeMap<ObjectRef, Reason>,
    /// Objects to refresh in the next step, before anything is compiled.
    stale: StaleObjects,
    /// The units in the queue, by the Services that claims for them no longer use.
    leaving: BTreeMap<ObjectName, BTreeSet<Unit>>,
}

/// One batch of the queue.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) objects: Vec<(ObjectRef, Reason)>,
    pub(super) units: BTreeSet<Unit>,
    /// Those of them with an object whose own change is among the causes.
    pub(super) own: BTreeSet<Unit>,
    /// The causes, with duplicates.
    reasons: Vec<Arc<Cause>>,
    /// When the oldest of the changes arrived.
    pub(super) oldest: Option<Instant>,
}

/// The causes of a unit's compilation: only the latest of each object, and each other cause once.
#[derive(Debug, Default)]
struct Causes {
    all: Vec<Arc<Cause>>,
    /// The index in `all` of an object's cause. Empty while there are few, which are searched: nearly every unit has
    /// one cause.
    indexes: BTreeMap<ObjectRef, usize>,
}

impl Causes {
    /// The maximum number of causes that are searched linearly.
    const SEARCHED_MAX: usize = 16;

    fn note(&mut self, cause: &Arc<Cause>) {
        let index = match cause.object() {
            Some(object) if !self.indexes.is_empty() => self.indexes.get(object).copied(),
            Some(object) => self.all.iter().position(|noted| noted.object() == Some(object)),
            // A unit has few of these, such as external names.
            None => self.all.iter().position(|noted| noted == cause),
        };
        if let Some(noted) = index.and_then(|index| self.all.get_mut(index)) {
            *noted = Arc::clone(cause);
            return;
        }
        self.all.push(Arc::clone(cause));
        if self.all.len() > Self::SEARCHED_MAX {
            let next = if self.indexes.is_empty() { 0 } else { self.all.len() - 1 };
            let objects = self.all.iter().enumerate().skip(next);
            self.indexes.extend(objects.filter_map(|(index, cause)| Some((cause.object()?.clone(), index))));
        }
    }
}

impl Backlog {
    /// The same, empty, with metrics of its queue.
    pub(super) fn metered(self, meter: Meter) -> Self {
        Self { queue: Queue::new(meter, Retries::default()), order: self.order, ..Self::default() }
    }

    /// The same with an order of the slow lane.
    pub(super) fn ordered(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// The same queue without its keys.
    pub(super) fn emptied(self) -> Self {
        let Self { mut queue, order, .. } = self;
        queue.clear();
        Self { queue, order, ..Self::default() }
    }

    /// Returns `true` if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.stale.is_empty()
    }

    /// Refreshes an object in the next step.
    pub(super) fn mark_stale(&mut self, object: &ObjectRef, reason: &Reason) {
        self.stale.add(object, reason);
    }

    /// Queues Services that a held route no longer uses: unused ones are removed later.
    pub(super) fn release(&mut self, services: BTreeSet<ObjectName>, received: Instant) {
        for service in services {
            let cause = Arc::new(Cause::Released { service: service.clone() });
            let reason = Reason { cause, lane: Lane::Slow, received, own: false };
            self.add(Unit::Service(service), &reason, u64::MAX);
        }
    }

    /// Refreshes the dependents of one key at once, if they fit into a turn of the slow lane. Otherwise they and the
    /// resulting units wait in the slow lane, so that live changes are not delayed.
    pub(super) fn refresh_all(&mut self, objects: &BTreeSet<ObjectRef>, reason: &Reason, model: &Model) {
        if objects.len() <= model.options.pace.share.slow_batch_max {
            objects.iter().for_each(|object| self.mark_stale(object, reason));
            return;
        }
        let reason = Reason { lane: Lane::Slow, ..reason.clone() };
        for object in objects {
            let rank = rank::of_object(&self.order, object, &model.topology);
            self.refresh_later(object, &reason, rank);
        }
    }

    /// Queues an object to be refreshed.
    fn refresh_later(&mut self, object: &ObjectRef, reason: &Reason, rank: u64) {
        match self.objects.get_mut(object) {
            None => drop(self.objects.insert(object.clone(), reason.clone())),
            Some(before) => before.join(reason),
        }
        self.queue.add(Work::Refresh(object.clone()), Lane::Slow, rank, reason.received);
    }

    /// The next object to refresh in this step.
    pub(super) fn next_stale(&mut self) -> Option<(ObjectRef, Reason)> {
        self.stale.take()
    }

    /// Queues a unit for compilation.
    pub(super) fn compile(&mut self, unit: Unit, reason: &Reason, model: &Model) {
        let slow = reason.lane == Lane::Slow;
        let rank = if slow { rank::of_unit(&self.order, &unit, &model.topology) } else { 0 };
        self.add(unit, reason, rank);
    }

    fn add(&mut self, unit: Unit, reason: &Reason, rank: u64) {
        let waiting = self.units.entry(unit.clone()).or_default();
        waiting.own |= reason.own;
        waiting.causes.note(&reason.cause);
        self.queue.add(Work::Compile(unit), reason.lane, rank, reason.received);
    }

    /// The next batch of one lane.
    pub(super) fn take(&mut self, share: LaneShares, now: Instant) -> Batch {
        let mut batch = Batch::default();
        for (work, since) in self.queue.take(share, now) {
            batch.oldest = Some(batch.oldest.map_or(since, |oldest| oldest.min(since)));
            match work {
                Work::Refresh(object) => {
                    batch.objects.extend(self.objects.remove(&object).map(|reason| (object, reason)));
                }
                Work::Compile(unit) => {
                    self.take_unit(&unit, &mut batch);
                }
            }
        }
        batch
    }

    /// Records Services that a claim no longer uses: until the unit is compiled, its requests or connections go there.
    pub(super) fn note_leaving(&mut self, unit: &Unit, services: impl Iterator<Item = ObjectName>) {
        for service in services {
            self.leaving.entry(service.clone()).or_default().insert(unit.clone());
            self.units.entry(unit.clone()).or_default().left.insert(service);
        }
    }

    /// Adds the units to a batch that no longer use a Service whose endpoints are in the batch: these may be gone, and
    /// requests and connections must go to the new backends of the units at the same time. `services` returns the
    /// Services that a unit uses now and used before, whose endpoints are compiled with it.
    pub(super) fn pull_in_related(&mut self, batch: &mut Batch, services: impl Fn(&Unit) -> BTreeSet<ObjectName>) {
        let mut found: Vec<Unit> = batch.units.iter().cloned().collect();
        while let Some(unit) = found.pop() {
            if self.leaving.is_empty() {
                return;
            }
            for service in services(&unit) {
                for unit in self.leaving.get(&service).cloned().unwrap_or_default() {
                    if self.take_unit(&unit, batch) {
                        found.push(unit);
                    }
                }
            }
        }
    }

    /// Moves a waiting unit into a batch. Returns `true` if it waited.
    fn take_unit(&mut self, unit: &Unit, batch: &mut Batch) -> bool {
        let Some(WaitingUnit { causes, own, left }) = self.units.remove(unit) else { return false };
        if own {
            batch.own.insert(unit.clone());
        }
        for service in left {
            if let Entry::Occupied(mut units) = self.leaving.entry(service) {
                units.get_mut().remove(unit);
                if units.get().is_empty() {
                    units.remove();
                }
            }
        }
        batch.reasons.extend(causes.all);
        batch.units.insert(unit.clone())
    }

    /// Ends the last batch.
    pub(super) fn finish(&mut self, now: Instant) {
        self.queue.finish(now);
    }
}

impl Batch {
    /// The causes of the compilation, each once: one change may affect several units.
    pub(super) fn causes(&self) -> Sample<Cause> {
        let (mut causes, mut noted) = (Sample::default(), BTreeSet::new());
        for cause in self.reasons.iter().filter(|cause| noted.insert(Arc::as_ptr(cause))) {
            causes.note(Cause::clone(cause));
        }
        causes
    }
}

impl Reason {
    fn join(&mut self, later: &Self) {
        self.cause = Arc::clone(&later.cause);
        self.lane = self.lane.max(later.lane);
        self.received = self.received.min(later.received);
        self.own |= later.own;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_config::model::HostPattern;
    use tidegate_config::object::Kind;

    use super::*;
    use crate::clock;
    use crate::options::Options;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_latest_cause_of_each_object_is_kept_and_every_other_cause_once() {
        let changed = |number: usize, version: &str| {
            let object = ObjectRef::new(Kind::Ingress, ObjectName::new("shop", format!("web-{number}")));
            Arc::new(Cause::Changed { object, resource_version: version.into() })
        };
        for objects in [1, Causes::SEARCHED_MAX, Causes::SEARCHED_MAX + 1, 1000] {
            let mut causes = Causes::default();
            for version in ["1", "2"] {
                causes.note(&Arc::new(Cause::ApiServer));
                (0..objects).for_each(|number| causes.note(&changed(number, version)));
            }
            let versions = causes.all.iter().filter(|cause| ***cause != Cause::ApiServer);
            assert!(versions.eq((0..objects).map(|number| changed(number, "2")).collect::<Vec<_>>().iter()));
            assert_eq!(causes.all.len(), objects + 1);
        }
    }

    #[test]
    fn stale_objects_are_attached_in_the_order_of_their_layers() {
        let mut stale = StaleObjects::default();
        for kind in Kind::ALL {
            stale.add(&ObjectRef::new(kind, ObjectName::new("shop", "a")), &reason(true));
        }
        let order: Vec<Kind> = std::iter::from_fn(|| stale.take()).map(|(object, _)| object.kind).collect();
        assert!(order.len() == Kind::ALL.len() && order.is_sorted_by_key(|kind| kind.layer()), "{order:?}");
        assert_eq!((order.first(), order.last()), (Some(&Kind::Gateway), Some(&Kind::AuthPolicy)));
    }

    fn host(name: &str) -> Unit {
        Unit::Host(HostPattern::Exact(name.into()).into())
    }

    fn service(name: &str) -> ObjectName {
        ObjectName::new("shop", name)
    }

    fn reason(own: bool) -> Reason {
        Reason { cause: Arc::new(Cause::ApiServer), lane: Lane::Fast, received: clock::now(), own }
    }

    /// The units that a batch of one Service takes along, if hosts wait that have left Services (`left`) and use others
    /// (`uses`).
    #[track_caller]
    fn check(of: &str, left: &[(&str, &str)], uses: &[(&str, &str)], want: &[&str]) {
        let (mut backlog, model) = (Backlog::default(), Model::new(Options::default()));
        for (unit, from) in left {
            backlog.compile(host(unit), &reason(true), &model);
            backlog.note_leaving(&host(unit), std::iter::once(service(from)));
        }
        let mut batch = Batch { units: BTreeSet::from([Unit::Service(service(of))]), ..Batch::default() };
        backlog.pull_in_related(&mut batch, |unit| {
            if let Unit::Service(service) = unit {
                return BTreeSet::from([service.clone()]);
            }
            uses.iter().filter(|(user, _)| host(user) == *unit).map(|(_, to)| service(to)).collect()
        });
        batch.units.remove(&Unit::Service(service(of)));
        assert_eq!(batch.units, want.iter().map(|unit| host(unit)).collect());
        assert_eq!(batch.own, batch.units, "the object of each has changed itself");
        assert_eq!(batch.reasons.len(), want.len());
        let waiting: BTreeSet<&Unit> = backlog.units.keys().collect();
        assert!(waiting.is_disjoint(&batch.units.iter().collect()), "{waiting:?}");
        assert!(backlog.leaving.values().flatten().all(|unit| !batch.units.contains(unit)));
        assert!(backlog.leaving.values().all(|units| !units.is_empty()));
    }

    #[test]
    fn a_batch_takes_hosts_along_that_have_left_its_services() {
        check("old", &[], &[], &[]);
        check("old", &[("a", "old")], &[], &["a"]);
        check("old", &[("a", "old"), ("b", "other"), ("c", "old")], &[], &["a", "c"]);
        // The new Service of `a` is compiled with it, so `b`, which has left that one, must be too.
        check("old", &[("a", "old"), ("b", "new")], &[("a", "new")], &["a", "b"]);
        check("old", &[("a", "old"), ("b", "new")], &[("b", "old")], &["a"]);
    }

    #[test]
    fn a_unit_that_was_taken_along_waits_no_longer() {
        let mut backlog = Backlog::default();
        backlog.compile(host("a"), &reason(false), &Model::new(Options::default()));
        backlog.note_leaving(&host("a"), std::iter::once(service("old")));
        let mut batch = Batch { units: BTreeSet::from([Unit::Service(service("old"))]), ..Batch::default() };
        backlog.pull_in_related(&mut batch, |_| BTreeSet::from([service("old")]));
        assert!(batch.units.contains(&host("a")));
        assert_eq!(batch.own, BTreeSet::new(), "only its dependencies have changed");
        let share =
            LaneShares { batch_max: 8, slow_batch_max: 8, fast_turns_max: 1, slow_age_max: SECOND, aged_every: 2 };
        assert_eq!(backlog.take(share, clock::now()).units, BTreeSet::new());
        assert!(backlog.leaving.is_empty());
    }
}
