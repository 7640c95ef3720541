//! Why a URL goes where it goes: which route serves it, from which object, who lost and why, and which endpoints.

mod connections;
mod text;

use std::net::IpAddr;
use std::sync::Arc;

use connections::Connections;
use http::Uri;
use serde::Serialize;
use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{
    Asker, Bind, BindProtocol, Compression, Decision, Destination, Effective, Endpoint, ExternalAuth, Filter, Found,
    Guard, Head, HostRoutes, ListenerName, Refusal, RetryPolicy, Route, Snapshot, Target, WeightedTarget, decide,
    normalize, request_host,
};

use crate::not_serving::{ByCommand, NotServing, Wait};

/// What would become of a plain GET of a URL, and why.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// The URL as asked.
    pub url: String,
    /// The generation that was asked.
    pub generation: u64,
    /// The listener that takes it.
    pub listener: String,
    /// The host pattern that takes it; `None` when no rule has the host.
    pub host: Option<String>,
    /// The path as rules see it.
    pub path: String,
    /// The route that serves it; `None` is a 404.
    pub route: Option<Served>,
    /// Other routes of the host whose path matches, in the order in which they would be tried.
    pub next: Vec<Candidate>,
    /// Who lost, and why.
    pub lost: Vec<Finding>,
    /// What else the owner of the route's object is told.
    pub findings: Vec<Finding>,
    /// Other routes than the cluster's, which an operator holds.
    pub held: Option<ByCommand>,
    /// What the next routes of the host wait for.
    pub waits: Option<Wait>,
    /// What becomes of a connection, where it is passed on as bytes. No request is read then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<Connections>,
    /// The status that the edge itself would answer to a client whose address the route's guards allow, and of which the services that
    /// are asked say yes, where it would not forward. Other clients are answered 403, or what the service says.
    pub answer: Option<u16>,
}

/// One route whose path matches.
#[derive(Debug, Serialize)]
pub struct Candidate {
    /// Its object.
    pub object: String,
    /// The field of its rule.
    pub field: String,
    /// What it matches.
    pub path: String,
}

/// The route that serves, with everything that applies to it.
#[derive(Debug, Serialize)]
pub struct Served {
    /// Object, field and path.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// What restricts access, in order.
    pub guards: Arc<[Guard]>,
    /// The settings that apply.
    pub settings: Effective,
    /// How its responses are compressed, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<Arc<Compression>>,
    /// What is changed on the way, in order.
    #[serde(skip_serializing_if = "<[Filter]>::is_empty")]
    pub filters: Arc<[Filter]>,
    /// When a request is tried again although an endpoint has answered, if ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Arc<RetryPolicy>>,
    /// Where it leads.
    pub targets: Vec<TargetView>,
}

/// One target and its endpoints.
#[derive(Debug, Serialize)]
pub struct TargetView {
    /// The Service port; or the status, where the edge answers this share by itself.
    pub backend: String,
    /// Its share.
    pub weight: u32,
    /// What is spoken; `None` where the edge answers.
    pub protocol: Option<tidegate_config::model::AppProtocol>,
    /// Its usable endpoints.
    pub endpoints: Vec<Endpoint>,
    /// The service that is asked about its requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_auth: Option<Arc<ExternalAuth>>,
}

struct ProbeHead<'a> {
    uri: &'a Uri,
}

impl Head for ProbeHead<'_> {
    fn method(&self) -> &str {
        "GET"
    }

    fn path(&self) -> &str {
        self.uri.path()
    }

    fn query(&self) -> Option<&str> {
        self.uri.query()
    }

    fn authority(&self) -> Option<&str> {
        self.uri.authority().map(http::uri::Authority::as_str)
    }

    fn header(&self, _name: &str) -> Option<&[u8]> {
        None
    }

    fn each_value(&self, _name: &str, _see: &mut dyn FnMut(&[u8])) {}
}

/// Explains a URL such as `https://shop.example/cart`; without a scheme, `http` is meant. `tcp://192.0.2.1:5432` and
/// `tls://db.example:5432` are connections that are passed on as bytes.
///
/// # Errors
/// When the text is no URL with a host, its path is malformed, or nothing listens for its scheme.
pub fn explain(
    snapshot: &Snapshot,
    findings: &[Finding],
    not_serving: &NotServing,
    url: &str,
) -> Result<Explanation, String> {
    let absolute = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let uri: Uri = absolute.parse().map_err(|error| format!("{url:?} is no URL: {error}"))?;
    let host = uri.authority().and_then(|authority| request_host(authority.as_str()).map(|h| h.into_owned()));
    let host = host.ok_or_else(|| format!("{url:?} has no host that a request could have"))?;
    let normal =
        normalize(uri.path()).ok_or_else(|| format!("{:?} is not a path that a request could have", uri.path()))?;
    let (protocol, of_bytes) = match uri.scheme_str() {
        Some("https") => (BindProtocol::Https, false),
        Some("tls") => (BindProtocol::Https, true),
        Some("tcp") => (BindProtocol::Tcp, true),
        Some(_) | None => (BindProtocol::Http, false),
    };
    let binds = candidates(snapshot, protocol, uri.port_u16());
    let bytes = carried(snapshot, &binds, &host);
    if of_bytes {
        let carried = bytes.ok_or_else(|| "nothing listens for it".to_owned())?;
        return Ok(of_connections(snapshot, (findings, not_serving), url, &carried));
    }
    let find = |bind: &&Bind| snapshot.find(&bind.key, &host, &normal.path, &ProbeHead { uri: &uri });
    // Several may have the port on addresses of their own: the one that would not answer 404 is meant.
    let found = binds.iter().map(find).max_by_key(|found| (found.route.is_some(), found.listener.is_some()));
    let Found { listener, host: routes, route } = found.unwrap_or_default();
    if let Some(carried) = bytes.filter(|_| route.is_none()) {
        return Ok(of_connections(snapshot, (findings, not_serving), url, &carried));
    }
    let listener = listener.ok_or_else(|| "nothing listens for it".to_owned())?;
    let (lost, told) = concerned(findings, routes, route);
    Ok(Explanation {
        url: url.to_owned(),
        generation: snapshot.generation().0,
        listener: listener.name.to_string(),
        host: routes.map(|routes| routes.host.to_string()),
        path: normal.path.to_string(),
        route: route.map(|route| served(snapshot, route)),
        next: routes.map(|routes| others(routes, &listener.name, &normal.path, route)).unwrap_or_default(),
        lost,
        findings: told,
        held: not_serving.held.clone(),
        waits: routes.and_then(|routes| not_serving.waits.iter().find(|wait| wait.host == routes.host).cloned()),
        connections: None,
        answer: answer(snapshot, route, (protocol, &listener.name)),
    })
}

/// What takes a connection as bytes. Several sockets may have the port on addresses of their own: the one at the address that is
/// named is meant, else one with a route.
fn carried<'s>(snapshot: &'s Snapshot, binds: &[&'s Bind], host: &str) -> Option<connections::Found<'s>> {
    let named: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    let found = binds.iter().filter_map(|bind| Some((bind, connections::Found::on(snapshot, bind, host)?)));
    let rank = |bind: &Bind, route: bool| (Some(bind.key.address.ip()) == named, route);
    found.max_by_key(|(bind, found)| rank(bind, found.route.is_some())).map(|(_, found)| found)
}

/// What is said of connections that are passed on as bytes.
fn of_connections(
    snapshot: &Snapshot,
    (findings, not_serving): (&[Finding], &NotServing),
    url: &str,
    found: &connections::Found<'_>,
) -> Explanation {
    let (lost, told) = found.concerned(findings);
    Explanation {
        url: url.to_owned(),
        generation: snapshot.generation().0,
        listener: found.listener.name.to_string(),
        host: None,
        path: String::new(),
        route: None,
        next: Vec::new(),
        lost,
        findings: told,
        held: not_serving.held.clone(),
        waits: None,
        connections: Some(found.view(snapshot)),
        answer: None,
    }
}

impl Explanation {
    /// Whether a route serves what was asked for.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.route.is_some() || self.connections.as_ref().is_some_and(|connections| connections.route.is_some())
    }
}

/// The sockets that a URL may mean: those of its scheme that have its port, where it names one that any has; else those that every
/// object shares, for behind a load balancer ports are others than in URLs; else all of the scheme.
fn candidates(snapshot: &Snapshot, protocol: BindProtocol, port: Option<u16>) -> Vec<&Bind> {
    let of_scheme: Vec<&Bind> = snapshot.binds().iter().filter(|bind| bind.key.protocol == protocol).collect();
    let with_port: Vec<&Bind> =
        of_scheme.iter().filter(|bind| Some(bind.key.address.port()) == port).copied().collect();
    if !with_port.is_empty() {
        return with_port;
    }
    let of_gateways = |bind: &&&Bind| bind.listeners.iter().all(|listener| !listener.table.is_shared());
    let (mut all, own): (Vec<&Bind>, Vec<&Bind>) = of_scheme.into_iter().partition(|bind| !of_gateways(&bind));
    // The last of equals is taken.
    all.reverse();
    own.into_iter().rev().chain(all).collect()
}

fn candidate(route: &Route) -> Candidate {
    Candidate {
        object: route.origin.object.to_string(),
        field: route.origin.field.to_string(),
        path: route.path.to_string(),
    }
}

fn others(routes: &HostRoutes, listener: &ListenerName, path: &str, served: Option<&Arc<Route>>) -> Vec<Candidate> {
    let all = routes.candidates(path).chain(routes.fallback()).filter(|route| route.listeners.holds(listener));
    all.filter(|route| served.is_none_or(|served| !Arc::ptr_eq(served, route))).map(|route| candidate(route)).collect()
}

fn served(snapshot: &Snapshot, route: &Arc<Route>) -> Served {
    let view = |share: &WeightedTarget| match &share.to {
        Destination::Target(target) => TargetView {
            backend: target.backend.to_string(),
            weight: share.weight,
            protocol: Some(target.protocol),
            endpoints: snapshot.backend_of(target).map_or(Vec::new(), |b| b.endpoints.to_vec()),
            external_auth: share.external_auth.clone(),
        },
        Destination::Status(status) => TargetView {
            backend: format!("status {status}"),
            weight: share.weight,
            protocol: None,
            endpoints: Vec::new(),
            external_auth: None,
        },
    };
    let targets = route.action.shares().iter().map(view).collect();
    Served {
        candidate: candidate(route),
        guards: Arc::clone(&route.guards),
        filters: Arc::clone(&route.filters),
        settings: snapshot.effective(route),
        compression: snapshot.compression(route).cloned(),
        retry: snapshot.retry(route).cloned(),
        targets,
    }
}

/// The status of the answer that a client from an allowed address would get from the edge itself.
fn answer(
    snapshot: &Snapshot,
    route: Option<&Arc<Route>>,
    (protocol, listener): (BindProtocol, &ListenerName),
) -> Option<u16> {
    let Some(route) = route else { return Some(404) };
    let usable = route.action.shares().iter().any(|share| {
        let answered = |target: &Arc<Target>| snapshot.backend_of(target).is_some_and(|it| !it.endpoints.is_empty());
        share.weight > 0 && share.target().is_none_or(answered)
    });
    // A client from an allowed address, and a request without a body.
    let asker = Asker { address: None, secure: protocol == BindProtocol::Https, listener, body_bytes: None };
    let effective = snapshot.effective(route);
    let mut from = 0;
    loop {
        return match decide(route, from, &effective, &asker, |_| usable) {
            Decision::Asks(place, _) => {
                // What follows when the service says yes, as with the clients that are allowed.
                from = place + 1;
                continue;
            }
            Decision::Forward => (!usable).then_some(503),
            Decision::Refused(Refusal::Denied) => Some(403),
            Decision::Refused(Refusal::NotHere) => Some(404),
            Decision::Refused(Refusal::NoEndpoints) => Some(503),
            Decision::Refused(Refusal::BodyTooLarge) => Some(413),
            Decision::ToTls(status) => Some(status),
            Decision::Redirected(redirect) => Some(redirect.status),
            Decision::Answered(response) => Some(response.status),
        };
    }
}

/// The findings that say who lost this host or path, and those about the object that serves.
fn concerned(
    findings: &[Finding],
    routes: Option<&Arc<HostRoutes>>,
    route: Option<&Arc<Route>>,
) -> (Vec<Finding>, Vec<Finding>) {
    let host = routes.map(|routes| routes.host.to_string()).unwrap_or_default();
    let path = route.map(|route| route.path.to_string()).unwrap_or_default();
    let lost = |finding: &&Finding| {
        matches!(&finding.problem, Problem::RuleLost { host: h, path: p, .. } if *h == host && *p == path)
            || matches!(&finding.problem, Problem::HostOwned { host: h, .. } | Problem::DefaultLost { host: h, .. } if *h == host)
    };
    let lost: Vec<Finding> = findings.iter().filter(lost).cloned().collect();
    let object = route.map(|route| &route.origin.object);
    let told = findings.iter().filter(|finding| Some(&finding.object) == object && !lost.contains(finding));
    let told = told.cloned().collect();
    (lost, told)
}
