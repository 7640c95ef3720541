//! The specification of the queue in its simplest form, with random traces on which the queue is compared with it.
//!
//! The model keeps lists and searches them; it shares no code with the queue. Each difference is reported as the
//! property that it violates.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use tidegate_control::{Lane, LaneShares, Queue};

use crate::ops::{Key, Op, RETRIES, SHARE, rank};
use crate::tally::{Present, Tally};

/// A violation: the number of the property, with details.
pub(crate) struct Broken(pub(crate) u8, pub(crate) String);

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "property {}: {}", self.0, self.1)
    }
}

pub(crate) fn hold(property: u8, holds: bool, how: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken(property, how())) }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    key: Key,
    lane: Lane,
    rank: u64,
    since: Instant,
}

/// The reason for the current turn.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Turn {
    Fast,
    Slow,
    /// A turn of the slow lane by age.
    Overdue,
}

/// A key in work.
#[derive(Debug)]
pub(crate) struct WorkItem {
    since: Instant,
    /// The requests since it was taken.
    again: Option<Place>,
}

/// The model, the queue beside it, and the observations of both.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) queue: Queue<Key>,
    pub(crate) now: Instant,
    /// Keys in the order in which they entered their lanes.
    lane: [Vec<Place>; 2],
    pub(crate) working: BTreeMap<Key, WorkItem>,
    /// The last batch until it is finished: its keys and the time at which it was taken.
    batch: Option<(u32, Instant)>,
    delayed: BTreeMap<Key, (Instant, u64, Lane)>,
    delays: u64,
    /// The number of failures of each key since it was forgotten.
    failures: BTreeMap<Key, u32>,
    ended: bool,
    /// Turns of the fast lane while the slow one waited, and turns since the last one by age.
    fast_turns: u32,
    since_aged: u32,
    /// Every key that was handed out, in order.
    pub(crate) trace: Vec<Key>,
    /// The number of keys that were added and cleared.
    pub(crate) cleared: usize,
    pub(crate) tally: Tally,
}

impl Model {
    pub(crate) fn new() -> Self {
        let (tally, queue, now) = Tally::begin();
        Self {
            queue,
            now,
            lane: [Vec::new(), Vec::new()],
            working: BTreeMap::new(),
            batch: None,
            delayed: BTreeMap::new(),
            delays: 0,
            failures: BTreeMap::new(),
            ended: false,
            fast_turns: 0,
            since_aged: u32::MAX,
            trace: Vec::new(),
            cleared: 0,
            tally,
        }
    }

    /// Plays a trace and then takes the remaining keys; stops at the first violation.
    pub(crate) fn play(&mut self, ops: &[Op]) -> Result<(), Broken> {
        for op in ops {
            self.step(*op)?;
        }
        for _ in 0..1000 {
            if self.working.is_empty() && self.lane.iter().all(Vec::is_empty) {
                break;
            }
            while !self.working.is_empty() {
                self.step(Op::Done(0))?;
            }
            self.step(Op::Get)?;
        }
        self.step(Op::Finish)?;
        let (left, idle) = (self.queue.len(), self.queue.working());
        hold(14, left == 0 && idle == 0, || format!("{left} keys wait and {idle} are in work at the end"))
    }

    pub(crate) fn step(&mut self, op: Op) -> Result<(), Broken> {
        match op {
            Op::Add(key, lane) => {
                self.queue.add(key, lane, rank(key), self.now);
                self.ask(key, lane, self.now);
            }
            Op::AddAfter(key, delay, lane) => {
                let delay = Duration::from_millis(delay);
                self.queue.add_after(key, delay, lane, rank(key), self.now);
                self.ask_after(key, delay, lane);
            }
            Op::Retry(key, draw) => self.retry(key, draw)?,
            Op::Forget(key) => {
                self.queue.forget(&key);
                self.failures.remove(&key);
            }
            Op::Fire => {
                let before = self.lane.iter().map(Vec::len).sum::<usize>();
                let more = self.queue.fire(self.now);
                self.fire();
                let want = self.lane.iter().map(Vec::len).sum::<usize>() - before;
                hold(22, more == want, || format!("{more} keys came into the lanes, and not {want}"))?;
            }
            Op::Get => self.get()?,
            Op::Take(fast, slow) => self.take(fast, slow)?,
            Op::Finish => {
                self.queue.finish(self.now);
                if let Some((keys, since)) = self.batch.take() {
                    (0..keys).for_each(|_| self.tally.worked.add(self.now - since));
                }
            }
            Op::Done(place) => {
                let nth = place.checked_rem(self.working.len()).and_then(|place| self.working.keys().nth(place));
                if let Some(key) = nth.copied() {
                    self.done(key);
                }
            }
            Op::DoneAny(key) => self.done(key),
            Op::Advance(by) => self.now = self.tally.pass(Duration::from_millis(by)),
            Op::Clear => self.clear(),
            Op::Shutdown => {
                self.queue.shutdown();
                self.ended = true;
                self.delayed.clear();
            }
        }
        self.compare()
    }

    fn done(&mut self, key: Key) {
        self.queue.done(&key, self.now);
        let Some(held) = self.working.remove(&key) else { return };
        self.tally.worked.add(self.now - held.since);
        if let Some(again) = held.again {
            self.lane[again.lane as usize].push(again);
        }
    }

    fn clear(&mut self) {
        self.queue.clear();
        let again = self.working.values().filter(|held| held.again.is_some()).count();
        self.cleared += again + self.lane.iter().map(Vec::len).sum::<usize>();
        self.lane = [Vec::new(), Vec::new()];
        self.working.clear();
        self.batch = None;
        self.delayed.clear();
        self.failures.clear();
        (self.fast_turns, self.since_aged) = (0, u32::MAX);
    }

    fn ask(&mut self, key: Key, lane: Lane, since: Instant) {
        if self.ended {
            self.tally.dropped += 1;
            return;
        }
        let place = Place { key, lane, rank: rank(key), since };
        if let Some(held) = self.working.get_mut(&key) {
            match &mut held.again {
                Some(again) => again.lane = again.lane.max(lane),
                None => {
                    self.tally.adds += 1;
                    held.again = Some(place);
                }
            }
        } else if let Some(at) = self.lane[Lane::Slow as usize].iter().position(|place| place.key == key) {
            if lane == Lane::Fast {
                let moved = self.lane[Lane::Slow as usize].remove(at);
                self.lane[Lane::Fast as usize].push(Place { lane, ..moved });
            }
        } else if !self.lane[Lane::Fast as usize].iter().any(|place| place.key == key) {
            self.tally.adds += 1;
            self.lane[lane as usize].push(place);
        }
    }

    fn ask_after(&mut self, key: Key, delay: Duration, lane: Lane) {
        if delay.is_zero() || self.ended {
            self.tally.retries += u32::from(!self.ended);
            return self.ask(key, lane, self.now);
        }
        self.tally.retries += 1;
        self.delays += 1;
        let wanted = (self.now + delay, self.delays, lane);
        let had = self.delayed.entry(key).or_insert(wanted);
        let due = (had.0, had.1).min((wanted.0, wanted.1));
        *had = (due.0, due.1, had.2.max(lane));
    }

    /// The delay lies between its minimum and maximum as the drawn number lies among all numbers.
    fn retry(&mut self, key: Key, draw: u64) -> Result<(), Broken> {
        let delay = self.queue.retry(key, rank(key), self.now, draw);
        let mut want = Duration::ZERO;
        if !self.ended {
            let failures = self.failures.entry(key).or_default();
            let bound = (0..*failures).fold(RETRIES.first, |bound, _| RETRIES.max.min(bound * 2));
            *failures += 1;
            want = RETRIES.first + (bound - RETRIES.first) * u32::try_from(draw >> 32).unwrap() / u32::MAX;
        }
        let near = delay.abs_diff(want) < Duration::from_micros(1);
        hold(23, near, || format!("{key} is to wait for {delay:?}, and not {want:?}"))?;
        self.ask_after(key, delay, Lane::Slow);
        Ok(())
    }

    fn fire(&mut self) {
        let mut due: Vec<_> = self.delayed.iter().map(|(key, (at, order, lane))| (*at, *order, *key, *lane)).collect();
        due.retain(|(at, ..)| *at <= self.now);
        due.sort_unstable();
        for (at, _, key, lane) in due {
            self.delayed.remove(&key);
            self.ask(key, lane, at);
        }
    }

    /// Takes a key of the queue and checks that the model allows it.
    fn get(&mut self) -> Result<(), Broken> {
        self.fire();
        let Some(key) = self.queue.get(SHARE, self.now) else { return self.nothing_waits() };
        let turn = self.begin_turn(key)?;
        self.given(key, turn)?;
        self.working.insert(key, WorkItem { since: self.now, again: None });
        Ok(())
    }

    /// Takes a batch of the queue and checks its size and its order.
    fn take(&mut self, fast: usize, slow: usize) -> Result<(), Broken> {
        self.fire();
        let batch = self.queue.take(LaneShares { batch_max: fast, slow_batch_max: slow, ..SHARE }, self.now);
        let Some((first, _)) = batch.first() else { return self.nothing_waits() };
        let turn = self.begin_turn(*first)?;
        let (lane, max) = if turn == Turn::Fast { (Lane::Fast, fast) } else { (Lane::Slow, slow) };
        let want = self.lane[lane as usize].len().min(max.max(1));
        hold(15, batch.len() <= want, || format!("{batch:?} is more than {want} keys of a turn: {turn:?}"))?;
        hold(14, batch.len() == want, || format!("{batch:?} is less than {want} keys of a turn: {turn:?}"))?;
        for (key, since) in &batch {
            let place = self.given(*key, turn)?;
            hold(29, *since == place.since, || format!("{key} waited since {since:?}, not {:?}", place.since))?;
        }
        self.batch = Some((u32::try_from(batch.len()).unwrap(), self.now));
        Ok(())
    }

    fn nothing_waits(&self) -> Result<(), Broken> {
        let nothing = self.lane.iter().all(Vec::is_empty);
        hold(14, nothing, || "nothing was given although keys wait".to_owned())
    }

    /// Returns the turn for which this key may be first, if the model allows it.
    fn begin_turn(&mut self, key: Key) -> Result<Turn, Broken> {
        hold(2, !self.working.contains_key(&key), || format!("{key} is in work already"))?;
        let [slow, fast] = &self.lane;
        let Some(from) = slow.iter().chain(fast).find(|place| place.key == key) else {
            let early = self.delayed.contains_key(&key);
            return Err(Broken(if early { 21 } else { 5 }, format!("{key} was given although nobody asked for it")));
        };
        let old = slow.first().is_some_and(|oldest| self.now - oldest.since >= SHARE.slow_age_max);
        let overdue = old && self.since_aged >= SHARE.aged_every - 1;
        let due = self.fast_turns >= SHARE.fast_turns_max;
        let turn = match from.lane {
            Lane::Fast => {
                hold(13, !overdue, || format!("{key} of the fast lane came before an old one"))?;
                hold(12, slow.is_empty() || !due, || format!("{key} of the fast lane came beyond its share"))?;
                Turn::Fast
            }
            Lane::Slow => {
                let allowed = overdue || due || fast.is_empty();
                hold(11, allowed, || format!("{key} of the slow lane came before a live change"))?;
                if overdue { Turn::Overdue } else { Turn::Slow }
            }
        };
        let waited = turn == Turn::Fast && !slow.is_empty();
        self.fast_turns = if waited { self.fast_turns + 1 } else { 0 };
        self.since_aged = if turn == Turn::Overdue { 0 } else { self.since_aged.saturating_add(1) };
        Ok(turn)
    }

    /// A key was taken in a turn: it must be the first of its lane. Returns its position.
    fn given(&mut self, key: Key, turn: Turn) -> Result<Place, Broken> {
        let [slow, fast] = &self.lane;
        let (first, property) = match turn {
            Turn::Fast => (fast.first(), 10),
            Turn::Slow => (slow.iter().min_by_key(|place| place.rank), 10),
            Turn::Overdue => (slow.first(), 13),
        };
        let Some(first) = first.filter(|first| first.key == key).copied() else {
            return Err(Broken(property, format!("{key} came before {first:?} in a turn: {turn:?}")));
        };
        self.lane[first.lane as usize].retain(|place| place.key != key);
        self.tally.waited.add(self.now - first.since);
        self.trace.push(key);
        Ok(first)
    }

    /// Checks that the queue holds the same keys in the same positions as the model, with the same counts.
    fn compare(&mut self) -> Result<(), Broken> {
        let [slow, fast] = [Lane::Slow, Lane::Fast].map(|lane| self.queue.depth(lane));
        let want = self.lane.each_ref().map(Vec::len);
        hold(28, [slow, fast] == want, || format!("{slow} slow and {fast} fast keys wait, not {want:?}"))?;
        hold(1, self.queue.len() == slow + fast, || {
            format!("{} keys are in {} places", self.queue.len(), slow + fast)
        })?;
        let working = self.queue.working();
        hold(3, working == self.working.len(), || format!("{working} in work, not {:?}", self.working))?;
        let due = self.delayed.values().map(|(at, ..)| *at).min();
        hold(21, self.queue.next_due() == due, || format!("next due {:?}, not {due:?}", self.queue.next_due()))?;
        let failing = self.queue.failing();
        hold(23, failing == self.failures.len(), || format!("{failing} are failing, not {:?}", self.failures))?;
        let drained = self.ended && want == [0, 0] && self.working.is_empty();
        hold(26, self.queue.drained() == drained, || format!("drained: {}", self.queue.drained()))?;
        let batch = self.batch.iter().flat_map(|(keys, since)| (0..*keys).map(|_| *since));
        let since = self.working.values().map(|held| held.since).chain(batch);
        let working = since.map(|since| self.now - since).collect();
        self.tally.compare(&Present { slow, fast, working })
    }
}
