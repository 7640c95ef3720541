//! The lease of a counter in every interleaving of two requests and the task of the store.

#[path = "../../src/limit/store/lease.rs"]
mod lease;

#[path = "../../src/limit/store/evicted.rs"]
mod evicted;

use loom::sync::Arc;

use self::evicted::UsedSlot;
use self::lease::{Grant, LeaseWords};
use super::counter::{Counter, Tick, Window, Worth};
use crate::{WINDOW_MS, both, play};

fn window() -> Window {
    crate::limit::counter::Window::new(std::time::Duration::from_millis(WINDOW_MS))
}

fn tick(ms: u64) -> Tick {
    window().tick(ms)
}

/// A lease with so many requests of the first window.
fn leased(granted: u32) -> Arc<LeaseWords> {
    let words = LeaseWords::new();
    add(&words, granted, 0);
    Arc::new(words)
}

/// The store grants so many in the window that begins then.
fn add(words: &LeaseWords, granted: u32, ms: u64) {
    words.add(Grant { granted, beyond: 0, end: tick(ms + WINDOW_MS) }, tick(ms), 1);
}

/// A request at that time: 1 if it passes.
fn request(words: &Arc<LeaseWords>, ms: u64) -> impl FnOnce() -> u32 + use<> {
    let words = Arc::clone(words);
    move || u32::from(words.charge(window(), tick(ms)).is_some())
}

/// The requests that are left, and those that were used as far as the fallback knows.
fn left_and_used(words: &LeaseWords, ms: u64) -> (u32, u32) {
    (words.left_and_granted(tick(ms)).map_or(0, |(left, _)| left), words.used(tick(ms)))
}

#[test]
fn one_of_two_requests_has_the_last_one_of_a_lease() {
    play(|| {
        let words = leased(1);
        assert_eq!(both(request(&words, 1), request(&words, 1)).iter().sum::<u32>(), 1);
        assert_eq!(left_and_used(&words, 1), (0, 1));
    });
}

#[test]
fn a_refill_neither_loses_nor_adds_requests() {
    play(|| {
        let words = leased(1);
        let refilled = Arc::clone(&words);
        let task = loom::thread::spawn(move || add(&refilled, 1, 1));
        let passed = both(request(&words, 2), request(&words, 2)).iter().sum::<u32>();
        task.join().unwrap();
        assert_eq!(left_and_used(&words, 2), (2 - passed, passed));
    });
}

#[test]
fn nothing_of_one_window_is_used_in_the_next() {
    play(|| {
        let words = leased(5);
        let refilled = Arc::clone(&words);
        let refill = move || {
            add(&refilled, 1, WINDOW_MS);
            0
        };
        let early = both(request(&words, WINDOW_MS), refill)[0];
        let late = both(request(&words, WINDOW_MS), request(&words, WINDOW_MS)).iter().sum::<u32>();
        assert_eq!(early + late, 1);
    });
}

#[test]
fn what_is_given_back_is_not_used() {
    play(|| {
        let words = leased(2);
        let given = Arc::clone(&words);
        let [passed, back] = both(request(&words, 1), move || given.take_out(2, tick(1)));
        assert_eq!(left_and_used(&words, 1), (2 - passed - back, passed));
    });
}

#[test]
fn one_of_two_asks_the_store() {
    play(|| {
        let words = leased(0);
        let ask = |words: &Arc<LeaseWords>| {
            let words = Arc::clone(words);
            move || words.begin_asking()
        };
        let [one, other] = both(ask(&words), ask(&words));
        assert_ne!(one, other);
        words.end_asking();
        assert!(words.begin_asking());
    });
}

/// Two counters of one slot go at once. Whoever finds one removed makes another one of these values, which begins with
/// what they had used.
#[test]
fn what_a_removed_lease_had_used_is_known_to_the_next_one() {
    play(|| {
        let (all, now) = (Arc::new((UsedSlot::new(), [Counter::new(), Counter::new()])), tick(1));
        let evict = |all: &Arc<(UsedSlot, [Counter; 2])>, place: usize, used: u32| {
            let all = Arc::clone(all);
            move || {
                let (evicted, counters) = &*all;
                evicted.add(used, window(), now);
                counters[place].remove(window(), now, 1, Worth::Unexhausted);
            }
        };
        let threads = [evict(&all, 0, 5), evict(&all, 1, 3)].map(loom::thread::spawn);
        let (evicted, counters) = &*all;
        let removed = [counters[0].is_removed(), counters[1].is_removed()];
        let used = evicted.carried(now).used(now);
        assert!(used >= 5 * u32::from(removed[0]) + 3 * u32::from(removed[1]), "{used} after {removed:?}");
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(evicted.carried(now).used(now), 8);
    });
}
