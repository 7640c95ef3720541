//! The steps of a queue in which a whole list waits. Every round leaves that list as it was.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_control::options::Options;
use tidegate_control::{Lane, LaneShares, Queue};

use crate::operations::Meter;

/// One kind of step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Probe {
    /// A live change enqueues a key that does not wait.
    Added,
    /// That key is taken and done, with the keys of the list whose turn comes before it.
    Taken,
    /// A waiting key is enqueued again.
    AskedAgain,
    /// A live change enqueues a key of the list.
    MovedUp,
    /// A key of the list is taken, done and enqueued again.
    Listed,
    /// A key failed and gets a delay.
    Failed,
    /// Its time comes, it is taken, done and forgotten.
    Due,
}

impl Probe {
    /// Its name in tables.
    #[must_use]
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Added => "live key asked for",
            Self::Taken => "live key taken and done",
            Self::AskedAgain => "waiting key asked for again",
            Self::MovedUp => "waiting key moved to the fast lane",
            Self::Listed => "slow key taken, done, asked for",
            Self::Failed => "key failed",
            Self::Due => "failed key due, taken and done",
        }
    }
}

/// The rank of listed keys. Failed ones go before them, so that a round ends.
const LISTED: u64 = 1;

/// A queue in which a list waits.
#[derive(Debug)]
pub(super) struct Backlog {
    queue: Queue<ObjectRef>,
    share: LaneShares,
    keys: Vec<ObjectRef>,
    now: Instant,
}

/// An Ingress by number.
pub(super) fn key(prefix: &str, number: usize) -> ObjectRef {
    ObjectRef::new(Kind::Ingress, ObjectName::new(format!("team-{}", number / 10), format!("{prefix}-{number}")))
}

impl Backlog {
    /// A queue with this number of keys, in the order of a list, with the control loop's settings for the lanes.
    #[must_use]
    pub(super) fn new(keys: usize, now: Instant) -> Self {
        let keys: Vec<ObjectRef> = (0..keys).map(|number| key("listed", number)).collect();
        let mut queue = Queue::default();
        keys.iter().for_each(|key| queue.add(key.clone(), Lane::Slow, LISTED, now));
        Self { queue, share: Options::default().pace.share, keys, now }
    }

    /// Takes the next key, and is done with it.
    fn take(&mut self) -> Option<ObjectRef> {
        let key = self.queue.get(self.share, self.now)?;
        self.queue.done(&key, self.now);
        Some(key)
    }

    /// Takes keys until one satisfies; those of the list are enqueued again behind it.
    fn take_until(&mut self, mut found: impl FnMut(&ObjectRef) -> bool) {
        while let Some(key) = self.take() {
            if found(&key) {
                return;
            }
            self.queue.add(key, Lane::Slow, LISTED, self.now);
        }
    }
}

/// Runs one round of every probe, of this number of steps each.
///
/// # Errors
/// When a step did not do what it measures.
pub(super) fn round(backlog: &mut Backlog, count: usize, meter: &mut dyn Meter<Probe>) -> anyhow::Result<()> {
    let now = backlog.now;
    let live: Vec<ObjectRef> = (0..count).map(|number| key("live", number)).collect();
    let step = (backlog.keys.len() / count).max(1);
    let waiting: Vec<ObjectRef> = backlog.keys.iter().step_by(step).take(count).cloned().collect();

    ask(backlog, meter, Probe::Added, live.clone(), (Lane::Fast, 0));
    expect(backlog, Lane::Fast, count)?;
    meter.measure(Probe::Taken, count, &mut |number| backlog.take_until(|key| live.get(number) == Some(key)));
    expect(backlog, Lane::Fast, 0)?;

    ask(backlog, meter, Probe::AskedAgain, waiting.clone(), (Lane::Slow, LISTED));
    expect(backlog, Lane::Fast, 0)?;
    ask(backlog, meter, Probe::MovedUp, waiting.clone(), (Lane::Fast, 0));
    expect(backlog, Lane::Fast, count)?;
    waiting.iter().for_each(|key| backlog.take_until(|taken| taken == key));
    waiting.into_iter().for_each(|key| backlog.queue.add(key, Lane::Slow, LISTED, now));

    meter.measure(Probe::Listed, count, &mut |_| {
        let one = backlog.take();
        one.into_iter().for_each(|key| backlog.queue.add(key, Lane::Slow, LISTED, now));
    });

    let mut failing = live.clone().into_iter();
    meter.measure(Probe::Failed, count, &mut |number| {
        let draw = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let _delay = failing.next().map(|key| backlog.queue.retry(key, 0, now, draw));
    });
    anyhow::ensure!(backlog.queue.failing() == count, "{} of {count} keys failed", backlog.queue.failing());
    meter.measure(Probe::Due, count, &mut |_| {
        backlog.now = backlog.queue.next_due().unwrap_or(backlog.now);
        let one = backlog.take();
        one.iter().for_each(|key| backlog.queue.forget(key));
    });
    backlog.now = now;
    anyhow::ensure!(backlog.queue.failing() == 0, "{} keys fail still", backlog.queue.failing());
    expect(backlog, Lane::Slow, backlog.keys.len())
}

/// Measures enqueuing these keys.
fn ask(
    backlog: &mut Backlog,
    meter: &mut dyn Meter<Probe>,
    probe: Probe,
    keys: Vec<ObjectRef>,
    (lane, rank): (Lane, u64),
) {
    let (now, count, mut asked) = (backlog.now, keys.len(), keys.into_iter());
    meter.measure(probe, count, &mut |_| {
        asked.next().into_iter().for_each(|key| backlog.queue.add(key, lane, rank, now));
    });
}

/// # Errors
/// When the number of keys that wait in a lane differs.
fn expect(backlog: &Backlog, lane: Lane, keys: usize) -> anyhow::Result<()> {
    let depth = backlog.queue.depth(lane);
    anyhow::ensure!(depth == keys, "{depth} keys wait in the lane {lane:?}, and not {keys}");
    Ok(())
}
