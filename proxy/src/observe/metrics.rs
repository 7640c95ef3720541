//! The metrics of the data plane. Handles are resolved once for each route object and kept, so a request looks up one
//! map; the series of an object are removed when the snapshot has no more routes of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use foldhash::fast::RandomState;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use tidegate_config::model::Snapshot;
use tidegate_config::object::ObjectRef;

use super::datagram_metrics::FlowMetrics;
use super::stream_metrics::StreamMetrics;
use crate::budget::Budget;
use crate::clock;
use crate::reason::Reason;
use crate::sweep_trigger::SweepTrigger;
use crate::upstream::endpoint_state::EndpointStates;

/// The maximum number of route objects with series of their own; requests of further ones are counted as `other`.
const OBJECTS_MAX: usize = 10_000;
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
const SECONDS: [f64; 15] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// The outcome of getting a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Connect {
    /// It is open.
    Opened,
    /// An idle one from the pool is used.
    Reused,
    /// It could not be opened.
    Failed,
    /// It was not open in time.
    TimedOut,
}

/// The driver of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DriverUsed {
    /// [`crate::driver::native`].
    Native,
    /// [`crate::driver::pingora`].
    Pingora,
}

/// The outcome for the session of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Session {
    /// The endpoint of the session answers.
    Kept,
    /// A new session begins.
    Began,
    /// Another endpoint than that of the session answers.
    Moved,
}

/// Counters and histograms of the data plane.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: IntCounterVec,
    durations: HistogramVec,
    /// Requests between the first and the last byte.
    pub(crate) in_flight: IntGauge,
    drivers: [IntCounter; 2],
    connects: [IntCounter; 4],
    /// The time to open a connection, including TLS.
    pub(crate) connect_duration: Histogram,
    /// Further attempts of requests whose first one failed.
    pub(crate) retries: IntCounter,
    /// Retries that were not made because of the budget.
    pub(crate) retries_over_budget: IntCounter,
    /// Connections to endpoints that were closed because a byte would have followed the end of a request.
    pub(crate) upstream_overruns: IntCounter,
    sessions: [IntCounter; 3],
    answers: [IntCounter; Reason::ALL.len()],
    /// Access log lines that were dropped because the writer was slow.
    pub(crate) log_lines_dropped: IntCounter,
    /// Idle connections that were closed for others.
    pub(crate) evicted: IntCounter,
    /// The metrics of connections that are passed on as bytes.
    pub(crate) streams: StreamMetrics,
    /// UDP flows.
    pub(crate) flows: FlowMetrics,
    objects: papaya::HashMap<ObjectRef, Arc<ObjectSeries>, RandomState>,
    /// Notified of every object that gets series.
    sweep_trigger: Arc<SweepTrigger>,
    unrouted: Arc<ObjectSeries>,
    other: Arc<ObjectSeries>,
}

/// The handles of one route object.
#[derive(Debug)]
struct ObjectSeries {
    classes: [IntCounter; 5],
    duration: Histogram,
    /// The number of requests at the last two samples, the later one first.
    samples: [AtomicU64; 2],
}

fn histogram(name: &str, help: &str) -> HistogramOpts {
    HistogramOpts::new(name, help).buckets(SECONDS.to_vec())
}

impl Metrics {
    /// Creates and registers all metrics.
    ///
    /// # Errors
    /// If the registry has one of the names already.
    pub(crate) fn new(
        registry: &Registry,
        endpoints: Arc<EndpointStates>,
        sweep_trigger: Arc<SweepTrigger>,
    ) -> Result<Self, prometheus::Error> {
        fn add<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> Result<C, prometheus::Error> {
            registry.register(Box::new(collector.clone()))?;
            Ok(collector)
        }
        let requests =
            Opts::new("tidegate_requests_total", "Requests by the object of their route and by class of status.");
        let requests = add(registry, IntCounterVec::new(requests, &["kind", "namespace", "name", "object", "class"])?)?;
        let durations = histogram("tidegate_request_duration_seconds", "Time from a request's head to its last byte.");
        let durations = add(registry, HistogramVec::new(durations, &["kind", "namespace", "name", "object"])?)?;
        let drivers = Opts::new("tidegate_requests_by_driver_total", "Requests by driver.");
        let drivers = add(registry, IntCounterVec::new(drivers, &["driver"])?)?;
        let connects = Opts::new("tidegate_upstream_connects_total", "Connections to endpoints by outcome.");
        let connects = add(registry, IntCounterVec::new(connects, &["result"])?)?;
        let sessions = Opts::new("tidegate_sessions_total", "Responses of routes with session persistence.");
        let sessions = add(registry, IntCounterVec::new(sessions, &["outcome"])?)?;
        let answers =
            Opts::new("tidegate_requests_by_reason_total", "Requests that no endpoint answered completely, by reason.");
        let answers = add(registry, IntCounterVec::new(answers, &["reason"])?)?;
        let connect_duration =
            histogram("tidegate_upstream_connect_duration_seconds", "Time to open a connection to an endpoint.");
        read_gauge(
            registry,
            "tidegate_endpoints_ejected",
            "Endpoints ejected for a short time because they accepted no connection.",
            move || endpoints.ejected(clock::now()) as u64,
        )?;
        let series = |object: &str| Arc::new(ObjectSeries::new(&requests, &durations, ["", "", "", object]));
        Ok(Self {
            unrouted: series(""),
            other: series("other"),
            in_flight: add(registry, IntGauge::new("tidegate_requests_in_flight", "Requests in flight.")?)?,
            drivers: ["native", "pingora"].map(|driver| drivers.with_label_values(&[driver])),
            connects: ["opened", "reused", "failed", "timeout"].map(|result| connects.with_label_values(&[result])),
            connect_duration: add(registry, Histogram::with_opts(connect_duration)?)?,
            retries: add(registry, IntCounter::new("tidegate_upstream_retries_total", "Retries of requests.")?)?,
            retries_over_budget: add(
                registry,
                IntCounter::new(
                    "tidegate_upstream_retries_over_budget_total",
                    "Retries not made because of the retry budget of the Service.",
                )?,
            )?,
            upstream_overruns: add(
                registry,
                IntCounter::new(
                    "tidegate_upstream_overruns_total",
                    "Connections to endpoints closed before a byte could follow the end of a request.",
                )?,
            )?,
            sessions: ["kept", "began", "moved"].map(|outcome| sessions.with_label_values(&[outcome])),
            answers: Reason::ALL.map(|reason| answers.with_label_values(&[reason.as_str()])),
            log_lines_dropped: add(
                registry,
                IntCounter::new("tidegate_access_log_dropped_total", "Access log lines dropped: the writer was slow.")?,
            )?,
            evicted: add(
                registry,
                IntCounter::new(
                    "tidegate_connections_evicted_total",
                    "Longest idle connections, closed to make room.",
                )?,
            )?,
            streams: StreamMetrics::register(registry, Arc::clone(&sweep_trigger))?,
            flows: FlowMetrics::register(registry, Arc::clone(&sweep_trigger))?,
            objects: papaya::HashMap::with_hasher(RandomState::default()),
            sweep_trigger,
            requests,
            durations,
        })
    }

    /// Counts a finished request under the object of its route.
    pub(crate) fn finished(&self, object: Option<&ObjectRef>, status: u16, duration: Duration) {
        let series = object.map_or_else(|| Arc::clone(&self.unrouted), |object| self.series(object));
        // A status of an unknown class counts as 5xx (RFC 9110 section 15).
        series.classes[usize::from(status / 100).clamp(1, CLASSES.len()) - 1].inc();
        // The duration of a tunnel is not that of a request.
        if status != 101 {
            series.duration.observe(duration.as_secs_f64());
        }
    }

    /// Counts a request under its driver.
    pub(crate) fn carried(&self, driver: DriverUsed) {
        self.drivers[driver as usize].inc();
    }

    /// Counts a connection to an endpoint.
    pub(crate) fn connect(&self, result: Connect) {
        self.connects[result as usize].inc();
    }

    /// Counts a response to a request of a session.
    pub(crate) fn session(&self, outcome: Session) {
        self.sessions[outcome as usize].inc();
    }

    /// Counts a request that no endpoint answered completely.
    pub(crate) fn answered(&self, reason: Reason) {
        self.answers[reason as usize].inc();
    }

    /// Samples the number of requests of each object, for [`Metrics::used_recently`]. To be called periodically.
    pub(crate) fn sample_requests(&self) {
        for series in self.objects.pin().values() {
            let [later, earlier] = &series.samples;
            earlier.store(later.swap(series.requests(), Relaxed), Relaxed);
        }
    }

    /// Returns `true` if the routes of an object had requests since the sample before the last.
    pub(crate) fn used_recently(&self, object: &ObjectRef) -> bool {
        let objects = self.objects.pin();
        objects.get(object).is_some_and(|series| series.requests() != series.samples[1].load(Relaxed))
    }

    fn series(&self, object: &ObjectRef) -> Arc<ObjectSeries> {
        let objects = self.objects.pin();
        if let Some(series) = objects.get(object) {
            return Arc::clone(series);
        }
        if objects.len() >= OBJECTS_MAX {
            return Arc::clone(&self.other);
        }
        let create = || {
            let text = object.to_string();
            Arc::new(ObjectSeries::new(&self.requests, &self.durations, labels(object, &text)))
        };
        let series = Arc::clone(objects.get_or_insert_with(object.clone(), create));
        self.sweep_trigger.mark();
        series
    }

    /// Removes the series of objects without a route in the snapshot. The series are removed before the handles: a
    /// request that finds an old handle in between is not counted, and the next one creates new series.
    pub(crate) fn sweep(&self, snapshot: &Snapshot) {
        self.streams.sweep(snapshot);
        self.flows.sweep(snapshot);
        let routes = snapshot.hosts().iter().flat_map(|(_, host)| host.all());
        let named: BTreeSet<&ObjectRef> = routes.map(|route| &route.origin.object).collect();
        let objects = self.objects.pin();
        for object in objects.keys().filter(|object| !named.contains(object)) {
            let text = object.to_string();
            let [kind, namespace, name, text] = labels(object, &text);
            // An error means that the series does not exist.
            for class in CLASSES {
                drop(self.requests.remove_label_values(&[kind, namespace, name, text, class]));
            }
            drop(self.durations.remove_label_values(&[kind, namespace, name, text]));
            objects.remove(object);
        }
    }
}

/// The labels of an object: its kind, its namespace, its name, and all of them in one text.
fn labels<'o>(object: &'o ObjectRef, text: &'o str) -> [&'o str; 4] {
    [object.kind.as_str(), &object.name.namespace, &object.name.name, text]
}

impl ObjectSeries {
    fn new(requests: &IntCounterVec, durations: &HistogramVec, labels: [&str; 4]) -> Self {
        let [kind, namespace, name, object] = labels;
        Self {
            classes: CLASSES.map(|class| requests.with_label_values(&[kind, namespace, name, object, class])),
            duration: durations.with_label_values(&labels),
            samples: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    fn requests(&self) -> u64 {
        self.classes.iter().map(IntCounter::get).sum()
    }
}

/// A gauge whose value is read at each scrape.
struct ReadGauge<F> {
    gauge: IntGauge,
    read: F,
}

impl<F: Fn() -> u64 + Send + Sync> Collector for ReadGauge<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.gauge.set(i64::try_from((self.read)()).unwrap_or(i64::MAX));
        self.gauge.collect()
    }
}

/// Registers a gauge whose value is read at each scrape.
fn read_gauge<F>(registry: &Registry, name: &str, help: &str, read: F) -> Result<(), prometheus::Error>
where
    F: Fn() -> u64 + Send + Sync + 'static,
{
    registry.register(Box::new(ReadGauge { gauge: IntGauge::new(name, help)?, read }))
}

/// Registers gauges of the files and memory charged to traffic, and of their limits.
///
/// # Errors
/// If the registry has one of the names already.
pub(crate) fn show_budget(registry: &Registry, budget: &Arc<Budget>) -> Result<(), prometheus::Error> {
    let show = |name, help, read: fn(&Budget) -> u64| {
        let budget = Arc::clone(budget);
        read_gauge(registry, name, help, move || read(&budget))
    };
    show("tidegate_budget_sockets", "Sockets of clients and endpoints charged to the traffic budget.", |b| {
        b.taken().files()
    })?;
    show("tidegate_budget_sockets_max", "The limit of these sockets.", |b| b.max().files())?;
    show("tidegate_budget_memory_bytes", "Memory charged to the traffic budget.", |b| b.taken().memory_kib() * 1024)?;
    show("tidegate_budget_memory_max_bytes", "The limit of this memory.", |b| b.max().memory_kib() * 1024)
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::AppProtocol;
    use tidegate_config::object::{Kind, ObjectName};

    use super::*;
    use crate::sample_model::{parts, path, published, to_backend};

    fn text(registry: &Registry) -> String {
        prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    #[test]
    fn an_object_is_recently_used_until_two_samples_without_requests() {
        let sweep_trigger = Arc::new(SweepTrigger::default());
        let endpoints = Arc::new(EndpointStates::new(clock::now(), Arc::clone(&sweep_trigger)));
        let metrics = Metrics::new(&Registry::new(), endpoints, sweep_trigger).unwrap();
        let object = |name: &str| ObjectRef::new(Kind::Ingress, ObjectName::new("shop", name));
        let (web, other) = (object("web"), object("other"));
        for _ in 0..2 {
            metrics.finished(Some(&web), 204, Duration::ZERO);
            for recently_used in [true, true, false, false] {
                assert_eq!((metrics.used_recently(&web), metrics.used_recently(&other)), (recently_used, false));
                metrics.sample_requests();
            }
        }
    }

    #[test]
    fn the_number_of_objects_with_series_is_limited() {
        let registry = Registry::new();
        let sweep_trigger = Arc::new(SweepTrigger::default());
        let endpoints = Arc::new(EndpointStates::new(clock::now(), Arc::clone(&sweep_trigger)));
        let metrics = Metrics::new(&registry, endpoints, sweep_trigger).unwrap();
        for number in 0..OBJECTS_MAX + 3 {
            let object = ObjectRef::new(Kind::Ingress, ObjectName::new("shop", format!("web-{number}")));
            metrics.finished(Some(&object), 200, Duration::ZERO);
        }
        let page = text(&registry);
        let counts = page.lines().filter(|line| line.starts_with("tidegate_requests_total{class=\"2xx\""));
        let (own, others): (Vec<&str>, Vec<&str>) = counts.partition(|line| line.contains("name=\"web-"));
        assert_eq!(own.len(), OBJECTS_MAX);
        assert!(others.iter().any(|line| line.contains("object=\"other\"") && line.ends_with(" 3")), "{others:?}");
    }

    #[test]
    fn series_appear_with_requests_and_disappear_with_their_object() {
        let registry = Registry::new();
        let sweep_trigger = Arc::new(SweepTrigger::default());
        let endpoints = Arc::new(EndpointStates::new(clock::now(), Arc::clone(&sweep_trigger)));
        let metrics = Metrics::new(&registry, endpoints, sweep_trigger).unwrap();
        let object = |name: &str| ObjectRef::new(Kind::Ingress, ObjectName::new("shop", name));
        for (object, status) in
            [(Some(object("web")), 204), (Some(object("web")), 101), (Some(object("old")), 503), (None, 404)]
        {
            metrics.finished(object.as_ref(), status, Duration::from_millis(3));
        }
        metrics.answered(Reason::Internal);
        let before = text(&registry);
        for line in [
            r#"tidegate_requests_total{class="2xx",kind="Ingress",name="web",namespace="shop",object="Ingress shop/web"} 1"#,
            r#"tidegate_requests_total{class="1xx",kind="Ingress",name="web",namespace="shop",object="Ingress shop/web"} 1"#,
            r#"tidegate_requests_total{class="5xx",kind="Ingress",name="old",namespace="shop",object="Ingress shop/old"} 1"#,
            r#"tidegate_requests_total{class="4xx",kind="",name="",namespace="",object=""} 1"#,
            r#"tidegate_requests_by_reason_total{reason="internal"} 1"#,
            r#"tidegate_request_duration_seconds_count{kind="Ingress",name="web",namespace="shop",object="Ingress shop/web"} 1"#,
        ] {
            assert!(before.contains(line), "{line} in {before}");
        }
        let model = parts(vec![("a.test", vec![to_backend("web", path("/"), AppProtocol::Http)])], None);
        metrics.sweep(&published(model).pin());
        let after = text(&registry);
        assert!(after.contains("shop/web") && !after.contains("shop/old"), "{after}");
        metrics.finished(Some(&object("old")), 200, Duration::ZERO);
        assert!(
            text(&registry)
                .contains(r#"class="2xx",kind="Ingress",name="old",namespace="shop",object="Ingress shop/old"} 1"#)
        );
    }
}
