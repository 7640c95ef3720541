//! The search for the route of a request. The proxy and `explain` share it, so that an explanation is true of the
//! proxy.

use std::sync::Arc;

use super::bind::BindKey;
use super::condition::Head;
use super::expression::{Steps, Subject};
use super::host::HostPattern;
use super::host_routes::HostRoutes;
use super::listener::Listener;
use super::preflight::Search;
use super::route::Route;
use super::snapshot::Snapshot;

/// The listener, host and route of a request, as far as they exist.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found<'s> {
    /// The listener of the bind that takes the host.
    pub listener: Option<&'s Listener>,
    /// The virtual host in the listener's route table.
    pub host: Option<&'s Arc<HostRoutes>>,
    /// The route. It may be the last resort, which takes requests that other hosts leave.
    pub route: Option<&'s Arc<Route>>,
    /// The text that an expression could not be tried with, because it is too long, or because the expressions before
    /// had taken too many steps. The request must be refused: a route that guards it might have matched. There is no
    /// route then.
    pub untried: Option<Subject>,
}

impl Snapshot {
    /// Finds the route of a request by its bind, host in lower case, normalised path, and the other parts of its head
    /// that routes match on.
    ///
    /// The host is the most specific one of the listener's table. In the shared table a path that it does not take goes
    /// to its fallback or the last resort, never to a broader host. A host that belongs to a namespace has a last
    /// resort only where that is of the same namespace. In a table of a listener's own, a request that a host does not
    /// take goes to the next broader one: its hosts give the order in which the rules of all routes are tried (Gateway
    /// API, `HTTPRouteSpec.hostnames`).
    ///
    /// A preflight goes to the rule of the request that it asks about, if that rule answers preflights.
    #[must_use]
    pub fn find<'s, H: Head + ?Sized>(&'s self, bind: &BindKey, host: &str, path: &str, head: &H) -> Found<'s> {
        let Some(listener) = self.bind(bind).and_then(|bind| bind.listener(host)) else { return Found::default() };
        let steps = Steps::of_request();
        let (host, route) = self.taken_by(listener, host, path, Search::new(head, &steps));
        let untried = steps.untried();
        Found { listener: Some(listener), host, route: route.filter(|_| untried.is_none()), untried }
    }

    /// The virtual host and the route that take a request, if the steps suffice.
    fn taken_by<'s, H: Head + ?Sized>(
        &'s self,
        listener: &Listener,
        host: &str,
        path: &str,
        mut search: Search<'_, 's, &'s Arc<HostRoutes>, H>,
    ) -> (Option<&'s Arc<HostRoutes>>, Option<&'s Arc<Route>>) {
        let Some(table) = self.hosts().table(&listener.table) else { return (None, None) };
        let mut hosts = table.matching(host);
        if listener.table.is_shared() {
            let routes = hosts.next();
            let own = routes.and_then(|routes| routes.find_by(&mut search, path, routes));
            let by_names = || search.by_names().map(|(_, route)| route);
            let last_resort = || self.last_resort(routes).map(|(_, route)| route);
            return (routes, own.or_else(by_names).or_else(last_resort));
        }
        let own = hosts.find_map(|routes| Some((routes, routes.find_by(&mut search, path, routes)?)));
        let found = own.or_else(|| search.by_names());
        let host = found.map(|(host, _)| host).or_else(|| table.matching(host).next());
        (host, found.map(|(_, route)| route))
    }
}

impl Snapshot {
    /// The routes that [`Snapshot::find`] tries in turn for a listener, each with its virtual host: those that match
    /// the host and path of a request, whatever their other conditions. The first that takes it serves it; see
    /// [`Route::takes`].
    #[must_use]
    pub fn in_turn<'s>(
        &'s self,
        listener: &Listener,
        host: &str,
        path: &str,
    ) -> Vec<(&'s Arc<HostRoutes>, &'s Arc<Route>)> {
        let Some(table) = self.hosts().table(&listener.table) else { return Vec::new() };
        let steps = &Steps::of_request();
        let of_host = |routes: &'s Arc<HostRoutes>| {
            routes.in_turn(path, steps).map(move |route| (routes, route)).collect::<Vec<_>>()
        };
        if !listener.table.is_shared() {
            return table.matching(host).flat_map(of_host).collect();
        }
        let routes = table.matching(host).next();
        let last_resort = self.last_resort(routes);
        routes.into_iter().flat_map(of_host).chain(last_resort).collect()
    }

    /// The route for requests that a host of the shared table leaves, with the host that has it.
    fn last_resort<'s>(&'s self, left_by: Option<&Arc<HostRoutes>>) -> Option<(&'s Arc<HostRoutes>, &'s Arc<Route>)> {
        let any = self.hosts().shared().get(&HostPattern::Any)?;
        let route = any.last_resort.as_ref()?;
        let owner = left_by.and_then(|routes| routes.owner.as_ref());
        let allowed = owner.is_none_or(|owner| *owner == route.origin.object.name.namespace);
        allowed.then_some((any, route))
    }
}

#[cfg(test)]
mod tests {
    use super::super::bind::{Bind, BindProtocol};
    use super::super::listener::ListenerName;
    use super::super::path::PathMatch;
    use super::super::route::{Action, Origin};
    use super::super::route_table::{TableName, VirtualHost};
    use super::super::sample::SampleHead;
    use super::super::snapshot::{Generation, SnapshotParts};
    use super::*;
    use crate::object::{Age, Kind, ObjectName, ObjectRef};

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
    fn a_request_uses_only_the_table_of_its_listener() {
        let (snapshot, bind) = snapshot();
        let check_path = |host: &str, path: &str, want: (Option<&str>, Option<&str>)| {
            let found = snapshot.find(&bind, host, path, &SampleHead::new("GET"));
            let in_turn = found.listener.map(|listener| snapshot.in_turn(listener, host, path)).unwrap_or_default();
            let first = in_turn
                .into_iter()
                .map(|(_, route)| route)
                .find(|route| route.takes(&SampleHead::new("GET"), &Steps::of_request()));
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
        assert!(snapshot.find(&elsewhere, "b.test", "/", &SampleHead::new("GET")).listener.is_none());
    }
}
