//! The queue shared by workers, on a real runtime.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::FutureExt;
use tidegate_control::Lane::{Fast, Slow};
use tidegate_control::{Get, Queue, Workqueue};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::ops::SHARE;
use crate::start;

const LONG: Duration = Duration::from_secs(20);
const MS: fn(u64) -> Duration = Duration::from_millis;

fn workqueue() -> Workqueue<u32> {
    Workqueue::new(Queue::default(), SHARE, |key| u64::from(*key % 2))
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

#[test]
fn every_worker_gets_a_key() {
    runtime().block_on(async {
        let queue = workqueue();
        let got = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..8)
            .map(|_| {
                let (queue, got) = (queue.clone(), Arc::clone(&got));
                tokio::spawn(async move {
                    let mut counts = BTreeMap::new();
                    while let Some(held) = queue.get().await {
                        *counts.entry(*held).or_insert(0) += 1;
                        got.fetch_add(1, Ordering::Relaxed);
                        yield_now().await;
                    }
                    counts
                })
            })
            .collect();
        for key in 0..2000 {
            queue.add(key, if key % 3 == 0 { Fast } else { Slow });
            // A cancelled wait loses no key.
            if let Some(held) = queue.get().now_or_never().flatten() {
                queue.add(*held, Slow);
            }
            if key % 50 == 0 {
                yield_now().await;
            }
        }
        timeout(LONG, queue.drain()).await.expect("everything is handed out");
        let mut all = BTreeMap::new();
        for worker in workers {
            for (key, count) in timeout(LONG, worker).await.expect("every worker is told").unwrap() {
                *all.entry(key).or_insert(0) += count;
            }
        }
        assert_eq!(all.len(), 2000, "each key came");
    });
}

/// A waker that counts its calls.
#[derive(Default)]
struct Calls(AtomicUsize);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls a getter once; finishes a returned key at once.
fn ask(get: &mut Get<'_, u32>, waker: &Waker) -> Option<u32> {
    match Pin::new(get).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(held) => held.map(|held| *held),
        Poll::Pending => None,
    }
}

#[test]
fn an_earlier_due_time_wakes_every_waiting_worker() {
    let runtime = runtime();
    let _within = runtime.enter();
    let (queue, calls) = (workqueue(), Arc::new(Calls::default()));
    let waker = Waker::from(Arc::clone(&calls));
    let mut getters = [queue.get(), queue.get()];
    let mut check = |delay: Duration, want: usize| {
        assert!(getters.iter_mut().all(|getter| ask(getter, &waker).is_none()));
        queue.add_after(1, delay, Fast);
        assert_eq!(calls.0.swap(0, Ordering::Relaxed), want, "after {delay:?}");
    };
    check(10 * LONG, 2);
    check(20 * LONG, 0);
    check(5 * LONG, 2);
    check(LONG, 2);
}

#[test]
fn a_worker_that_takes_a_key_unwoken_is_not_woken_for_another() {
    let queue = workqueue();
    let calls: [Arc<Calls>; 3] = Default::default();
    let wakers = calls.each_ref().map(|calls| Waker::from(Arc::clone(calls)));
    let [mut a, mut b, mut c] = [queue.get(), queue.get(), queue.get()];
    let check = |want: [usize; 3]| assert_eq!(calls.each_ref().map(|calls| calls.0.load(Ordering::Relaxed)), want);
    assert_eq!([ask(&mut a, &wakers[0]), ask(&mut b, &wakers[1]), ask(&mut c, &wakers[2])], [None; 3]);
    queue.add(1, Fast);
    check([1, 0, 0]);
    assert_eq!(ask(&mut b, &wakers[1]), Some(1), "before the one who was called");
    assert_eq!(ask(&mut a, &wakers[0]), None, "who waits on, and still is the first");
    queue.add(2, Fast);
    check([2, 0, 0]);
    queue.add(3, Fast);
    check([2, 0, 1]);
    drop(a);
    check([2, 0, 1]);
    assert_eq!(ask(&mut c, &wakers[2]), Some(2));
}

#[test]
fn a_panicking_worker_returns_its_key() {
    runtime().block_on(async {
        let queue = workqueue();
        queue.add(1, Fast);
        let held = queue.get().await.unwrap();
        queue.add(1, Fast);
        assert!(queue.get().now_or_never().is_none(), "nobody else gets it");
        let ended = AssertUnwindSafe(async move {
            let _held = held;
            panic!("as told");
        });
        assert!(ended.catch_unwind().await.is_err());
        assert_eq!(timeout(LONG, queue.get()).await.unwrap().as_deref(), Some(&1));
    });
}

#[test]
fn a_delayed_key_wakes_a_waiting_worker() {
    runtime().block_on(async {
        let queue = workqueue();
        let began = start();
        let waits = tokio::spawn({
            let queue = queue.clone();
            async move { queue.get().await.map(|held| *held) }
        });
        yield_now().await;
        // The later key is queued first: the waiting worker must shorten its timer.
        queue.add_after(2, LONG, Fast);
        yield_now().await;
        queue.add_after(1, MS(30), Fast);
        assert_eq!(timeout(LONG, waits).await.expect("in time").unwrap(), Some(1));
        assert!(start() - began >= MS(30), "and not before it");
    });
}

#[test]
fn retries_back_off_until_success_resets_them() {
    runtime().block_on(async {
        let queue = workqueue();
        queue.add(1, Fast);
        let mut delays = Vec::new();
        for _ in 0..4 {
            delays.push(timeout(LONG, queue.get()).await.unwrap().unwrap().retry());
        }
        assert_eq!(delays[0], MS(5));
        assert!(delays.iter().all(|delay| (MS(5)..=MS(40)).contains(delay)), "{delays:?}");
        timeout(LONG, queue.get()).await.unwrap().unwrap().succeeded();
        assert_eq!(queue.retry(1), MS(5), "from the beginning");
    });
}

#[test]
fn preferred_keys_go_first() {
    runtime().block_on(async {
        let queue = workqueue();
        (0..4).for_each(|key| queue.add(key, Slow));
        let mut got = Vec::new();
        for _ in 0..4 {
            got.push(*queue.get().await.unwrap());
        }
        assert_eq!(got, [0, 2, 1, 3]);
    });
}

#[test]
fn a_queue_that_shuts_down_hands_out_its_waiting_keys() {
    runtime().block_on(async {
        let queue = workqueue();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.get().await.map(|held| *held) })
            })
            .collect();
        yield_now().await;
        let ends: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                std::thread::spawn(move || queue.shutdown())
            })
            .collect();
        ends.into_iter().for_each(|end| end.join().unwrap());
        for waits in waiting {
            assert_eq!(timeout(LONG, waits).await.expect("everyone is told").unwrap(), None);
        }
        let queue = workqueue();
        queue.add(1, Fast);
        queue.add_after(2, MS(1), Fast);
        queue.shutdown();
        queue.add(3, Fast);
        queue.add_after(4, Duration::ZERO, Fast);
        tokio::time::sleep(MS(5)).await;
        assert_eq!(queue.get().await.as_deref(), Some(&1));
        assert_eq!(timeout(LONG, queue.get()).await.unwrap().as_deref(), None);
    });
}

#[test]
fn draining_waits_for_the_last_worker() {
    runtime().block_on(async {
        let queue = workqueue();
        queue.add(1, Fast);
        queue.add(2, Slow);
        let first = queue.get().await.unwrap();
        let drains: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.drain().await })
            })
            .collect();
        while queue.get().now_or_never().is_none() {
            yield_now().await;
        }
        tokio::time::sleep(MS(20)).await;
        assert!(drains.iter().all(|drain| !drain.is_finished()), "one key is in work");
        drop(first);
        for drain in drains {
            timeout(LONG, drain).await.expect("nothing is left").unwrap();
        }
        // A second shutdown ends it.
        let queue = workqueue();
        queue.add(1, Fast);
        let held = queue.get().await.unwrap();
        let drain = tokio::spawn({
            let queue = queue.clone();
            async move { queue.drain().await }
        });
        while queue.get().now_or_never().is_none() {
            yield_now().await;
        }
        assert!(!drain.is_finished());
        queue.shutdown();
        timeout(LONG, drain).await.expect("it ends").unwrap();
        drop(held);
    });
}
