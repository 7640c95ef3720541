//! Metrics of the control loop. Those of the model are read from the snapshot at each scrape, so their series are
//! removed with their objects.

use std::collections::BTreeMap;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use tidegate_config::model::Certificate;
use tidegate_config::object::Kind;
use tidegate_config::published::Published;

use crate::compile::Unit;
use crate::queue::latency_buckets;

/// The handles of the loop's metrics.
#[derive(Clone, Debug)]
pub(crate) struct ControlMetrics {
    pub(crate) generation: IntGauge,
    pub(crate) held_generation: IntGauge,
    pub(crate) publish_seconds: Histogram,
    pub(crate) change_seconds: Histogram,
    pub(crate) events: IntCounter,
    pub(crate) units_compiled: IntCounterVec,
    pub(crate) applied_resource_version: GaugeVec,
    pub(crate) ready: IntGauge,
    pub(crate) degraded: IntGauge,
    pub(crate) stale_since: IntGauge,
    pub(crate) drift: IntCounterVec,
    pub(crate) audits: IntCounter,
    pub(crate) audit_drift: IntCounterVec,
    pub(crate) findings: IntGaugeVec,
    pub(crate) contested: IntGauge,
    pub(crate) restarts: IntCounter,
}

fn stale_since(registry: &Registry) -> Result<IntGauge, prometheus::Error> {
    let made = IntGauge::new(
        "tidegate_cache_stale_since_timestamp_seconds",
        "The time of the restored state that is served, in seconds since the epoch; 0 if the current state is served.",
    )?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

fn contested(registry: &Registry) -> Result<IntGauge, prometheus::Error> {
    let made = IntGauge::new("tidegate_status_contested", "Objects whose status another client keeps overwriting.")?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

fn findings(registry: &Registry) -> Result<IntGaugeVec, prometheus::Error> {
    let opts = Opts::new("tidegate_findings", "Current findings about objects, by reason and severity.");
    let made = IntGaugeVec::new(opts, &["reason", "severity"])?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

fn counter_by(label: &str, name: &str, help: &str, registry: &Registry) -> Result<IntCounterVec, prometheus::Error> {
    let made = IntCounterVec::new(Opts::new(name, help), &[label])?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

impl ControlMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// Returns an error if a metric of the same name is already registered.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let histogram = |name: &str, help: &str| -> Result<Histogram, prometheus::Error> {
            let made = Histogram::with_opts(HistogramOpts::new(name, help).buckets(latency_buckets()))?;
            registry.register(Box::new(made.clone()))?;
            Ok(made)
        };
        let gauge = |name: &str, help: &str| -> Result<IntGauge, prometheus::Error> {
            let made = IntGauge::new(name, help)?;
            registry.register(Box::new(made.clone()))?;
            Ok(made)
        };
        let counter = |name: &str, help: &str| -> Result<IntCounter, prometheus::Error> {
            let made = IntCounter::new(name, help)?;
            registry.register(Box::new(made.clone()))?;
            Ok(made)
        };
        let applied_resource_version = GaugeVec::new(
            Opts::new("tidegate_applied_resource_version", "The resourceVersion that is in effect, by kind."),
            &["kind"],
        )?;
        registry.register(Box::new(applied_resource_version.clone()))?;
        let drift = counter_by(
            "kind",
            "tidegate_drift_total",
            "Listed objects that differed from earlier watch events, by kind.",
            registry,
        )?;
        for kind in Kind::ALL {
            drift.with_label_values(&[kind.as_str()]);
        }
        let audit_drift =
            counter_by("unit", "tidegate_audit_drift_total", "Units in which an audit found drift.", registry)?;
        let units_compiled = counter_by(
            "unit",
            "tidegate_control_units_compiled_total",
            "Units compiled, because they were affected by a change.",
            registry,
        )?;
        for unit in Unit::LABELS {
            audit_drift.with_label_values(&[unit]);
            units_compiled.with_label_values(&[unit]);
        }
        Ok(Self {
            generation: gauge("tidegate_snapshot_generation", "The last published generation.")?,
            held_generation: gauge(
                "tidegate_held_generation",
                "The generation whose routes an operator holds; 0 while those of the cluster serve.",
            )?,
            publish_seconds: histogram(
                "tidegate_publish_duration_seconds",
                "Time to compile and publish one batch of changes.",
            )?,
            change_seconds: histogram(
                "tidegate_change_duration_seconds",
                "Time from the arrival of a change to its publication; the oldest change of each batch.",
            )?,
            events: counter("tidegate_control_events_total", "Events taken by the control loop.")?,
            units_compiled,
            applied_resource_version,
            drift,
            audits: counter("tidegate_audits_total", "Completed rounds of the audit.")?,
            audit_drift,
            findings: findings(registry)?,
            contested: contested(registry)?,
            ready: gauge("tidegate_ready", "1 once the first complete model has been published.")?,
            degraded: gauge("tidegate_degraded", "1 while a collection of objects cannot be listed or watched.")?,
            stale_since: stale_since(registry)?,
            restarts: counter("tidegate_control_restarts_total", "Restarts of the control loop.")?,
        })
    }
}

/// Reads the certificates of the snapshot at each scrape.
pub(crate) struct SnapshotCollector {
    published: Published,
    desc: Desc,
}

impl SnapshotCollector {
    /// A collector for the newest snapshot.
    ///
    /// # Errors
    /// If the metric's description is invalid.
    pub(crate) fn new(published: Published) -> Result<Self, prometheus::Error> {
        let desc = not_after()?.desc().into_iter().next().cloned();
        let desc = desc.ok_or_else(|| prometheus::Error::Msg("no description".to_owned()))?;
        Ok(Self { published, desc })
    }
}

fn not_after() -> Result<GaugeVec, prometheus::Error> {
    let help = "End of a certificate's validity, in seconds since the Unix epoch, by Secret.";
    GaugeVec::new(Opts::new("tidegate_certificate_not_after_seconds", help), &["secret"])
}

impl Collector for SnapshotCollector {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    #[allow(clippy::cast_precision_loss, reason = "a date in seconds fits a double for millions of years")]
    fn collect(&self) -> Vec<MetricFamily> {
        let snapshot = self.published.pin();
        let hosts = snapshot.hosts().iter().flat_map(|(_, host)| host.certificates.iter());
        let all = hosts.flat_map(|(_, certificates)| certificates);
        let listeners = snapshot.binds().iter().flat_map(|bind| bind.listeners.iter());
        let of_listeners = listeners.filter_map(|listener| listener.tls.as_ref()).flat_map(|tls| &*tls.certificates);
        let routes = snapshot.hosts().iter().flat_map(|(_, host)| host.all());
        let of_routes = routes.flat_map(|route| route.targets()).filter_map(|target| target.tls.as_ref());
        let streams = snapshot.parts().streams.iter().flat_map(|(_, route)| route.targets());
        let to_endpoints = of_routes.chain(streams.filter_map(|target| target.tls.as_ref()));
        let of_clients = to_endpoints.filter_map(|tls| tls.client.as_ref());
        let all = all.chain(snapshot.default_certificate()).chain(of_listeners).chain(of_clients);
        let by_secret: BTreeMap<String, &Certificate> =
            all.map(|certificate| (certificate.secret.to_string(), &**certificate)).collect();
        let Ok(gauge) = not_after() else { return Vec::new() };
        for (secret, certificate) in by_secret {
            gauge.with_label_values(&[&secret]).set(certificate.not_after_s as f64);
        }
        gauge.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_config::model::{
        Action, AppProtocol, BackendKey, Bind, BindKey, BindProtocol, HostPattern, HostRoutes, Listener, ListenerName,
        ListenerTls, Origin, PathMatch, Route, ServerCertificates, SnapshotParts, TableName, Target, TlsMode,
        Transport, UpstreamTls, VirtualHost, WeightedTarget,
    };
    use tidegate_config::object::{Age, Kind, ObjectName, ObjectRef};
    use tidegate_config::published::channel;

    use super::*;

    /// A certificate of a Secret in the namespace `shop` that is valid until the end of a year.
    fn certificate(secret: &str, year: i32) -> Arc<Certificate> {
        let mut params = rcgen::CertificateParams::new(["a.test".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year + 1, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let chain = params.self_signed(&key).unwrap().pem();
        let secret = ObjectName::new("shop", secret);
        Arc::new(Certificate::from_pem(secret, chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap())
    }

    /// A route to endpoints that get a certificate of the edge.
    fn with_client_certificate(certificate: Arc<Certificate>) -> Arc<Route> {
        let service = ObjectName::new("shop", "web");
        let target = Target {
            backend: BackendKey { service: service.clone(), port: 443, transport: Transport::Tcp },
            protocol: AppProtocol::Https,
            tls: Some(UpstreamTls { client: Some(certificate), ..UpstreamTls::default() }),
            fixed: None,
        };
        let (object, age) = (ObjectRef::new(Kind::HttpRoute, service.clone()), Age { created_s: 0, name: service });
        let origin = Origin { object, age, field: "spec".into(), position: 0 };
        let action = Action::Forward([WeightedTarget::new(Arc::new(target), 1)].into());
        Arc::new(Route::new(origin, PathMatch::Prefix("".into()), action))
    }

    #[test]
    fn the_end_of_every_certificate_is_a_metric() {
        let of_host = certificate("host", 2029);
        let host: VirtualHost = HostPattern::Exact("a.test".into()).into();
        let mut routes =
            HostRoutes::new(host.clone(), vec![with_client_certificate(certificate("to-endpoints", 2032))], None);
        routes.certificates = ServerCertificates::new(
            [(host.pattern.clone(), vec![Arc::clone(&of_host), certificate("other-key", 2030)])].into(),
        );
        let tls = ListenerTls {
            mode: TlsMode::Http,
            certificates: [certificate("listener", 2031), of_host].into(),
            clients: None,
        };
        let listener = Listener {
            name: ListenerName("https".into()),
            host: HostPattern::Any,
            table: TableName::Shared,
            tls: Some(Arc::new(tls)),
            port: None,
            origin: None,
        };
        let key = BindKey { address: ([127, 0, 0, 1], 443).into(), protocol: BindProtocol::Https };
        let mut parts = SnapshotParts {
            binds: [Bind { key, listeners: [listener].into() }].into(),
            default_certificate: Some(certificate("default", 2019)),
            ..SnapshotParts::default()
        };
        parts.hosts.insert(&host, Arc::new(routes));
        let (mut publisher, published) = channel();
        let registry = Registry::new();
        registry.register(Box::new(SnapshotCollector::new(published).unwrap())).unwrap();
        let mut check = |parts: SnapshotParts, want: &[(&str, f64)]| {
            let ready = publisher.prepare(parts);
            publisher.publish(ready);
            let families = registry.gather();
            let metrics = families.iter().flat_map(|family| family.get_metric());
            let values =
                metrics.map(|metric| (metric.get_label()[0].value().to_owned(), metric.get_gauge().get_value()));
            let want: Vec<_> = want.iter().map(|(secret, end)| (format!("shop/{secret}"), *end)).collect();
            assert_eq!(values.collect::<Vec<_>>(), want);
        };
        let (in_2020, in_2030, in_2031, in_2032) = (1_577_836_800.0, 1_893_456_000.0, 1_924_992_000.0, 1_956_528_000.0);
        let in_2033 = 1_988_150_400.0;
        let all = [
            ("default", in_2020),
            ("host", in_2030),
            ("listener", in_2032),
            ("other-key", in_2031),
            ("to-endpoints", in_2033),
        ];
        check(parts, &all);
        check(SnapshotParts::default(), &[]);
    }
}
