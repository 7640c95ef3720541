//! One counter: the start of its window and the requests in it, in one word that is compared and swapped. It depends on
//! nothing but [`super::sync`], so that `proxy/tests/loom.rs` can play every interleaving of its threads.

use std::time::Duration;

use super::sync::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// The number of ticks in the longest window, and the age in ticks up to which a caller's time may lie before the start
/// of a window. A quarter of the range of a tick each: ticks wrap, and a counter that was idle for the other half of
/// the range must not look as if its window ran. Sweeps reset it long before.
const TICKS_MAX: u32 = 1 << 30;

/// The largest number of requests that is counted, so that no counter has the value of [`REMOVED`].
const COUNT_MAX: u32 = u32::MAX - 1;

/// The word of a counter that was taken out of its map. A thread that finds it looks its counter up again.
const REMOVED: u64 = u64::MAX;

/// The length of a window in ticks. A tick is a millisecond, or in windows of more than twelve days so many
/// milliseconds that the window has at most 2^30 ticks; such a window is longer by less than two ticks, which is less
/// than a part in 10^8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Window {
    tick_ms: u64,
    ticks: u32,
}

impl Window {
    /// A window of this length, at least a millisecond.
    pub(super) fn new(length: Duration) -> Self {
        let ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1);
        let tick_ms = ms.div_ceil(u64::from(TICKS_MAX));
        Self { tick_ms, ticks: u32::try_from(ms.div_ceil(tick_ms)).unwrap_or(TICKS_MAX) }
    }

    /// The tick at a time in milliseconds. Ticks wrap.
    pub(super) const fn tick(self, now_ms: u64) -> Tick {
        let ticks = if self.tick_ms == 1 { now_ms } else { now_ms / self.tick_ms };
        Tick((ticks & u32::MAX as u64) as u32)
    }

    /// The number of ticks in so many milliseconds, at least one.
    pub(super) fn ticks_of(self, ms: u64) -> u32 {
        u32::try_from(ms / self.tick_ms).unwrap_or(TICKS_MAX).max(1)
    }

    /// The number of its ticks.
    pub(super) const fn length(self) -> u32 {
        self.ticks
    }

    /// The length of so many ticks.
    pub(super) const fn time(self, ticks: u32) -> Duration {
        Duration::from_millis(self.tick_ms * ticks as u64)
    }

    /// The window that runs in this word at a tick; `None` if none does. Without a request no window runs.
    fn running(self, word: u64, now: Tick) -> Option<Running> {
        let (start, count) = ((word >> u32::BITS) as u32, (word & u64::from(u32::MAX)) as u32);
        let age = now.0.wrapping_sub(start);
        // Threads read the clock before they come here: the time of a request may be before the start of the window
        // that another one has begun.
        let early = start.wrapping_sub(now.0);
        let ticks = if early <= TICKS_MAX { self.ticks + early } else { self.ticks.checked_sub(age)? };
        (count > 0 && ticks > 0 && word != REMOVED).then_some(Running { count, ticks })
    }
}

/// A point in time in the ticks of a [`Window`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tick(u32);

impl Tick {
    /// The number of the tick, which wraps.
    pub(super) const fn number(self) -> u32 {
        self.0
    }
}

/// A window that runs: the requests in it, and the ticks until it ends.
#[derive(Clone, Copy, Debug)]
struct Running {
    count: u32,
    ticks: u32,
}

/// What a counter has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Left {
    /// The requests that still pass in the window.
    pub(super) requests: u32,
    /// The time until the window ends: its whole length if none runs.
    pub(super) time: Duration,
}

/// The outcome of charging a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Charging {
    /// It is counted; with the receipt it can be taken back.
    Done(Receipt, Left),
    /// The maximum is reached, and nothing was counted.
    Exceeded(Left),
    /// The counter was removed.
    Removed,
}

/// The window in which a request was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Receipt {
    start: u32,
}

/// How well a counter can be spared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Worth {
    /// Its window has ended.
    Expired,
    /// Its window runs and has requests left: forgetting it admits some of them again.
    Unexhausted,
    /// Its window runs and has no requests left. It must not be forgotten.
    Exhausted,
}

/// A counter: the start of its window in the upper half of a word and the requests in the lower one. It begins without
/// a window.
///
/// One word holds all of it, so that relaxed operations are exact. Whoever sees that it was removed also sees what the
/// one that removed it had noted before.
#[derive(Debug)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// A counter in which no window runs.
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A counter that continues another one.
    pub(super) fn continuing(other: &Self, window: Window, now: Tick) -> Self {
        let word = other.0.load(Relaxed);
        Self(AtomicU64::new(if window.running(word, now).is_some() { word } else { 0 }))
    }

    /// What is left, without charging.
    pub(super) fn left(&self, window: Window, now: Tick, max: u32) -> Left {
        left(window, window.running(self.0.load(Relaxed), now), max)
    }

    /// Counts a request if fewer than the maximum are counted in the window.
    pub(super) fn charge(&self, window: Window, now: Tick, max: u32) -> Charging {
        let max = max.min(COUNT_MAX);
        let mut word = self.0.load(Relaxed);
        loop {
            if word == REMOVED {
                return Charging::Removed;
            }
            let running = window.running(word, now);
            let counted = running.map_or(0, |running| running.count);
            if counted >= max {
                return Charging::Exceeded(left(window, running, max));
            }
            let next = if running.is_some() { word + 1 } else { (u64::from(now.0) << u32::BITS) | 1 };
            match self.0.compare_exchange_weak(word, next, Relaxed, Relaxed) {
                Ok(_) => {
                    let left = left(window, window.running(next, now), max);
                    return Charging::Done(Receipt { start: (next >> u32::BITS) as u32 }, left);
                }
                Err(changed) => word = changed,
            }
        }
    }

    /// The start of the window that runs, in the upper half of a word, and the requests in it; 0 if none runs.
    pub(super) fn running(&self, window: Window, now: Tick) -> u64 {
        let word = self.0.load(Relaxed);
        if window.running(word, now).is_some() { word } else { 0 }
    }

    /// Takes a request back, unless its window has ended and another one runs, or the counter was removed.
    pub(super) fn take_back(&self, receipt: Receipt) {
        let less = |word: u64| {
            let counts = word != REMOVED && (word & u64::from(u32::MAX)) > 0;
            (counts && (word >> u32::BITS) as u32 == receipt.start).then(|| word - 1)
        };
        // It is an error if there is nothing to take back.
        self.0.fetch_update(Relaxed, Relaxed, less).ok();
    }

    /// How well the counter can be spared.
    pub(super) fn worth(&self, window: Window, now: Tick, max: u32) -> Worth {
        worth(window, self.0.load(Relaxed), now, max)
    }

    /// Removes the counter if it is worth no more than that: nothing is counted in it from then on. Returns `true` to
    /// the one caller that removed it.
    pub(super) fn remove(&self, window: Window, now: Tick, max: u32, most: Worth) -> bool {
        let removed = |word| (word != REMOVED && worth(window, word, now, max) <= most).then_some(REMOVED);
        self.0.fetch_update(Release, Relaxed, removed).is_ok()
    }

    /// Removes the counter in any case. Returns `true` to the one caller that removed it.
    pub(super) fn discard(&self) -> bool {
        self.0.swap(REMOVED, Relaxed) != REMOVED
    }

    /// Returns `true` if it was removed.
    pub(super) fn is_removed(&self) -> bool {
        self.0.load(Acquire) == REMOVED
    }

    /// Forgets a window that has ended, so that ticks can wrap.
    pub(super) fn reset_if_expired(&self, window: Window, now: Tick) {
        let ended = |word| (word != REMOVED && worth(window, word, now, 0) == Worth::Expired).then_some(0);
        // It is an error if there is nothing to forget.
        self.0.fetch_update(Relaxed, Relaxed, ended).ok();
    }
}

fn left(window: Window, running: Option<Running>, max: u32) -> Left {
    let (count, ticks) = running.map_or((0, window.ticks), |running| (running.count, running.ticks));
    Left { requests: max.saturating_sub(count), time: window.time(ticks) }
}

fn worth(window: Window, word: u64, now: Tick, max: u32) -> Worth {
    match window.running(word, now) {
        None => Worth::Expired,
        Some(running) if running.count >= max.min(COUNT_MAX) => Worth::Exhausted,
        Some(_) => Worth::Unexhausted,
    }
}
