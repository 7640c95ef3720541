//! The two lanes and their turns. Pure: it knows the waiting keys, and not the workers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::{Lane, LaneShares};

/// Keys in the order in which they are taken. The caller ensures that a key is here at most once.
#[derive(Debug)]
pub(super) struct Lanes<K> {
    /// In order of arrival. Keys leave only at the front.
    fast: VecDeque<K>,
    /// By place, and so by age.
    slow: BTreeMap<u64, Slow<K>>,
    /// The same keys in the order in which they are taken: rank, then place.
    ranked: BTreeSet<(u64, u64)>,
    /// The number of places given so far.
    places: u64,
    /// The turns of the fast lane since the last one of the slow lane, while the slow lane waited.
    fast_turns: u32,
    /// The turns since the last one by age.
    since_aged: u32,
}

#[derive(Debug)]
struct Slow<K> {
    key: K,
    rank: u64,
    since: Instant,
}

/// The lane of a turn, and the order of its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// The fast lane, in order of arrival.
    Fast,
    /// The slow lane, the lowest rank first.
    Slow,
    /// The slow lane, the oldest first: its oldest key has waited for too long.
    Overdue,
}

impl<K> Default for Lanes<K> {
    fn default() -> Self {
        let (fast, slow, ranked) = (VecDeque::new(), BTreeMap::new(), BTreeSet::new());
        Self { fast, slow, ranked, places: 0, fast_turns: 0, since_aged: u32::MAX }
    }
}

impl<K> Lanes<K> {
    /// The number of keys in a lane.
    pub(super) fn depth(&self, lane: Lane) -> usize {
        match lane {
            Lane::Fast => self.fast.len(),
            Lane::Slow => self.slow.len(),
        }
    }

    /// Adds a key at the end of its lane, in the slow one after those of its rank. Returns its place in the slow lane.
    pub(super) fn push(&mut self, key: K, lane: Lane, rank: u64, since: Instant) -> u64 {
        match lane {
            Lane::Fast => self.fast.push_back(key),
            Lane::Slow => {
                self.places += 1;
                self.ranked.insert((rank, self.places));
                self.slow.insert(self.places, Slow { key, rank, since });
            }
        }
        self.places
    }

    /// Moves a key of the slow lane to the end of the fast one.
    pub(super) fn promote(&mut self, sequence: u64) {
        if let Some(slow) = self.slow.remove(&sequence) {
            self.ranked.remove(&(slow.rank, sequence));
            self.fast.push_back(slow.key);
        }
    }

    /// The lane of the next turn; `None` if no key waits.
    ///
    /// An overdue key goes next, but at most every `aged_every` turns, and the slow lane has its share besides; so the
    /// first key of the fast lane waits for at most one turn of the slow lane, however many old keys there are.
    pub(super) fn turn(&mut self, share: LaneShares, now: Instant) -> Option<Turn> {
        let turn = match self.slow.first_key_value() {
            None if self.fast.is_empty() => return None,
            None => Turn::Fast,
            Some((_, head)) => {
                let old = now.saturating_duration_since(head.since) >= share.slow_age_max;
                if old && self.since_aged >= share.aged_every.max(2) - 1 {
                    Turn::Overdue
                } else if self.fast.is_empty() || self.fast_turns >= share.fast_turns_max.max(1) {
                    Turn::Slow
                } else {
                    Turn::Fast
                }
            }
        };
        let waited = turn == Turn::Fast && !self.slow.is_empty();
        self.fast_turns = if waited { self.fast_turns.saturating_add(1) } else { 0 };
        self.since_aged = if turn == Turn::Overdue { 0 } else { self.since_aged.saturating_add(1) };
        Some(turn)
    }

    /// Takes the next key of a turn.
    pub(super) fn pop(&mut self, turn: Turn) -> Option<K> {
        match turn {
            Turn::Fast => self.fast.pop_front(),
            Turn::Slow => {
                let (_, sequence) = self.ranked.pop_first()?;
                self.slow.remove(&sequence).map(|slow| slow.key)
            }
            Turn::Overdue => {
                let (sequence, slow) = self.slow.pop_first()?;
                self.ranked.remove(&(slow.rank, sequence));
                Some(slow.key)
            }
        }
    }

    /// The number of keys that fit without another allocation.
    pub(super) fn capacity(&self) -> usize {
        self.fast.capacity()
    }

    /// Frees capacity beyond this number of keys.
    pub(super) fn shrink_to(&mut self, keys: usize) {
        self.fast.shrink_to(keys);
    }
}

/// A duration that counts as never; it keeps sums of instants and durations within range.
pub(super) const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
