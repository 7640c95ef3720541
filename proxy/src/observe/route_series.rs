//! The pairs of bind and route object that have metric series of their own.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tidegate_config::model::{BindKey, Snapshot};
use tidegate_config::object::ObjectRef;

use crate::sweep_trigger::SweepTrigger;

/// The maximum number of pairs with series of their own; further objects are counted as `other`.
const SERIES_MAX: usize = 10_000;

/// The pairs of bind and route object that have series in the metrics of one owner. The series of an object are removed
/// when the snapshot has no more routes of it.
#[derive(Debug)]
pub(super) struct RouteSeries {
    known: papaya::HashSet<(BindKey, ObjectRef), RandomState>,
    /// Notified of each new pair.
    sweep_trigger: Arc<SweepTrigger>,
}

/// The labels of a series: the address of the bind, the namespace of the object, and its kind and name.
#[derive(Debug)]
pub(super) struct RouteLabels {
    pub(super) bind: String,
    pub(super) namespace: String,
    pub(super) object: String,
}

impl RouteLabels {
    fn own(bind: &BindKey, object: &ObjectRef) -> Self {
        let (bind, namespace) = (bind.address.to_string(), object.name.namespace.as_ref().to_owned());
        Self { bind, namespace, object: object.to_string() }
    }

    /// The values of the labels, and one more.
    pub(super) fn with<'l>(&'l self, last: &'l str) -> [&'l str; 4] {
        [&self.bind, &self.namespace, &self.object, last]
    }
}

impl RouteSeries {
    pub(super) fn new(sweep_trigger: Arc<SweepTrigger>) -> Self {
        Self { known: papaya::HashSet::with_hasher(RandomState::default()), sweep_trigger }
    }

    /// The labels for an object on a bind. Both labels of the object are empty without one, and it is `other` beyond
    /// the maximum number of pairs.
    pub(super) fn labels(&self, bind: &BindKey, object: Option<&ObjectRef>) -> RouteLabels {
        let without = |object: &str| {
            let (bind, namespace) = (bind.address.to_string(), String::new());
            RouteLabels { bind, namespace, object: object.to_owned() }
        };
        match object {
            Some(object) if self.has_series(bind, object) => RouteLabels::own(bind, object),
            Some(_) => without("other"),
            None => without(""),
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

    /// Forgets the objects without a route in the snapshot, and calls the function with the labels of each.
    pub(super) fn sweep(&self, snapshot: &Snapshot, remove: impl Fn(&RouteLabels)) {
        let routes = snapshot.parts().streams.iter();
        let named: BTreeSet<&ObjectRef> = routes.map(|(_, route)| &route.origin.object).collect();
        let known = self.known.pin();
        for key in known.iter().filter(|(_, object)| !named.contains(object)) {
            remove(&RouteLabels::own(&key.0, &key.1));
            known.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus::Registry;
    use tidegate_config::model::{BindProtocol, Generation, HostPattern, Origin, SnapshotParts, StreamRoute};
    use tidegate_config::object::{Age, Kind, ObjectName};
    use tidegate_config::published::{Published, channel};

    use super::*;
    use crate::observe::datagram_metrics::{Direction, FlowEnd, FlowMetrics};
    use crate::observe::stream_metrics::{Outcome, StreamMetrics};

    fn object(kind: Kind, name: &str) -> ObjectRef {
        ObjectRef::new(kind, ObjectName::new("shop", name))
    }

    /// A snapshot with a route of one object.
    fn snapshot(object: ObjectRef) -> Published {
        let age = Age { created_s: 0, name: object.name.clone() };
        let origin = Arc::new(Origin { object, age, field: "spec.rules[0]".into(), position: 0 });
        let (connect_timeout, idle_timeout) = (Duration::ZERO, Duration::ZERO);
        let route = StreamRoute { origin, rule: None, backends: Box::default(), connect_timeout, idle_timeout };
        let mut parts = SnapshotParts::default();
        parts.streams.insert(&HostPattern::Any.into(), Arc::new(route));
        let (mut publisher, published) = channel();
        let ready = publisher.prepare(parts);
        publisher.publish(ready);
        published
    }

    fn series(registry: &Registry) -> Vec<usize> {
        registry.gather().iter().map(|family| family.get_metric().len()).collect()
    }

    #[test]
    fn the_series_of_connections_disappear_with_the_last_route_of_their_object() {
        let (registry, sweep_trigger) = (Registry::new(), Arc::new(SweepTrigger::default()));
        let metrics = StreamMetrics::register(&registry, Arc::clone(&sweep_trigger)).unwrap();
        let bind = BindKey { address: ([127, 0, 0, 1], 5432).into(), protocol: BindProtocol::Tcp };
        let [stays, goes] = ["stays", "goes"].map(|name| object(Kind::TcpRoute, name));
        metrics.finished(&bind, Some(&stays), Outcome::Closed, [1, 2]);
        metrics.finished(&bind, Some(&goes), Outcome::Reset, [3, 4]);
        metrics.finished(&bind, None, Outcome::NoRoute, [0, 0]);
        assert!(sweep_trigger.take_if_due(Generation(0)));
        assert_eq!(series(&registry), [6, 3]);
        metrics.sweep(&snapshot(stays).pin());
        assert_eq!(series(&registry), [4, 2]);
    }

    #[test]
    fn the_series_of_flows_disappear_with_the_last_route_of_their_object() {
        let (registry, sweep_trigger) = (Registry::new(), Arc::new(SweepTrigger::default()));
        let metrics = FlowMetrics::register(&registry, Arc::clone(&sweep_trigger)).unwrap();
        let bind = BindKey { address: ([127, 0, 0, 1], 53).into(), protocol: BindProtocol::Udp };
        let [stays, goes] = ["stays", "goes"].map(|name| object(Kind::UdpRoute, name));
        for object in [&stays, &goes] {
            metrics.flow(&bind, object).passed(Direction::Down, 7);
            metrics.ended(&bind, object, FlowEnd::Idle);
        }
        assert!(sweep_trigger.take_if_due(Generation(0)));
        assert_eq!(series(&registry), [4, 4, 2]);
        metrics.sweep(&snapshot(stays).pin());
        assert_eq!(series(&registry), [2, 2, 1]);
    }
}
