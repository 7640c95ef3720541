//! The counter of a rate limit, and the lease of a store, in every interleaving of the threads that use them, as loom
//! plays them.
//!
//! The files of both are compiled here a second time with loom's atomics instead of the standard library's. The
//! usual `--cfg loom` would reach every dependency and disable tokio's network.

#![allow(dead_code, reason = "of the counter, this uses a part")]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

#[path = "../src/limit/counter.rs"]
mod counter;

#[path = "loom/limit.rs"]
mod limit;

/// The types shared between threads, in loom's version.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}

use std::time::Duration;

use counter::{Charging, Counter, Receipt, Window, Worth};
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

const WINDOW_MS: u64 = 1000;

/// Runs a scene in every interleaving with at most two preemptions of threads, or with `LOOM_MAX_PREEMPTIONS`.
fn play(scene: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound.get_or_insert(2);
    builder.check(scene);
}

fn window() -> Window {
    Window::new(Duration::from_millis(WINDOW_MS))
}

/// Counts a request; `None` if there is no room.
fn charge(counter: &Counter, ms: u64, max: u32) -> Option<Receipt> {
    match counter.charge(window(), window().tick(ms), max) {
        Charging::Done(receipt, _) => Some(receipt),
        Charging::Exceeded(_) | Charging::Removed => None,
    }
}

fn left(counter: &Counter, ms: u64, max: u32) -> u32 {
    counter.left(window(), window().tick(ms), max).requests
}

/// Runs two threads of these, and returns what they return.
fn both<T: 'static>(one: impl FnOnce() -> T + 'static, other: impl FnOnce() -> T + 'static) -> [T; 2] {
    let (one, other) = (thread::spawn(one), thread::spawn(other));
    [one.join().unwrap(), other.join().unwrap()]
}

#[test]
fn one_of_two_requests_has_the_last_place_also_of_a_new_window() {
    for ms in [0, WINDOW_MS, 5 * WINDOW_MS] {
        play(move || {
            let counter = Arc::new(Counter::new());
            assert!(charge(&counter, 0, 2).is_some());
            assert!(ms == 0 || charge(&counter, 0, 2).is_some());
            let max = if ms == 0 { 2 } else { 1 };
            let take = |counter: &Arc<Counter>| {
                let counter = Arc::clone(counter);
                move || u32::from(charge(&counter, ms, max).is_some())
            };
            assert_eq!(both(take(&counter), take(&counter)).iter().sum::<u32>(), 1);
            assert_eq!(left(&counter, ms, max), 0);
        });
    }
}

#[test]
fn requests_that_another_limit_refuses_leave_nothing_behind() {
    play(|| {
        let counter = Arc::new(Counter::new());
        let refused = |counter: &Arc<Counter>| {
            let counter = Arc::clone(counter);
            move || {
                if let Some(receipt) = charge(&counter, 0, 2) {
                    counter.take_back(receipt);
                }
            }
        };
        both(refused(&counter), refused(&counter));
        assert_eq!(left(&counter, 0, 2), 2);
    });
}

#[test]
fn a_charge_is_taken_back_from_its_own_window_only() {
    play(|| {
        let counter = Arc::new(Counter::new());
        let receipt = charge(&counter, 0, 2).unwrap();
        let (old, new) = (Arc::clone(&counter), Arc::clone(&counter));
        both(move || old.take_back(receipt), move || assert!(charge(&new, WINDOW_MS, 2).is_some()));
        assert_eq!(left(&counter, WINDOW_MS, 2), 1);
    });
}

/// The request that finds the counter removed counts in the next one, which stands for a new look into the map.
#[test]
fn an_expired_counter_is_removed_or_used_and_the_count_is_exact() {
    play(|| {
        let counters = Arc::new([Counter::new(), Counter::new()]);
        assert!(charge(&counters[0], 0, 1).is_some());
        let request = |counters: &Arc<[Counter; 2]>| {
            let counters = Arc::clone(counters);
            move || {
                let now = window().tick(WINDOW_MS);
                let found = counters.iter().find_map(|counter| match counter.charge(window(), now, 1) {
                    Charging::Removed => None,
                    done @ (Charging::Done(..) | Charging::Exceeded(_)) => Some(done),
                });
                u32::from(matches!(found, Some(Charging::Done(..))))
            }
        };
        let sweep = {
            let counters = Arc::clone(&counters);
            move || counters[0].remove(window(), window().tick(WINDOW_MS), 0, Worth::Expired)
        };
        let sweep = thread::spawn(sweep);
        assert_eq!(both(request(&counters), request(&counters)).iter().sum::<u32>(), 1);
        let removed = sweep.join().unwrap();
        assert_eq!(removed, counters[0].is_removed());
        assert_eq!(left(&counters[usize::from(removed)], WINDOW_MS, 1), 0);
    });
}

#[test]
fn an_exhausted_counter_is_not_evicted() {
    play(|| {
        let counter = Arc::new(Counter::new());
        assert!(charge(&counter, 0, 2).is_some());
        let (used, evicted) = (Arc::clone(&counter), Arc::clone(&counter));
        let evict = move || evicted.remove(window(), window().tick(0), 2, Worth::Unexhausted);
        let [charged, removed] = both(move || charge(&used, 0, 2).is_some(), evict);
        assert_ne!(charged, removed);
    });
}
