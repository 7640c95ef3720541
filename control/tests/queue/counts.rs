//! The counts of the queue's metrics.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

use prometheus::Registry;
use tidegate_control::Lane::{Fast, Slow};
use tidegate_control::{Meter, Queue, Retries};

use crate::ops::SHARE;
use crate::tally::samples;
use crate::{queue, start};

#[track_caller]
fn check(registry: &Registry, want: &[(&str, f64)]) {
    let samples = samples(registry);
    for (name, want) in want {
        let got = samples[*name];
        assert!((got - want).abs() < 1e-6, "{name} is {got}, not {want}");
    }
}

#[test]
fn the_metrics_follow_the_queue() {
    let registry = Registry::new();
    let mut queue = Queue::new(Meter::register(&registry, "test").unwrap(), Retries::default());
    let (mut now, ms) = (start(), Duration::from_millis(1));
    queue.add("a", Slow, 0, now);
    queue.add("b", Slow, 0, now);
    queue.add("a", Slow, 0, now);
    check(&registry, &[("workqueue_depth", 2.0), ("tidegate_queue_depth/slow", 2.0), ("workqueue_adds_total", 2.0)]);
    queue.add("a", Fast, 0, now + 5 * ms);
    check(&registry, &[("tidegate_queue_depth/slow", 1.0), ("tidegate_queue_depth/fast", 1.0)]);
    check(&registry, &[("workqueue_depth", 2.0), ("workqueue_adds_total", 2.0)]);
    // The time in the queue counts from the first request.
    now += 30 * ms;
    assert_eq!(queue.get(SHARE, now), Some("a"));
    check(
        &registry,
        &[("workqueue_queue_duration_seconds_sum", 0.030), ("workqueue_queue_duration_seconds_count", 1.0)],
    );
    check(&registry, &[("workqueue_work_duration_seconds_count", 0.0), ("workqueue_depth", 1.0)]);
    // Added during work: its time counts from here, and it counts as queued from the end of the work on.
    queue.add("a", Fast, 0, now);
    check(&registry, &[("workqueue_adds_total", 3.0), ("workqueue_depth", 1.0)]);
    now += 20 * ms;
    queue.done(&"a", now);
    queue.done(&"a", now);
    check(&registry, &[("workqueue_work_duration_seconds_sum", 0.020), ("workqueue_work_duration_seconds_count", 1.0)]);
    check(&registry, &[("workqueue_depth", 2.0)]);
    assert_eq!(queue.get(SHARE, now), Some("a"));
    check(
        &registry,
        &[("workqueue_queue_duration_seconds_sum", 0.050), ("workqueue_queue_duration_seconds_count", 2.0)],
    );
    queue.retry("c", 0, now, 0);
    check(&registry, &[("workqueue_retries_total", 1.0), ("workqueue_adds_total", 3.0)]);
    // A batch: each key takes as long as the whole batch.
    queue.done(&"a", now);
    now += 10 * ms;
    assert_eq!(queue.take(SHARE, now).len(), 1);
    assert_eq!(queue.take(SHARE, now).len(), 1);
    now += 7 * ms;
    queue.finish(now);
    queue.finish(now);
    check(&registry, &[("workqueue_work_duration_seconds_sum", 0.027), ("workqueue_work_duration_seconds_count", 3.0)]);
    check(&registry, &[("workqueue_depth", 0.0), ("workqueue_unfinished_work_seconds", 0.0)]);
    queue.shutdown();
    queue.add("z", Fast, 0, now);
    check(&registry, &[("tidegate_queue_dropped_total", 1.0), ("workqueue_adds_total", 4.0)]);
}

#[test]
fn hung_work_shows_in_the_metrics() {
    let registry = Registry::new();
    let mut queue = Queue::new(Meter::register(&registry, "test").unwrap(), Retries::default());
    check(&registry, &[("workqueue_unfinished_work_seconds", 0.0)]);
    let now = start() + Duration::from_millis(1);
    for key in ["a", "b"] {
        queue.add(key, Fast, 0, now);
        queue.get(SHARE, now);
    }
    std::thread::park_timeout(Duration::from_millis(30));
    let samples = samples(&registry);
    let all = samples["workqueue_unfinished_work_seconds"];
    let longest = samples["workqueue_longest_running_processor_seconds"];
    assert!(longest > 0.02 && all > longest * 1.5, "{longest} s for one, {all} s for two");
    queue.done(&"a", now);
    queue.done(&"b", now);
    check(
        &registry,
        &[("workqueue_unfinished_work_seconds", 0.0), ("workqueue_longest_running_processor_seconds", 0.0)],
    );
}

#[test]
fn a_batch_and_worker_keys_end_independently() {
    let registry = Registry::new();
    let mut queue = Queue::new(Meter::register(&registry, "test").unwrap(), Retries::default());
    let (mut now, ms) = (start(), Duration::from_millis(1));
    for key in ["worker's", "batch's", "later"] {
        queue.add(key, Fast, 0, now);
    }
    assert_eq!(queue.get(SHARE, now), Some("worker's"));
    queue.finish(now);
    check(&registry, &[("workqueue_work_duration_seconds_count", 0.0)]);
    now += 10 * ms;
    assert_eq!(queue.take(SHARE, now), [("batch's", now - 10 * ms)]);
    now += 5 * ms;
    queue.done(&"worker's", now);
    check(&registry, &[("workqueue_work_duration_seconds_count", 1.0), ("workqueue_work_duration_seconds_sum", 0.015)]);
    queue.finish(now);
    check(&registry, &[("workqueue_work_duration_seconds_count", 2.0), ("workqueue_work_duration_seconds_sum", 0.020)]);
}

#[test]
fn a_drained_queue_returns_its_memory() {
    let (mut queue, mut now) = (queue(), start());
    for key in 0..300_000_u32 {
        let lane = if key % 2 == 0 { Fast } else { Slow };
        queue.add(key, lane, 0, now);
        queue.add_after(key, Duration::from_secs(1), lane, 0, now);
    }
    assert!(queue.capacity() >= 150_000);
    now += Duration::from_secs(2);
    while let Some(key) = queue.get(SHARE, now) {
        queue.done(&key, now);
    }
    assert_eq!((queue.len(), queue.working(), queue.failing(), queue.next_due()), (0, 0, 0, None));
    assert!(queue.capacity() < 10_000, "room for {} keys is kept", queue.capacity());
}

/// A key that counts its copies.
#[derive(Debug)]
struct Counted(u32, Rc<Cell<usize>>);

impl Clone for Counted {
    fn clone(&self) -> Self {
        self.1.set(self.1.get() + 1);
        Self(self.0, Rc::clone(&self.1))
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn a_repeated_add_costs_nothing() {
    let (mut queue, now, copies) = (queue(), start(), Rc::new(Cell::new(0)));
    let key = |number| Counted(number, Rc::clone(&copies));
    (0..100).for_each(|number| queue.add(key(number), Slow, 0, now));
    (100..200).for_each(|number| queue.add(key(number), Fast, 0, now));
    let (before, room) = (copies.get(), queue.capacity());
    for _ in 0..50 {
        (0..200).for_each(|number| queue.add(key(number), Slow, 0, now));
    }
    assert_eq!((copies.get(), queue.capacity(), queue.len()), (before, room, 200));
}
