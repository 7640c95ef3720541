//! What the routing model says of a request: which route takes it, and whether it may go on. The proxy and `explain` both ask here, so
//! that what is explained is what happens.

use std::net::IpAddr;
use std::sync::Arc;

use super::condition::Head;
use super::external_auth::ExternalAuth;
use super::filter::{DirectResponse, Redirect};
use super::guard::Guard;
use super::host::HostPattern;
use super::host_routes::HostRoutes;
use super::listener::{BindKey, Listener, ListenerName};
use super::route::{Action, Route};
use super::settings::Effective;
use super::snapshot::Snapshot;

/// Where a request comes to: each step as far as there is one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found<'s> {
    /// The listener of the bind that takes the host.
    pub listener: Option<&'s Listener>,
    /// The virtual host in the listener's route table.
    pub host: Option<&'s Arc<HostRoutes>>,
    /// The route, which may be one for other hosts' leavings.
    pub route: Option<&'s Arc<Route>>,
}

impl Snapshot {
    /// Finds the route of a request by its bind, host in lower case, normalised path, and what else routes ask of its head.
    ///
    /// The host is the most specific one of the listener's table that has anything for the listener. In the shared table a path that it
    /// does not take goes to its fallback or the last resort, never to a broader host. A host that belongs to a namespace has a last
    /// resort only where that is of the same namespace. In a table of a listener's own, what a host does not take goes to the next
    /// broader one: its hosts say in which order the rules of all routes are tried (Gateway API, `HTTPRouteSpec.hostnames`).
    #[must_use]
    pub fn find<'s, H: Head + ?Sized>(&'s self, bind: &BindKey, host: &str, path: &str, head: &H) -> Found<'s> {
        let Some(listener) = self.bind(bind).and_then(|bind| bind.listener(host)) else { return Found::default() };
        let Some(table) = self.hosts().table(&listener.table) else {
            return Found { listener: Some(listener), ..Found::default() };
        };
        if !listener.table.is_shared() {
            let taken = |routes: &'s Arc<HostRoutes>| Some((routes, routes.find(&listener.name, path, head)?));
            let found = table.matching(host).find_map(taken);
            let host = found.map(|(host, _)| host).or_else(|| table.matching(host).next());
            return Found { listener: Some(listener), host, route: found.map(|(_, route)| route) };
        }
        let routes = table.matching(host).find(|routes| routes.serves(&listener.name));
        let own = routes.and_then(|routes| routes.find(&listener.name, path, head));
        let last_resort = || self.last_resort(routes, listener).map(|(_, route)| route);
        Found { listener: Some(listener), host: routes, route: own.or_else(last_resort) }
    }
}

impl Snapshot {
    /// The routes that [`Snapshot::find`] asks in turn for a listener, each with its virtual host: those whose host and path a request
    /// has, whatever else they ask of its head. The first whose conditions hold takes it.
    #[must_use]
    pub fn in_turn<'s>(
        &'s self,
        listener: &Listener,
        host: &str,
        path: &str,
    ) -> Vec<(&'s Arc<HostRoutes>, &'s Arc<Route>)> {
        let Some(table) = self.hosts().table(&listener.table) else { return Vec::new() };
        let of_host = |routes: &'s Arc<HostRoutes>| {
            routes.in_turn(&listener.name, path).map(move |route| (routes, route)).collect::<Vec<_>>()
        };
        if !listener.table.is_shared() {
            return table.matching(host).flat_map(of_host).collect();
        }
        let routes = table.matching(host).find(|routes| routes.serves(&listener.name));
        let last_resort = self.last_resort(routes, listener);
        routes.into_iter().flat_map(of_host).chain(last_resort).collect()
    }

    /// The route for what a host of the shared table leaves, with the host that has it.
    fn last_resort<'s>(
        &'s self,
        left_by: Option<&Arc<HostRoutes>>,
        listener: &Listener,
    ) -> Option<(&'s Arc<HostRoutes>, &'s Arc<Route>)> {
        let any = self.hosts().shared().get(&HostPattern::Any)?;
        let route = any.last_resort.as_ref()?;
        let owner = left_by.and_then(|routes| routes.owner.as_ref());
        let allowed = owner.is_none_or(|owner| *owner == route.origin.object.name.namespace);
        (allowed && route.listeners.holds(&listener.name)).then_some((any, route))
    }
}

/// What a decision depends on besides the route.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The client's address; `None` for one from wherever the route allows.
    pub address: Option<IpAddr>,
    /// Whether it came over TLS, here or to a trusted proxy.
    pub secure: bool,
    /// The listener that it came to.
    pub listener: &'a ListenerName,
    /// Bytes of its body, where it announces them.
    pub body_bytes: Option<u64>,
}

/// Whether a request may go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision<'r> {
    /// To an endpoint.
    Forward,
    /// Not at all.
    Refused(Refusal),
    /// As this service says, which the guard of this place asks. If it says yes, the decision goes on behind that guard.
    Asks(usize, &'r Arc<ExternalAuth>),
    /// To the same URL over TLS, by a redirect with this status.
    ToTls(u16),
    /// Elsewhere, as the route says.
    Redirected(&'r Redirect),
    /// The route answers by itself.
    Answered(&'r Arc<DirectResponse>),
}

/// Why a request may not go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Its body is larger than the route takes.
    BodyTooLarge,
    /// The client is not allowed.
    Denied,
    /// The route is not for the listener.
    NotHere,
    /// There is no endpoint, and the route says so before anything else.
    NoEndpoints,
}

/// Decides by the route's guards in their order from a place on, and then by its own redirect or response. `has_endpoint` says whether
/// an endpoint is there for a share of the route.
pub fn decide<'r>(
    route: &'r Route,
    from: usize,
    effective: &Effective,
    asker: &Asker<'_>,
    has_endpoint: impl Fn(&Route) -> bool,
) -> Decision<'r> {
    // First, as nginx does it: whoever sends more than is ever taken need not be sent elsewhere to hear of it.
    if effective.body_bytes_max.zip(asker.body_bytes).is_some_and(|(max, bytes)| bytes > max) {
        return Decision::Refused(Refusal::BodyTooLarge);
    }
    for (place, guard) in route.guards.iter().enumerate().skip(from) {
        match guard {
            Guard::ExternalAuth(service) => return Decision::Asks(place, service),
            Guard::AllowSources(nets)
                if asker.address.is_none_or(|address| nets.iter().any(|net| net.contains(&address))) => {}
            Guard::AllowSources(_) | Guard::DenyAll => return Decision::Refused(Refusal::Denied),
            Guard::Listeners(names) if names.contains(asker.listener) => {}
            Guard::Listeners(_) => return Decision::Refused(Refusal::NotHere),
            Guard::RequireEndpoints if has_endpoint(route) => {}
            Guard::RequireEndpoints => return Decision::Refused(Refusal::NoEndpoints),
            Guard::RequireTls { .. } if asker.secure => {}
            Guard::RequireTls { status } => return Decision::ToTls(*status),
        }
    }
    match &route.action {
        Action::Redirect(redirect) => Decision::Redirected(redirect),
        Action::Respond(response) => Decision::Answered(response),
        Action::Forward(_) => Decision::Forward,
    }
}

#[cfg(test)]
mod tests {
    use super::super::listener::{Bind, BindProtocol};
    use super::super::path::PathMatch;
    use super::super::route::Origin;
    use super::super::route_table::{TableName, VirtualHost};
    use super::super::snapshot::{Generation, SnapshotParts};
    use super::*;
    use crate::object::{Age, Kind, ObjectName, ObjectRef};

    struct Plain;

    impl Head for Plain {
        fn method(&self) -> &'static str {
            "GET"
        }

        fn path(&self) -> &'static str {
            "/"
        }

        fn query(&self) -> Option<&str> {
            None
        }

        fn authority(&self) -> Option<&str> {
            None
        }

        fn header(&self, _: &str) -> Option<&[u8]> {
            None
        }

        fn each_value(&self, _: &str, _: &mut dyn FnMut(&[u8])) {}
    }

    fn route(name: &str) -> Arc<Route> {
        let object = ObjectRef::new(Kind::Ingress, ObjectName::new("shop", name));
        let age = Age { created_s: 0, name: object.name.clone() };
        let origin = Origin { object, field: "spec".into(), age, position: 0 };
        Arc::new(Route::new(origin, PathMatch::Prefix("/".into()), Action::Forward(Box::default())))
    }

    /// A bind on which `*.a.test` is a listener with a table of its own, and everything else is the shared table's.
    fn snapshot() -> (Snapshot, BindKey) {
        let key = BindKey { address: ([127, 0, 0, 1], 80).into(), protocol: BindProtocol::Http };
        let pattern = |text: &str| HostPattern::parse(text).unwrap();
        let own = Listener {
            name: ListenerName("own".into()),
            host: pattern("*.a.test"),
            table: TableName::Named("own".into()),
            tls: None,
            port: None,
            origin: None,
        };
        let listeners = [own, Listener::for_every_host("http")].into();
        let mut parts = SnapshotParts { binds: [Bind { key, listeners }].into(), ..SnapshotParts::default() };
        let mut put = |table: &TableName, host: &str, name: &str| {
            let host = VirtualHost::new(table.clone(), pattern(host));
            let path =
                if name.starts_with("all") { PathMatch::Prefix("/all".into()) } else { PathMatch::Exact("/".into()) };
            let route = Arc::new(Route { path, ..Route::clone(&route(name)) });
            parts.hosts.insert(&host, Arc::new(HostRoutes::new(host.clone(), vec![route], None)));
        };
        put(&TableName::Named("own".into()), "x.a.test", "x-of-own");
        put(&TableName::Named("own".into()), "*.a.test", "all-of-own");
        put(&TableName::Shared, "x.a.test", "x-of-shared");
        put(&TableName::Shared, "y.a.test", "y-of-shared");
        put(&TableName::Shared, "b.test", "b-of-shared");
        let mut any = HostRoutes::new(HostPattern::Any, Vec::new(), None);
        any.last_resort = Some(route("last-resort"));
        parts.hosts.insert(&HostPattern::Any.into(), Arc::new(any));
        (Snapshot::freeze(Generation(1), parts), key)
    }

    #[test]
    fn a_request_sees_the_table_of_its_listener_and_no_other() {
        let (snapshot, bind) = snapshot();
        let check_path = |host: &str, path: &str, want: (Option<&str>, Option<&str>)| {
            let found = snapshot.find(&bind, host, path, &Plain);
            let in_turn = found.listener.map(|listener| snapshot.in_turn(listener, host, path)).unwrap_or_default();
            let first = in_turn.into_iter().map(|(_, route)| route).find(|route| route.conditions.hold(&Plain));
            assert_eq!(first.map(Arc::as_ptr), found.route.map(Arc::as_ptr), "{host}{path}");
            let listener = found.listener.map(|listener| &*listener.name.0);
            let route = found.route.map(|route| &*route.origin.object.name.name);
            assert_eq!((listener, route), want, "{host}{path}");
        };
        let check = |host, want| check_path(host, "/", want);
        check("x.a.test", (Some("own"), Some("x-of-own")));
        check_path("x.a.test", "/all/of/it", (Some("own"), Some("all-of-own")));
        check_path("x.a.test", "/none", (Some("own"), None));
        check("y.a.test", (Some("own"), None));
        check_path("y.a.test", "/all", (Some("own"), Some("all-of-own")));
        check("b.test", (Some("http"), Some("b-of-shared")));
        check("c.test", (Some("http"), Some("last-resort")));
        let elsewhere = BindKey { address: ([127, 0, 0, 1], 81).into(), ..bind };
        assert!(snapshot.find(&elsewhere, "b.test", "/", &Plain).listener.is_none());
    }
}
