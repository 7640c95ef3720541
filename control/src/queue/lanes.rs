//! The two lanes and whose turn it is. Pure: knows which keys wait, and not who works on them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::{Lane, Share};

/// Keys in the order in which they are taken. The caller sees to it that a key is here at most once.
#[derive(Debug)]
pub(super) struct Lanes<K> {
    /// In the order in which they came. What is here leaves only at the front.
    fast: VecDeque<K>,
    /// By place, and so by age.
    slow: BTreeMap<u64, Slow<K>>,
    /// The same keys in the order in which they are taken: rank, then place.
    ranked: BTreeSet<(u64, u64)>,
    /// Places given so far.
    places: u64,
    /// Turns of the fast lane since the last one of the slow lane, while the slow lane waited.
    fast_turns: u32,
    /// Turns since the last one that went by age.
    since_aged: u32,
}

#[derive(Debug)]
struct Slow<K> {
    key: K,
    rank: u64,
    since: Instant,
}

/// Which lane a turn is for, and in which order it takes keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// The fast lane, in the order in which the keys came.
    Fast,
    /// The slow lane, the lowest rank first.
    Slow,
    /// The slow lane, the oldest first: its head has waited for too long.
    Aged,
}

impl<K> Default for Lanes<K> {
    fn default() -> Self {
        let (fast, slow, ranked) = (VecDeque::new(), BTreeMap::new(), BTreeSet::new());
        Self { fast, slow, ranked, places: 0, fast_turns: 0, since_aged: u32::MAX }
    }
}

impl<K> Lanes<K> {
    /// How many keys wait in a lane.
    pub(super) fn depth(&self, lane: Lane) -> usize {
        match lane {
            Lane::Fast => self.fast.len(),
            Lane::Slow => self.slow.len(),
        }
    }

    /// Adds a key at the end of its lane, in the slow one behind those of its rank. Returns its place in the slow lane.
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
    pub(super) fn promote(&mut self, place: u64) {
        if let Some(slow) = self.slow.remove(&place) {
            self.ranked.remove(&(slow.rank, place));
            self.fast.push_back(slow.key);
        }
    }

    /// Whose turn is next; `None` when no key waits.
    ///
    /// An aged head goes next, but at most every so many turns, and the slow lane has its share beside it; so a key that
    /// comes first in the fast lane waits for one turn of the slow lane at most, however many slow keys are how old.
    pub(super) fn turn(&mut self, share: Share, now: Instant) -> Option<Turn> {
        let turn = match self.slow.first_key_value() {
            None if self.fast.is_empty() => return None,
            None => Turn::Fast,
            Some((_, head)) => {
                let old = now.saturating_duration_since(head.since) >= share.slow_age_max;
                if old && self.since_aged >= share.aged_every.max(2) - 1 {
                    Turn::Aged
                } else if self.fast.is_empty() || self.fast_turns >= share.fast_turns_max.max(1) {
                    Turn::Slow
                } else {
                    Turn::Fast
                }
            }
        };
        let waited = turn == Turn::Fast && !self.slow.is_empty();
        self.fast_turns = if waited { self.fast_turns.saturating_add(1) } else { 0 };
        self.since_aged = if turn == Turn::Aged { 0 } else { self.since_aged.saturating_add(1) };
        Some(turn)
    }

    /// Takes the next key of a turn.
    pub(super) fn pop(&mut self, turn: Turn) -> Option<K> {
        match turn {
            Turn::Fast => self.fast.pop_front(),
            Turn::Slow => {
                let (_, place) = self.ranked.pop_first()?;
                self.slow.remove(&place).map(|slow| slow.key)
            }
            Turn::Aged => {
                let (place, slow) = self.slow.pop_first()?;
                self.ranked.remove(&(slow.rank, place));
                Some(slow.key)
            }
        }
    }

    /// Keys that fit without another allocation.
    pub(super) fn capacity(&self) -> usize {
        self.fast.capacity()
    }

    /// Gives back room beyond so many keys.
    pub(super) fn shrink_to(&mut self, keys: usize) {
        self.fast.shrink_to(keys);
    }
}

/// An instant so far away counts as never; it keeps sums of instants and durations within range.
pub(super) const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
