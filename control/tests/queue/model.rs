//! The queue's specification, as plain as it can be said, and random traces on which the queue is held against it.
//!
//! The model keeps lists and looks through them; it shares no code with the queue. Whatever differs is blamed on the
//! property that it breaks.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_control::{Lane, Queue, Share};

pub(crate) type Key = u8;

/// What is done to the queue. A worker may end work on any of the keys that are in work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Op {
    Add(Key, Lane),
    AddAfter(Key, u64, Lane),
    Get,
    /// Of the keys in work, the one at this place, counted round.
    Done(usize),
    /// A key that may or may not be in work.
    DoneAny(Key),
    Advance(u64),
    Shutdown,
}

/// A trace over few keys, so that they meet.
pub(crate) fn ops(keys: Key, length: usize) -> impl Strategy<Value = Vec<Op>> {
    let lane = || prop_oneof![Just(Lane::Fast), Just(Lane::Slow)];
    let op = prop_oneof![
        12 => (0..keys, lane()).prop_map(|(key, lane)| Op::Add(key, lane)),
        3 => (0..keys, 0..400_u64, lane()).prop_map(|(key, delay, lane)| Op::AddAfter(key, delay, lane)),
        8 => Just(Op::Get),
        5 => (0..8_usize).prop_map(Op::Done),
        1 => (0..keys).prop_map(Op::DoneAny),
        4 => (0..250_u64).prop_map(Op::Advance),
    ];
    (vec(op, 1..length), 0..4_u8).prop_map(|(mut ops, end)| {
        if end == 0 {
            let at = ops.len() * 2 / 3;
            ops.insert(at, Op::Shutdown);
        }
        ops
    })
}

pub(crate) const SHARE: Share = Share {
    batch_max: 1,
    slow_batch_max: 1,
    fast_turns_max: 3,
    slow_age_max: Duration::from_millis(300),
    aged_every: 3,
};

/// The rank of a key in the slow lane: keys of one parity are preferred.
pub(crate) fn rank(key: Key) -> u64 {
    u64::from(key % 2)
}

/// What broke: the number of the property, and how.
pub(crate) struct Broken(pub(crate) u8, pub(crate) String);

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "property {}: {}", self.0, self.1)
    }
}

fn hold(property: u8, holds: bool, how: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken(property, how())) }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    key: Key,
    lane: Lane,
    rank: u64,
    since: Instant,
}

/// The model, the queue beside it, and what was seen of both.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) queue: Queue<Key>,
    pub(crate) now: Instant,
    /// In the order in which the keys came into their lanes.
    lane: [Vec<Place>; 2],
    /// Keys in work, with what was asked for since.
    pub(crate) working: BTreeMap<Key, Option<Place>>,
    delayed: BTreeMap<Key, (Instant, u64, Lane)>,
    delays: u64,
    ended: bool,
    /// Turns of the fast lane while the slow one waited, and turns since one by age.
    fast_turns: u32,
    since_aged: u32,
    /// Every key that was handed out, in order.
    pub(crate) trace: Vec<Key>,
    pub(crate) dirtied: usize,
}

impl Model {
    pub(crate) fn new(queue: Queue<Key>, now: Instant) -> Self {
        Self {
            queue,
            now,
            lane: [Vec::new(), Vec::new()],
            working: BTreeMap::new(),
            delayed: BTreeMap::new(),
            delays: 0,
            ended: false,
            fast_turns: 0,
            since_aged: u32::MAX,
            trace: Vec::new(),
            dirtied: 0,
        }
    }

    /// Plays a trace and then takes all that is left; stops at the first thing that is not as it should be.
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
                if delay.is_zero() {
                    self.ask(key, lane, self.now);
                } else if !self.ended {
                    self.delays += 1;
                    let wanted = (self.now + delay, self.delays, lane);
                    let had = self.delayed.entry(key).or_insert(wanted);
                    let due = (had.0, had.1).min((wanted.0, wanted.1));
                    *had = (due.0, due.1, had.2.max(lane));
                }
            }
            Op::Get => self.get()?,
            Op::Done(place) => {
                let nth = place.checked_rem(self.working.len()).and_then(|place| self.working.keys().nth(place));
                if let Some(key) = nth.copied() {
                    self.done(key);
                }
            }
            Op::DoneAny(key) => self.done(key),
            Op::Advance(by) => self.now += Duration::from_millis(by),
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
        if let Some(Some(again)) = self.working.remove(&key) {
            self.lane[again.lane as usize].push(again);
        }
    }

    fn ask(&mut self, key: Key, lane: Lane, since: Instant) {
        if self.ended {
            return;
        }
        let place = Place { key, lane, rank: rank(key), since };
        if let Some(again) = self.working.get_mut(&key) {
            match again {
                Some(again) => again.lane = again.lane.max(lane),
                None => {
                    self.dirtied += 1;
                    *again = Some(place);
                }
            }
        } else if let Some(at) = self.lane[Lane::Slow as usize].iter().position(|place| place.key == key) {
            if lane == Lane::Fast {
                let moved = self.lane[Lane::Slow as usize].remove(at);
                self.lane[Lane::Fast as usize].push(Place { lane, ..moved });
            }
        } else if !self.lane[Lane::Fast as usize].iter().any(|place| place.key == key) {
            self.dirtied += 1;
            self.lane[lane as usize].push(place);
        }
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

    /// Takes a key of the queue and says whether it is one that it might give.
    fn get(&mut self) -> Result<(), Broken> {
        self.fire();
        let got = self.queue.get(SHARE, self.now);
        let [slow, fast] = &self.lane;
        let Some(key) = got else {
            return hold(14, slow.is_empty() && fast.is_empty(), || "nothing was given although keys wait".to_owned());
        };
        hold(2, !self.working.contains_key(&key), || format!("{key} is in work already"))?;
        let from = slow.iter().chain(fast).find(|place| place.key == key).copied();
        let Some(from) = from else {
            let early = self.delayed.contains_key(&key);
            return Err(Broken(if early { 21 } else { 5 }, format!("{key} was given although nobody asked for it")));
        };
        let oldest = slow.first().copied();
        let best = slow.iter().min_by_key(|place| place.rank).copied();
        let old = oldest.is_some_and(|oldest| self.now - oldest.since >= SHARE.slow_age_max);
        let aged = old && self.since_aged >= SHARE.aged_every - 1;
        let due = self.fast_turns >= SHARE.fast_turns_max;
        match from.lane {
            Lane::Fast => {
                hold(13, !aged, || format!("{key} of the fast lane came before an old one"))?;
                hold(12, slow.is_empty() || !due, || format!("{key} of the fast lane came beyond its share"))?;
                let first = fast.first().map(|place| place.key);
                hold(10, first == Some(key), || format!("{key} came before {first:?}, which had come first"))?;
            }
            Lane::Slow => {
                let allowed = aged || due || fast.is_empty();
                hold(11, allowed, || format!("{key} of the slow lane came before a live change"))?;
                let first = if aged { oldest } else { best }.map(|place| place.key);
                let property = if aged { 13 } else { 10 };
                hold(property, first == Some(key), || format!("{key} came before {first:?} (aged: {aged})"))?;
            }
        }
        let waited = from.lane == Lane::Fast && !slow.is_empty();
        self.fast_turns = if waited { self.fast_turns + 1 } else { 0 };
        let by_age = from.lane == Lane::Slow && aged;
        self.since_aged = if by_age { 0 } else { self.since_aged.saturating_add(1) };
        self.lane[from.lane as usize].retain(|place| place.key != key);
        self.working.insert(key, None);
        self.trace.push(key);
        Ok(())
    }

    /// Whether the queue holds as many keys, in the same places, as the model.
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
        let drained = self.ended && want == [0, 0] && self.working.is_empty();
        hold(26, self.queue.drained() == drained, || format!("drained: {}", self.queue.drained()))
    }
}
