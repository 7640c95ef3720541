//! The policies of a request in the proxy: the answers of the edge that they lead to. A request that they let pass
//! becomes an [`Admitted`], and only that can be sent upstream.

mod calls;
pub(in crate::request) mod cors;
pub(crate) mod external_auth;
mod outcome;
mod service;
mod state;

use std::sync::Arc;

pub(in crate::request) use calls::tell;
pub(crate) use calls::{Answers, PendingCalls};
use http::HeaderValue;
pub(crate) use outcome::{LimitOutcome, PolicyOutcome};
pub(crate) use service::CallCharge;
pub(in crate::request) use state::{RequestState, Waited, WaitingLimits};
use tidegate_config::model::auth::AuthRefusal;
use tidegate_config::model::auth::PlacedCall;
use tidegate_config::model::{
    Answer, Attributes, Backend, ConnectionAttributes, Decision, Effective, ExternalAuth, Head, ListenerName,
    PathPolicies, PolicyProgress, Question, Redirect, Refusal, Route, Target, WeightedTarget, run_policies,
};

use crate::clock::wall;
use crate::connection::ConnectionFacts;
use crate::reason::Reason;
use crate::request::client::Client;
use crate::request::client_url::own_port;
use crate::request::local_reply::LocalReply;
use crate::request::path_rewrite;
use crate::request::validate::ValidRequest;

/// A route whose policies let a request pass: the witness that the steps towards an endpoint require.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    route: Arc<Route>,
}

/// The result of the policies, unless they answer.
#[derive(Debug)]
pub(crate) enum PolicyResult {
    /// All let the request pass to this target.
    Admitted(Admitted, Arc<Target>, Arc<Backend>),
    /// An authorisation service decides, and the policies continue after its answer.
    Asks(Arc<ExternalAuth>),
    /// The limits wait for the store, and are charged after that.
    Waits(WaitingLimits),
    /// Rules need the answers to these calls, and decide after that.
    Calls(Vec<PlacedCall>),
}

impl Admitted {
    /// The route.
    pub(crate) fn route(&self) -> &Arc<Route> {
        &self.route
    }

    /// The shares of the route.
    pub(crate) fn shares(&self) -> &[WeightedTarget] {
        self.route.action.shares()
    }
}

/// The facts about a request's arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inbound<'a> {
    /// The client.
    pub(crate) client: &'a Client,
    /// The listener that it came to.
    pub(crate) listener: &'a ListenerName,
    /// The port that the PROXY header or the listener names; see [`own_port`].
    pub(crate) named_port: Option<u16>,
    /// The connection.
    pub(crate) connection: ConnectionAttributes<'a>,
    /// The id of the request.
    pub(crate) request_id: &'a str,
    /// Its HTTP version; see [`Protocol::attribute`](crate::request::validate::Protocol::attribute).
    pub(crate) protocol: &'static str,
}

/// A request on its way through the policies of its route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyRequest<'a, H: ?Sized> {
    /// The route.
    pub(crate) route: &'a Arc<Route>,
    /// The share of the route that it goes to.
    pub(crate) share: Option<&'a WeightedTarget>,
    /// The policies of its path, if there are any.
    pub(crate) policies: Option<&'a PathPolicies>,
    /// The settings that apply.
    pub(crate) effective: &'a Effective,
    /// Its arrival.
    pub(crate) inbound: Inbound<'a>,
    /// Its valid form.
    pub(crate) valid: &'a ValidRequest<'a>,
    /// Its head.
    pub(crate) head: &'a H,
}

/// The view of policies on a connection, for a request of this client.
pub(crate) fn connection_attributes<'a>(facts: &'a ConnectionFacts, client: &Client) -> ConnectionAttributes<'a> {
    let tls = facts.tls.as_ref();
    ConnectionAttributes {
        client_port: (client.address == client.peer).then(|| facts.peer.port()),
        local: Some(facts.local),
        server_name: tls.and_then(|tls| tls.server_name.as_deref()),
        tls_version: tls.map(|tls| tls.version),
    }
}

/// Runs the policies of a request from where it has come to. `backend` returns the backend of a target that has an
/// endpoint; `state` charges the limits, and knows answers to calls.
///
/// # Errors
/// The answer to send instead.
pub(crate) fn admit<'a, H: Head + ?Sized>(
    request: &PolicyRequest<'a, H>,
    progress: &mut PolicyProgress,
    state: &mut RequestState<'a>,
    backend: impl Fn(&'a Target) -> Option<&'a Arc<Backend>>,
) -> Result<PolicyResult, LocalReply> {
    let PolicyRequest { route, share, policies, effective, inbound, valid, head } = *request;
    let Inbound { client, listener, connection, request_id, protocol, .. } = inbound;
    let attributes = Attributes {
        head,
        host: &valid.host,
        path: &valid.path.path,
        request_id: Some(request_id),
        protocol: Some(protocol),
        address: Some(client.address),
        secure: client.secure,
        connection,
        listener,
        body_bytes: valid.content_length,
        route,
        share,
        policies,
        auth: None,
        effective,
        now: wall,
    };
    match run_policies(progress, &attributes, backend, state) {
        Decision::Forward(target, backend) => {
            let admitted = Admitted { route: Arc::clone(route) };
            Ok(PolicyResult::Admitted(admitted, Arc::clone(target), Arc::clone(backend)))
        }
        Decision::Wait(Question::ExternalAuth(service)) => Ok(PolicyResult::Asks(Arc::clone(service))),
        // Only the state asks this.
        Decision::Wait(Question::Counts) => {
            state.waiting.take().map(PolicyResult::Waits).ok_or_else(|| Reason::Internal.into())
        }
        Decision::Wait(Question::Calls) => Ok(PolicyResult::Calls(progress.take_calls())),
        Decision::Answer(answer) => Err(reply(request, answer)),
    }
}

/// The answer to a request in the form that its client gets.
fn reply<H: Head + ?Sized>(request: &PolicyRequest<'_, H>, answer: Answer<'_>) -> LocalReply {
    let PolicyRequest { inbound: Inbound { client, .. }, valid, head, .. } = *request;
    match answer {
        Answer::Refused(refusal) => Reason::from(refusal).into(),
        Answer::Limited(exceeded) => LocalReply::limited(exceeded.into()),
        Answer::Unauthorized(denial) => LocalReply::unauthorized(*denial),
        Answer::ToTls(status) => {
            let scheme = if client.websocket { "wss" } else { "https" };
            away(status, location(scheme, &valid.host, None, head.path(), head))
        }
        Answer::Preflight(cors) => cors::preflight(cors, head),
        Answer::Redirected(redirect) => elsewhere(request, redirect),
        Answer::Responded(response) => LocalReply::direct(response),
        Answer::InvalidShare(status) => LocalReply::invalid_backend(status),
    }
}

impl From<AuthRefusal> for Reason {
    fn from(refusal: AuthRefusal) -> Self {
        match refusal {
            AuthRefusal::Unauthenticated => Self::Unauthenticated,
            AuthRefusal::Unauthorized => Self::Forbidden,
        }
    }
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::BodyTooLarge => Self::BodyTooLarge,
            Refusal::Denied => Self::Denied,
            Refusal::NotHere => Self::NoRoute,
            Refusal::NoEndpoints => Self::NoEndpoints,
            Refusal::Uncounted => Self::LimitsUnavailable,
        }
    }
}

fn elsewhere<H: Head + ?Sized>(request: &PolicyRequest<'_, H>, redirect: &Redirect) -> LocalReply {
    let PolicyRequest { route, inbound, valid, head, .. } = *request;
    let scheme = redirect.scheme.as_deref().unwrap_or(inbound.client.scheme());
    let host = redirect.host.as_deref().unwrap_or(&valid.host);
    let path = path_rewrite::onward(redirect.path.as_ref(), &route.path, head.path(), &valid.path);
    let path = path.as_deref().unwrap_or(head.path());
    // A scheme in the redirect implies its default port.
    let own = || redirect.scheme.is_none().then(|| own_port(head, inbound.client, inbound.named_port));
    let port = redirect.port.or_else(own);
    away(redirect.status, location(scheme, host, port, path, head))
}

/// The target of a redirect; `None` without a host.
fn location<H: Head + ?Sized>(
    scheme: &str,
    host: &str,
    port: Option<u16>,
    path: &str,
    head: &H,
) -> Option<HeaderValue> {
    if host.is_empty() {
        return None;
    }
    let mut url = format!("{scheme}://{host}");
    let is_default = matches!((scheme, port), ("http", Some(80)) | ("https", Some(443)));
    if let Some(port) = port.filter(|_| !is_default) {
        url.push(':');
        url.push_str(itoa::Buffer::new().format(port));
    }
    url.push_str(path);
    if let Some(query) = head.query() {
        url.push('?');
        url.push_str(query);
    }
    HeaderValue::try_from(url).ok()
}

/// A redirect without a valid target is refused.
fn away(status: u16, location: Option<HeaderValue>) -> LocalReply {
    location.map_or_else(|| Reason::MalformedRequest.into(), |location| LocalReply::redirect(status, location))
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use tidegate_config::model::{
        Action, AnyOr, AppProtocol, AuthProtocol, Cors, Filter, Guard, Normalized, PathMatch, PathRewrite, Settings,
    };

    use super::*;
    use crate::sample::Sample;
    use crate::sample_model::{backend_key, path, to_backend};
    use crate::shared::Shared;

    fn route(name: &str, path: PathMatch) -> Route {
        to_backend(name, path, AppProtocol::Http)
    }

    /// The backend of a target, unless its Service is called `empty`.
    fn backend(target: &Target) -> Option<&Arc<Backend>> {
        static BACKEND: LazyLock<Arc<Backend>> = LazyLock::new(|| {
            let (endpoints, draining) = (Box::default(), Box::default());
            Arc::new(Backend { key: backend_key("r"), endpoints, draining, requests_max: None })
        });
        (&*target.backend.service.name != "empty").then_some(&BACKEND)
    }

    fn client(address: &str, secure: bool) -> Client {
        let address = address.parse().unwrap();
        Client { address, peer: address, trusted: false, secure, websocket: false, names_scheme: false }
    }

    fn inbound<'a>(client: &'a Client, listener: &'a ListenerName, named_port: Option<u16>) -> Inbound<'a> {
        let connection = ConnectionAttributes::default();
        Inbound { client, listener, named_port, connection, request_id: "id", protocol: "HTTP/1.1" }
    }

    #[track_caller]
    fn check(route: Route, client: &Client, head: &Sample, want: Result<(), (u16, &str)>) {
        let settings = Settings::clone(&route.settings);
        let sent = head.path().to_owned();
        let length = head.header("content-length").map(|v| std::str::from_utf8(v).unwrap().parse().unwrap());
        let valid = ValidRequest {
            has_passed: false,
            host: head.authority().unwrap().to_owned().into(),
            path: Normalized { path: sent.as_str().into(), had_dot_segments: false },
            content_length: length,
        };
        let effective = Effective::resolve([&settings].into_iter());
        let listener = ListenerName("http".into());
        let inbound = inbound(client, &listener, Some(8080));
        let (route, share) = (Arc::new(route.clone()), route.action.shares().first());
        let request =
            PolicyRequest { route: &route, share, policies: None, effective: &effective, inbound, valid: &valid, head };
        let shared = Shared::sample();
        let got = admit(&request, &mut PolicyProgress::default(), &mut RequestState::new(&shared, None), backend);
        let got = got.map(|_| ()).map_err(|reply| {
            (reply.status, reply.location().map(|to| to.to_str().unwrap().to_owned()).unwrap_or_default())
        });
        assert_eq!(got, want.map_err(|(status, location)| (status, location.to_owned())));
    }

    #[test]
    fn only_a_client_that_connects_itself_has_a_port() {
        let facts = ConnectionFacts::sample(([192, 0, 2, 1], 5000).into());
        let check = |address: &str, want: Option<u16>| {
            let client = Client { peer: facts.peer.ip(), ..client(address, false) };
            let got = connection_attributes(&facts, &client);
            assert_eq!((got.client_port, got.local, got.tls_version), (want, Some(facts.local), None));
        };
        check("192.0.2.1", Some(5000));
        check("198.51.100.7", None);
    }

    #[test]
    fn guards_are_applied_in_order() {
        let guarded = |guards: &[Guard]| Route { guards: guards.into(), ..route("r", path("/")) };
        let sources = Guard::AllowSources(["192.0.2.0/24".parse().unwrap()].into());
        let tls = Guard::RequireTls { status: 308 };
        let head = Sample::get("a.test", "/x?y=1");
        check(guarded(&[]), &client("198.51.100.1", false), &head, Ok(()));
        check(guarded(std::slice::from_ref(&sources)), &client("192.0.2.9", false), &head, Ok(()));
        check(guarded(std::slice::from_ref(&sources)), &client("198.51.100.1", true), &head, Err((403, "")));
        check(guarded(std::slice::from_ref(&tls)), &client("192.0.2.9", true), &head, Ok(()));
        let https = Err((308, "https://a.test/x?y=1"));
        check(guarded(&[tls.clone(), sources.clone()]), &client("198.51.100.1", false), &head, https);
        check(guarded(&[sources, tls.clone()]), &client("198.51.100.1", false), &head, Err((403, "")));
        let inner = Sample::get("a.test", "/open:///?u=file:///x");
        let https = Err((308, "https://a.test/open:///?u=file:///x"));
        check(guarded(std::slice::from_ref(&tls)), &client("192.0.2.9", false), &inner, https);
        let socket = Client { websocket: true, ..client("192.0.2.9", false) };
        check(guarded(std::slice::from_ref(&tls)), &socket, &head, Err((308, "wss://a.test/x?y=1")));
        check(guarded(std::slice::from_ref(&tls)), &Client { secure: true, ..socket }, &head, Ok(()));
        check(guarded(std::slice::from_ref(&tls)), &client("192.0.2.9", false), &Sample::get("", "/x"), Err((400, "")));
        let guards = [Guard::RequireEndpoints, tls];
        let empty = Route { guards: guards.clone().into(), ..route("empty", path("/")) };
        check(empty, &client("192.0.2.9", false), &head, Err((503, "")));
        check(guarded(&guards), &client("192.0.2.9", false), &head, Err((308, "https://a.test/x?y=1")));
        let only = |name: &str| guarded(&[Guard::Listeners([ListenerName(name.into())].into())]);
        check(only("http"), &client("192.0.2.9", false), &head, Ok(()));
        check(only("https"), &client("192.0.2.9", false), &head, Err((404, "")));
        check(guarded(&[Guard::DenyAll]), &client("192.0.2.9", true), &head, Err((403, "")));
    }

    #[test]
    fn a_preflight_passes_an_authorisation_service_and_no_other_guard() {
        let target = Target { backend: backend_key("auth"), protocol: AppProtocol::Http, tls: None, fixed: None };
        let target = Arc::new(target);
        let protocol = AuthProtocol::Grpc { request_headers: Box::default() };
        let asks = Guard::ExternalAuth(Arc::new(ExternalAuth { target, protocol, body_bytes_max: 0 }));
        let (methods, headers, exposed) = (AnyOr::Any, AnyOr::Any, AnyOr::Any);
        let cors = Cors { origins: AnyOr::Any, credentials: false, methods, headers, exposed, max_age_s: 5 };
        let filters = [Filter::Cors(Arc::new(cors))];
        let head = Sample::get("a.test", "/").method("OPTIONS").with("origin", "https://b.test");
        let head = head.with("access-control-request-method", "GET");
        let sources = Guard::AllowSources(["192.0.2.0/24".parse().unwrap()].into());
        let tls = Guard::RequireTls { status: 308 };
        let https = "https://a.test/";
        for (guards, want) in [
            (&[asks.clone()][..], (200, "")),
            (&[asks.clone(), sources.clone(), asks.clone()], (200, "")),
            (&[sources.clone(), asks.clone(), Guard::DenyAll], (403, "")),
            (&[asks.clone(), asks.clone(), tls.clone()], (308, https)),
            (&[tls, asks], (308, https)),
        ] {
            let guarded = Route { guards: guards.into(), filters: filters.clone().into(), ..route("r", path("/")) };
            let client = client("192.0.2.9", false);
            check(guarded, &client, &head, Err(want));
        }
    }

    #[test]
    fn redirects_keep_the_parts_that_they_do_not_replace() {
        let to = |redirect| Route { action: Action::Redirect(Box::new(redirect)), ..route("r", path("/old")) };
        let nothing = Redirect { scheme: None, host: None, port: None, path: None, status: 302 };
        let head = Sample::get("a.test", "/old/x?y=1");
        let client = client("192.0.2.9", false);
        check(to(nothing.clone()), &client, &head, Err((302, "http://a.test:8080/old/x?y=1")));
        let all = Redirect {
            scheme: Some("https".into()),
            host: Some("b.test".into()),
            port: Some(8443),
            path: Some(PathRewrite::Prefix("/new".into())),
            status: 301,
        };
        check(to(all.clone()), &client, &head, Err((301, "https://b.test:8443/new/x?y=1")));
        let escaped = Sample::get("a.test", "/o%6Cd/b%2Fc//d?y=%20");
        check(to(all), &client, &escaped, Err((301, "https://b.test:8443/new/b%2Fc//d?y=%20")));
        let default_port = Redirect { port: Some(80), ..nothing };
        check(to(default_port.clone()), &client, &head, Err((302, "http://a.test/old/x?y=1")));
        check(to(default_port), &client, &Sample::get("", "/old"), Err((400, "")));
    }

    #[track_caller]
    fn check_port(scheme: Option<&str>, port: Option<u16>, (secure, named_port): (bool, Option<u16>), want: &str) {
        let redirect = Redirect { scheme: scheme.map(Into::into), host: None, port, path: None, status: 302 };
        let route = route("r", path("/"));
        let head = Sample::get("a.test", "/x");
        let path = Normalized { path: "/x".into(), had_dot_segments: false };
        let valid = ValidRequest { host: "a.test".into(), path, content_length: None, has_passed: false };
        let (client, listener) = (client("192.0.2.9", secure), ListenerName("http".into()));
        let inbound = inbound(&client, &listener, named_port);
        let effective = Effective::resolve([&*route.settings].into_iter());
        let route = Arc::new(route);
        let request = PolicyRequest {
            route: &route,
            share: None,
            policies: None,
            effective: &effective,
            inbound,
            valid: &valid,
            head: &head,
        };
        let reply = elsewhere(&request, &redirect);
        assert_eq!(reply.location().unwrap().to_str().unwrap(), want);
    }

    #[test]
    fn a_redirect_leads_to_its_port_or_its_schemes_or_the_listeners() {
        let (http, https) = ((false, Some(80)), (true, Some(443)));
        let (http_8080, https_8443) = ((false, Some(8080)), (true, Some(8443)));
        check_port(None, None, http, "http://a.test/x");
        check_port(None, None, http_8080, "http://a.test:8080/x");
        check_port(None, None, https, "https://a.test/x");
        check_port(None, None, https_8443, "https://a.test:8443/x");
        check_port(None, None, (false, None), "http://a.test/x");
        check_port(None, None, (true, None), "https://a.test/x");
        check_port(Some("http"), None, http_8080, "http://a.test/x");
        check_port(Some("https"), None, http_8080, "https://a.test/x");
        check_port(Some("http"), None, https_8443, "http://a.test/x");
        for came in [http, http_8080] {
            check_port(None, Some(80), came, "http://a.test/x");
            check_port(None, Some(8080), came, "http://a.test:8080/x");
            check_port(None, Some(443), came, "http://a.test:443/x");
        }
        check_port(Some("https"), Some(443), http, "https://a.test/x");
        check_port(Some("https"), Some(80), http, "https://a.test:80/x");
        check_port(Some("https"), Some(8443), http_8080, "https://a.test:8443/x");
    }

    #[test]
    fn announced_bodies_are_limited() {
        let limited = |max| {
            let settings = Settings { body_bytes_max: Some(max), ..Settings::default() };
            Route { settings: Arc::new(settings), ..route("r", path("/")) }
        };
        let client = client("192.0.2.9", false);
        let head = Sample::get("a.test", "/").method("POST").with("content-length", "11");
        check(limited(10), &client, &head, Err((413, "")));
        check(limited(11), &client, &head, Ok(()));
        check(limited(0), &client, &head, Ok(()));
        let guarded = |max| Route { guards: [Guard::DenyAll].into(), ..limited(max) };
        check(guarded(10), &client, &head, Err((413, "")));
        check(guarded(11), &client, &head, Err((403, "")));
    }

    #[test]
    fn a_refusal_has_the_status_that_an_explanation_names() {
        for refusal in Refusal::ALL {
            assert_eq!(Reason::from(refusal).status(), refusal.status(), "{refusal:?}");
        }
    }
}
