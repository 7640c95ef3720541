//! What a replica still admits in a window after the store has gone away: never more than its part together with what
//! it was granted before. The store of these tests is the test itself.

use prometheus::Registry;

use super::super::evicted::UsedSlot;
use super::super::lease::Grant;
use super::replicas::options;
use super::*;
use crate::clock;
use crate::limit::counter::Window;
use crate::limit::tests::limit_by_value;
use crate::limit::{Counters, LimitCharge};
use crate::observe::limit_metrics::LimitMetrics;
use crate::options::CounterLimits;
use crate::sweep_trigger::SweepTrigger;

const WINDOW_MS: u64 = 60_000;
const MAX: u32 = 90;
const REPLICAS: u32 = 3;

/// What happens at a time in ms.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The store grants so many requests of a value, and they pass.
    Leased(&'static str, u32),
    /// The store is away, and of a hundred requests of a value so many pass.
    Alone(&'static str, u32),
    /// The store answers a request of a value, and has nothing left.
    Reported(&'static str),
    /// The counters whose windows have ended are removed, and so many of values stay.
    Sweep(usize),
}

use Step::{Alone, Leased, Reported, Sweep};

struct Replica {
    counters: Counters,
    limit: Limit,
    start: Instant,
}

impl Replica {
    fn new(limit_counters_max: usize) -> Self {
        let (registry, trigger, start) = (Registry::new(), Arc::new(SweepTrigger::default()), clock::now());
        let metrics = Arc::new(LimitMetrics::register(&registry, Arc::clone(&trigger)).unwrap());
        let room = CounterLimits { limit_counters_max, ..CounterLimits::default() };
        let counters = Counters::new(room, start, metrics, trigger);
        let store_metrics = LimitStoreMetrics::register(&registry).unwrap();
        let counters = counters.shared_in(options(0, StoreAway::Divide, false), store_metrics);
        let replica = Self { counters, limit: limit_by_value("each", &[(MAX, WINDOW_MS)]), start };
        replica.store().replicas.store(REPLICAS, Ordering::Relaxed);
        replica
    }

    fn store(&self) -> &Store {
        self.counters.store.as_ref().unwrap()
    }

    /// The number of requests of a value that pass, of so many. The store grants so many for each question.
    fn passed(&self, ms: u64, value: &str, [requests, granted]: [u32; 2]) -> u32 {
        let mut values = self.counters.values();
        values.add(value);
        let charges = [LimitCharge { limit: &self.limit, values: values.finish() }];
        let now = self.start + Duration::from_millis(ms);
        let passes = |_: &u32| match self.counters.decide(&charges, now, None) {
            Ok(decision) => decision.refused_by.is_none(),
            Err(_) => {
                self.grant(ms, granted);
                self.counters.decide(&charges, now, None).is_ok_and(|decision| decision.refused_by.is_none())
            }
        };
        (0..requests).filter(passes).count() as u32
    }

    fn grant(&self, ms: u64, granted: u32) {
        let ask = self.store().asked.try_lock().unwrap().try_recv().unwrap();
        let (lease, window) = (&ask.lease, ask.lease.window);
        let grant = Grant { granted, beyond: 0, end: window.tick(ms + WINDOW_MS) };
        lease.reported.store(ask.alone, Ordering::Relaxed);
        lease.words.add(grant, window.tick(ms), 1);
    }
}

#[track_caller]
fn check(limit_counters_max: usize, steps: &[(u64, Step)]) {
    let replica = Replica::new(limit_counters_max);
    for (ms, step) in steps {
        replica.store().is_up.store(matches!(step, Leased(..) | Reported(_)), Ordering::Relaxed);
        match *step {
            Leased(value, count) => assert_eq!(replica.passed(*ms, value, [count, count]), count, "at {ms}: {step:?}"),
            Alone(value, want) => assert_eq!(replica.passed(*ms, value, [100, 0]), want, "at {ms}: {step:?}"),
            Reported(value) => assert_eq!(replica.passed(*ms, value, [1, 0]), 0, "at {ms}: {step:?}"),
            Sweep(want) => {
                replica.counters.sweep_expired(replica.start + Duration::from_millis(*ms));
                assert_eq!(replica.counters.values.in_map(), want, "at {ms}: {step:?}");
            }
        }
    }
}

#[test]
fn a_sweep_forgets_nothing_of_a_window_that_runs() {
    check(
        100,
        &[
            (0, Leased("a", 20)),
            (1, Leased("b", 40)),
            (2, Sweep(2)),
            (3, Alone("a", 10)),
            (3, Alone("b", 0)),
            (3, Alone("c", 30)),
            (WINDOW_MS - 1, Sweep(3)),
            (WINDOW_MS - 1, Alone("a", 0)),
            // The window of `a` by itself began later, and so did its lease.
            (WINDOW_MS + 3, Sweep(0)),
            (WINDOW_MS + 3, Alone("a", 30)),
        ],
    );
}

#[test]
fn a_counter_that_goes_for_another_one_frees_nobody() {
    // Each takes the place of the other.
    check(1, &[(0, Leased("a", 20)), (1, Leased("b", 5)), (2, Alone("a", 10)), (3, Alone("a", 0))]);
    check(1, &[(0, Leased("a", 20)), (1, Leased("b", 5)), (2, Alone("c", 30))]);
    let steps =
        [(0, Leased("a", 20)), (1, Leased("b", 5)), (2, Leased("a", 3)), (3, Leased("b", 1)), (4, Alone("a", 7))];
    check(1, &steps);
    check(1, &[(0, Leased("a", 40)), (1, Leased("b", 5)), (2, Alone("a", 0))]);
}

#[test]
fn what_the_store_was_not_told_is_never_forgotten() {
    let steps = [
        (0, Alone("a", 30)),
        (1, Alone("b", 30)),
        // These share a counter.
        (2, Alone("c", 30)),
        (2, Alone("d", 0)),
        (3, Alone("a", 0)),
        (3, Alone("b", 0)),
        (4, Reported("a")),
        (4, Reported("b")),
        (5, Leased("d", 1)),
        (6, Alone("a", 0)),
        (6, Alone("b", 0)),
    ];
    check(2, &steps);
}

#[test]
fn a_counter_that_stays_is_counted_once() {
    // Values without a counter share one, and none of them takes the place of `a`.
    let more = ["b", "c", "d", "e"].map(|value| (1, Alone(value, if value == "b" { 30 } else { 0 })));
    let steps = [&[(0, Alone("a", 30))][..], &more, &[(2, Reported("a"))], &[(2 * WINDOW_MS - 1, Alone("a", 30))]];
    check(1, &steps.concat());
}

#[test]
fn what_was_used_counts_for_two_windows_at_most() {
    let steps = |ms| [(0, Leased("a", 20)), (1, Leased("b", 1)), (ms, Leased("c", 1))];
    let then = |ms, passed| [&steps(ms)[..], &[(ms, Alone("a", passed))]].concat();
    check(1, &then(2 * WINDOW_MS - 1, 10));
    check(1, &then(2 * WINDOW_MS, 30));
    check(1, &then(5 * WINDOW_MS, 30));
}

#[test]
fn what_has_ended_is_forgotten_before_ticks_wrap() {
    let window = Window::new(Duration::from_secs(60));
    let slot = UsedSlot::new();
    slot.add(7, window, window.tick(0));
    let used = |ms| slot.carried(window.tick(ms)).used(window.tick(ms));
    slot.reset_if_expired(window.tick(119_999));
    assert_eq!(used(119_999), 7);
    slot.reset_if_expired(window.tick(120_000));
    assert_eq!(used(119_999), 0);
}
