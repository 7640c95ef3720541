//! Routes with session persistence, with both drivers: the endpoint for a client with a session token, and the token in
//! the response.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use tidegate_config::model::{
    Action, AppProtocol, Backend, BackendKey, Endpoint, RetryPolicy, Route, SameSite, SessionCarrier, SessionCookie,
    SessionKey, SessionPersistence, Settings, Target, WeightedTarget,
};
use tidegate_config::object::{ObjectName, Uid};
use tidegate_proxy::Driver;

use super::bed::{Answer, Bed, Model, PATIENCE, closed_port, route};
use super::upstream::{Reply, Upstream};

const DRIVERS: [Driver; 2] = [Driver::Both, Driver::Pingora];

fn by(carrier: SessionCarrier, absolute_timeout: Option<Duration>) -> Settings {
    let key = SessionKey::of_rule(Uid::parse("6f1de5f4-3f0c-4d5e-9a1c-2f6a0c1b7d3e").unwrap(), "");
    let session = Some(Arc::new(SessionPersistence { key, carrier, absolute_timeout, change_on_failure: true }));
    Settings { session, ..Settings::default() }
}

fn by_cookie(absolute_timeout: Option<Duration>) -> Settings {
    let (name, permanent) = ("sticky".into(), absolute_timeout.is_some());
    let cookie = SessionCookie { name, path: None, permanent, same_site: SameSite::Lax, secure: None };
    by(SessionCarrier::Cookie(cookie), absolute_timeout)
}

/// An endpoint that answers with its name.
async fn named(name: &str) -> Upstream {
    let length = name.len();
    let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nSet-Cookie: own=1\r\n\r\n{name}");
    Upstream::start(move |_| Reply::Send(text.clone())).await
}

/// Services with endpoints, and one route with shares of them by these weights.
fn model(settings: Settings, services: &[(&str, u32, &[SocketAddr])]) -> Model {
    let target = |name: &str| {
        let backend = BackendKey::tcp(ObjectName::new("shop", name), 80);
        Arc::new(Target { backend, protocol: AppProtocol::Http, tls: None, fixed: None })
    };
    let shares = services.iter().map(|(name, weight, _)| WeightedTarget::new(target(name), *weight));
    let route = Route {
        action: Action::Forward(shares.collect()),
        settings: Arc::new(settings),
        ..route("web", AppProtocol::Http)
    };
    let model = Model::default().route("a.test", route);
    services.iter().fold(model, |model, (name, _, endpoints)| model.backend(name, endpoints))
}

/// The value of the session's cookie, if the answer sets it.
fn given(answer: &Answer) -> Option<&str> {
    let mut cookies = answer
        .raw
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    cookies.find_map(|(_, value)| value.strip_prefix("sticky=")?.split(';').next())
}

async fn with_cookie(bed: &Bed, value: &str) -> Answer {
    bed.get("a.test", "/", &format!("Cookie: a=b; sticky={value}\r\n")).await
}

#[tokio::test]
async fn a_client_returns_to_its_endpoint_and_gets_one_token() {
    let (one, two, three) = (named("one").await, named("two").await, named("three").await);
    for driver in DRIVERS {
        let endpoints = [one.address, two.address, three.address];
        let bed = Bed::with(model(by_cookie(None), &[("web", 1, &endpoints)]), |it| it.driver = driver).await;
        let first = bed.get("a.test", "/", "").await;
        let token = given(&first).expect("a cookie").to_owned();
        assert!(first.raw.contains(&format!("sticky={token}; Path=/; HttpOnly; SameSite=Lax\r\n")), "{}", first.raw);
        assert!(first.head.contains("set-cookie: own=1\r\n"), "{}", first.head);
        for _ in 0..50 {
            let again = with_cookie(&bed, &token).await;
            assert_eq!((again.body.as_str(), given(&again)), (first.body.as_str(), None), "{driver:?}");
            assert!(again.head.contains("set-cookie: own=1\r\n"), "{}", again.head);
        }
        let metrics = bed.metrics();
        for line in ["tidegate_sessions_total{outcome=\"kept\"} 50", "tidegate_sessions_total{outcome=\"began\"} 1"] {
            assert!(metrics.contains(line), "{metrics}");
        }
        // Without the cookie all endpoints are used, and each client gets a token for its endpoint. A slow first
        // response is followed by another request after some seconds.
        let mut tokens = BTreeMap::new();
        for _ in 0..1200 {
            let answer = bed.get("a.test", "/", "Cookie: other=1\r\n").await;
            tokens.insert(answer.body.clone(), given(&answer).expect("a cookie").to_owned());
            if tokens.len() == 3 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(tokens.len(), 3, "{driver:?}");
        assert_eq!(tokens[&first.body], token, "{driver:?}");
    }
}

#[tokio::test]
async fn an_invalid_token_is_replaced() {
    let (one, two) = (named("one").await, named("two").await);
    for driver in DRIVERS {
        let model = model(by_cookie(None), &[("web", 1, &[one.address, two.address])]);
        let bed = Bed::with(model, |it| it.driver = driver).await;
        let token = given(&bed.get("a.test", "/", "").await).expect("a cookie").to_owned();
        let changed = format!("{}{}", if token.starts_with('A') { 'B' } else { 'A' }, &token[1..]);
        let cases = ["", "x", "\"", &one.address.to_string(), &changed, &"A".repeat(43), &"A".repeat(7000)];
        for value in cases {
            let answer = with_cookie(&bed, value).await;
            assert_eq!((answer.status, given(&answer).is_some()), (200, true), "{driver:?} {value:.50}");
        }
        let mixed = format!("Cookie: sticky=x; sticky={changed}\r\nCookie: sticky={token}\r\n");
        let answer = bed.get("a.test", "/", &mixed).await;
        assert_eq!((answer.status, given(&answer)), (200, None), "{driver:?}");
    }
}

#[tokio::test]
async fn a_token_of_a_removed_endpoint_is_replaced() {
    let (one, two) = (named("one").await, named("two").await);
    for driver in DRIVERS {
        let alone = Bed::with(model(by_cookie(None), &[("web", 1, &[one.address])]), |it| it.driver = driver).await;
        let token = given(&alone.get("a.test", "/", "").await).expect("a cookie").to_owned();
        let other = Bed::with(model(by_cookie(None), &[("web", 1, &[two.address])]), |it| it.driver = driver).await;
        let moved = with_cookie(&other, &token).await;
        let new = given(&moved).expect("a new cookie").to_owned();
        assert_eq!(moved.body, "two");
        assert!(other.metrics().contains("tidegate_sessions_total{outcome=\"moved\"} 1"), "{}", other.metrics());
        let kept = with_cookie(&other, &new).await;
        assert_eq!((kept.body.as_str(), given(&kept)), ("two", None), "{driver:?}");
    }
}

#[tokio::test]
async fn a_terminating_endpoint_serves_only_its_sessions() {
    let (one, two) = (named("one").await, named("two").await);
    for driver in DRIVERS {
        let before = Bed::with(model(by_cookie(None), &[("web", 1, &[one.address])]), |it| it.driver = driver).await;
        let token = given(&before.get("a.test", "/", "").await).expect("a cookie").to_owned();
        let mut model = model(by_cookie(None), &[("web", 1, &[])]);
        let key = BackendKey::tcp(ObjectName::new("shop", "web"), 80);
        let of = |address| [Endpoint::tcp(address, None)].into();
        let backend = Backend { draining: of(one.address), ..Backend::new(key.clone(), of(two.address)) };
        model.parts.backends.insert_mut(key, Arc::new(backend));
        let bed = Bed::with(model, |it| it.driver = driver).await;
        for _ in 0..20 {
            let kept = with_cookie(&bed, &token).await;
            assert_eq!((kept.body.as_str(), given(&kept)), ("one", None), "{driver:?}");
            assert_eq!(bed.get("a.test", "/", "").await.body, "two", "{driver:?}");
        }
    }
}

#[tokio::test]
async fn weights_apply_to_new_sessions_only() {
    let (one, two) = (named("one").await, named("two").await);
    for driver in DRIVERS {
        let shares = |weights: [u32; 2]| {
            let (one, two) = ([one.address], [two.address]);
            model(by_cookie(None), &[("old", weights[0], &one), ("new", weights[1], &two)])
        };
        let bed = Bed::with(shares([1, 0]), |it| it.driver = driver).await;
        let token = given(&bed.get("a.test", "/", "").await).expect("a cookie").to_owned();
        let bed = Bed::with(shares([0, 1]), |it| it.driver = driver).await;
        for _ in 0..20 {
            let kept = with_cookie(&bed, &token).await;
            assert_eq!((kept.body.as_str(), given(&kept)), ("one", None), "{driver:?}");
            assert_eq!(bed.get("a.test", "/", "").await.body, "two", "{driver:?}");
        }
    }
}

#[tokio::test]
async fn a_failing_endpoint_loses_its_session_unless_it_is_kept_on_failure() {
    let two = named("two").await;
    let unable = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    let broken = Upstream::start(|_| Reply::Send(unable.to_owned())).await;
    for (driver, failing) in DRIVERS.into_iter().flat_map(|driver| [(driver, closed_port()), (driver, broken.address)])
    {
        let retry = Arc::new(RetryPolicy { statuses: [503].into(), attempts: 2, backoff: Duration::ZERO });
        let settings = || Settings { retry: Some(Arc::clone(&retry)), ..by_cookie(None) };
        // The token of an endpoint does not depend on the bed.
        let same = Bed::with(model_of(settings(), &[two.address]), |it| it.driver = driver).await;
        let of_two = given(&same.get("a.test", "/", "").await).expect("a cookie").to_owned();
        let bed = Bed::with(model_of(settings(), &[failing, two.address]), |it| it.driver = driver).await;
        let of_failing = token_of(failing);
        let moved = with_cookie(&bed, &of_failing).await;
        assert_eq!((moved.body.as_str(), given(&moved)), ("two", Some(&*of_two)), "{driver:?}");
        let kept = with_cookie(&bed, &of_two).await;
        assert_eq!((kept.body.as_str(), given(&kept)), ("two", None), "{driver:?}");

        // A request of a session that is kept on failure is answered by the other endpoint, and gets no new token.
        let staying = |settings: Settings| {
            let session = settings.session.map(|session| {
                Arc::new(SessionPersistence { change_on_failure: false, ..SessionPersistence::clone(&session) })
            });
            Settings { session, ..settings }
        };
        let endpoints = [failing, two.address];
        let bed = Bed::with(model_of(staying(settings()), &endpoints), |it| it.driver = driver).await;
        let stays = with_cookie(&bed, &of_failing).await;
        assert_eq!((stays.body.as_str(), given(&stays)), ("two", None), "{driver:?}");
        // When the endpoint is removed, the session moves.
        let bed = Bed::with(model_of(staying(settings()), &endpoints[1..]), |it| it.driver = driver).await;
        let moved = with_cookie(&bed, &of_failing).await;
        assert_eq!((moved.body.as_str(), given(&moved)), ("two", Some(&*of_two)), "{driver:?}");
    }
}

/// One Service with these endpoints.
fn model_of(settings: Settings, endpoints: &[SocketAddr]) -> Model {
    model(settings, &[("web", 1, endpoints)])
}

/// The token that an edge would have written for an endpoint of `web`.
fn token_of(address: SocketAddr) -> String {
    let settings = by_cookie(None);
    let key = &settings.session.as_ref().unwrap().key;
    let share = b"shop/web:\0\x50\0"
        .iter()
        .fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    let endpoint = Endpoint::tcp(address, None).id;
    let token = key.seal(&tidegate_config::model::SessionToken { endpoint, share, began_s: 0 });
    String::from_utf8(token.to_vec()).unwrap()
}

#[tokio::test]
async fn a_closed_idle_connection_does_not_move_a_session() {
    // An endpoint that closes the connection at its second request.
    let fickle =
        |name: &'static str| Upstream::start(move |seen| if seen.number == 1 { Reply::ok(name) } else { Reply::Close });
    let (one, two) = (fickle("one").await, fickle("two").await);
    for driver in DRIVERS {
        let model = model(by_cookie(None), &[("web", 1, &[one.address, two.address])]);
        let bed = Bed::with(model, |it| it.driver = driver).await;
        let first = bed.get("a.test", "/", "").await;
        let token = given(&first).expect("a cookie").to_owned();
        for _ in 0..30 {
            let again = with_cookie(&bed, &token).await;
            assert_eq!((again.body.as_str(), given(&again)), (first.body.as_str(), None), "{driver:?}");
        }
    }
}

#[tokio::test]
async fn a_session_ends_after_its_maximum_age() {
    let one = named("one").await;
    for driver in DRIVERS {
        let limited = by_cookie(Some(Duration::from_secs(2)));
        let bed = Bed::with(model(limited, &[("web", 1, &[one.address])]), |it| it.driver = driver).await;
        let first = bed.get("a.test", "/", "").await;
        assert!(first.head.contains("; max-age=2; "), "{}", first.head);
        let token = given(&first).expect("a cookie").to_owned();
        // The session lasts for two to three seconds, because its start is in whole seconds.
        let ended = async {
            while given(&with_cookie(&bed, &token).await).is_none() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("a session without end");
        assert!(bed.metrics().contains("tidegate_sessions_total{outcome=\"began\"} 2"), "{}", bed.metrics());
    }
}

#[tokio::test]
async fn a_header_carries_the_session_if_the_route_says_so() {
    let (one, two) = (named("one").await, named("two").await);
    for driver in DRIVERS {
        let settings = by(SessionCarrier::Header(HeaderName::from_static("x-session")), None);
        let model = model(settings, &[("web", 1, &[one.address, two.address])]);
        let bed = Bed::with(model, |it| it.driver = driver).await;
        let first = bed.get("a.test", "/", "").await;
        let lines = first.raw.lines().filter_map(|line| line.split_once(": "));
        let mut tokens = lines.filter(|(name, _)| name.eq_ignore_ascii_case("x-session"));
        let token = tokens.next().expect("a header").1.to_owned();
        for _ in 0..50 {
            let again = bed.get("a.test", "/", &format!("X-Session: {token}\r\n")).await;
            assert_eq!((again.body.as_str(), again.header("x-session")), (first.body.as_str(), None), "{driver:?}");
        }
        let forged = bed.get("a.test", "/", "X-Session: 10.0.0.1:80\r\n").await;
        assert_eq!((forged.status, forged.header("x-session").is_some()), (200, true), "{driver:?}");
    }
}

/// The body of an HTTP/2 answer to a request with these cookies, each in a field of its own, and the cookie that it
/// sets.
async fn over_http2(bed: &Bed, cookies: &[String]) -> (String, Option<String>) {
    let (send, connection) = h2::client::handshake(bed.connect().await).await.unwrap();
    tokio::spawn(connection);
    let mut request = http::Request::get("http://a.test/");
    for cookie in cookies {
        request = request.header("cookie", cookie);
    }
    let (response, _) = send.ready().await.unwrap().send_request(request.body(()).unwrap(), true).unwrap();
    let (head, mut body) = tokio::time::timeout(PATIENCE, response).await.expect("no answer").unwrap().into_parts();
    let mut text = Vec::new();
    while let Some(piece) = body.data().await {
        text.extend_from_slice(&piece.unwrap());
    }
    let mut cookies = head.headers.get_all("set-cookie").iter().filter_map(|value| value.to_str().ok());
    let token = cookies.find_map(|value| value.strip_prefix("sticky=")?.split(';').next()).map(str::to_owned);
    (String::from_utf8(text).unwrap(), token)
}

#[tokio::test]
async fn http2_cookies_in_separate_fields_are_read() {
    let (one, two) = (named("one").await, named("two").await);
    for driver in DRIVERS {
        let model = model(by_cookie(None), &[("web", 1, &[one.address, two.address])]);
        let bed = Bed::with(model, |it| it.driver = driver).await;
        let (first, token) = over_http2(&bed, &[]).await;
        let token = token.expect("a cookie");
        let cookies = ["a=b".to_owned(), format!("sticky={token}"), "c=d".to_owned()];
        for _ in 0..50 {
            assert_eq!(over_http2(&bed, &cookies).await, (first.clone(), None), "{driver:?}");
        }
        let (_, token) = over_http2(&bed, &["sticky=x".to_owned(), "sticky".to_owned()]).await;
        assert!(token.is_some(), "{driver:?}");
    }
}
