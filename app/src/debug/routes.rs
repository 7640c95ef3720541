//! The routes of a snapshot for people and scripts. Conditions are shown by name only: the values that a header must
//! have may be secrets.

use serde::Serialize;
use tidegate_config::model::{
    Action, BackendKey, Bind, Certificate, Compression, Conditions, Destination, DirectResponse, Effective, Endpoint,
    Filter, Guard, HostRoutes, Redirect, Route, Snapshot, TableName, WeightedTarget,
};

/// A snapshot, or a part of it.
#[derive(Serialize)]
pub(crate) struct Table<'a> {
    generation: u64,
    binds: &'a [Bind],
    /// The number of hosts in the snapshot; it may be more than are shown.
    hosts_total: usize,
    pub(crate) hosts: Vec<HostView<'a>>,
    certificates: Vec<CertificateView<'a>>,
    default_certificate: Option<&'a Certificate>,
}

/// The routes of a host in the order in which they are tried.
#[derive(Serialize)]
pub(crate) struct HostView<'a> {
    pub(crate) host: String,
    /// The route table, unless it is the shared one.
    #[serde(skip_serializing_if = "TableName::is_shared")]
    pub(crate) table: &'a TableName,
    pub(crate) routes: Vec<RouteView<'a>>,
    pub(crate) fallback: Option<RouteView<'a>>,
    /// The route of the rules without a host, for requests of other hosts that match none of their own routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_resort: Option<RouteView<'a>>,
    /// The namespace that owns the host, if hosts belong to namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
}

/// One route with everything that applies to it.
#[derive(Serialize)]
pub(crate) struct RouteView<'a> {
    pub(crate) path_kind: &'static str,
    pub(crate) path: &'a str,
    methods: Vec<&'a str>,
    headers: Vec<&'a str>,
    queries: Vec<&'a str>,
    pub(crate) object: String,
    field: &'a str,
    guards: &'a [Guard],
    filters: &'a [Filter],
    settings: Effective,
    #[serde(skip_serializing_if = "Option::is_none")]
    compression: Option<&'a Compression>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redirect: Option<&'a Redirect>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<&'a DirectResponse>,
    pub(crate) targets: Vec<TargetView<'a>>,
}

/// The destination of a route.
#[derive(Serialize)]
pub(crate) struct TargetView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backend: Option<&'a BackendKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    weight: u32,
    #[serde(skip_serializing_if = "<[Filter]>::is_empty")]
    filters: &'a [Filter],
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<tidegate_config::model::AppProtocol>,
    pub(crate) endpoints: &'a [Endpoint],
}

/// The certificates of a server name whose requests go to a host.
#[derive(Serialize)]
struct CertificateView<'a> {
    host: String,
    name: String,
    certificates: Vec<&'a Certificate>,
}

/// Lists the hosts in ascending order up to a limit, or only the host that is given.
pub(crate) fn table<'a>(snapshot: &'a Snapshot, host: Option<&str>, limit: usize) -> Table<'a> {
    let mut hosts: Vec<(String, &HostRoutes)> =
        snapshot.hosts().iter().map(|(host, routes)| (host.pattern.to_string(), &**routes)).collect();
    let hosts_total = hosts.len();
    hosts.retain(|(name, _)| host.is_none_or(|host| host == name));
    hosts.sort_unstable_by(|(a, of_a), (b, of_b)| (a, &of_a.host.table).cmp(&(b, &of_b.host.table)));
    hosts.truncate(limit);
    let certificates = hosts.iter().flat_map(|(host, routes)| routes.certificates.iter().map(move |it| (host, it)));
    let certificates = certificates.take(limit).map(|(host, (name, all))| CertificateView {
        host: host.clone(),
        name: name.to_string(),
        certificates: all.iter().map(|certificate| &**certificate).collect(),
    });
    let certificates = certificates.collect();
    Table {
        generation: snapshot.generation().0,
        binds: snapshot.binds(),
        hosts_total,
        hosts: hosts.into_iter().map(|(host, routes)| host_view(snapshot, host, routes)).collect(),
        certificates,
        default_certificate: snapshot.default_certificate().map(|certificate| &**certificate),
    }
}

fn host_view<'a>(snapshot: &'a Snapshot, host: String, routes: &'a HostRoutes) -> HostView<'a> {
    HostView {
        host,
        table: &routes.host.table,
        routes: routes.routes().into_iter().map(|route| route_view(snapshot, route)).collect(),
        fallback: routes.fallback().map(|route| route_view(snapshot, route)),
        last_resort: routes.last_resort.as_ref().map(|route| route_view(snapshot, route)),
        owner: routes.owner.as_deref(),
    }
}

fn route_view<'a>(snapshot: &'a Snapshot, route: &'a Route) -> RouteView<'a> {
    let Conditions { methods, headers, queries } = &route.conditions;
    let (redirect, response) = match &route.action {
        Action::Redirect(redirect) => (Some(&**redirect), None),
        Action::Respond(response) => (None, Some(&**response)),
        Action::Forward(_) => (None, None),
    };
    RouteView {
        path_kind: route.path.kind(),
        path: route.path.text(),
        methods: methods.iter().map(|method| &**method).collect(),
        headers: headers.iter().map(|header| &*header.name).collect(),
        queries: queries.iter().map(|query| &*query.name).collect(),
        object: route.origin.object.to_string(),
        field: &route.origin.field,
        guards: &route.guards,
        filters: &route.filters,
        settings: snapshot.effective(route),
        compression: snapshot.compression(route).map(|compression| &**compression),
        redirect,
        response,
        targets: route.action.shares().iter().map(|share| target_view(snapshot, share)).collect(),
    }
}

fn target_view<'a>(snapshot: &'a Snapshot, weighted: &'a WeightedTarget) -> TargetView<'a> {
    let (target, status) = match &weighted.to {
        Destination::Target(target) => (Some(target), None),
        Destination::Status(status) => (None, Some(*status)),
    };
    let backend = target.and_then(|target| snapshot.backend_of(target));
    TargetView {
        backend: target.map(|target| &target.backend),
        status,
        weight: weighted.weight,
        filters: &weighted.filters,
        protocol: target.map(|target| target.protocol),
        endpoints: backend.map_or(&[], |backend| &*backend.endpoints),
    }
}
