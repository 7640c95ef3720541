//! The time that a live change waits behind a list: the keys that a worker takes before it, with two lanes and with
//! one. One lane is the queue of client-go without priorities, first come, first served.

use comfy_table::Table;
use serde::Serialize;
use tidegate_config::object::ObjectRef;
use tidegate_control::options::Options;
use tidegate_control::{Lane, Queue, Workqueue};

use super::probe::key;
use crate::clock::{timed, timed_async};
use crate::spread::Spread;
use crate::table::figure;

/// The number of measured live changes, each behind the same number of keys.
const LIVE: usize = 20;
/// The maximum number of keys of the slow lane taken before a live change: one because it is the slow lane's turn, and
/// one more when its head becomes old just then.
const BEFORE_MAX: usize = 2;

/// One line.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Wait {
    /// The number of keys that wait when the live change comes.
    keys: usize,
    /// `true` if it takes a lane of its own.
    two_lanes: bool,
    /// The maximum number of keys taken before it.
    before_max: usize,
    /// The median time from its enqueuing until it was taken, by a worker that does no work for any key.
    median_us: f64,
}

/// Both lines of a backlog.
///
/// # Errors
/// When the runtime of the worker does not start.
pub(super) fn measure(keys: usize) -> anyhow::Result<[Wait; 2]> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    Ok([true, false].map(|two_lanes| runtime.block_on(wait(keys, two_lanes))))
}

async fn wait(keys: usize, two_lanes: bool) -> Wait {
    let queue: Workqueue<ObjectRef> = Workqueue::new(Queue::default(), Options::default().pace.share, |_| 0);
    let names: Vec<ObjectRef> = (0..keys).map(|number| key("listed", number)).collect();
    let (mut before_max, mut times) = (0, Vec::new());
    for number in 0..LIVE {
        names.iter().for_each(|name| queue.add(name.clone(), Lane::Slow));
        let live = key("live", number);
        let ((), added) = timed(|| queue.add(live.clone(), if two_lanes { Lane::Fast } else { Lane::Slow }));
        let (before, took) = timed_async(taken_before(&queue, &live)).await;
        before_max = before_max.max(before);
        times.push((added + took).as_secs_f64() * 1e6);
    }
    let median_us = Spread::of(times).map_or(f64::NAN, |spread| spread.median);
    Wait { keys, two_lanes, before_max, median_us }
}

/// Works until a key comes, and returns the number of keys before it.
async fn taken_before(queue: &Workqueue<ObjectRef>, key: &ObjectRef) -> usize {
    let mut before = 0;
    while let Some(held) = queue.get().await
        && *held != *key
    {
        before += 1;
    }
    before
}

/// Complains when a live change waits for the list although it has a lane of its own.
///
/// # Errors
/// Names the backlog.
pub(super) fn check(waits: &[Wait]) -> anyhow::Result<()> {
    for wait in waits.iter().filter(|wait| wait.two_lanes) {
        let Wait { keys, before_max, .. } = wait;
        anyhow::ensure!(*before_max <= BEFORE_MAX, "behind {keys} keys a live change waited for {before_max} of them");
    }
    Ok(())
}

/// One line per backlog and number of lanes.
pub(super) fn table(waits: &[Wait]) -> Table {
    let lines = waits.iter().map(|wait| {
        vec![
            if wait.two_lanes { "two" } else { "one" }.to_owned(),
            wait.keys.to_string(),
            wait.before_max.to_string(),
            figure(Some(wait.median_us), 1),
        ]
    });
    crate::table::table(1, ["lanes", "keys behind", "keys taken before it", "median µs"], lines)
}
