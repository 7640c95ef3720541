//! The queue: each key once, in one of two lanes. Live changes take the fast lane; start-up, relist and resync work and
//! retries take the slow one, which keeps a bounded share and a bounded age, so it is never starved.
//!
//! [`Queue`] is a pure state machine: the time is an argument, and equal calls give equal results. The control loop
//! owns one and takes batches of it. [`Workqueue`] is the same machine behind a lock, for several workers that take a
//! key at a time. The guarantees of both are listed and tested in `control/tests/queue/`.

mod lanes;
mod meter;
mod workqueue;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use lanes::{Lanes, NEVER, Turn};
pub use meter::Meter;
pub(crate) use meter::latency_buckets;
pub use workqueue::{Get, WorkItem, Workqueue};

/// The lane of a waiting key, in order of urgency.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Start-up and relist work, and retries.
    Slow,
    /// Live changes.
    Fast,
}

/// The shares of the lanes. A turn is one batch, or one key if keys are taken one at a time.
#[derive(Clone, Copy, Debug)]
pub struct LaneShares {
    /// The number of keys in a batch of the fast lane; 0 counts as 1.
    pub batch_max: usize,
    /// The number of keys in a batch of the slow lane, which is the longest delay of a live change; 0 counts as 1.
    pub slow_batch_max: usize,
    /// The number of turns of the fast lane after which a waiting slow lane gets one; 0 counts as 1.
    pub fast_turns_max: u32,
    /// The age at which the oldest slow key goes next.
    pub slow_age_max: Duration,
    /// The minimum number of turns between two by age, so that a whole list of old keys does not delay a live change.
    /// Less than 2 counts as 2.
    pub aged_every: u32,
}

/// The delays of retries: from `first`, doubling up to `max`, with jitter between `first` and the doubled bound.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// The first delay.
    pub first: Duration,
    /// The longest.
    pub max: Duration,
}

impl Default for Retries {
    /// The values of client-go: 5 ms, and 1,000 s at most.
    fn default() -> Self {
        Self { first: Duration::from_millis(5), max: Duration::from_secs(1000) }
    }
}

/// The capacity in keys that is kept while nothing waits; more is freed after a burst.
const KEPT_MAX: usize = 4096;

/// Waiting keys, each once; keys in work, each with one worker; delayed keys.
#[derive(Debug)]
pub struct Queue<K> {
    /// Every key in a lane.
    waiting: HashMap<K, Waiting>,
    lanes: Lanes<K>,
    /// The keys in work. None of them is in a lane.
    working: HashMap<K, Working>,
    /// The current batch: the number of keys, and when they were taken.
    batch: Option<(usize, Instant)>,
    /// The delayed keys, which may be in a lane or in work as well.
    delayed: HashMap<K, Delayed>,
    /// The same keys by time, then by the order in which they were delayed.
    due: BTreeMap<(Instant, u64), K>,
    delays: u64,
    /// Keys that failed and were not forgotten since.
    failing: HashMap<K, Backoff>,
    retries: Retries,
    /// Whether the queue has ended and accepts no more keys.
    ending: bool,
    meter: Meter,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    lane: Lane,
    /// When it was first added since it was last taken.
    since: Instant,
    /// Its place in the slow lane, if it is there.
    sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Working {
    since: Instant,
    /// The additions since it was taken.
    again: Option<Again>,
}

#[derive(Clone, Copy, Debug)]
struct Again {
    lane: Lane,
    rank: u64,
    since: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Delayed {
    at: (Instant, u64),
    lane: Lane,
    rank: u64,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self::new(Meter::default(), Retries::default())
    }
}

impl<K> Queue<K> {
    /// An empty queue.
    #[must_use]
    pub fn new(meter: Meter, retries: Retries) -> Self {
        Self {
            waiting: HashMap::new(),
            lanes: Lanes::default(),
            working: HashMap::new(),
            batch: None,
            delayed: HashMap::new(),
            due: BTreeMap::new(),
            delays: 0,
            failing: HashMap::new(),
            retries,
            ending: false,
            meter,
        }
    }

    /// The number of keys in the lanes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns `true` if the lanes are empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The number of keys in a lane.
    #[must_use]
    pub fn depth(&self, lane: Lane) -> usize {
        self.lanes.depth(lane)
    }

    /// The number of keys in work.
    #[must_use]
    pub fn working(&self) -> usize {
        self.working.len()
    }

    /// The time of the next delayed key.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((due, _), _)| *due)
    }

    /// The number of keys that failed and were not forgotten since.
    #[must_use]
    pub fn failing(&self) -> usize {
        self.failing.len()
    }

    /// Returns `true` after [`Queue::shutdown`].
    #[must_use]
    pub const fn ending(&self) -> bool {
        self.ending
    }

    /// Returns `true` after [`Queue::shutdown`], when no key waits or is in work.
    #[must_use]
    pub fn drained(&self) -> bool {
        self.ending && self.waiting.is_empty() && self.working.is_empty()
    }

    /// The metrics of the queue.
    #[must_use]
    pub const fn meter(&self) -> &Meter {
        &self.meter
    }

    /// The largest capacity of the parts that do not shrink by themselves.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.waiting.capacity().max(self.lanes.capacity()).max(self.working.capacity()).max(self.delayed.capacity())
    }

    /// Ends the queue: waiting keys are still taken, delayed ones are dropped. A second call has no effect.
    pub fn shutdown(&mut self) {
        self.ending = true;
        self.delayed = HashMap::new();
        self.due.clear();
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        let meter = std::mem::take(&mut self.meter);
        *self = Self { ending: self.ending, ..Self::new(meter, self.retries) };
        self.meter.depths(&self.lanes);
        self.count_work();
    }

    /// Ends the current batch, for the metrics: the time of each key is that of the whole batch.
    pub fn finish(&mut self, now: Instant) {
        let Some((keys, since)) = self.batch.take() else { return };
        (0..keys).for_each(|_| self.meter.worked(since, now));
        self.count_work();
    }

    fn count_work(&self) {
        let batch = self.batch.into_iter().flat_map(|(keys, since)| std::iter::repeat_n(since, keys));
        self.meter.working(self.working.values().map(|working| working.since).chain(batch));
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// Adds a key. A waiting one keeps its place, unless it is now more urgent: then it moves to the end of the fast
    /// lane. One in work waits again after its work, in the more urgent of the lanes it was added to meanwhile. In the
    /// slow lane the lowest rank goes first, and equal ranks in order of arrival; the fast lane has no ranks. Ignored
    /// after the end of the queue.
    pub fn add(&mut self, key: K, lane: Lane, rank: u64, now: Instant) {
        if self.ending {
            self.meter.dropped();
            return;
        }
        if let Some(working) = self.working.get_mut(&key) {
            match &mut working.again {
                Some(again) => again.lane = again.lane.max(lane),
                None => {
                    self.meter.added();
                    working.again = Some(Again { lane, rank, since: now });
                }
            }
            return;
        }
        match self.waiting.entry(key) {
            Entry::Occupied(mut waiting) => {
                let waiting = waiting.get_mut();
                if waiting.lane < lane {
                    waiting.lane = lane;
                    self.lanes.promote(waiting.sequence);
                    self.meter.depths(&self.lanes);
                }
            }
            Entry::Vacant(vacant) => {
                self.meter.added();
                let sequence = self.lanes.push(vacant.key().clone(), lane, rank, now);
                vacant.insert(Waiting { lane, since: now, sequence });
                self.meter.depths(&self.lanes);
            }
        }
    }

    /// Adds a key after a delay. Of several delays of one key the earliest counts, with the more urgent of their lanes.
    /// A key that is added meanwhile is delivered at once, and once more after the delay, because the state at that
    /// time may differ.
    pub fn add_after(&mut self, key: K, delay: Duration, lane: Lane, rank: u64, now: Instant) {
        if self.ending {
            self.meter.dropped();
            return;
        }
        self.meter.retried();
        if delay.is_zero() {
            self.add(key, lane, rank, now);
            return;
        }
        self.delays += 1;
        let mut wanted = Delayed { at: (now + delay.min(NEVER), self.delays), lane, rank };
        if let Some(before) = self.delayed.get(&key) {
            wanted.lane = wanted.lane.max(before.lane);
            wanted.at = wanted.at.min(before.at);
            self.due.remove(&before.at);
        }
        self.due.insert(wanted.at, key.clone());
        self.delayed.insert(key, wanted);
    }

    /// Adds a failed key after a delay that grows with its failures, in the slow lane, so that persistent failures
    /// overtake no other key. Returns the delay. `draw` is a random number; uniform numbers spread the delays evenly.
    pub fn retry(&mut self, key: K, rank: u64, now: Instant, draw: u64) -> Duration {
        self.retry_after(key, Duration::ZERO, rank, now, draw)
    }

    /// The same, with a minimum delay of `least`, such as `Retry-After`.
    pub fn retry_after(&mut self, key: K, least: Duration, rank: u64, now: Instant, draw: u64) -> Duration {
        if self.ending {
            self.meter.dropped();
            return Duration::ZERO;
        }
        let Retries { first, max } = self.retries;
        let backoff = self.failing.entry(key.clone()).or_insert_with(|| Backoff::new(first, first, max));
        let delay = backoff.next(draw).max(least);
        self.add_after(key, delay, Lane::Slow, rank, now);
        delay
    }

    /// Resets the failures of a key. A waiting key still waits.
    pub fn forget(&mut self, key: &K) {
        self.failing.remove(key);
        if self.failing.is_empty() {
            self.failing = HashMap::new();
        }
    }

    /// Moves every key whose delay is over into its lane, in the order of their times. Returns by how many keys the
    /// lanes have grown.
    pub fn fire(&mut self, now: Instant) -> usize {
        let before = self.len();
        while let Some(first) = self.due.first_entry() {
            let (due, _) = *first.key();
            if due > now {
                break;
            }
            let key = first.remove();
            if let Some(Delayed { lane, rank, .. }) = self.delayed.remove(&key) {
                self.add(key, lane, rank, due);
            }
        }
        self.len() - before
    }

    /// Takes the next batch: keys of one lane, each with the time since which it waited. For a caller that owns the
    /// queue and adds nothing until the batch is compiled: the keys are not in work afterwards, and need no
    /// [`Queue::done`].
    pub fn take(&mut self, share: LaneShares, now: Instant) -> Vec<(K, Instant)> {
        self.fire(now);
        let mut batch = Vec::new();
        let Some(turn) = self.lanes.turn(share, now) else { return batch };
        let max = if turn == Turn::Fast { share.batch_max } else { share.slow_batch_max };
        while batch.len() < max.max(1) {
            let Some(key) = self.lanes.pop(turn) else { break };
            let Some(waiting) = self.waiting.remove(&key) else { continue };
            self.meter.taken(waiting.since, now);
            batch.push((key, waiting.since));
        }
        self.meter.depths(&self.lanes);
        self.batch = Some((batch.len(), now));
        self.count_work();
        self.shrink();
        batch
    }

    /// Takes the next key and marks it as in work until [`Queue::done`]; no other worker gets it meanwhile.
    pub fn get(&mut self, share: LaneShares, now: Instant) -> Option<K> {
        self.fire(now);
        let turn = self.lanes.turn(share, now)?;
        let key = self.lanes.pop(turn)?;
        let waiting = self.waiting.remove(&key)?;
        self.meter.taken(waiting.since, now);
        self.meter.depths(&self.lanes);
        self.working.insert(key.clone(), Working { since: now, again: None });
        self.count_work();
        Some(key)
    }

    /// Ends the work on a key. If it was added meanwhile, it waits again. A key that is not in work is ignored.
    pub fn done(&mut self, key: &K, now: Instant) {
        let Some((key, working)) = self.working.remove_entry(key) else { return };
        self.meter.worked(working.since, now);
        self.count_work();
        if let Some(Again { lane, rank, since }) = working.again {
            let sequence = self.lanes.push(key.clone(), lane, rank, since);
            self.waiting.insert(key, Waiting { lane, since, sequence });
            self.meter.depths(&self.lanes);
        }
        self.shrink();
    }

    fn shrink(&mut self) {
        if self.waiting.is_empty() && self.capacity() > KEPT_MAX {
            self.waiting.shrink_to(KEPT_MAX);
            self.lanes.shrink_to(KEPT_MAX);
            self.working.shrink_to(KEPT_MAX);
            self.delayed.shrink_to(KEPT_MAX);
        }
    }
}
