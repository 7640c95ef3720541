//! The metrics of a queue, under the names of client-go and, by lane, under our own.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry};

use super::Lane;
use super::lanes::Lanes;
use crate::clock;

/// The metrics of a queue; the default counts nothing. Clones share the metrics.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    counts: Option<Arc<Counts>>,
}

struct Counts {
    depth: IntGauge,
    fast: IntGauge,
    slow: IntGauge,
    adds: IntCounter,
    retries: IntCounter,
    dropped: IntCounter,
    waited: Histogram,
    worked: Histogram,
    working: Arc<InWork>,
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts").field("working", &self.working).finish_non_exhaustive()
    }
}

/// The buckets of short durations: from 10 µs to about 10 s.
pub(crate) fn latency_buckets() -> Vec<f64> {
    (0..14).map(|step| 1e-5 * f64::powi(3.0, step)).collect()
}

impl Meter {
    /// Registers the metrics of a queue of this name.
    ///
    /// # Errors
    /// If a queue of the same name is registered already.
    pub fn register(registry: &Registry, name: &str) -> Result<Self, prometheus::Error> {
        let named = |metric: &str, help: &str| Opts::new(metric, help).const_label("name", name);
        let gauge =
            |opts: Opts| -> Result<IntGauge, prometheus::Error> { registered(registry, IntGauge::with_opts(opts)?) };
        let counter = |metric: &str, help: &str| registered(registry, IntCounter::with_opts(named(metric, help))?);
        let histogram = |metric: &str, help: &str| -> Result<Histogram, prometheus::Error> {
            let opts = HistogramOpts { common_opts: named(metric, help), buckets: latency_buckets() };
            registered(registry, Histogram::with_opts(opts)?)
        };
        let lane = |lane: &str| {
            gauge(named("tidegate_queue_depth", "Keys that wait in a lane of a queue.").const_label("lane", lane))
        };
        let working = Arc::new(InWork::since(clock::now()));
        registry.register(Box::new(Unfinished::new(name, Arc::clone(&working))?))?;
        let counts = Counts {
            depth: gauge(named("workqueue_depth", "Keys that wait in the lanes of a queue."))?,
            fast: lane("fast")?,
            slow: lane("slow")?,
            adds: counter("workqueue_adds_total", "Keys that began to wait.")?,
            retries: counter("workqueue_retries_total", "Keys that were asked for after a delay.")?,
            dropped: counter("tidegate_queue_dropped_total", "Keys added after the queue had ended.")?,
            waited: histogram(
                "workqueue_queue_duration_seconds",
                "Time from the first addition of a key until it was taken.",
            )?,
            worked: histogram("workqueue_work_duration_seconds", "Time from when a key was taken until it was done.")?,
            working,
        };
        Ok(Self { counts: Some(Arc::new(counts)) })
    }

    pub(super) fn added(&self) {
        if let Some(counts) = &self.counts {
            counts.adds.inc();
        }
    }

    pub(super) fn retried(&self) {
        if let Some(counts) = &self.counts {
            counts.retries.inc();
        }
    }

    pub(super) fn dropped(&self) {
        if let Some(counts) = &self.counts {
            counts.dropped.inc();
        }
    }

    pub(super) fn depths<K>(&self, lanes: &Lanes<K>) {
        let Some(counts) = &self.counts else { return };
        let [fast, slow] = [Lane::Fast, Lane::Slow].map(|lane| i64::try_from(lanes.depth(lane)).unwrap_or(i64::MAX));
        counts.fast.set(fast);
        counts.slow.set(slow);
        counts.depth.set(fast.saturating_add(slow));
    }

    pub(super) fn taken(&self, since: Instant, now: Instant) {
        if let Some(counts) = &self.counts {
            counts.waited.observe(now.saturating_duration_since(since).as_secs_f64());
        }
    }

    pub(super) fn worked(&self, since: Instant, now: Instant) {
        if let Some(counts) = &self.counts {
            counts.worked.observe(now.saturating_duration_since(since).as_secs_f64());
        }
    }

    /// Sets the start times of the keys in work.
    pub(super) fn working(&self, since: impl Iterator<Item = Instant>) {
        if let Some(counts) = &self.counts {
            counts.working.set(since);
        }
    }
}

fn registered<M: Collector + Clone + 'static>(registry: &Registry, metric: M) -> Result<M, prometheus::Error> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// The keys in work, for another thread to read while the work goes on. The values are not read atomically, which may
/// shift a scrape by one key.
#[derive(Debug)]
struct InWork {
    /// The epoch of the other values.
    begun: Instant,
    keys: AtomicU64,
    /// The sum of the start times, in µs.
    since_us: AtomicU64,
    /// The earliest start time, in µs.
    first_us: AtomicU64,
}

impl InWork {
    fn since(begun: Instant) -> Self {
        Self { begun, keys: AtomicU64::new(0), since_us: AtomicU64::new(0), first_us: AtomicU64::new(0) }
    }

    fn us(&self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.begun).as_micros()).unwrap_or(u64::MAX)
    }

    fn set(&self, since: impl Iterator<Item = Instant>) {
        let add =
            |(keys, sum, first): (u64, u64, u64), since: u64| (keys + 1, sum.saturating_add(since), first.min(since));
        let (keys, sum, first) = since.map(|since| self.us(since)).fold((0, 0, u64::MAX), add);
        self.since_us.store(sum, Ordering::Relaxed);
        self.first_us.store(first, Ordering::Relaxed);
        self.keys.store(keys, Ordering::Relaxed);
    }

    /// The total time of all keys in work, and that of the oldest, in seconds.
    #[allow(clippy::cast_precision_loss, reason = "microseconds fit a double for centuries")]
    fn seconds(&self, now: Instant) -> (f64, f64) {
        let (keys, now_us) = (self.keys.load(Ordering::Relaxed), self.us(now));
        if keys == 0 {
            return (0.0, 0.0);
        }
        let all = keys.saturating_mul(now_us).saturating_sub(self.since_us.load(Ordering::Relaxed));
        let longest = now_us.saturating_sub(self.first_us.load(Ordering::Relaxed));
        (all as f64 / 1e6, longest as f64 / 1e6)
    }
}

/// Reads the work in progress at each scrape, so that hanging work is visible.
struct Unfinished {
    working: Arc<InWork>,
    all: Gauge,
    longest: Gauge,
}

impl Unfinished {
    fn new(name: &str, working: Arc<InWork>) -> Result<Self, prometheus::Error> {
        let gauge = |metric: &str, help: &str| Gauge::with_opts(Opts::new(metric, help).const_label("name", name));
        let all = gauge("workqueue_unfinished_work_seconds", "How long the keys in work have been so, all together.")?;
        let longest = gauge(
            "workqueue_longest_running_processor_seconds",
            "The longest time that a key has been in work so far.",
        )?;
        Ok(Self { working, all, longest })
    }
}

impl Collector for Unfinished {
    fn desc(&self) -> Vec<&Desc> {
        self.all.desc().into_iter().chain(self.longest.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (all, longest) = self.working.seconds(clock::now());
        self.all.set(all);
        self.longest.set(longest);
        self.all.collect().into_iter().chain(self.longest.collect()).collect()
    }
}
