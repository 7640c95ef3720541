//! Tests of the decisions of limits: their rules as tables, a naive model of them, and threads.

mod model;
mod room;
mod threads;

use prometheus::Registry;
use tidegate_config::model::ValueExpression;
use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use super::*;
use crate::clock;

/// Counters with their metrics, and a clock of their own.
pub(super) struct Edge {
    pub(super) counters: Counters,
    registry: Registry,
    start: Instant,
}

impl Edge {
    pub(super) fn new(limits: CounterLimits) -> Self {
        let (registry, sweep_trigger, start) = (Registry::new(), Arc::new(SweepTrigger::default()), clock::now());
        let metrics = Arc::new(LimitMetrics::register(&registry, Arc::clone(&sweep_trigger)).unwrap());
        Self { counters: Counters::new(limits, start, metrics, sweep_trigger), registry, start }
    }

    /// The time that many milliseconds after the start.
    pub(super) fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    /// The values of a request as they are written in these tests: nothing for a limit without expressions, `!` for an
    /// expression that fails.
    pub(super) fn values(&self, text: &str) -> Values {
        match text {
            "" => Values::Shared,
            "!" => Values::Failed,
            text => {
                let mut values = self.counters.values();
                values.add(text);
                values.finish()
            }
        }
    }

    pub(super) fn decide<'l>(&self, ms: u64, charges: &[(&'l Limit, &str)]) -> LimitDecision<'l> {
        let charge = |(limit, values): &(&'l Limit, &str)| LimitCharge { limit, values: self.values(values) };
        let charges: Vec<LimitCharge<'l>> = charges.iter().map(charge).collect();
        self.counters.decide(&charges, self.at(ms), None).expect("no store to wait for")
    }

    /// Returns `true` if a request of these values passes.
    pub(super) fn passes(&self, ms: u64, limit: &Limit, values: &str) -> bool {
        self.decide(ms, &[(limit, values)]).refused_by.is_none()
    }

    /// The value of a series of a limit, 0 if there is none.
    pub(super) fn metric(&self, name: &str, limit: &str, outcome: &str) -> f64 {
        let text = prometheus::TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        let own = format!(r#"limit="{limit}",name="shop","#);
        let is_own = |line: &&str| line.starts_with(name) && line.contains(&own) && line.contains(outcome);
        let line = text.lines().find(is_own);
        line.and_then(|line| line.rsplit(' ').next()).map_or(0.0, |value| value.parse().unwrap())
    }
}

/// The identity of a limit of a policy.
pub(super) fn limit_id(namespace: &str, policy: &str, name: &str) -> LimitId {
    LimitId::new(ObjectRef::new(Kind::RateLimitPolicy, ObjectName::new(namespace, policy)), name.into())
}

/// A limit with these rates: the maximum, and the milliseconds of the window.
pub(super) fn limit(name: &str, rates: &[(u32, u64)]) -> Limit {
    Limit {
        id: limit_id("web", "shop", name),
        when: Box::default(),
        counters: Box::default(),
        rates: rates.iter().map(|&(max, ms)| Rate { max, window: Duration::from_millis(ms) }).collect(),
        shadow: false,
    }
}

/// A limit by values.
pub(super) fn limit_by_value(name: &str, rates: &[(u32, u64)]) -> Limit {
    Limit { counters: [ValueExpression::new("request.host").unwrap()].into(), ..limit(name, rates) }
}

fn shadow(limit: Limit) -> Limit {
    Limit { shadow: true, ..limit }
}

fn text(decision: LimitDecision<'_>) -> String {
    let state = |state: RateState<'_>| {
        let (name, max, left) = (state.limit.id.name(), state.rate.max, state.remaining);
        format!("{name} {left}/{max} {} ms", state.resets_in.as_millis())
    };
    let decided = match (decision.refused_by, decision.tightest) {
        (Some(by), tightest) => {
            assert_eq!(tightest, Some(by));
            format!("refused {}", state(by))
        }
        (None, Some(tightest)) => format!("passes {}", state(tightest)),
        (None, None) => "passes".to_owned(),
    };
    decided + &decision.shadow.map_or(String::new(), |by| format!(", shadow {}", state(by)))
}

const ROOM: CounterLimits = CounterLimits { limit_counters_max: 100, counters_max: 1000 };

/// Each step is a request at a time in milliseconds with values for all limits.
#[track_caller]
fn check(limits: &[&Limit], steps: &[(u64, &str, &str)]) {
    let edge = Edge::new(ROOM);
    for (ms, values, want) in steps {
        let charges: Vec<(&Limit, &str)> = limits.iter().map(|limit| (*limit, *values)).collect();
        assert_eq!(text(edge.decide(*ms, &charges)), *want, "at {ms} ms with {values:?}");
    }
}

#[test]
fn a_window_begins_with_the_first_request_after_the_last_one() {
    check(&[], &[(0, "", "passes")]);
    check(&[&limit("none", &[])], &[(0, "", "passes")]);
    check(
        &[&limit("two", &[(2, 1000)])],
        &[
            (700, "", "passes two 1/2 1000 ms"),
            (900, "", "passes two 0/2 800 ms"),
            (900, "", "refused two 0/2 800 ms"),
            (1699, "", "refused two 0/2 1 ms"),
            (1700, "", "passes two 1/2 1000 ms"),
            (1_000_000, "", "passes two 1/2 1000 ms"),
            (1_000_999, "", "passes two 0/2 1 ms"),
            (1_000_999, "", "refused two 0/2 1 ms"),
            (1_001_000, "", "passes two 1/2 1000 ms"),
        ],
    );
}

/// Threads read the clock before they come to the counter.
#[test]
fn a_request_from_before_the_start_of_a_window_is_counted_in_it() {
    check(
        &[&limit("two", &[(2, 1000)])],
        &[
            (5000, "", "passes two 1/2 1000 ms"),
            (4990, "", "passes two 0/2 1010 ms"),
            (4000, "", "refused two 0/2 2000 ms"),
            (5999, "", "refused two 0/2 1 ms"),
        ],
    );
}

#[test]
fn all_rates_apply_and_the_tightest_is_told() {
    let both = limit("both", &[(2, 1000), (3, 60_000)]);
    check(
        &[&both],
        &[
            (0, "", "passes both 1/2 1000 ms"),
            (0, "", "passes both 0/2 1000 ms"),
            (0, "", "refused both 0/2 1000 ms"),
            (1000, "", "passes both 0/3 59000 ms"),
            (1000, "", "refused both 0/3 59000 ms"),
            (2000, "", "refused both 0/3 58000 ms"),
            (60_000, "", "passes both 1/2 1000 ms"),
        ],
    );
    check(&[&limit("equal", &[(1, 1000), (1, 60_000)])], &[(0, "", "passes equal 0/1 60000 ms")]);
    let zero = limit("zero", &[(0, 60_000)]);
    check(&[&limit("one", &[(1, 1000)]), &zero], &[(0, "", "refused zero 0/0 60000 ms")]);
}

#[test]
fn a_request_that_one_limit_refuses_is_counted_in_none() {
    let (wide, narrow) = (limit("wide", &[(3, 60_000)]), limit("narrow", &[(1, 1000)]));
    let steps = [
        (0, "", "passes narrow 0/1 1000 ms"),
        (1, "", "refused narrow 0/1 999 ms"),
        (2, "", "refused narrow 0/1 998 ms"),
        (1000, "", "passes narrow 0/1 1000 ms"),
        (2000, "", "passes wide 0/3 58000 ms"),
        (2001, "", "refused wide 0/3 57999 ms"),
    ];
    check(&[&wide, &narrow], &steps);
    check(&[&narrow, &wide], &steps);
}

/// The second charge of the same limit finds the place taken, as if another request had been faster.
#[test]
fn a_charge_that_loses_its_place_takes_back_the_others() {
    let edge = Edge::new(ROOM);
    let (wide, once) = (limit("wide", &[(3, 1000)]), limit_by_value("once", &[(1, 1000)]));
    let lost = edge.decide(0, &[(&wide, ""), (&once, "a"), (&once, "a")]);
    assert_eq!(text(lost), "refused once 0/1 1000 ms");
    let left = |limit, values| edge.counters.left(limit, edge.values(values), edge.at(0));
    assert_eq!((left(&wide, ""), left(&once, "a")), (vec![3], vec![1]));
    assert_eq!(edge.metric("tidegate_limited_requests_total", "wide", "allowed"), 0.0);
}

#[test]
fn a_maximum_of_zero_refuses_all_and_the_largest_is_no_overflow() {
    check(
        &[&limit("zero", &[(0, 1000)])],
        &[(0, "", "refused zero 0/0 1000 ms"), (5000, "a", "refused zero 0/0 1000 ms")],
    );
    check(&[&limit("most", &[(u32::MAX, 1000)])], &[(0, "", "passes most 4294967293/4294967295 1000 ms")]);
}

#[test]
fn each_tuple_of_values_has_a_counter_and_failures_share_one() {
    check(
        &[&limit_by_value("one", &[(1, 1000)])],
        &[
            (0, "a", "passes one 0/1 1000 ms"),
            (1, "b", "passes one 0/1 1000 ms"),
            (2, "a", "refused one 0/1 998 ms"),
            (3, "!", "passes one 0/1 1000 ms"),
            (4, "!", "refused one 0/1 999 ms"),
            (5, "c", "passes one 0/1 1000 ms"),
            (1000, "a", "passes one 0/1 1000 ms"),
        ],
    );
    let edge = Edge::new(ROOM);
    let of = |parts: &[&str]| {
        let mut values = edge.counters.values();
        parts.iter().for_each(|part| values.add(part));
        values.finish()
    };
    assert_eq!(of(&["a", "bc"]), of(&["a", "bc"]));
    for other in [&["ab", "c"][..], &["a", "bc", ""], &["bc", "a"], &["abc"], &[]] {
        assert_ne!(of(&["a", "bc"]), of(other), "{other:?}");
    }
}

#[test]
fn a_limit_in_shadow_mode_counts_and_never_refuses() {
    let (shadowed, real) = (shadow(limit("shadowed", &[(1, 1000), (2, 60_000)])), limit("real", &[(4, 60_000)]));
    let steps = [
        (0, "", "passes real 3/4 60000 ms"),
        (1, "", "passes real 2/4 59999 ms, shadow shadowed 0/1 999 ms"),
        // The second rate counts what the first one would have admitted.
        (1000, "", "passes real 1/4 59000 ms"),
        (2000, "", "passes real 0/4 58000 ms, shadow shadowed 0/2 58000 ms"),
        (2001, "", "refused real 0/4 57999 ms, shadow shadowed 0/2 57999 ms"),
    ];
    check(&[&shadowed, &real], &steps);
    check(&[&real, &shadowed], &steps);
    check(&[&shadow(limit("none", &[(0, 1000)]))], &[(0, "", "passes, shadow none 0/0 1000 ms")]);
}

#[test]
fn a_new_maximum_keeps_the_count_and_a_new_name_or_window_does_not() {
    let edge = Edge::new(ROOM);
    let decided = |ms, limit: &Limit| text(edge.decide(ms, &[(limit, "")]));
    let of = |max| limit("api", &[(max, 60_000)]);
    assert_eq!(decided(0, &of(2)), "passes api 1/2 60000 ms");
    assert_eq!(decided(1, &of(5)), "passes api 3/5 59999 ms");
    assert_eq!(decided(2, &of(1)), "refused api 0/1 59998 ms");
    assert_eq!(decided(3, &of(3)), "passes api 0/3 59997 ms");
    assert_eq!(decided(3, &limit("other", &[(3, 60_000)])), "passes other 2/3 60000 ms");
    assert_eq!(decided(3, &limit("api", &[(3, 59_000)])), "passes api 2/3 59000 ms");
    let id = limit_id("web", "another", "api");
    assert_eq!(decided(3, &Limit { id, ..of(3) }), "passes api 2/3 60000 ms");
}

#[test]
fn windows_may_last_from_a_millisecond_to_decades() {
    check(
        &[&limit("short", &[(1, 1)])],
        &[(0, "", "passes short 0/1 1 ms"), (0, "", "refused short 0/1 1 ms"), (1, "", "passes short 0/1 1 ms")],
    );
    // Four times 99999h, the longest window that a policy can have.
    let longest = 4 * 99_999 * 3_600_000;
    let edge = Edge::new(ROOM);
    let once = limit("long", &[(1, longest)]);
    assert!(edge.passes(0, &once, "") && !edge.passes(0, &once, ""));
    let left = edge.decide(longest / 2, &[(&once, "")]).refused_by.unwrap().resets_in.as_millis();
    assert!(left.abs_diff(u128::from(longest / 2)) < 3000, "{left}");
    assert!(!edge.passes(longest - 1, &once, ""));
    assert!(edge.passes(longest + 3000, &once, ""));
}

/// Without the sweeps, the ticks of so old a window would look like those of a new one.
#[test]
fn a_counter_that_was_idle_until_ticks_wrap_begins_anew() {
    let (once, by_value) = (limit("once", &[(1, 1000)]), limit_by_value("by-value", &[(1, 1000)]));
    let wrap = 1 << u32::BITS;
    let edge = Edge::new(ROOM);
    assert!(edge.passes(7, &once, "") && edge.passes(7, &by_value, "a"));
    assert!(!edge.passes(wrap + 7, &once, "") && !edge.passes(wrap + 7, &by_value, "a"));
    edge.counters.sweep_expired(edge.at(1 << 20));
    assert!(edge.passes(wrap + 7, &once, "") && edge.passes(wrap + 7, &by_value, "a"));
}

#[test]
fn counters_survive_until_their_limit_is_unnamed_in_two_sweeps() {
    let (named, gone) = (limit_by_value("named", &[(1, 60_000)]), limit_by_value("gone", &[(1, 60_000)]));
    let edge = Edge::new(ROOM);
    for limit in [&named, &gone] {
        assert!(edge.passes(0, limit, "a") && !edge.passes(0, limit, "a"));
    }
    let sweep = |limits: &[&Limit]| edge.counters.sweep_unnamed(limits.iter().copied());
    let passed = |limit: &str| edge.metric("tidegate_limited_requests_total", limit, "allowed");
    sweep(&[&named]);
    sweep(&[&named, &gone]);
    sweep(&[&named]);
    assert!(!edge.passes(0, &named, "a") && !edge.passes(0, &gone, "a"));
    assert_eq!((passed("named"), passed("gone")), (1.0, 1.0));
    assert_eq!(edge.metric("tidegate_limit_counters", "gone", ""), 1.0);
    // A new maximum is the same limit, and another window is not.
    sweep(&[&limit_by_value("named", &[(2, 60_000)])]);
    assert_eq!((passed("named"), passed("gone")), (1.0, 0.0));
    assert!(!edge.passes(0, &named, "a") && edge.passes(0, &gone, "a"));
    let other_window = limit_by_value("named", &[(1, 30_000)]);
    sweep(&[&other_window]);
    sweep(&[&other_window]);
    assert!(edge.passes(0, &named, "a"));
}

#[test]
fn requests_and_failures_are_counted_by_policy_and_limit() {
    let edge = Edge::new(ROOM);
    let (api, shadowed) = (limit("api", &[(2, 1000)]), shadow(limit("shadowed", &[(1, 1000)])));
    for _ in 0..5 {
        edge.decide(0, &[(&api, ""), (&shadowed, "")]);
    }
    let counted = |limit, outcome| edge.metric("tidegate_limited_requests_total", limit, outcome);
    assert_eq!(
        (counted("api", "\"allowed"), counted("api", "\"limited"), counted("api", "\"shadow-")),
        (2.0, 3.0, 0.0)
    );
    assert_eq!((counted("shadowed", "\"allowed"), counted("shadowed", "\"limited")), (1.0, 0.0));
    assert_eq!(counted("shadowed", "\"shadow-"), 4.0);
    edge.counters.failed(&api, FailedExpression::Counter);
    let failures = |kind| edge.metric("tidegate_limit_expression_failures_total", "api", kind);
    assert_eq!((failures("counter"), failures("when")), (1.0, 0.0));
}
