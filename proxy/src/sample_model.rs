//! Small routing models for the tests of the steps.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_config::model::{
    Action, AppProtocol, Backend, BackendKey, Bind, BindKey, BindProtocol, Endpoint, HostPattern, HostRoutes, Listener,
    Origin, PathMatch, Route, Snapshot, SnapshotParts, Target, VirtualHost, WeightedTarget,
};
use tidegate_config::object::{Age, Kind, ObjectName, ObjectRef};
use tidegate_config::published::{Published, channel};

/// The one bind of the samples.
pub(crate) fn bind_key() -> BindKey {
    BindKey { address: ([127, 0, 0, 1], 80).into(), protocol: BindProtocol::Http }
}

/// A prefix by elements.
pub(crate) fn path(text: &str) -> PathMatch {
    PathMatch::prefix(text).unwrap()
}

/// A route of `Ingress shop/NAME` without a backend.
pub(crate) fn route(name: &str, path: PathMatch) -> Route {
    let name = ObjectName::new("shop", name);
    let origin = Origin {
        object: ObjectRef::new(Kind::Ingress, name.clone()),
        age: Age { created_s: 0, name },
        field: "spec.rules[0].http.paths[0]".into(),
        position: 0,
    };
    Route::new(origin, path, Action::Forward(Box::default()))
}

/// The Service port of a name.
pub(crate) fn backend_key(name: &str) -> BackendKey {
    BackendKey::tcp(ObjectName::new("shop", name), 80)
}

/// A target with a protocol, to the backend of a name.
pub(crate) fn weighted(name: &str, protocol: AppProtocol, weight: u32) -> WeightedTarget {
    let target = Target { backend: backend_key(name), protocol, tls: None, fixed: None };
    WeightedTarget::new(Arc::new(target), weight)
}

/// A route of `Ingress shop/NAME` to the backend of the same name.
pub(crate) fn to_backend(name: &str, path: PathMatch, protocol: AppProtocol) -> Route {
    Route { action: Action::Forward([weighted(name, protocol, 1)].into()), ..route(name, path) }
}

/// The parts of a model with one bind, these hosts, and a fallback.
pub(crate) fn parts(hosts: Vec<(&str, Vec<Route>)>, fallback: Option<Route>) -> SnapshotParts {
    let listener = Listener::for_every_host("http");
    let mut parts =
        SnapshotParts { binds: [Bind { key: bind_key(), listeners: [listener].into() }].into(), ..Default::default() };
    for (host, routes) in hosts {
        let host = HostPattern::parse(host).unwrap();
        let routes = routes.into_iter().map(Arc::new).collect();
        let host = VirtualHost::from(host);
        parts.hosts.insert(&host, Arc::new(HostRoutes::new(host.clone(), routes, None)));
    }
    if let Some(fallback) = fallback {
        let fallback = Arc::new(fallback);
        let mut routes = HostRoutes::new(HostPattern::Any, Vec::new(), Some(Arc::clone(&fallback)));
        routes.last_resort = Some(fallback);
        parts.hosts.insert(&HostPattern::Any.into(), Arc::new(routes));
    }
    parts
}

/// Sets the endpoints of a backend.
pub(crate) fn endpoints(parts: &mut SnapshotParts, name: &str, addresses: &[SocketAddr]) {
    let key = backend_key(name);
    let endpoints = addresses.iter().map(|address| Endpoint::tcp(*address, None)).collect();
    parts.backends.insert_mut(key.clone(), Arc::new(Backend::new(key, endpoints)));
}

/// A published model.
pub(crate) fn published(parts: SnapshotParts) -> Published {
    let (mut publisher, published) = channel();
    let ready = publisher.prepare(parts);
    publisher.publish(ready);
    published
}

/// The frozen model of these parts.
pub(crate) fn snapshot(hosts: Vec<(&str, Vec<Route>)>, fallback: Option<Route>) -> Arc<Snapshot> {
    published(parts(hosts, fallback)).pin()
}
