//! The expected metrics of a meter, counted by the model in the simplest way, and the actual ones.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::FutureExt;
use prometheus::Registry;
use prometheus::proto::MetricType;
use tidegate_control::{Meter, Queue};
use tokio::runtime::{Builder, Runtime};

use crate::model::{Broken, hold};
use crate::ops::{Key, RETRIES};

/// Every sample of a registry by name, with the lane as a suffix if there is one.
pub(crate) fn samples(registry: &Registry) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    for family in registry.gather() {
        for metric in family.get_metric() {
            let lane = metric.get_label().iter().find(|label| label.name() == "lane");
            let name = family.name().to_owned() + &lane.map(|lane| format!("/{}", lane.value())).unwrap_or_default();
            match family.get_field_type() {
                MetricType::COUNTER => drop(samples.insert(name, metric.get_counter().get_value())),
                MetricType::GAUGE => drop(samples.insert(name, metric.get_gauge().get_value())),
                MetricType::HISTOGRAM => {
                    let histogram = metric.get_histogram();
                    let count = u32::try_from(histogram.get_sample_count()).unwrap();
                    samples.insert(format!("{name}_count"), count.into());
                    samples.insert(format!("{name}_sum"), histogram.get_sample_sum());
                }
                other @ (MetricType::SUMMARY | MetricType::UNTYPED) => panic!("{name} is of type {other:?}"),
            }
        }
    }
    samples
}

/// Durations that were counted.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    count: u32,
    sum: Duration,
}

impl Durations {
    pub(crate) fn add(&mut self, duration: Duration) {
        self.count += 1;
        self.sum += duration;
    }
}

/// The counts since the start, and the meter for the same operations.
#[derive(Debug)]
pub(crate) struct Tally {
    registry: Registry,
    /// The clock that the meter reads when it is scraped. It advances only on request.
    clock: Runtime,
    pub(crate) adds: u32,
    pub(crate) retries: u32,
    pub(crate) dropped: u32,
    pub(crate) waited: Durations,
    pub(crate) worked: Durations,
}

/// The current gauges.
pub(crate) struct Present {
    pub(crate) slow: usize,
    pub(crate) fast: usize,
    /// The time that each key has been in work.
    pub(crate) working: Vec<Duration>,
}

impl Tally {
    /// A queue whose operations are counted here, and its initial time.
    pub(crate) fn begin() -> (Self, Queue<Key>, Instant) {
        let clock = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let registry = Registry::new();
        let entered = clock.enter();
        let queue = Queue::new(Meter::register(&registry, "test").unwrap(), RETRIES);
        drop(entered);
        let (waited, worked) = (Durations::default(), Durations::default());
        let tally = Self { registry, clock, adds: 0, retries: 0, dropped: 0, waited, worked };
        let now = tally.pass(Duration::ZERO);
        (tally, queue, now)
    }

    /// Lets some time pass; returns the new time.
    pub(crate) fn pass(&self, by: Duration) -> Instant {
        let _entered = self.clock.enter();
        // This advances the clock at once; it would fire timers, but there are none.
        tokio::time::advance(by).now_or_never();
        tokio::time::Instant::now().into_std()
    }

    /// Checks that the meter shows these values and no others.
    pub(crate) fn compare(&self, present: &Present) -> Result<(), Broken> {
        let Present { slow, fast, working } = present;
        let keys = |keys: usize| f64::from(u32::try_from(keys).unwrap());
        let unfinished: Duration = working.iter().sum();
        let longest = working.iter().max().copied().unwrap_or_default();
        let want = [
            (28, "workqueue_depth", keys(slow + fast)),
            (28, "tidegate_queue_depth/slow", keys(*slow)),
            (28, "tidegate_queue_depth/fast", keys(*fast)),
            (28, "workqueue_adds_total", self.adds.into()),
            (21, "workqueue_retries_total", self.retries.into()),
            (25, "tidegate_queue_dropped_total", self.dropped.into()),
            (29, "workqueue_queue_duration_seconds_count", self.waited.count.into()),
            (29, "workqueue_queue_duration_seconds_sum", self.waited.sum.as_secs_f64()),
            (29, "workqueue_work_duration_seconds_count", self.worked.count.into()),
            (29, "workqueue_work_duration_seconds_sum", self.worked.sum.as_secs_f64()),
            (29, "workqueue_unfinished_work_seconds", unfinished.as_secs_f64()),
            (29, "workqueue_longest_running_processor_seconds", longest.as_secs_f64()),
        ];
        let _entered = self.clock.enter();
        let samples = samples(&self.registry);
        for (property, name, want) in want {
            let got = samples.get(name).copied().unwrap_or(f64::NAN);
            hold(property, (got - want).abs() < 1e-5, || format!("{name} is {got}, not {want}"))?;
        }
        hold(28, samples.len() == want.len(), || format!("nobody says what is right of some of {:?}", samples.keys()))
    }
}
