//! Tests of calls and grants.

use std::time::Duration;

use ::http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST};
use prometheus::Registry;
use tidegate_config::model::{AppProtocol, Endpoint, Target};
use tokio::net::{TcpListener, TcpSocket};

use super::*;
use crate::budget::{BudgetLimits, Cost};
use crate::options::{AccessLogSink, Options};
use crate::sample_model::backend_key;

fn shared(set: impl FnOnce(&mut Options)) -> Arc<Shared> {
    let mut options = Options { access_log: AccessLogSink::Off, ..Options::default() };
    set(&mut options);
    Shared::new(&options, &Registry::new()).unwrap()
}

/// The facts about a connection whose client has a share.
fn facts_of_client(shared: &Shared) -> Arc<ConnectionFacts> {
    let peer: SocketAddr = ([192, 0, 2, 1], 5000).into();
    let mut facts = ConnectionFacts::sample(peer);
    facts.client = Some(shared.clients.enter(peer.ip(), Cost::PLAIN).unwrap());
    Arc::new(facts)
}

fn auth_backend(endpoints: &[SocketAddr]) -> Arc<Backend> {
    let endpoints = endpoints.iter().map(|address| Endpoint::tcp(*address, None)).collect();
    Arc::new(Backend::new(backend_key("auth"), endpoints))
}

/// A check over HTTP by a service with these endpoints.
fn check_of(shared: &Arc<Shared>, endpoints: &[SocketAddr], until: Option<Instant>) -> AuthCheck {
    let target = Target { backend: backend_key("auth"), protocol: AppProtocol::Http, tls: None, fixed: None };
    let (request_headers, response_headers) = (Box::default(), Box::default());
    let protocol = AuthProtocol::Http { path: "/check".into(), request_headers, response_headers };
    let service = Arc::new(ExternalAuth { target: Arc::new(target), protocol, body_bytes_max: 0 });
    let (backend, facts) = (auth_backend(endpoints), facts_of_client(shared));
    let _charge = CallCharge::new(0, &backend, &facts, shared).unwrap();
    AuthCheck { service, backend, shown: shown("/"), until, facts, _charge }
}

#[test]
fn a_refused_call_leaves_nothing_charged() {
    let limits = BudgetLimits {
        files: 8,
        client_share: 100,
        client_requests: 1,
        service_requests: 1,
        ..BudgetLimits::default()
    };
    let shared = shared(|options| options.budget = limits);
    let (facts, backend) = (facts_of_client(&shared), auth_backend(&[]));
    let call = || CallCharge::new(0, &backend, &facts, &shared);
    let client = facts.client.as_ref().unwrap();
    let free = shared.budget.taken();
    // The client and the service may have one request each, so whatever a refusal leaves behind stops the next call.
    drop(call().expect("there is room"));
    let all = shared.room(Cost::new(8, 0)).unwrap();
    assert_eq!(call().unwrap_err(), CallFailure::NoRoom, "of the edge");
    drop(all);
    let at_service = shared.enter_service(&backend, Cost::EXTERNAL_AUTH).unwrap();
    assert_eq!(call().unwrap_err(), CallFailure::Overloaded);
    drop(at_service);
    assert!(client.charge(Cost::EXTERNAL_AUTH));
    assert_eq!(call().unwrap_err(), CallFailure::NoRoom, "of the client");
    client.release(Cost::EXTERNAL_AUTH);
    drop(call().expect("there is room again"));
    assert_eq!(shared.budget.taken(), free);
}

/// Asks a service that takes the connection and never answers; returns whether its endpoint is penalised.
async fn is_penalised(patience: Duration, own_deadline: Option<Duration>) -> bool {
    let shared = shared(|options| options.upstream.external_auth = patience);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let check = check_of(&shared, &[address], own_deadline.map(|deadline| clock::now() + deadline));
    let result = ask(&check, Bytes::new(), &shared).await;
    assert!(matches!(result, CheckResult::Failed(CallFailure::Timeout)), "{result:?}");
    let (id, now) = (Endpoint::tcp(address, None).id, shared.endpoints.moment(clock::now()));
    shared.endpoints.peek(id, |state| state.load(now).latency_us).expect("it was asked").is_some()
}

#[tokio::test]
async fn an_endpoint_is_not_penalised_for_the_deadline_of_the_request() {
    let (short, long) = (Duration::from_millis(50), Duration::from_secs(60));
    assert!(is_penalised(short, None).await);
    assert!(is_penalised(short, Some(long)).await);
    assert!(!is_penalised(long, Some(short)).await);
}

#[tokio::test]
async fn a_check_tries_three_endpoints_that_refuse_connections() {
    let shared = shared(|_| ());
    // Bound without listening, so that nothing else gets these addresses.
    let sockets = [(); 5].map(|()| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        socket
    });
    let addresses = sockets.each_ref().map(|socket| socket.local_addr().unwrap());
    let result = ask(&check_of(&shared, &addresses, None), Bytes::new(), &shared).await;
    assert!(matches!(result, CheckResult::Failed(CallFailure::ConnectFailed)), "{result:?}");
    let tried = |address: &&SocketAddr| shared.endpoints.peek(Endpoint::tcp(**address, None).id, |_| ()).is_some();
    assert_eq!(addresses.iter().filter(tried).count(), 3);
}

fn shown(target: &str) -> AuthRequest {
    let mut headers = HeaderMap::new();
    for (name, value) in [("host", "a.test:8080"), ("authorization", "t"), ("cookie", "a"), ("x-a", "1"), ("x-a", "2")]
    {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    AuthRequest {
        method: "POST".into(),
        target: target.into(),
        scheme: "http",
        protocol: "HTTP/1.1",
        headers,
        request_id: "id".into(),
        client: ([192, 0, 2, 1], 1).into(),
        local: ([192, 0, 2, 2], 2).into(),
        server_name: None,
        time: SystemTime::UNIX_EPOCH,
        size: Some(3),
    }
}

#[track_caller]
fn check_target(prefix: &str, target: &str, want: Option<&str>) {
    let request = http::request(&shown(target), (prefix, &[]), false, Bytes::new());
    let got = request.map(|request| request.uri().path_and_query().unwrap().to_string());
    assert_eq!(got.as_deref(), want, "{target} behind {prefix}");
}

#[test]
fn an_authorisation_request_has_the_path_after_the_prefix() {
    check_target("", "/a?b=c", Some("/a?b=c"));
    check_target("/check", "/a?b=c", Some("/check/a?b=c"));
    check_target("/check/", "/a", Some("/check/a"));
    check_target("/check", "*", Some("/check/*"));
    check_target("/check", "/a b", None);
}

#[test]
fn an_authorisation_request_has_its_host_in_the_place_of_its_protocol() {
    let allowed = ["x-a", "host", "content-length", "authorization"].map(HeaderName::from_static);
    let request = |http2| http::request(&shown("/"), ("", &allowed), http2, Bytes::from_static(b"abc")).unwrap();
    let http1 = request(false);
    let text = |name: &HeaderName| {
        let values = http1.headers().get_all(name).iter().map(|value| value.to_str().unwrap());
        values.collect::<Vec<_>>().join("|")
    };
    let names =
        [HOST, AUTHORIZATION, CONTENT_LENGTH, HeaderName::from_static("x-a"), HeaderName::from_static("cookie")];
    assert_eq!(names.each_ref().map(text), ["a.test:8080", "t", "3", "1|2", ""]);
    let http2 = request(true);
    assert_eq!((http2.uri().host(), http2.headers().contains_key(HOST)), (Some("a.test"), false));
}

#[test]
fn an_identity_that_would_corrupt_the_log_is_ignored() {
    let of = |text: &'static str| identity(|name| (name.as_str() == "remote-user").then_some(text.as_bytes()));
    assert_eq!(of("ann").as_deref(), Some("ann"));
    assert!(of("").is_none() && of("a\nb").is_none() && of(&"x".repeat(257).leak()[..]).is_none());
}
