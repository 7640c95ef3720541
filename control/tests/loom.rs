//! The shared queue in every interleaving of its threads, as loom plays them.
//!
//! The files of the queue are compiled here a second time with loom's lock instead of the standard library's. The usual
//! `--cfg loom` would reach every dependency and disable tokio's network.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "of the queue, this uses the shared part")]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

#[path = "../src/backoff.rs"]
mod backoff;
#[path = "../src/clock.rs"]
mod clock;
#[path = "../src/queue/mod.rs"]
mod queue;

/// The types shared between threads, in loom's version.
mod sync {
    pub(crate) use loom::sync::{Arc, Mutex};
}

/// No metrics are scraped here.
mod metrics {
    pub(crate) fn buckets() -> Vec<f64> {
        Vec::new()
    }
}

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use loom::future::block_on;
use loom::model::Builder;
use loom::thread;
use queue::Lane::{self, Fast, Slow};
use queue::{LaneShares, Queue, Workqueue};

const SHARE: LaneShares = LaneShares {
    batch_max: 1,
    slow_batch_max: 1,
    fast_turns_max: 2,
    slow_age_max: Duration::from_secs(3600),
    aged_every: 2,
};

/// Runs a scene in every interleaving with at most two preemptions of threads, or with `LOOM_MAX_PREEMPTIONS`.
fn play(scene: impl Fn(Workqueue<u8>) + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound.get_or_insert(2);
    builder.check(move || scene(Workqueue::new(Queue::default(), SHARE, |_| 0)));
}

fn worker(queue: &Workqueue<u8>, takes: usize) -> thread::JoinHandle<Vec<Option<u8>>> {
    let queue = queue.clone();
    thread::spawn(move || (0..takes).map(|_| block_on(queue.get()).map(|held| *held)).collect())
}

fn adder(queue: &Workqueue<u8>, keys: &'static [(u8, Lane)]) -> thread::JoinHandle<()> {
    let queue = queue.clone();
    thread::spawn(move || keys.iter().for_each(|(key, lane)| queue.add(*key, *lane)))
}

/// Polls a getter once and drops it, whether it was woken meanwhile or not.
fn ask_once(queue: &Workqueue<u8>) -> Option<u8> {
    let get = pin!(queue.get());
    match get.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(held) => held.map(|held| *held),
        Poll::Pending => None,
    }
}

#[test]
fn two_workers_get_two_keys() {
    play(|queue| {
        let workers = [worker(&queue, 1), worker(&queue, 1)];
        queue.add(1, Fast);
        queue.add(2, Slow);
        let mut got: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        got.sort_unstable();
        assert_eq!(got, [Some(1), Some(2)]);
    });
}

#[test]
fn two_adders_and_one_worker() {
    play(|queue| {
        let adders = [adder(&queue, &[(1, Slow), (1, Fast)]), adder(&queue, &[(2, Slow)])];
        let mut got = [block_on(queue.get()).map(|held| *held), block_on(queue.get()).map(|held| *held)];
        got.sort_unstable();
        // The first key may have been taken between the two requests.
        assert!(got == [Some(1), Some(1)] || got == [Some(1), Some(2)]);
        adders.into_iter().for_each(|adder| adder.join().unwrap());
    });
}

#[test]
fn a_key_added_during_work_goes_to_one_worker_again() {
    play(|queue| {
        queue.add(1, Slow);
        let held = block_on(queue.get()).unwrap();
        let workers = [worker(&queue, 1), adder_of_one(&queue)];
        drop(held);
        let got: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        assert_eq!(got, [Some(1)]);
    });
}

fn adder_of_one(queue: &Workqueue<u8>) -> thread::JoinHandle<Vec<Option<u8>>> {
    let queue = queue.clone();
    thread::spawn(move || {
        queue.add(1, Fast);
        Vec::new()
    })
}

#[test]
fn a_cancelled_getter_passes_its_wake_up_on() {
    play(|queue| {
        let goes = thread::spawn({
            let queue = queue.clone();
            move || ask_once(&queue)
        });
        let stays = worker(&queue, 1);
        queue.add(1, Fast);
        let took = goes.join().unwrap();
        if took.is_some() {
            queue.add(2, Fast);
        }
        assert!(stays.join().unwrap()[0].is_some());
    });
}

#[test]
fn a_cancelled_waiting_getter_passes_its_wake_up_on() {
    play(|queue| {
        let stays = worker(&queue, 1);
        let mut goes = Box::pin(queue.get());
        let first = goes.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(first.is_pending(), "nothing waits yet");
        let adds = adder(&queue, &[(1, Fast)]);
        drop(goes);
        assert_eq!(stays.join().unwrap(), [Some(1)]);
        adds.join().unwrap();
    });
}

#[test]
fn shutdown_wakes_every_worker() {
    play(|queue| {
        let workers = [worker(&queue, 2), worker(&queue, 1)];
        queue.add(1, Fast);
        queue.shutdown();
        let got: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        assert_eq!(got.iter().flatten().count(), 1, "what waited is handed out, and then nothing");
    });
}

#[test]
fn two_drains_end_with_the_last_worker() {
    play(|queue| {
        queue.add(1, Slow);
        let held = block_on(queue.get()).unwrap();
        let other = thread::spawn({
            let queue = queue.clone();
            move || block_on(queue.drain())
        });
        let works = thread::spawn(move || drop(held));
        block_on(queue.drain());
        other.join().unwrap();
        works.join().unwrap();
    });
}

#[test]
fn a_second_shutdown_ends_a_drain() {
    play(|queue| {
        queue.add(1, Slow);
        let _held = block_on(queue.get()).unwrap();
        let mut drains = Box::pin(queue.drain());
        assert!(drains.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let ends = thread::spawn({
            let queue = queue.clone();
            move || queue.shutdown()
        });
        block_on(drains);
        ends.join().unwrap();
    });
}
