//! Limits under threads: the number of requests that pass in a window is exact.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::thread;

use super::*;

const THREADS: usize = 4;

/// Runs rounds in which all threads decide at once, and calls `after` between them with the number of the round and of
/// the requests that passed.
fn play(rounds: u64, decide: impl Fn(u64, usize) -> bool + Sync, after: impl Fn(u64, u32) + Sync) {
    let (barrier, passed) = (Barrier::new(THREADS), AtomicU32::new(0));
    let work = |thread: usize| {
        for round in 0..rounds {
            barrier.wait();
            let own = (0..50).filter(|_| decide(round, thread)).count();
            passed.fetch_add(u32::try_from(own).unwrap(), SeqCst);
            if barrier.wait().is_leader() {
                after(round, passed.swap(0, SeqCst));
            }
            barrier.wait();
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|thread| drop(scope.spawn(move || work(thread)))));
}

#[test]
fn exactly_the_maximum_passes_in_each_window() {
    let edge = Edge::new(ROOM);
    let limits = [limit("shared", &[(7, 1000)]), limit_by_value("by-value", &[(7, 1000)])];
    for limit in &limits {
        let value = if limit.counters.is_empty() { "" } else { "a" };
        play(
            300,
            |round, _| edge.passes(round * 1000, limit, value),
            |round, passed| {
                assert_eq!(passed, 7, "in round {round} of {}", limit.id.name());
            },
        );
    }
}

#[test]
fn a_limit_that_is_exhausted_leaves_nothing_in_the_others() {
    let edge = Edge::new(ROOM);
    let (wide, narrow) = (limit("wide", &[(200, 1_000_000)]), limit_by_value("narrow", &[(3, 10)]));
    let total = AtomicU32::new(0);
    let decide = |round: u64, _| edge.decide(round * 10, &[(&wide, ""), (&narrow, "a")]).refused_by.is_none();
    play(60, decide, |round, passed| {
        assert_eq!(passed, 3, "in round {round}");
        let total = total.fetch_add(passed, SeqCst) + passed;
        let left = edge.counters.left(&wide, Values::Shared, edge.at(round * 10));
        assert_eq!(left, [200 - total]);
    });
}

/// Requests count in windows of one value while its counter is removed by sweeps again and again.
#[test]
fn a_counter_that_expires_while_it_is_charged_stays_exact() {
    let edge = Edge::new(ROOM);
    let five = limit_by_value("five", &[(5, 10)]);
    let decide = |round: u64, thread: usize| {
        if thread == 0 {
            edge.counters.sweep_expired(edge.at(round * 10));
        }
        edge.passes(round * 10, &five, "a")
    };
    play(300, decide, |round, passed| assert_eq!(passed, 5, "in round {round}"));
}

#[test]
fn churn_by_threads_stays_within_the_room_and_forgets_no_exhausted_counter() {
    let edge = Edge::new(CounterLimits { limit_counters_max: 16, counters_max: 1000 });
    let two = limit_by_value("two", &[(2, 1_000_000)]);
    assert!((0..2).all(|_| edge.passes(0, &two, "full")));
    let next = AtomicU64::new(0);
    let decide = |round, _| {
        assert!(!edge.passes(round, &two, "full"));
        edge.passes(round, &two, &format!("{}", next.fetch_add(1, SeqCst)))
    };
    play(50, decide, |_, _| {
        let in_use = edge.metric("tidegate_limit_counters", "two", "");
        assert!(in_use <= 16.0, "{in_use}");
        assert_eq!(edge.counters.values.in_map(), in_use as usize);
    });
    edge.counters.sweep_unnamed(std::iter::empty());
    edge.counters.sweep_unnamed(std::iter::empty());
    assert_eq!(edge.counters.values.in_map(), 0);
}
