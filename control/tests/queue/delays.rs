//! Delayed keys, and keys that failed.

use std::time::Duration;

use tidegate_control::Lane::{Fast, Slow};
use tidegate_control::{Lane, Meter, Queue, Retries};

use crate::ops::SHARE;
use crate::{queue, start};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A request at a time in ms: a key, with a delay in ms and a lane.
type Asked = (u64, &'static str, u64, Lane);

/// Compares the keys that are due at some times, in order, after these requests.
#[track_caller]
fn check(asked: &[Asked], looks: &[(u64, &[&str])]) {
    let (mut queue, start) = (queue(), start());
    let mut moments: Vec<u64> = asked.iter().map(|asked| asked.0).chain(looks.iter().map(|look| look.0)).collect();
    moments.sort_unstable();
    moments.dedup();
    for moment in moments {
        let now = start + MS(moment);
        for (_, key, delay, lane) in asked.iter().filter(|asked| asked.0 == moment) {
            queue.add_after(*key, MS(*delay), *lane, 0, now);
        }
        for (_, want) in looks.iter().filter(|look| look.0 == moment) {
            let got: Vec<&str> = std::iter::from_fn(|| {
                let key = queue.get(SHARE, now)?;
                queue.done(&key, now);
                Some(key)
            })
            .collect();
            assert_eq!(got, *want, "after {moment} ms");
        }
    }
    assert_eq!((queue.len(), queue.next_due()), (0, None), "nothing is left");
}

#[test]
fn delays() {
    check(&[(0, "a", 100, Fast)], &[(99, &[]), (100, &["a"]), (200, &[])]);
    // Several delays of one key: the earliest counts, in whatever order they were requested.
    check(&[(0, "a", 100, Fast), (0, "a", 50, Fast)], &[(49, &[]), (50, &["a"]), (150, &[])]);
    check(&[(0, "a", 50, Fast), (10, "a", 100, Fast)], &[(50, &["a"]), (150, &[])]);
    // A key that is added during its delay is due now, and again at its time.
    check(&[(0, "a", 100, Fast), (10, "a", 0, Fast)], &[(10, &["a"]), (99, &[]), (100, &["a"]), (300, &[])]);
    // Keys are ordered by time and not by request, in the given lane.
    check(&[(0, "a", 30, Fast), (0, "b", 20, Fast), (0, "c", 30, Fast)], &[(40, &["b", "a", "c"])]);
    check(&[(0, "a", 10, Slow), (0, "b", 20, Fast)], &[(40, &["b", "a"])]);
    check(&[(0, "a", 10, Slow), (0, "a", 20, Fast), (0, "b", 5, Slow)], &[(40, &["a", "b"])]);
    // A key that is queued already is not queued twice.
    check(&[(0, "a", 20, Fast), (10, "a", 0, Slow)], &[(40, &["a"])]);
    // A clock that was stopped for a day yields each key once.
    let day = 86_400_000;
    check(&[(0, "a", 10, Fast), (0, "b", 20, Fast), (5, "a", 10, Fast)], &[(day, &["a", "b"]), (2 * day, &[])]);
}

#[test]
fn an_unbounded_delay_does_not_overflow() {
    let (mut queue, now) = (queue(), start());
    queue.add_after("a", Duration::MAX, Fast, 0, now);
    assert_eq!(queue.get(SHARE, now + Duration::from_secs(300 * 86_400)), None);
    queue.add("a", Fast, 0, now);
    assert_eq!(queue.get(SHARE, now), Some("a"));
}

#[test]
fn back_off_grows_with_each_failure() {
    let retries = Retries { first: MS(5), max: MS(1000) };
    let now = start();
    for draw in [0, u64::MAX / 2, u64::MAX] {
        let mut queue = Queue::new(Meter::default(), retries);
        let mut longest = Duration::ZERO;
        for failures in 0..100 {
            let delay = queue.retry("bad", 0, now, draw);
            let bound = MS(5 * 2_u64.pow(failures.min(20))).min(retries.max);
            assert!(retries.first <= delay && delay <= bound, "{delay:?} after {failures} failures");
            assert!(longest <= delay, "it never shrinks with equal draws");
            longest = delay;
        }
        let near = |share: u32| retries.first + (retries.max - retries.first) * share / 2;
        let want = near(u32::try_from(draw >> 62).unwrap().div_ceil(2).min(2));
        assert!(longest.abs_diff(want) < MS(1), "{longest:?}, not {want:?}: the whole range is used");
        queue.forget(&"unknown");
        assert_eq!(queue.failing(), 1, "one entry for one key that fails");
        queue.forget(&"bad");
        assert_eq!(queue.failing(), 0);
        assert_eq!(queue.retry("bad", 0, now, draw), retries.first, "and begins anew");
        assert_eq!(queue.retry_after("bad", MS(77), 0, now, draw), MS(77), "or as late as somebody asks for");
        assert!(queue.retry_after("bad", Duration::ZERO, 0, now, draw) >= retries.first, "but never sooner");
    }
}

#[test]
fn failed_keys_are_retried_in_the_slow_lane() {
    let (mut queue, now) = (queue(), start());
    queue.add("bad", Fast, 0, now);
    assert_eq!(queue.get(SHARE, now), Some("bad"));
    let delay = queue.retry("bad", 0, now, u64::MAX);
    queue.done(&"bad", now);
    assert_eq!(queue.get(SHARE, now), None, "not before its time");
    queue.add("good", Fast, 0, now + delay);
    queue.fire(now + delay);
    assert_eq!((queue.depth(Slow), queue.depth(Fast)), (1, 1));
    assert_eq!(queue.get(SHARE, now + delay), Some("good"));
    assert_eq!(queue.get(SHARE, now + delay), Some("bad"));
}
