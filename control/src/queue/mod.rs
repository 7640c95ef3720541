//! The queue: each key once, in one of two lanes. Live changes take the fast lane; start-up, relist and resync work and
//! whatever is tried again take the slow one, which keeps a bounded share and a bounded age, so it is never starved.
//!
//! [`Queue`] is a pure state machine: the time is an argument, and equal calls give equal results. The control loop owns
//! one and takes batches of it. [`Workqueue`] is the same machine behind a lock, for several workers that take a key at
//! a time. What both promise is listed and played in `control/tests/queue/`.

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
pub use workqueue::{Get, Held, Workqueue};

/// Which lane a key waits in. The order is that of urgency.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Start-up and relist work, and what failed before.
    Slow,
    /// Live changes.
    Fast,
}

/// How the lanes share. A turn is one batch, or one key where keys are taken one at a time.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Keys in one batch of the fast lane; 0 counts as 1.
    pub batch_max: usize,
    /// Keys in one batch of the slow lane, which is as long as a live change has to wait; 0 counts as 1.
    pub slow_batch_max: usize,
    /// Turns of the fast lane after which a waiting slow lane gets one; 0 counts as 1.
    pub fast_turns_max: u32,
    /// Age at which the oldest slow key goes next.
    pub slow_age_max: Duration,
    /// At most every so many turns goes by age, so that a whole list of old keys does not keep a live change waiting.
    /// Less than 2 counts as 2.
    pub aged_every: u32,
}

/// How long a key that failed waits before it is tried again: from `first`, doubling up to `max`, with jitter between
/// `first` and the doubled bound.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// The first delay.
    pub first: Duration,
    /// The longest.
    pub max: Duration,
}

impl Default for Retries {
    /// As client-go has them: 5 ms, and 1,000 s at most.
    fn default() -> Self {
        Self { first: Duration::from_millis(5), max: Duration::from_secs(1000) }
    }
}

/// Room for so many keys is kept while nothing waits; what a storm needed beyond is given back.
const KEPT_MAX: usize = 4096;

/// Keys that wait, each once; keys in work, each with one worker; keys that wait for their time.
#[derive(Debug)]
pub struct Queue<K> {
    /// Every key in a lane.
    waiting: HashMap<K, Waiting>,
    lanes: Lanes<K>,
    /// Every key that a worker has. None of them is in a lane.
    working: HashMap<K, Working>,
    /// The batch that was taken last and is not finished: how many keys, and when they were taken.
    batch: Option<(usize, Instant)>,
    /// Every key that waits for its time, which says nothing of whether it also is in a lane or in work.
    delayed: HashMap<K, Delayed>,
    /// The same keys by time, then by the order in which they were given it.
    due: BTreeMap<(Instant, u64), K>,
    delays: u64,
    /// Keys that failed and were not forgotten since.
    failing: HashMap<K, Backoff>,
    retries: Retries,
    /// Nothing is added any more.
    ending: bool,
    meter: Meter,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    lane: Lane,
    /// When it was first asked for since it was last taken.
    since: Instant,
    /// Where it is in the slow lane, if it is there.
    place: u64,
}

#[derive(Clone, Copy, Debug)]
struct Working {
    since: Instant,
    /// What was asked for since it was taken.
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

    /// How many keys wait in the lanes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits in the lanes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many keys wait in a lane.
    #[must_use]
    pub fn depth(&self, lane: Lane) -> usize {
        self.lanes.depth(lane)
    }

    /// How many keys are in work.
    #[must_use]
    pub fn working(&self) -> usize {
        self.working.len()
    }

    /// When the next delayed key is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((due, _), _)| *due)
    }

    /// Keys that failed and were not forgotten since.
    #[must_use]
    pub fn failing(&self) -> usize {
        self.failing.len()
    }

    /// Whether it was told to end.
    #[must_use]
    pub const fn ending(&self) -> bool {
        self.ending
    }

    /// Whether it was told to end, and nothing waits or is in work any more.
    #[must_use]
    pub fn drained(&self) -> bool {
        self.ending && self.waiting.is_empty() && self.working.is_empty()
    }

    /// Where what happens here is counted.
    #[must_use]
    pub const fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Keys there is room for in each of the parts that do not give back room by themselves.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.waiting.capacity().max(self.lanes.capacity()).max(self.working.capacity()).max(self.delayed.capacity())
    }

    /// Takes no more keys: what waits is still handed out, what is delayed is dropped. Again makes no difference.
    pub fn shutdown(&mut self) {
        self.ending = true;
        self.delayed = HashMap::new();
        self.due.clear();
    }

    /// Forgets every key.
    pub fn clear(&mut self) {
        let meter = std::mem::take(&mut self.meter);
        *self = Self { ending: self.ending, ..Self::new(meter, self.retries) };
        self.meter.depths(&self.lanes);
        self.count_work();
    }

    /// Ends the batch that was taken last, for the metrics: each of its keys took as long as all of them.
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
    /// Asks for a key. One that waits already keeps its place, unless it is now more urgent: then it moves to the end of
    /// the fast lane. One in work waits again when its work is done, in the more urgent of the lanes that were asked for
    /// meanwhile. In the slow lane the lowest rank goes first, and the first come of equal ranks; the fast lane has no
    /// ranks. Ignored once the queue ends.
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
                    self.lanes.promote(waiting.place);
                    self.meter.depths(&self.lanes);
                }
            }
            Entry::Vacant(vacant) => {
                self.meter.added();
                let place = self.lanes.push(vacant.key().clone(), lane, rank, now);
                vacant.insert(Waiting { lane, since: now, place });
                self.meter.depths(&self.lanes);
            }
        }
    }

    /// Asks for a key after a while. Of several delays of one key the earliest counts, with the more urgent of their
    /// lanes. A key that is asked for meanwhile is delivered at once, and once more when its time comes: whoever wanted
    /// it looked at then cannot know what was looked at before.
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

    /// Asks for a key that failed after a delay that grows with its failures, in the slow lane, so that what keeps failing
    /// overtakes nothing. Returns the delay. `draw` is any number; all of them equally likely spread the delays evenly.
    pub fn retry(&mut self, key: K, rank: u64, now: Instant, draw: u64) -> Duration {
        self.retry_after(key, Duration::ZERO, rank, now, draw)
    }

    /// The same, and no sooner than after `least`, which is what somebody else asks for.
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

    /// Forgets that a key failed. It waits on if it waits.
    pub fn forget(&mut self, key: &K) {
        self.failing.remove(key);
        if self.failing.is_empty() {
            self.failing = HashMap::new();
        }
    }

    /// Moves every key whose time has come into its lane, in the order of their times. Returns how many keys the lanes
    /// have more.
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

    /// Takes the next batch: keys of one lane, each with the time since which it waited. For a caller that owns the queue
    /// and adds nothing until the batch is compiled: the keys are not in work afterwards, and need no [`Queue::done`].
    pub fn take(&mut self, share: Share, now: Instant) -> Vec<(K, Instant)> {
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

    /// Takes the next key and puts it in work, until [`Queue::done`]; meanwhile nobody else gets it.
    pub fn get(&mut self, share: Share, now: Instant) -> Option<K> {
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

    /// Ends the work on a key. When it was asked for meanwhile, it waits again. Of a key that is not in work, nothing
    /// happens.
    pub fn done(&mut self, key: &K, now: Instant) {
        let Some((key, working)) = self.working.remove_entry(key) else { return };
        self.meter.worked(working.since, now);
        self.count_work();
        if let Some(Again { lane, rank, since }) = working.again {
            let place = self.lanes.push(key.clone(), lane, rank, since);
            self.waiting.insert(key, Waiting { lane, since, place });
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
