//! Metrics of lists and watches. Every series has the labels `kind` and `namespace`; the latter is empty, which
//! Prometheus treats as absent, for a watch of all namespaces.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use crate::event::Collection;

const COLLECTION: [&str; 2] = ["kind", "namespace"];
const COLLECTION_AND_REASON: [&str; 3] = ["kind", "namespace", "reason"];

/// The metric families, registered once.
#[derive(Clone, Debug)]
pub struct CollectionMetrics {
    connected: IntGaugeVec,
    last_event: GaugeVec,
    lists: IntCounterVec,
    list_failures: IntCounterVec,
    list_duration: HistogramVec,
    listed: IntGaugeVec,
    watch_restarts: IntCounterVec,
    unidentified: IntCounterVec,
    cached_kind_stale_since: IntGaugeVec,
}

/// The series of one collection.
#[derive(Clone, Debug)]
pub(crate) struct CollectionSeries {
    labels: [String; 2],
    connected: IntGauge,
    last_event: Gauge,
    lists: IntCounterVec,
    list_failures: IntCounterVec,
    list_duration: Histogram,
    listed: IntGauge,
    watch_restarts: IntCounterVec,
    unidentified: IntCounter,
}

impl CollectionMetrics {
    /// Registers the families.
    ///
    /// # Errors
    /// If a family with one of these names is already registered.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name: &str, text: &str| IntGaugeVec::new(Opts::new(name, text), &COLLECTION);
        let counter = |name: &str, text: &str, labels: &[&str]| IntCounterVec::new(Opts::new(name, text), labels);
        let duration = HistogramOpts::new("tidegate_list_duration_seconds", "Duration of complete lists, in seconds.")
            .buckets(vec![0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0]);
        let metrics = Self {
            connected: gauge("tidegate_watch_connected", "1 while a watch is open.")?,
            last_event: GaugeVec::new(
                Opts::new(
                    "tidegate_watch_last_event_timestamp_seconds",
                    "Time of the last watch event or bookmark, in seconds since the epoch.",
                ),
                &COLLECTION,
            )?,
            lists: counter("tidegate_lists_total", "Lists begun, by reason.", &COLLECTION_AND_REASON)?,
            list_failures: counter("tidegate_list_failures_total", "Failed lists, by reason.", &COLLECTION_AND_REASON)?,
            list_duration: HistogramVec::new(duration, &COLLECTION)?,
            listed: gauge("tidegate_listed_objects", "Objects in the last complete list.")?,
            watch_restarts: counter(
                "tidegate_watch_restarts_total",
                "Ended watches, by reason.",
                &COLLECTION_AND_REASON,
            )?,
            unidentified: counter(
                "tidegate_unidentified_objects_total",
                "Objects of lists and watches without an identity (name, namespace or resourceVersion), which were skipped.",
                &COLLECTION,
            )?,
            cached_kind_stale_since: IntGaugeVec::new(
                Opts::new(
                    "tidegate_cached_kind_stale_since_timestamp_seconds",
                    "Time of the restored state of a cached kind, in seconds since the epoch; 0 when it is current.",
                ),
                &["kind"],
            )?,
        };
        registry.register(Box::new(metrics.connected.clone()))?;
        registry.register(Box::new(metrics.last_event.clone()))?;
        registry.register(Box::new(metrics.lists.clone()))?;
        registry.register(Box::new(metrics.list_failures.clone()))?;
        registry.register(Box::new(metrics.list_duration.clone()))?;
        registry.register(Box::new(metrics.listed.clone()))?;
        registry.register(Box::new(metrics.watch_restarts.clone()))?;
        registry.register(Box::new(metrics.unidentified.clone()))?;
        registry.register(Box::new(metrics.cached_kind_stale_since.clone()))?;
        Ok(metrics)
    }

    pub(crate) fn of(&self, collection: &Collection) -> CollectionSeries {
        self.of_kind(collection.kind.as_str(), collection.namespace.as_deref().unwrap_or_default())
    }

    /// The gauge of the time of a cached kind's restored state; 0 when it is current.
    pub(crate) fn cached_kind_stale_since(&self, kind: &str) -> IntGauge {
        self.cached_kind_stale_since.with_label_values(&[kind])
    }

    pub(crate) fn of_kind(&self, kind: &str, namespace: &str) -> CollectionSeries {
        let labels = [kind, namespace];
        CollectionSeries {
            labels: labels.map(str::to_owned),
            connected: self.connected.with_label_values(&labels),
            last_event: self.last_event.with_label_values(&labels),
            lists: self.lists.clone(),
            list_failures: self.list_failures.clone(),
            list_duration: self.list_duration.with_label_values(&labels),
            listed: self.listed.with_label_values(&labels),
            watch_restarts: self.watch_restarts.clone(),
            unidentified: self.unidentified.with_label_values(&labels),
        }
    }
}

impl CollectionSeries {
    /// Counts a watch as open for as long as the returned value lives.
    pub(crate) fn connected(&self) -> Connected {
        self.connected.inc();
        Connected(self.connected.clone())
    }

    pub(crate) fn event(&self, wall: SystemTime) {
        self.last_event.set(wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
    }

    pub(crate) fn list_begins(&self, reason: &str) {
        self.count(&self.lists, reason);
    }

    pub(crate) fn list_failed(&self, reason: &str) {
        self.count(&self.list_failures, reason);
    }

    pub(crate) fn list_done(&self, took: Duration, objects: usize) {
        self.list_duration.observe(took.as_secs_f64());
        self.listed.set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    pub(crate) fn watch_ended(&self, reason: &str) {
        self.count(&self.watch_restarts, reason);
    }

    pub(crate) fn unidentified(&self, objects: u64) {
        self.unidentified.inc_by(objects);
    }

    fn count(&self, family: &IntCounterVec, reason: &str) {
        let [kind, namespace] = &self.labels;
        family.with_label_values(&[kind.as_str(), namespace, reason]).inc();
    }
}

/// Counts an open watch until it is dropped.
#[derive(Debug)]
pub(crate) struct Connected(IntGauge);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.dec();
    }
}
