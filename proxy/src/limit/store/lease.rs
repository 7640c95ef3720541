//! A lease: requests of one counter that the store has granted to this replica. Requests are charged to it by
//! compare-and-swap on one word, which holds the end of the window and the requests left in it. Only the task of the
//! store adds to it, so that its other words have one writer.
//!
//! It depends on nothing but [`super::super::sync`] and the ticks of a [`Window`], so that `proxy/tests/loom.rs` can
//! play every interleaving of its threads.

use super::super::counter::{Left, Tick, Window};
use super::super::sync::{AtomicBool, AtomicU64, Ordering};

/// A lease of this many requests or fewer is not refilled before it is empty: who asks once a minute would always hold
/// a request in advance.
const PREFETCH_MIN: u32 = 3;

/// The words of a lease.
#[derive(Debug)]
pub(in crate::limit) struct LeaseWords {
    /// The end of the window, and the requests left.
    held: AtomicU64,
    /// The end of the window, and the requests granted in it, less those given back. It is never less than what is
    /// left and used: it is raised before `held` and lowered after it.
    granted: AtomicU64,
    /// Until when the store need not be asked again, and the requests that it had left. Only told to clients, unless
    /// there are none.
    beyond: AtomicU64,
    /// The lease is refilled when fewer requests than this are left.
    refill_at: AtomicU64,
    /// Whether a refill is on its way.
    asking: AtomicBool,
}

/// What a lease says to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limit) enum LeaseState {
    /// There are requests left: in the lease and, as far as is known, in the store.
    Held(Left),
    /// The lease is empty, and so was the store a moment ago.
    Exhausted(Left),
    /// The lease is empty, or its window has ended.
    Empty,
}

/// The window in which a request was charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limit) struct LeaseReceipt {
    end: u32,
}

/// The answer of the store about a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Grant {
    /// The requests granted.
    pub(super) granted: u32,
    /// The requests left in the store after them.
    pub(super) beyond: u32,
    /// The end of the window, not later than at the store.
    pub(super) end: Tick,
}

/// A point in time in ticks, in the upper half of a word, and a number in the lower one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word {
    pub(super) end: u32,
    pub(super) count: u32,
}

impl Word {
    pub(super) const fn of(word: u64) -> Self {
        Self { end: (word >> u32::BITS) as u32, count: (word & u32::MAX as u64) as u32 }
    }

    pub(super) const fn word(self) -> u64 {
        ((self.end as u64) << u32::BITS) | self.count as u64
    }

    /// The ticks until its end; `None` after it, and for the word 0. No end is farther away than half of the range of a
    /// tick.
    pub(super) const fn runs(self, now: Tick) -> Option<u32> {
        match self.end.wrapping_sub(now.number()) {
            ticks @ 1..=0x7fff_ffff if self.word() != 0 => Some(ticks),
            _ => None,
        }
    }
}

impl LeaseWords {
    pub(in crate::limit) fn new() -> Self {
        Self {
            held: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            beyond: AtomicU64::new(0),
            refill_at: AtomicU64::new(0),
            asking: AtomicBool::new(false),
        }
    }

    /// What is left, without charging.
    pub(in crate::limit) fn state(&self, window: Window, now: Tick) -> LeaseState {
        let held = Word::of(self.held.load(Ordering::Acquire));
        let Some(ticks) = held.runs(now) else { return LeaseState::Empty };
        let beyond = Word::of(self.beyond.load(Ordering::Acquire));
        let left = |requests| Left { requests, time: window.time(ticks) };
        if held.count > 0 {
            return LeaseState::Held(left(held.count.saturating_add(beyond.count)));
        }
        if beyond.count == 0 && beyond.runs(now).is_some() {
            return LeaseState::Exhausted(left(0));
        }
        LeaseState::Empty
    }

    /// Charges a request. Returns what takes it back, and what is left; `None` if there is none, or the window has
    /// ended.
    pub(in crate::limit) fn charge(&self, window: Window, now: Tick) -> Option<(LeaseReceipt, Left)> {
        let one_less = |word| {
            let held = Word::of(word);
            (held.count > 0 && held.runs(now).is_some()).then(|| word - 1)
        };
        let before = self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).ok()?;
        let Word { end, count } = Word::of(before);
        let beyond = Word::of(self.beyond.load(Ordering::Acquire)).count;
        let ticks = Word { end, count }.runs(now).unwrap_or(0);
        let left = Left { requests: (count - 1).saturating_add(beyond), time: window.time(ticks) };
        Some((LeaseReceipt { end }, left))
    }

    /// Takes a request back, unless its window has ended and another one has begun.
    pub(in crate::limit) fn take_back(&self, receipt: LeaseReceipt) {
        let one_more = |word| {
            let held = Word::of(word);
            (held.end == receipt.end && held.count < u32::MAX).then(|| word + 1)
        };
        // It is an error if the window is another one.
        self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok();
    }

    /// The requests that this replica has admitted by leases in the window that runs; not fewer, and for a moment too
    /// many while the lease is being refilled.
    pub(in crate::limit) fn used(&self, now: Tick) -> u32 {
        let held = Word::of(self.held.load(Ordering::Acquire));
        if held.runs(now).is_none() {
            return 0;
        }
        let granted = Word::of(self.granted.load(Ordering::Acquire));
        // Of another window, if that one begins in this very moment.
        if granted.end == held.end { granted.count.saturating_sub(held.count) } else { u32::MAX }
    }

    /// Returns `true` if so little is left that the store should be asked, and had something left.
    pub(in crate::limit) fn is_low(&self, now: Tick) -> bool {
        let held = Word::of(self.held.load(Ordering::Relaxed));
        let beyond = Word::of(self.beyond.load(Ordering::Relaxed)).count;
        u64::from(held.count) < self.refill_at.load(Ordering::Relaxed) && beyond > 0 && held.runs(now).is_some()
    }

    /// Returns `true` while its window runs.
    pub(in crate::limit) fn runs(&self, now: Tick) -> bool {
        Word::of(self.held.load(Ordering::Relaxed)).runs(now).is_some()
    }

    /// Begins to ask the store. Returns `true` to the one caller that does.
    pub(in crate::limit) fn begin_asking(&self) -> bool {
        !self.asking.load(Ordering::Relaxed) && !self.asking.swap(true, Ordering::AcqRel)
    }

    /// Ends that.
    pub(super) fn end_asking(&self) {
        self.asking.store(false, Ordering::Release);
    }

    /// Returns `true` while the store is being asked.
    pub(in crate::limit) fn is_asking(&self) -> bool {
        self.asking.load(Ordering::Acquire)
    }

    /// Adds what the store has granted. `recheck` is the number of ticks for which an exhausted store is not asked
    /// again. Only the task of the store may call this.
    pub(super) fn add(&self, grant: Grant, now: Tick, recheck: u32) {
        let Grant { granted, beyond, end } = grant;
        let held = Word::of(self.held.load(Ordering::Acquire));
        let runs = held.runs(now).is_some();
        // While a window runs it keeps the end that it was given first, so that what is charged can be taken back.
        let end = if runs { held.end } else { end.number() };
        let before = Word::of(self.granted.load(Ordering::Acquire)).count;
        let granted_all = if runs { before.saturating_add(granted) } else { granted };
        self.granted.store(Word { end, count: granted_all }.word(), Ordering::Release);
        let until = now.number().wrapping_add(if granted == 0 { recheck } else { 0 });
        self.beyond.store(Word { end: until, count: beyond }.word(), Ordering::Release);
        let refill_at = if granted > PREFETCH_MIN { u64::from(granted / 4) } else { 0 };
        self.refill_at.store(refill_at, Ordering::Relaxed);
        let more = |word| {
            let held = Word::of(word);
            let kept = if held.end == end && runs { held.count } else { 0 };
            Some(Word { end, count: kept.saturating_add(granted) }.word())
        };
        self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok();
    }

    /// Takes up to so many requests out of it, to be given back. Returns how many. Only the task of the store may call
    /// this.
    pub(super) fn take_out(&self, most: u32, now: Tick) -> u32 {
        let less = |word| {
            let held = Word::of(word);
            let count = held.count - held.count.min(most);
            (held.runs(now).is_some() && count < held.count).then(|| Word { count, ..held }.word())
        };
        let Ok(before) = self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) else { return 0 };
        let before = Word::of(before);
        let taken = before.count.min(most);
        let granted = Word::of(self.granted.load(Ordering::Acquire));
        let less = Word { count: granted.count.saturating_sub(taken), ..granted };
        self.granted.store(less.word(), Ordering::Release);
        taken
    }

    /// The requests left in the window that runs, and those granted in it.
    pub(super) fn left_and_granted(&self, now: Tick) -> Option<(u32, u32)> {
        let held = Word::of(self.held.load(Ordering::Acquire));
        held.runs(now)?;
        Some((held.count, Word::of(self.granted.load(Ordering::Acquire)).count))
    }

    /// Forgets a window that has ended, so that ticks can wrap.
    pub(in crate::limit) fn reset_if_expired(&self, now: Tick) {
        let ended = |word| (word != 0 && Word::of(word).runs(now).is_none()).then_some(0);
        // It is an error if there is nothing to forget.
        self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, ended).ok();
    }
}
