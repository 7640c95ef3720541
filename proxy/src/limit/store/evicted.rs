//! What removed leases had used. The store has counted it, and while it is away nobody else knows.

use std::sync::OnceLock;

use super::super::counter::{Tick, Window};
use super::super::sync::{AtomicU64, Ordering};
use super::lease::Word;

/// The slots of a group. Values that share one are taken for each other.
const SLOTS: usize = 1024;

/// What the leases of a group had used that were removed for others: in 16 KiB, once there was one.
#[derive(Debug, Default)]
pub(in crate::limit) struct EvictedUse(OnceLock<Box<[UsedSlot]>>);

/// What was used of one slot, in the stretch of a window's length that runs and in the one before, each with the time
/// from which on it does not matter: a window that ran when its lease was removed has ended by then.
#[derive(Debug)]
pub(in crate::limit) struct UsedSlot([AtomicU64; 2]);

/// What the values of a lease may have used before it was made.
#[derive(Debug)]
pub(in crate::limit) struct Carried(AtomicU64);

impl EvictedUse {
    /// A lease of these values that has used so much is about to be removed.
    pub(in crate::limit) fn add(&self, values: u64, used: u32, window: Window, now: Tick) {
        let slots = self.0.get_or_init(|| (0..SLOTS).map(|_| UsedSlot::new()).collect());
        slots.get(place(values)).inspect(|slot| slot.add(used, window, now));
    }

    /// Forgets what has ended, so that ticks can wrap.
    pub(in crate::limit) fn reset_expired(&self, now: Tick) {
        self.0.get().into_iter().flatten().for_each(|slot| slot.reset_if_expired(now));
    }

    /// What a new lease of these values begins with.
    pub(in crate::limit) fn carried(&self, values: u64, now: Tick) -> Carried {
        self.0.get().and_then(|slots| slots.get(place(values))).map_or_else(Carried::nothing, |slot| slot.carried(now))
    }
}

const fn place(values: u64) -> usize {
    (values % SLOTS as u64) as usize
}

impl UsedSlot {
    /// Nothing.
    pub(in crate::limit) fn new() -> Self {
        Self([AtomicU64::new(0), AtomicU64::new(0)])
    }

    /// A lease that has used so much is about to be removed.
    pub(in crate::limit) fn add(&self, used: u32, window: Window, now: Tick) {
        let stretch = now.number() / window.length();
        let end = stretch.wrapping_add(2).wrapping_mul(window.length());
        let more = |word| {
            let before = Word::of(word);
            let count = if before.end == end { before.count.saturating_add(used) } else { used };
            Some(Word { end, count }.word())
        };
        let [even, odd] = &self.0;
        let of_stretch = if stretch.is_multiple_of(2) { even } else { odd };
        of_stretch.fetch_update(Ordering::Release, Ordering::Relaxed, more).ok();
    }

    pub(in crate::limit) fn reset_if_expired(&self, now: Tick) {
        for word in &self.0 {
            let seen = word.load(Ordering::Relaxed);
            if seen != 0 && Word::of(seen).runs(now).is_none() {
                // Whoever has added something since then keeps it.
                word.compare_exchange(seen, 0, Ordering::Relaxed, Ordering::Relaxed).ok();
            }
        }
    }

    /// What a new lease of this slot begins with.
    pub(in crate::limit) fn carried(&self, now: Tick) -> Carried {
        let words = self.0.each_ref().map(|word| Word::of(word.load(Ordering::Acquire)));
        let running = || words.iter().filter(|word| word.runs(now).is_some());
        let count = running().fold(0_u32, |all, word| all.saturating_add(word.count));
        let last = running().max_by_key(|word| word.runs(now));
        Carried(AtomicU64::new(last.map_or(0, |last| Word { count, ..*last }.word())))
    }
}

impl Carried {
    /// Nothing.
    pub(in crate::limit) fn nothing() -> Self {
        Self(AtomicU64::new(0))
    }

    /// How much that is, in the window that runs.
    pub(in crate::limit) fn used(&self, now: Tick) -> u32 {
        let word = Word::of(self.0.load(Ordering::Relaxed));
        word.runs(now).map_or(0, |_| word.count)
    }

    /// Forgets what has ended, so that ticks can wrap.
    pub(in crate::limit) fn reset_if_expired(&self, now: Tick) {
        if self.used(now) == 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}
