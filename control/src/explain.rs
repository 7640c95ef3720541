//! Explains the routing of a URL: the Gateway and listener, the serving route and its object, the routes that lost and
//! why, and the endpoints.

mod request;
mod candidate;
mod certificate;
mod connections;
mod in_favour;
mod refused;
mod ignored;
mod limits;
mod rules;
mod text;

use std::net::IpAddr;
use std::sync::Arc;

pub use candidate::Candidate;
use candidate::{Rank, rank};
pub use certificate::Presented;
use connections::Connections;
pub use ignored::Ignored;
pub(crate) use ignored::ignored;
use in_favour::InFavour;
pub use limits::PathView;
pub use refused::Refused;
pub(crate) use refused::{refusals, refused};
pub use request::ExplainRequest;
pub use rules::RuleView;
use serde::Serialize;
use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{
    Attributes, Bind, BindProtocol, Compression, ConnectionAttributes, Decision, Destination, Effective, Endpoint,
    ExternalAuth, Filter, Found, Guard, Head as _, HostRoutes, Listener, ListenerOrigin, PolicyProgress, RetryPolicy,
    Route, SessionPersistence, Snapshot, Subject, Target, TlsListener, WeightedTarget, run_policies,
};

use crate::attachment::ListenerRef;
use crate::clock::wall;
use crate::not_serving::{ByCommand, NotServing, Wait};

/// The routing of a request for a URL, with the reasons.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// The URL of the question.
    pub url: String,
    /// The method.
    pub method: String,
    /// The generation of the snapshot.
    pub generation: u64,
    /// The listener that takes it.
    pub listener: String,
    /// The Gateway of the listener, and the ListenerSet that defines it; `None` for one of the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Arc<ListenerOrigin>>,
    /// The listener that the server name of the handshake selects, if requests for the host need a connection to
    /// another one: the answer is 421 then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misdirected: Option<String>,
    /// The certificate of the TLS handshake; `None` without TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Presented>,
    /// The matching host pattern; `None` if no rule has the host.
    pub host: Option<String>,
    /// The normalised path.
    pub path: String,
    /// The serving route; `None` for a 404.
    pub route: Option<Served>,
    /// Routes whose host and path match, that precede the serving one and do not match the request, in order; limited
    /// in number.
    pub passed_over: Vec<Candidate>,
    /// Routes whose host and path match, that follow the serving one, in order; limited in number.
    pub next: Vec<Candidate>,
    /// Routes of the host with other paths, if none serves the request; limited in number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Candidate>,
    /// The number of further routes of these lists.
    #[serde(skip_serializing_if = "is_none")]
    pub omitted: usize,
    /// Routes for the host that refer to the Gateway or one of its ListenerSets, and are not accepted; added by callers
    /// that ask the control loop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// Objects that name the host and belong to another controller or to none, if no route serves the request; added by
    /// callers that ask the control loop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<Ignored>,
    /// The findings about routes that lost.
    pub lost: Vec<Finding>,
    /// Other findings about the route's object.
    pub findings: Vec<Finding>,
    /// The held routes, if an operator holds others than those of the cluster.
    pub held: Option<ByCommand>,
    /// The reason why the next routes of the host are not served yet.
    pub waits: Option<Wait>,
    /// The handling of a connection that is passed on as bytes, without a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<Connections>,
    /// The status of the local reply, if the edge does not forward the request: for a client whose address is allowed,
    /// and if authorisation services allow the request. Other clients get 403, or the service's answer.
    pub answer: Option<u16>,
}

/// The serving route, with everything that applies to it.
#[derive(Debug, Serialize)]
pub struct Served {
    /// Object, field and path.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// The access checks, in order.
    pub guards: Arc<[Guard]>,
    /// The settings that apply.
    pub settings: Effective,
    /// The compression of its responses, if enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<Arc<Compression>>,
    /// The filters, in order.
    #[serde(skip_serializing_if = "<[Filter]>::is_empty")]
    pub filters: Arc<[Filter]>,
    /// The policy for retries after an answer of an endpoint, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Arc<RetryPolicy>>,
    /// Its session persistence, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Arc<SessionPersistence>>,
    /// The policies on the path of the request, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies: Option<PathView>,
    /// Its targets.
    pub targets: Vec<TargetView>,
}

/// One target and its endpoints.
#[derive(Debug, Serialize)]
pub struct TargetView {
    /// The Service port; or the status, if the edge answers this share itself.
    pub backend: String,
    /// Its share.
    pub weight: u32,
    /// The protocol; `None` if the edge answers.
    pub protocol: Option<tidegate_config::model::AppProtocol>,
    /// Its usable endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Terminating endpoints, which only keep their sessions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub draining: Vec<Endpoint>,
    /// The authorisation service of its requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_auth: Option<Arc<ExternalAuth>>,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

/// Explains the routing of a request or a connection.
///
/// # Errors
/// If no listener accepts it.
pub fn explain(
    snapshot: &Snapshot,
    findings: &[Finding],
    not_serving: &NotServing,
    question: &ExplainRequest,
) -> Result<Explanation, String> {
    let binds = candidates(snapshot, question);
    let bytes = carried(snapshot, &binds, &question.server_name);
    if question.of_bytes {
        let carried = bytes.ok_or_else(|| format!("no listener accepts {}", question.url))?;
        return Ok(of_connections(snapshot, (findings, not_serving), question, &carried));
    }
    let find = |bind: &&'_ Bind| (bind.key, snapshot.find(&bind.key, &question.host, &question.path, question));
    // Several binds may have the port on different addresses: the one with the address in the URL is meant, else one
    // that would not answer 404.
    let named = named(&question.server_name);
    let found = binds
        .iter()
        .map(find)
        .max_by_key(|(key, found)| (Some(key.address.ip()) == named, found.route.is_some(), found.listener.is_some()));
    let (key, Found { listener, host: routes, route, untried }) =
        found.ok_or_else(|| format!("no listener accepts {}", question.url))?;
    if let Some(carried) = bytes.filter(|_| route.is_none()) {
        return Ok(of_connections(snapshot, (findings, not_serving), question, &carried));
    }
    let listener = listener.ok_or_else(|| format!("no listener accepts {}", question.url))?;
    let misdirected = handshake_listener(snapshot.bind(&key), question)?
        .filter(|handshake_listener| handshake_listener.is_other_than(listener));
    let route = route.filter(|_| misdirected.is_none());
    let (lost, concerning) = concerned(findings, routes, (route, listener));
    let Rank { passed_over, next, others, omitted } = match &misdirected {
        None => rank(snapshot.in_turn(listener, &question.host, &question.path), (routes, route), question),
        Some(_) => Rank::default(),
    };
    let not_here = misdirected.is_some().then_some(421).or(untried.map(Subject::status));
    Ok(Explanation {
        url: question.url.clone(),
        method: question.method().to_owned(),
        generation: snapshot.generation().0,
        listener: listener.name.to_string(),
        gateway: listener.origin.clone(),
        misdirected: misdirected.map(|handshake_listener| handshake_listener.name.to_string()),
        certificate: (key.protocol == BindProtocol::Https)
            .then(|| Presented::of(snapshot, &key, server_name(question))),
        host: routes.map(|routes| routes.host.to_string()),
        path: question.path.clone(),
        route: route.map(|route| served(snapshot, listener, route, question)),
        passed_over,
        next,
        others,
        omitted,
        refused: Vec::new(),
        ignored: Vec::new(),
        lost,
        findings: concerning,
        held: not_serving.held.clone(),
        waits: routes
            .and_then(|routes| not_serving.waits.iter().find(|wait| wait.unit.host() == Some(&routes.host)).cloned()),
        connections: None,
        answer: not_here.or_else(|| answer(snapshot, route, question, listener)),
    })
}

/// The IP address of a host, if it is one.
fn named(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

/// The server name of a request's TLS handshake: none if its URL has an IP address (RFC 6066 section 3).
fn server_name(question: &ExplainRequest) -> Option<&str> {
    named(&question.server_name).is_none().then_some(&*question.server_name)
}

/// The listener of a request's TLS handshake; `None` without TLS.
fn handshake_listener(bind: Option<&Bind>, question: &ExplainRequest) -> Result<Option<TlsListener>, String> {
    let Some(bind) = bind.filter(|bind| bind.key.protocol == BindProtocol::Https) else { return Ok(None) };
    let name = server_name(question).unwrap_or_default();
    let listener = bind.listener(name).ok_or_else(|| format!("no listener takes the server name {name:?}"))?;
    Ok(Some(TlsListener::of(listener)))
}

/// The route that passes on a connection as bytes. Several binds may have the port on different addresses: the one with
/// the address of the host is meant, else one with a route.
fn carried<'s>(snapshot: &'s Snapshot, binds: &[&'s Bind], host: &str) -> Option<connections::Passthrough<'s>> {
    let named = named(host);
    let found = binds.iter().filter_map(|bind| Some((bind, connections::Passthrough::on(snapshot, bind, host)?)));
    let rank = |bind: &Bind, route: bool| (Some(bind.key.address.ip()) == named, route);
    found.max_by_key(|(bind, found)| rank(bind, found.route.is_some())).map(|(_, found)| found)
}

/// The explanation of a connection that is passed on as bytes.
fn of_connections(
    snapshot: &Snapshot,
    (findings, not_serving): (&[Finding], &NotServing),
    question: &ExplainRequest,
    found: &connections::Passthrough<'_>,
) -> Explanation {
    let (lost, concerning) = found.concerned(findings);
    Explanation {
        url: question.url.clone(),
        method: question.method().to_owned(),
        generation: snapshot.generation().0,
        listener: found.listener.name.to_string(),
        gateway: found.listener.origin.clone(),
        misdirected: None,
        certificate: None,
        host: None,
        path: String::new(),
        route: None,
        passed_over: Vec::new(),
        next: Vec::new(),
        others: Vec::new(),
        omitted: 0,
        refused: Vec::new(),
        ignored: Vec::new(),
        lost,
        findings: concerning,
        held: not_serving.held.clone(),
        waits: not_serving.waits.iter().find(|wait| found.waits(wait, snapshot)).cloned(),
        connections: Some(found.view(snapshot, question.protocol == BindProtocol::Udp)),
        answer: None,
    }
}

impl Explanation {
    /// Returns `true` if a route serves the request or connection.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.route.is_some() || self.connections.as_ref().is_some_and(|connections| connections.route.is_some())
    }
}

/// The binds that a URL may mean. Of an address that we listen on: those with its port. Otherwise those of its scheme
/// with its port, also if a Gateway's Service maps the port to them. If there are none, for a request: the binds of the
/// shared table, because load balancers change ports; else all of the scheme.
fn candidates<'s>(snapshot: &'s Snapshot, question: &ExplainRequest) -> Vec<&'s Bind> {
    let port = question.port();
    let of_scheme: Vec<&Bind> = snapshot.binds().iter().filter(|bind| bind.key.protocol == question.protocol).collect();
    let own =
        named(&question.server_name).filter(|ip| snapshot.binds().iter().any(|bind| bind.key.address.ip() == *ip));
    if let Some(ip) = own {
        let takes = |bind: &&&Bind| {
            let at = bind.key.address;
            (at.ip() == ip || at.ip().is_unspecified()) && Some(at.port()) == question.port_or_default()
        };
        return of_scheme.iter().filter(takes).copied().collect();
    }
    let has_port = |bind: &&&Bind| {
        let by_service = || port.is_some() && bind.listeners.iter().any(|listener| listener.port == port);
        Some(bind.key.address.port()) == port || by_service()
    };
    let with_port: Vec<&Bind> = of_scheme.iter().filter(has_port).copied().collect();
    if !with_port.is_empty() || matches!(question.protocol, BindProtocol::Tcp | BindProtocol::Udp) {
        return with_port;
    }
    let of_gateways = |bind: &&&Bind| bind.listeners.iter().all(|listener| !listener.table.is_shared());
    let (mut all, own): (Vec<&Bind>, Vec<&Bind>) = of_scheme.into_iter().partition(|bind| !of_gateways(&bind));
    // The last of equals is taken.
    all.reverse();
    own.into_iter().rev().chain(all).collect()
}

fn served(snapshot: &Snapshot, listener: &Listener, route: &Arc<Route>, question: &ExplainRequest) -> Served {
    let view = |share: &WeightedTarget| match &share.to {
        Destination::Target(target) => TargetView {
            backend: target.backend.to_string(),
            weight: share.weight,
            protocol: Some(target.protocol),
            endpoints: snapshot.backend_of(target).map_or(Vec::new(), |b| b.endpoints.to_vec()),
            draining: match snapshot.backend_of(target) {
                Some(backend) if route.settings.session.is_some() => backend.draining.to_vec(),
                Some(_) | None => Vec::new(),
            },
            external_auth: share.external_auth.clone(),
        },
        Destination::Status(status) => TargetView {
            backend: format!("status {status}"),
            weight: share.weight,
            protocol: None,
            endpoints: Vec::new(),
            draining: Vec::new(),
            external_auth: None,
        },
    };
    let targets = route.action.shares().iter().map(view).collect();
    Served {
        candidate: Candidate::of(route, None),
        guards: Arc::clone(&route.guards),
        filters: Arc::clone(&route.filters),
        settings: snapshot.effective(route),
        compression: snapshot.compression(route).cloned(),
        retry: snapshot.retry(route).cloned(),
        session: route.settings.session.clone(),
        policies: snapshot.policies(listener, route).map(|policies| {
            let effective = snapshot.effective(route);
            PathView::of(policies, &attributes(snapshot, listener, route, question, &effective))
        }),
        targets,
    }
}

/// The attributes of a request by which policies decide, before a share of its route is chosen.
fn attributes<'a>(
    snapshot: &'a Snapshot,
    listener: &'a Listener,
    route: &'a Route,
    question: &'a ExplainRequest,
    effective: &'a Effective,
) -> Attributes<'a, ExplainRequest> {
    let secure = question.protocol == BindProtocol::Https;
    let server_name = secure.then_some(&*question.server_name);
    Attributes {
        head: question,
        host: &question.host,
        path: &question.path,
        request_id: None,
        protocol: None,
        address: None,
        secure,
        connection: ConnectionAttributes { server_name, ..ConnectionAttributes::default() },
        listener: &listener.name,
        body_bytes: question.body_bytes(),
        route,
        share: None,
        policies: snapshot.policies(listener, route).map(|policies| &**policies),
        effective,
        auth: None,
        now: wall,
    }
}

/// The status of the local reply to a client from an allowed address, as if every question about the request were
/// answered in its favour; `None` if an endpoint answers, or if shares of the route that get requests differ.
fn answer(
    snapshot: &Snapshot,
    route: Option<&Arc<Route>>,
    question: &ExplainRequest,
    listener: &Listener,
) -> Option<u16> {
    let Some(route) = route else { return Some(404) };
    let has_endpoint = |target: &Target| snapshot.backend_of(target).is_some_and(|it| !it.endpoints.is_empty());
    let effective = snapshot.effective(route);
    let status = |share: Option<&WeightedTarget>| {
        let attributes = Attributes { share, ..attributes(snapshot, listener, route, question, &effective) };
        let mut progress = PolicyProgress::default();
        loop {
            let backend = |target: &Target| has_endpoint(target).then_some(());
            match run_policies(&mut progress, &attributes, backend, &mut InFavour::default()) {
                Decision::Wait(_) => {}
                Decision::Forward(..) => return None,
                Decision::Answer(answer) => return Some(answer.status()),
            }
        }
    };
    let mut statuses = route.action.shares().iter().filter(|share| share.weight > 0).map(|share| status(Some(share)));
    let Some(first) = statuses.next() else { return status(None) };
    first.filter(|first| statuses.all(|status| status == Some(*first)))
}

/// The findings about routes that lost this host or path, and those about the serving object.
fn concerned(
    findings: &[Finding],
    routes: Option<&Arc<HostRoutes>>,
    (route, listener): (Option<&Arc<Route>>, &Listener),
) -> (Vec<Finding>, Vec<Finding>) {
    let host = routes.map(|routes| routes.host.to_string()).unwrap_or_default();
    let path = route.map(|route| route.path.to_string()).unwrap_or_default();
    let object = route.map(|route| &route.origin.object);
    let key = listener.origin.as_ref().map(|origin| {
        let owner = origin.set.as_ref().unwrap_or(&origin.gateway);
        ListenerRef { owner: owner.clone(), section: Arc::clone(&origin.name) }.to_string()
    });
    let lost = |finding: &&Finding| {
        matches!(&finding.problem, Problem::ListenerLost { listener, winner } if Some(winner) == object && Some(listener) == key.as_ref())
            || matches!(&finding.problem, Problem::RuleLost { host: h, path: p, .. } if *h == host && *p == path)
            || matches!(&finding.problem, Problem::HostOwned { host: h, .. } | Problem::DefaultLost { host: h, .. } if *h == host)
    };
    let lost: Vec<Finding> = findings.iter().filter(lost).cloned().collect();
    let concerning = findings.iter().filter(|finding| Some(&finding.object) == object && !lost.contains(finding));
    let concerning = concerning.cloned().collect();
    (lost, concerning)
}
