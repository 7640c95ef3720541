//! The counters of one limit and window, and which of them goes if there is no room for another one.
//!
//! The counters of values are in one map of all limits ([`ValueCounters`]). Each is in the ring of its group exactly
//! once, or in the hands of the one thread that took it out of the ring to look whether it can go. So no two threads
//! remove the same counter, and the ring holds no keys of removed ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};

use crossbeam_queue::SegQueue;
use foldhash::fast::RandomState;

use super::counter::{Charging, Counter, Left, Receipt, Tick, Window, Worth};
use super::room::{Namespace, Room};
use super::store::{Carried, CounterValues, EvictedUse, Lease, Leases};
use super::values::{Values, ValuesKey};
use crate::observe::limit_metrics::LimitSeries;
use crate::options::CounterLimits;

/// The counters that one new value looks at to find one that can go.
const PROBES: usize = 8;

/// The counters of values, of all limits.
#[derive(Debug)]
pub(super) struct ValueCounters {
    limit_counters_max: usize,
    counters: papaya::HashMap<ValueId, ValueCounter, RandomState>,
    room: Room,
    next_group: AtomicU32,
}

/// The map of the counters of values, as long as they can be used.
pub(super) type Pinned<'c> = papaya::HashMapRef<'c, ValueId, ValueCounter, RandomState, papaya::LocalGuard<'c>>;

/// The identity of a counter: its group and its values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ValueId {
    group: u32,
    values: ValuesKey,
}

/// What one counter of a group counts with.
#[derive(Debug)]
pub(super) struct Tally {
    /// The requests that this process has admitted by itself.
    pub(super) counter: Counter,
    /// Those that the store has granted, if there is one and the window is not too short for it.
    pub(super) lease: Option<Arc<Lease>>,
}

/// The counter of one tuple of values.
#[derive(Debug)]
pub(super) struct ValueCounter {
    tally: Tally,
    /// Whether it was found since it was made, or since it was last looked at in the ring.
    used: AtomicBool,
}

/// The counters of one limit and window.
#[derive(Debug)]
pub(super) struct Group {
    id: u32,
    pub(super) window: Window,
    pub(super) series: Arc<LimitSeries>,
    /// The store, if there is one.
    pub(super) leases: Option<Leases>,
    shared: Tally,
    failed: Tally,
    /// Counts the values for which there is no room.
    overflow: Tally,
    all: Arc<ValueCounters>,
    namespace: Arc<Namespace>,
    ring: SegQueue<ValuesKey>,
    /// What the leases of removed counters had used.
    evicted: EvictedUse,
    in_use: AtomicUsize,
    /// Whether no snapshot named the limit at the last sweep.
    unnamed: AtomicBool,
    /// Whether it has no part of the room any more.
    retired: AtomicBool,
}

impl ValueCounters {
    pub(super) fn new(limits: CounterLimits) -> Self {
        Self {
            limit_counters_max: limits.limit_counters_max,
            counters: papaya::HashMap::with_hasher(RandomState::default()),
            room: Room::new(limits.counters_max),
            next_group: AtomicU32::new(0),
        }
    }

    pub(super) fn pin(&self) -> Pinned<'_> {
        self.counters.pin()
    }

    /// The number of namespaces that are known, and that have groups.
    #[cfg(test)]
    pub(super) fn namespaces(&self) -> (usize, usize) {
        self.room.namespaces()
    }

    /// The number of counters in memory.
    #[cfg(test)]
    pub(super) fn in_map(&self) -> usize {
        self.counters.len()
    }
}

impl Tally {
    fn new(leases: Option<&Leases>, values: CounterValues) -> Self {
        let lease = leases.and_then(|leases| leases.lease(values, Carried::nothing()));
        Self { counter: Counter::new(), lease }
    }

    fn worth(&self, window: Window, now: Tick, max: u32) -> Worth {
        let worth = self.counter.worth(window, now, self.exhausted_at(window, now, max));
        // What is left of the lease is given back, and the store has counted the rest.
        if worth == Worth::Expired && self.is_leased(now) { Worth::Unexhausted } else { worth }
    }

    /// The number of requests from which on the counter must not be forgotten. Those that were admitted without the
    /// store are known only here until they are reported.
    fn exhausted_at(&self, window: Window, now: Tick, max: u32) -> u32 {
        self.lease.as_ref().map_or(max, |lease| lease.reported(self.counter.running(window, now)).saturating_add(1))
    }

    fn is_leased(&self, now: Tick) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.runs(now))
    }

    /// The requests of the window that runs that the store knows of, if there is one.
    fn used(&self, window: Window, now: Tick) -> u32 {
        let alone = || self.counter.running(window, now) as u32;
        self.lease.as_ref().map_or(0, |lease| lease.own_used(now).saturating_add(alone()))
    }

    fn reset_if_expired(&self, window: Window, now: Tick) {
        self.counter.reset_if_expired(window, now);
        self.lease.as_ref().inspect(|lease| lease.reset_if_expired(now));
    }
}

impl ValueCounter {
    fn in_use(&self) -> &Tally {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
        &self.tally
    }
}

impl Group {
    /// A group without counters, of a policy of this namespace.
    pub(super) fn new(
        window: Window,
        series: Arc<LimitSeries>,
        all: Arc<ValueCounters>,
        namespace: &Arc<str>,
        leases: Option<Leases>,
    ) -> Self {
        let tally = |values| Tally::new(leases.as_ref(), values);
        Self {
            shared: tally(CounterValues::Of(Values::Shared)),
            failed: tally(CounterValues::Of(Values::Failed)),
            overflow: tally(CounterValues::Overflow),
            leases,
            namespace: all.room.enter(namespace),
            id: all.next_group.fetch_add(1, Relaxed),
            window,
            series,
            all,
            ring: SegQueue::new(),
            evicted: EvictedUse::default(),
            in_use: AtomicUsize::new(0),
            unnamed: AtomicBool::new(false),
            retired: AtomicBool::new(false),
        }
    }

    /// What the counter of these values has left.
    pub(super) fn left(&self, values: Values, pinned: &Pinned<'_>, now: Tick, max: u32) -> Left {
        let tally = match values {
            Values::Shared => &self.shared,
            Values::Failed => &self.failed,
            Values::Of(key) => match self.found(key, pinned) {
                Some(found) => &found.tally,
                // The counter would continue this one.
                None => &self.overflow,
            },
        };
        tally.counter.left(self.window, now, max)
    }

    /// The counter of these values, if there is one.
    pub(super) fn known<'p>(&'p self, values: Values, pinned: &'p Pinned<'_>) -> Option<&'p Tally> {
        match values {
            Values::Shared => Some(&self.shared),
            Values::Failed => Some(&self.failed),
            Values::Of(key) => self.found(key, pinned).map(ValueCounter::in_use),
        }
    }

    /// The counter of these values, which is made if need be.
    pub(super) fn tally<'p>(&'p self, values: Values, pinned: &'p Pinned<'_>, now: Tick, max: u32) -> &'p Tally {
        match values {
            Values::Shared => &self.shared,
            Values::Failed => &self.failed,
            Values::Of(key) => self.found_or_made(key, pinned, now, max),
        }
    }

    /// Counts a request in the counter of these values, which is made if need be. Returns what takes it back.
    ///
    /// # Errors
    /// What the counter has left, if that is no request.
    pub(super) fn charge<'p>(
        &'p self,
        values: Values,
        pinned: &'p Pinned<'_>,
        now: Tick,
        max: u32,
    ) -> Result<(&'p Counter, Receipt, Left), Left> {
        loop {
            let counter = &self.tally(values, pinned, now, max).counter;
            match counter.charge(self.window, now, max) {
                Charging::Done(receipt, left) => return Ok((counter, receipt, left)),
                Charging::Exceeded(left) => return Err(left),
                Charging::Removed => {}
            }
        }
    }

    fn take_room(&self) -> bool {
        let more = |own: usize| (own < self.all.limit_counters_max).then_some(own + 1);
        let Ok(own) = self.in_use.fetch_update(Relaxed, Relaxed, more) else { return false };
        let taken = self.all.room.take(&self.namespace, own);
        if !taken {
            self.in_use.fetch_sub(1, Relaxed);
        }
        taken
    }

    fn give_room(&self) {
        self.in_use.fetch_sub(1, Relaxed);
        self.all.room.give(&self.namespace);
    }

    const fn id_of(&self, values: ValuesKey) -> ValueId {
        ValueId { group: self.id, values }
    }

    fn found<'p>(&self, values: ValuesKey, pinned: &'p Pinned<'_>) -> Option<&'p ValueCounter> {
        pinned.get(&self.id_of(values)).filter(|found| !found.tally.counter.is_removed())
    }

    fn found_or_made<'p>(&'p self, values: ValuesKey, pinned: &'p Pinned<'_>, now: Tick, max: u32) -> &'p Tally {
        if let Some(found) = self.found(values, pinned) {
            return found.in_use();
        }
        // One that was removed is no longer in the ring, and may still be in the map.
        self.take_out(values, pinned);
        if !self.take_room() && !self.evict(pinned, now, max) {
            self.series.overflowed.inc();
            return &self.overflow;
        }
        // The requests of these values that were counted with others, for want of room, count on. One that is decided
        // in this very moment may be missed.
        let counter = Counter::continuing(&self.overflow.counter, self.window, now);
        let of_values = CounterValues::Of(Values::Of(values));
        let lease =
            self.leases.as_ref().and_then(|leases| leases.lease(of_values, self.evicted.carried(values.0, now)));
        let made = ValueCounter { tally: Tally { counter, lease }, used: AtomicBool::new(false) };
        match pinned.try_insert(self.id_of(values), made) {
            Ok(made) => {
                self.series.in_use.inc();
                self.ring.push(values);
                &made.tally
            }
            Err(other) => {
                self.give_room();
                &other.current.tally
            }
        }
    }

    fn take_out(&self, values: ValuesKey, pinned: &Pinned<'_>) {
        // It is an error if another one was inserted since.
        pinned.remove_if(&self.id_of(values), |_, counter| counter.tally.counter.is_removed()).ok();
    }

    /// Removes the counter of the ring that can best be spared, of a few, and leaves its room to the caller. Counters
    /// that were not used since they were made, or since the last look at them, go before the others (CLOCK).
    fn evict(&self, pinned: &Pinned<'_>, now: Tick, max: u32) -> bool {
        let mut best: Option<Candidate<'_>> = None;
        for _ in 0..PROBES {
            let Some(values) = self.ring.pop() else { break };
            let Some(found) = pinned.get(&self.id_of(values)) else { continue };
            let worth = found.tally.worth(self.window, now, max);
            let candidate = Candidate { values, found, rank: (worth, found.used.swap(false, Relaxed)) };
            let worse = match best.take() {
                Some(before) if before.rank <= candidate.rank => {
                    best = Some(before);
                    candidate
                }
                before => {
                    best = Some(candidate);
                    let Some(before) = before else { continue };
                    before
                }
            };
            self.ring.push(worse.values);
            if best.as_ref().is_some_and(|best| best.rank.0 == Worth::Expired) {
                break;
            }
        }
        let Some(best) = best else { return false };
        let (tally, window) = (&best.found.tally, self.window);
        if best.rank.0 == Worth::Exhausted {
            // It stays, and what it has used is counted there.
            self.ring.push(best.values);
            return false;
        }
        // One that is charged in this very moment may be missed.
        match tally.used(window, now) {
            0 => {}
            used => self.evicted.add(best.values.0, used, window, now),
        }
        if !tally.counter.remove(window, now, tally.exhausted_at(window, now, max), Worth::Unexhausted) {
            self.ring.push(best.values);
            return false;
        }
        self.take_out(best.values, pinned);
        self.series.in_use.dec();
        if best.rank.0 != Worth::Expired {
            self.series.evicted.inc();
        }
        true
    }

    /// Removes the counters whose windows have ended.
    pub(super) fn sweep(&self, now: Tick) {
        for tally in [&self.shared, &self.failed, &self.overflow] {
            tally.reset_if_expired(self.window, now);
        }
        self.evicted.reset_expired(now);
        let pinned = self.all.pin();
        for _ in 0..self.ring.len() {
            let Some(values) = self.ring.pop() else { break };
            let Some(found) = pinned.get(&self.id_of(values)) else { continue };
            if !found.tally.is_leased(now) && found.tally.counter.remove(self.window, now, 0, Worth::Expired) {
                self.forget(values, &pinned);
            } else {
                found.tally.reset_if_expired(self.window, now);
                self.ring.push(values);
            }
        }
    }

    /// Removes all counters, and the part of the room that the group has. The group itself may be in memory for longer.
    pub(super) fn retire(&self) {
        let pinned = self.all.pin();
        while let Some(values) = self.ring.pop() {
            if pinned.get(&self.id_of(values)).is_some_and(|found| found.tally.counter.discard()) {
                self.forget(values, &pinned);
            }
        }
        if !self.retired.swap(true, Relaxed) {
            self.all.room.leave(&self.namespace);
        }
    }

    fn forget(&self, values: ValuesKey, pinned: &Pinned<'_>) {
        self.take_out(values, pinned);
        self.series.in_use.dec();
        self.give_room();
    }

    /// Notes whether a snapshot names the limit. Returns `true` if none does and none did the last time.
    pub(super) fn is_abandoned(&self, is_named: bool) -> bool {
        self.unnamed.swap(!is_named, Relaxed) && !is_named
    }
}

/// A request that found the group before it was removed may have made counters since.
impl Drop for Group {
    fn drop(&mut self) {
        self.retire();
    }
}

/// A counter that can perhaps go.
struct Candidate<'p> {
    values: ValuesKey,
    found: &'p ValueCounter,
    /// Its worth, and whether it was used.
    rank: (Worth, bool),
}
