//! Metrics of connections that are passed on unread.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::fast::RandomState;
use prometheus::{IntCounterVec, Registry};
use tidegate_config::model::{BindKey, Snapshot};
use tidegate_config::object::ObjectRef;

use super::connection_metrics::counters;
use crate::sweep_trigger::SweepTrigger;

/// The maximum number of pairs of bind and object with series of their own; connections of further objects are counted
/// as `other`.
const SERIES_MAX: usize = 10_000;

const DIRECTIONS: [&str; 2] = ["up", "down"];

/// The outcome of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Both sides closed it.
    Closed,
    /// One side reset it.
    Reset,
    /// It was idle for too long.
    Idle,
    /// Its bind has no route.
    NoRoute,
    /// Its share has a backend that cannot be used.
    InvalidBackend,
    /// There was no endpoint.
    NoEndpoint,
    /// No endpoint took the connection.
    ConnectFailed,
    /// No endpoint took it in time.
    ConnectTimeout,
}

impl Outcome {
    const ALL: [Self; 8] = [
        Self::Closed,
        Self::Reset,
        Self::Idle,
        Self::NoRoute,
        Self::InvalidBackend,
        Self::NoEndpoint,
        Self::ConnectFailed,
        Self::ConnectTimeout,
    ];

    /// Its name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Reset => "reset",
            Self::Idle => "idle",
            Self::NoRoute => "no-route",
            Self::InvalidBackend => "invalid-backend",
            Self::NoEndpoint => "no-endpoint",
            Self::ConnectFailed => "connect-failed",
            Self::ConnectTimeout => "connect-timeout",
        }
    }
}

/// The counters of these connections, by the address of their bind and the object of their route. The series of an
/// object are removed when the snapshot has no more routes of it.
#[derive(Debug)]
pub(crate) struct StreamMetrics {
    connections: IntCounterVec,
    bytes: IntCounterVec,
    /// The pairs of bind and object that have series.
    known: papaya::HashSet<(BindKey, ObjectRef), RandomState>,
    /// Notified of each new pair.
    sweep_trigger: Arc<SweepTrigger>,
}

impl StreamMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// If the registry has one of the names already.
    pub(crate) fn register(registry: &Registry, sweep_trigger: Arc<SweepTrigger>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            connections: counters(
                registry,
                "tidegate_stream_connections_total",
                "TCP connections that were passed on unread and have ended",
                &["bind", "namespace", "object", "outcome"],
            )?,
            bytes: counters(
                registry,
                "tidegate_stream_bytes_total",
                "Bytes of TCP connections that were passed on unread and have ended",
                &["bind", "namespace", "object", "direction"],
            )?,
            known: papaya::HashSet::with_hasher(RandomState::default()),
            sweep_trigger,
        })
    }

    /// Counts a connection that has ended, with its bytes to the endpoint and back, for the object of its route.
    pub(crate) fn finished(&self, bind: &BindKey, object: Option<&ObjectRef>, outcome: Outcome, bytes: [u64; 2]) {
        let address = bind.address.to_string();
        let (namespace, name) = match object {
            Some(object) if self.has_series(bind, object) => (&*object.name.namespace, object.to_string()),
            Some(_) => ("", "other".to_owned()),
            None => ("", String::new()),
        };
        self.connections.with_label_values(&[&*address, namespace, &name, outcome.as_str()]).inc();
        for (direction, count) in DIRECTIONS.into_iter().zip(bytes) {
            self.bytes.with_label_values(&[&*address, namespace, &name, direction]).inc_by(count);
        }
    }

    /// Returns `true` if an object has series of its own on a bind; it gets them if there is room.
    fn has_series(&self, bind: &BindKey, object: &ObjectRef) -> bool {
        let (known, key) = (self.known.pin(), (*bind, object.clone()));
        if known.contains(&key) {
            return true;
        }
        if known.len() >= SERIES_MAX {
            return false;
        }
        known.insert(key);
        self.sweep_trigger.mark();
        true
    }

    /// Removes the series of objects without a route in the snapshot.
    pub(crate) fn sweep(&self, snapshot: &Snapshot) {
        let routes = snapshot.parts().streams.iter();
        let named: BTreeSet<&ObjectRef> = routes.map(|(_, route)| &route.origin.object).collect();
        let known = self.known.pin();
        for key in known.iter().filter(|(_, object)| !named.contains(object)) {
            let (bind, object) = (key.0.address.to_string(), key.1.to_string());
            let own = |last| [&*bind, &*key.1.name.namespace, &*object, last];
            // An error means that there is no such series.
            for outcome in Outcome::ALL {
                drop(self.connections.remove_label_values(&own(outcome.as_str())));
            }
            for direction in DIRECTIONS {
                drop(self.bytes.remove_label_values(&own(direction)));
            }
            known.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_config::model::{BindProtocol, Generation, HostPattern, Origin, SnapshotParts, StreamRoute};
    use tidegate_config::object::{Age, Kind, ObjectName};
    use tidegate_config::published::channel;

    use super::*;

    #[test]
    fn the_series_of_an_object_disappear_with_its_last_route() {
        let (registry, sweep_trigger) = (Registry::new(), Arc::new(SweepTrigger::default()));
        let metrics = StreamMetrics::register(&registry, Arc::clone(&sweep_trigger)).unwrap();
        let bind = BindKey { address: ([127, 0, 0, 1], 5432).into(), protocol: BindProtocol::Tcp };
        let object = |name: &str| ObjectRef::new(Kind::TcpRoute, ObjectName::new("shop", name));
        metrics.finished(&bind, Some(&object("stays")), Outcome::Closed, [1, 2]);
        metrics.finished(&bind, Some(&object("goes")), Outcome::Reset, [3, 4]);
        metrics.finished(&bind, None, Outcome::NoRoute, [0, 0]);
        assert!(sweep_trigger.take_if_due(Generation(0)));
        let series = || -> Vec<usize> { registry.gather().iter().map(|family| family.get_metric().len()).collect() };
        assert_eq!(series(), [6, 3]);

        let age = Age { created_s: 0, name: ObjectName::new("shop", "stays") };
        let origin = Origin { object: object("stays"), age, field: "spec.rules[0]".into(), position: 0 };
        let (connect_timeout, idle_timeout) = (Duration::ZERO, Duration::ZERO);
        let origin = Arc::new(origin);
        let route = StreamRoute { origin, rule: None, backends: Box::default(), connect_timeout, idle_timeout };
        let mut parts = SnapshotParts::default();
        parts.streams.insert(&HostPattern::Any.into(), Arc::new(route));
        let (mut publisher, published) = channel();
        let ready = publisher.prepare(parts);
        publisher.publish(ready);
        metrics.sweep(&published.pin());
        assert_eq!(series(), [4, 2]);
        assert_eq!(metrics.known.pin().len(), 1);
    }
}
