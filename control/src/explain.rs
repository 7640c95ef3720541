//! Why a URL goes where it goes: which Gateway and listener it comes to, which route serves it, from which object, who lost and why,
//! and which endpoints.

mod asked;
mod candidate;
mod connections;
mod refused;
mod text;

use std::net::IpAddr;
use std::sync::Arc;

pub use asked::Asked;
pub use candidate::Candidate;
use candidate::{Rank, rank};
use connections::Connections;
pub use refused::Refused;
pub(crate) use refused::{refusals, refused};
use serde::Serialize;
use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{
    Asker, Bind, BindProtocol, Compression, Cors, Decision, Destination, Effective, Endpoint, ExternalAuth, Filter,
    Found, Guard, Head as _, HostRoutes, Listener, ListenerOrigin, Refusal, RetryPolicy, Route, SessionPersistence,
    Snapshot, Target, TlsListener, WeightedTarget, decide,
};

use crate::not_serving::{ByCommand, NotServing, Wait};
use crate::topology::Key;

/// What would become of a request for a URL, and why.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// The URL as asked.
    pub url: String,
    /// The method.
    pub method: String,
    /// The generation that was asked.
    pub generation: u64,
    /// The listener that takes it.
    pub listener: String,
    /// The Gateway of the listener, and the ListenerSet in which it stands; `None` for one of the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Arc<ListenerOrigin>>,
    /// The listener that the server name of the handshake chose, where requests for the host have to come to another one over a
    /// connection of their own: the answer is 421 then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misdirected: Option<String>,
    /// The host pattern that takes it; `None` when no rule has the host.
    pub host: Option<String>,
    /// The path as rules see it.
    pub path: String,
    /// The route that serves it; `None` is a 404.
    pub route: Option<Served>,
    /// Routes whose host and path match, and that were tried before and do not take the request, in their order; a bounded number.
    pub passed_over: Vec<Candidate>,
    /// Routes whose host and path match, and that would be tried afterwards, in their order; a bounded number.
    pub next: Vec<Candidate>,
    /// How many more of both there are.
    #[serde(skip_serializing_if = "is_none")]
    pub omitted: usize,
    /// Routes for the host that name the Gateway or one of its ListenerSets, and are not accepted there; filled in by who asks the control
    /// loop for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
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
    /// How its clients come back to their endpoint, if they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Arc<SessionPersistence>>,
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
    /// Those that serve their sessions alone, because they terminate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub draining: Vec<Endpoint>,
    /// The service that is asked about its requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_auth: Option<Arc<ExternalAuth>>,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

/// Explains what would become of a request or a connection.
///
/// # Errors
/// When nothing listens for it.
pub fn explain(
    snapshot: &Snapshot,
    findings: &[Finding],
    not_serving: &NotServing,
    asked: &Asked,
) -> Result<Explanation, String> {
    let binds = candidates(snapshot, asked.protocol, asked.port());
    let bytes = carried(snapshot, &binds, &asked.server_name);
    if asked.of_bytes {
        let carried = bytes.ok_or_else(|| "nothing listens for it".to_owned())?;
        return Ok(of_connections(snapshot, (findings, not_serving), asked, &carried));
    }
    let find = |bind: &&'_ Bind| (bind.key, snapshot.find(&bind.key, &asked.host, &asked.path, asked));
    // Several may have the port on addresses of their own: the one at the address that the URL names is meant, else one that would not
    // answer 404.
    let named = named(&asked.server_name);
    let found = binds
        .iter()
        .map(find)
        .max_by_key(|(key, found)| (Some(key.address.ip()) == named, found.route.is_some(), found.listener.is_some()));
    let (key, Found { listener, host: routes, route }) = found.ok_or_else(|| "nothing listens for it".to_owned())?;
    if let Some(carried) = bytes.filter(|_| route.is_none()) {
        return Ok(of_connections(snapshot, (findings, not_serving), asked, &carried));
    }
    let listener = listener.ok_or_else(|| "nothing listens for it".to_owned())?;
    let misdirected = shaken(snapshot.bind(&key), asked)?.filter(|shaken| shaken.is_other_than(listener));
    let route = route.filter(|_| misdirected.is_none());
    let (lost, told) = concerned(findings, routes, (route, listener));
    let Rank { passed_over, next, omitted } = match &misdirected {
        None => rank(snapshot.in_turn(listener, &asked.host, &asked.path), route, asked),
        Some(_) => Rank::default(),
    };
    let not_here = misdirected.is_some().then_some(421);
    Ok(Explanation {
        url: asked.url.clone(),
        method: asked.method().to_owned(),
        generation: snapshot.generation().0,
        listener: listener.name.to_string(),
        gateway: listener.origin.clone(),
        misdirected: misdirected.map(|shaken| shaken.name.to_string()),
        host: routes.map(|routes| routes.host.to_string()),
        path: asked.path.clone(),
        route: route.map(|route| served(snapshot, route)),
        passed_over,
        next,
        omitted,
        refused: Vec::new(),
        lost,
        findings: told,
        held: not_serving.held.clone(),
        waits: routes
            .and_then(|routes| not_serving.waits.iter().find(|wait| wait.unit.host() == Some(&routes.host)).cloned()),
        connections: None,
        answer: not_here.or_else(|| answer(snapshot, route, asked, listener)),
    })
}

/// The address that a host is, if it is one.
fn named(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

/// The listener with which the handshake of a request would be; `None` without TLS.
fn shaken(bind: Option<&Bind>, asked: &Asked) -> Result<Option<TlsListener>, String> {
    let Some(bind) = bind.filter(|bind| bind.key.protocol == BindProtocol::Https) else { return Ok(None) };
    // A client asks for no name where its URL has an address (RFC 6066 section 3).
    let name = if named(&asked.server_name).is_some() { "" } else { &asked.server_name };
    let listener = bind.listener(name).ok_or_else(|| format!("no listener takes the server name {name:?}"))?;
    Ok(Some(TlsListener::of(listener)))
}

/// What takes a connection as bytes. Several sockets may have the port on addresses of their own: the one at the address that is
/// named is meant, else one with a route.
fn carried<'s>(snapshot: &'s Snapshot, binds: &[&'s Bind], host: &str) -> Option<connections::Found<'s>> {
    let named = named(host);
    let found = binds.iter().filter_map(|bind| Some((bind, connections::Found::on(snapshot, bind, host)?)));
    let rank = |bind: &Bind, route: bool| (Some(bind.key.address.ip()) == named, route);
    found.max_by_key(|(bind, found)| rank(bind, found.route.is_some())).map(|(_, found)| found)
}

/// What is said of connections that are passed on as bytes.
fn of_connections(
    snapshot: &Snapshot,
    (findings, not_serving): (&[Finding], &NotServing),
    asked: &Asked,
    found: &connections::Found<'_>,
) -> Explanation {
    let (lost, told) = found.concerned(findings);
    Explanation {
        url: asked.url.clone(),
        method: asked.method().to_owned(),
        generation: snapshot.generation().0,
        listener: found.listener.name.to_string(),
        gateway: found.listener.origin.clone(),
        misdirected: None,
        host: None,
        path: String::new(),
        route: None,
        passed_over: Vec::new(),
        next: Vec::new(),
        omitted: 0,
        refused: Vec::new(),
        lost,
        findings: told,
        held: not_serving.held.clone(),
        waits: not_serving.waits.iter().find(|wait| found.waits(wait, snapshot)).cloned(),
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

/// The sockets that a URL may mean: those of its scheme that have its port, or to which a Gateway's Service leads from there, where it
/// names one that any has; else those that every
/// object shares, for behind a load balancer ports are others than in URLs; else all of the scheme.
fn candidates(snapshot: &Snapshot, protocol: BindProtocol, port: Option<u16>) -> Vec<&Bind> {
    let of_scheme: Vec<&Bind> = snapshot.binds().iter().filter(|bind| bind.key.protocol == protocol).collect();
    let has_port = |bind: &&&Bind| {
        let by_service = || port.is_some() && bind.listeners.iter().any(|listener| listener.port == port);
        Some(bind.key.address.port()) == port || by_service()
    };
    let with_port: Vec<&Bind> = of_scheme.iter().filter(has_port).copied().collect();
    if !with_port.is_empty() {
        return with_port;
    }
    let of_gateways = |bind: &&&Bind| bind.listeners.iter().all(|listener| !listener.table.is_shared());
    let (mut all, own): (Vec<&Bind>, Vec<&Bind>) = of_scheme.into_iter().partition(|bind| !of_gateways(&bind));
    // The last of equals is taken.
    all.reverse();
    own.into_iter().rev().chain(all).collect()
}

fn served(snapshot: &Snapshot, route: &Arc<Route>) -> Served {
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
        targets,
    }
}

/// The status of the answer that a client from an allowed address would get from the edge itself.
fn answer(snapshot: &Snapshot, route: Option<&Arc<Route>>, asked: &Asked, listener: &Listener) -> Option<u16> {
    let Some(route) = route else { return Some(404) };
    let usable = route.action.shares().iter().any(|share| {
        let answered = |target: &Arc<Target>| snapshot.backend_of(target).is_some_and(|it| !it.endpoints.is_empty());
        share.weight > 0 && share.target().is_none_or(answered)
    });
    // A client from an allowed address.
    let secure = asked.protocol == BindProtocol::Https;
    let asker = Asker { address: None, secure, listener: &listener.name, body_bytes: asked.body_bytes() };
    let effective = snapshot.effective(route);
    let preflight = Cors::is_preflight(asked) && Cors::of(&route.filters).is_some();
    let mut from = 0;
    loop {
        let decision = decide(route, from, &effective, &asker, |_| usable);
        if preflight && !matches!(decision, Decision::Refused(_) | Decision::ToTls(_)) {
            return Some(200);
        }
        return match decision {
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
    (route, listener): (Option<&Arc<Route>>, &Listener),
) -> (Vec<Finding>, Vec<Finding>) {
    let host = routes.map(|routes| routes.host.to_string()).unwrap_or_default();
    let path = route.map(|route| route.path.to_string()).unwrap_or_default();
    let object = route.map(|route| &route.origin.object);
    let key = listener.origin.as_ref().map(|origin| {
        let owner = origin.set.as_ref().unwrap_or(&origin.gateway);
        Key::Listener(owner.clone(), Arc::clone(&origin.name)).to_string()
    });
    let lost = |finding: &&Finding| {
        matches!(&finding.problem, Problem::ListenerLost { listener, winner } if Some(winner) == object && Some(listener) == key.as_ref())
            || matches!(&finding.problem, Problem::RuleLost { host: h, path: p, .. } if *h == host && *p == path)
            || matches!(&finding.problem, Problem::HostOwned { host: h, .. } | Problem::DefaultLost { host: h, .. } if *h == host)
    };
    let lost: Vec<Finding> = findings.iter().filter(lost).cloned().collect();
    let told = findings.iter().filter(|finding| Some(&finding.object) == object && !lost.contains(finding));
    let told = told.cloned().collect();
    (lost, told)
}
