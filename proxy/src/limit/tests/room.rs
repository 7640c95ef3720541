//! Tests of the room for counters: what goes if there is none, and what stays.

use super::*;

const ROOM: CounterLimits = CounterLimits { limit_counters_max: 8, counters_max: 1000 };

impl Edge {
    fn in_use(&self, limit: &str) -> f64 {
        self.metric("tidegate_limit_counters", limit, "")
    }

    fn overflowed(&self, limit: &str) -> f64 {
        self.metric("tidegate_limit_overflowed_total", limit, "")
    }

    fn evicted(&self, limit: &str) -> f64 {
        self.metric("tidegate_limit_counters_evicted_total", limit, "")
    }
}

#[test]
fn an_exhausted_counter_is_never_forgotten_whatever_values_come() {
    let edge = Edge::new(ROOM);
    let two = limit_by_value("two", &[(2, 60_000)]);
    for value in ["a", "b", "c"] {
        assert!(edge.passes(0, &two, value) && edge.passes(0, &two, value) && !edge.passes(0, &two, value));
    }
    for n in 0..10_000u64 {
        edge.passes(n, &two, &format!("churn {n}"));
        assert!(edge.in_use("two") <= 8.0);
    }
    for value in ["a", "b", "c"] {
        assert!(!edge.passes(59_999, &two, value), "{value}");
    }
    assert!(edge.evicted("two") > 9000.0);
    // They are the only ones that could not go.
    assert_eq!(edge.overflowed("two"), 0.0);
}

#[test]
fn values_for_which_there_is_no_room_share_one_counter() {
    let edge = Edge::new(ROOM);
    let two = limit_by_value("two", &[(2, 60_000)]);
    for n in 0..8 {
        let value = format!("full {n}");
        assert!(edge.passes(0, &two, &value) && edge.passes(0, &two, &value));
    }
    assert!(edge.passes(10, &two, "x") && edge.passes(10, &two, "y"));
    assert!(!edge.passes(10, &two, "z") && !edge.passes(10, &two, "x"));
    assert_eq!(edge.overflowed("two"), 2.0);
    assert_eq!((edge.in_use("two"), edge.evicted("two")), (8.0, 0.0));
    // There is room again, and what they had together counts on.
    edge.counters.sweep_expired(edge.at(60_000));
    assert_eq!(edge.in_use("two"), 0.0);
    assert!(!edge.passes(60_000, &two, "x") && !edge.passes(60_009, &two, "new"));
    assert!(edge.passes(60_010, &two, "x") && edge.passes(60_010, &two, "x") && !edge.passes(60_010, &two, "x"));
    assert_eq!(edge.overflowed("two"), 2.0);
}

#[test]
fn a_value_counts_on_when_it_gets_a_counter_of_its_own() {
    let edge = Edge::new(ROOM);
    let three = limit_by_value("three", &[(3, 60_000)]);
    for n in 0..8 {
        let value = format!("full {n}");
        assert!((0..3).all(|_| edge.passes(0, &three, &value)));
    }
    assert!(edge.passes(50_000, &three, "x") && edge.passes(50_000, &three, "x"));
    // The others have expired.
    assert!(edge.passes(60_000, &three, "x") && !edge.passes(60_000, &three, "x"));
    assert_eq!(edge.overflowed("three"), 2.0);
}

#[test]
fn expired_counters_go_first_and_used_ones_last() {
    let edge = Edge::new(ROOM);
    let nine = limit_by_value("nine", &[(9, 1000)]);
    for n in 0..8 {
        edge.passes(n * 100, &nine, &format!("{n}"));
    }
    for value in ["1", "2", "3", "4", "6", "7"] {
        edge.passes(750, &nine, value);
    }
    let left = |ms: u64, value: &str| edge.decide(ms, &[(&nine, value)]).tightest.unwrap().remaining;
    // None has expired: of those that were used once, the one that is first in the ring goes.
    edge.passes(800, &nine, "new");
    assert_eq!((edge.evicted("nine"), edge.in_use("nine")), (1.0, 8.0));
    assert_eq!((left(810, "1"), left(810, "5"), left(810, "7"), left(810, "new")), (6, 7, 6, 7));
    // The windows of three have ended by now, and no counter that runs has to go.
    for n in 0..3 {
        edge.passes(1310, &nine, &format!("newer {n}"));
    }
    assert_eq!((edge.evicted("nine"), edge.in_use("nine")), (1.0, 8.0));
}

#[test]
fn sweeps_remove_expired_counters_alone() {
    let edge = Edge::new(ROOM);
    let once = limit_by_value("once", &[(1, 1000)]);
    for n in 0..8 {
        assert!(edge.passes(n * 100, &once, &format!("{n}")));
    }
    edge.counters.sweep_expired(edge.at(1299));
    assert_eq!(edge.in_use("once"), 5.0);
    for n in 3..8 {
        assert!(!edge.passes(1299, &once, &format!("{n}")));
    }
    assert!(edge.passes(1299, &once, "0"));
    assert_eq!((edge.evicted("once"), edge.overflowed("once")), (0.0, 0.0));
}

#[test]
fn one_limit_leaves_room_for_the_others() {
    let edge = Edge::new(CounterLimits { limit_counters_max: 100, counters_max: 40 });
    let (greedy, modest) = (limit_by_value("greedy", &[(1, 60_000)]), limit_by_value("modest", &[(1, 60_000)]));
    assert!(edge.passes(0, &modest, "first"));
    for n in 0..1000 {
        edge.passes(0, &greedy, &format!("{n}"));
    }
    assert!(edge.in_use("greedy") <= 20.0, "half of all");
    for n in 0..9 {
        assert!(edge.passes(0, &modest, &format!("{n}")) && !edge.passes(0, &modest, &format!("{n}")), "{n}");
    }
    assert_eq!((edge.in_use("modest"), edge.overflowed("modest")), (10.0, 0.0));
    // The room of a limit that is gone is free again.
    edge.counters.sweep_unnamed(std::iter::once(&modest));
    edge.counters.sweep_unnamed(std::iter::once(&modest));
    for n in 100..110 {
        assert!(edge.passes(0, &modest, &format!("{n}")));
    }
    assert_eq!((edge.in_use("modest"), edge.overflowed("modest")), (20.0, 0.0));
}

/// A limit by values of a policy in a namespace.
fn limit_of(namespace: &str, name: &str, rates: &[(u32, u64)]) -> Limit {
    Limit { id: limit_id(namespace, "shop", name), ..limit_by_value(name, rates) }
}

#[test]
fn one_namespace_leaves_room_for_the_others() {
    let edge = Edge::new(CounterLimits { limit_counters_max: 100, counters_max: 80 });
    let modest = limit_of("modest", "modest", &[(1, 60_000)]);
    let rates: Vec<(u32, u64)> = (0..10).map(|n| (1, 60_000 + n)).collect();
    let greedy: Vec<Limit> = (0..20).map(|n| limit_of("greedy", &format!("greedy {n}"), &rates)).collect();
    assert!(edge.passes(0, &modest, "first"));
    for n in 0..50 {
        for limit in &greedy {
            edge.passes(0, limit, &format!("{n}"));
        }
    }
    let of_greedy: f64 = greedy.iter().map(|limit| edge.in_use(limit.id.name())).sum();
    assert!((39.0..=59.0).contains(&of_greedy), "half of all, and half of the other half: {of_greedy}");
    // Each value has a counter of its own.
    for n in 0..19 {
        let value = format!("{n}");
        assert!(edge.passes(0, &modest, &value) && !edge.passes(0, &modest, &value), "{n}");
    }
    assert_eq!((edge.in_use("modest"), edge.overflowed("modest")), (20.0, 0.0));
    assert_eq!(edge.counters.values.namespaces(), (2, 2));
    // The room of a namespace that is gone is free again.
    for _ in 0..2 {
        edge.counters.sweep_unnamed(std::iter::once(&modest));
    }
    assert_eq!(edge.counters.values.namespaces(), (1, 1));
    for n in 100..130 {
        assert!(edge.passes(0, &modest, &format!("{n}")), "{n}");
    }
    assert_eq!((edge.in_use("modest"), edge.overflowed("modest")), (50.0, 0.0));
}

#[test]
fn a_refused_request_makes_no_counter() {
    let edge = Edge::new(ROOM);
    let (closed, by_value) = (limit("closed", &[(0, 1000)]), limit_by_value("by-value", &[(5, 1000)]));
    for n in 0..5 {
        edge.decide(0, &[(&by_value, &format!("{n}")), (&closed, "")]);
    }
    assert_eq!(edge.in_use("by-value"), 0.0);
}

#[test]
fn a_counter_takes_about_100_bytes_and_a_decision_allocates_nothing() {
    let edge = Edge::new(CounterLimits::default());
    let limits: Vec<Limit> = (0..60).map(|n| limit_by_value(&format!("{n}"), &[(100_000, 60_000)])).collect();
    let values = edge.values("a");
    let charges: Vec<LimitCharge<'_>> = limits.iter().map(|limit| LimitCharge { limit, values }).collect();
    let now = edge.at(0);
    edge.counters.decide(&charges, now, None).unwrap();
    let allocated = allocation_counter::measure(|| {
        assert!(edge.counters.decide(&charges, now, None).unwrap().refused_by.is_none());
        assert_eq!(edge.values("a"), values);
    });
    assert_eq!(allocated.count_total, 0);
    let all: Vec<Values> = (0..65_536).map(|n| edge.values(&format!("{n}"))).collect();
    let allocated = allocation_counter::measure(|| {
        for values in all {
            edge.counters.decide(&[LimitCharge { limit: &limits[0], values }], now, None).unwrap();
        }
    });
    let bytes = allocated.bytes_current / 65_536;
    assert!((50..=100).contains(&bytes), "{bytes}");
}
