//! Requests that an authorisation service must allow, over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{COOKIE, HeaderName};
use http::{HeaderMap, Request};
use tidegate_config::model::{
    Action, AppProtocol, AuthProtocol, BackendKey, Destination, ExternalAuth, Filter, Guard, HeaderEdits, Settings,
    Target, WeightedTarget,
};
use tidegate_config::object::ObjectName;
use tidegate_proxy::{AccessLogSink, Driver, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::bed::{Bed, Model, PATIENCE, answer, closed_port};
use super::retries::WAYS;
use super::upstream::{Reply, Upstream};

/// The response for a client.
pub struct Got {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Got {
    /// All values of a header, joined by `|`.
    pub fn header(&self, name: &str) -> String {
        let values = self.headers.get_all(name).iter().map(|value| value.to_str().unwrap());
        values.collect::<Vec<_>>().join("|")
    }
}

/// Sends a request; `chunked` sends the body without its length.
pub async fn send(bed: &Bed, http2: bool, what: (&str, &str), lines: &[(&str, &str)], body: (&str, bool)) -> Got {
    let ((method, target), (body, chunked)) = (what, body);
    if http2 {
        return send_http2(bed, what, lines, (body, chunked)).await;
    }
    let lines: String = lines.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let (framing, body) = match (body, chunked) {
        ("", false) => (String::new(), String::new()),
        (_, false) => (format!("Content-Length: {}\r\n", body.len()), body.to_owned()),
        (_, true) => {
            let chunk = if body.is_empty() { String::new() } else { format!("{:x}\r\n{body}\r\n", body.len()) };
            ("Transfer-Encoding: chunked\r\n".to_owned(), format!("{chunk}0\r\n\r\n"))
        }
    };
    let mut stream = bed.connect().await;
    let head = format!("{method} {target} HTTP/1.1\r\nHost: a.test\r\n{lines}{framing}\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let got = answer(&mut stream).await;
    let lines = got.head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let headers = lines.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()));
    Got { status: got.status, headers: headers.collect(), body: got.body }
}

async fn send_http2(bed: &Bed, (method, target): (&str, &str), lines: &[(&str, &str)], body: (&str, bool)) -> Got {
    let (body, chunked) = body;
    let (mut send, connection) = h2::client::handshake(bed.connect().await).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(format!("http://a.test{target}"));
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    if !body.is_empty() && !chunked {
        request = request.header("content-length", body.len());
    }
    let bodiless = body.is_empty() && !chunked;
    let (response, mut stream) = send.send_request(request.body(()).unwrap(), bodiless).unwrap();
    if !bodiless {
        stream.send_data(Bytes::from(body.to_owned()), true).unwrap();
    }
    let (parts, mut stream) = timeout(PATIENCE, response).await.expect("no answer").unwrap().into_parts();
    let mut got = Vec::new();
    while let Some(piece) = timeout(PATIENCE, stream.data()).await.expect("no end") {
        let piece = piece.unwrap();
        stream.flow_control().release_capacity(piece.len()).unwrap();
        got.extend_from_slice(&piece);
    }
    Got { status: parts.status.as_u16(), headers: parts.headers, body: String::from_utf8(got).unwrap() }
}

/// An authorisation service at the Service `shop/auth`.
pub fn service(protocol: AuthProtocol, spoken: AppProtocol, body_bytes_max: u32) -> Arc<ExternalAuth> {
    let backend = BackendKey::tcp(ObjectName::new("shop", "auth"), 80);
    let target = Arc::new(Target { backend, protocol: spoken, tls: None, fixed: None });
    Arc::new(ExternalAuth { target, protocol, body_bytes_max })
}

fn names(names: &[&'static str]) -> Box<[HeaderName]> {
    names.iter().map(|name| HeaderName::from_static(name)).collect()
}

pub fn over_http(request: &[&'static str], response: &[&'static str], body_bytes_max: u32) -> Arc<ExternalAuth> {
    let (request_headers, response_headers) = (names(request), names(response));
    let protocol = AuthProtocol::Http { path: "/check".into(), request_headers, response_headers };
    service(protocol, AppProtocol::Http, body_bytes_max)
}

/// A route to `endpoint` with a guard that asks a service with these endpoints.
pub async fn bed(
    service: &Arc<ExternalAuth>,
    endpoint: SocketAddr,
    auth: &[SocketAddr],
    set: impl FnOnce(&mut Options),
) -> Bed {
    let model = Model::edited(&[endpoint], |route| route.guards = [Guard::ExternalAuth(Arc::clone(service))].into());
    Bed::with(model.backend("auth", auth), set).await
}

pub fn by(driver: Driver) -> impl FnOnce(&mut Options) {
    move |options| options.driver = driver
}

pub async fn until_counted(bed: &Bed, outcome: &str, reason: &str, count: u32) {
    let labels = format!(r#"outcome="{outcome}",reason="{reason}""#);
    bed.until_metric(&format!("tidegate_external_auth_total{{{labels}}} {count}")).await;
    bed.until_metric("tidegate_external_auth_in_flight 0").await;
}

fn reply(status: &str, lines: &[&str], body: &str) -> Reply {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    Reply::Send(format!("HTTP/1.1 {status}\r\n{lines}Content-Length: {}\r\n\r\n{body}", body.len()))
}

#[tokio::test]
async fn an_allowed_request_carries_the_headers_of_the_service_only() {
    let mut upstream = Upstream::echo().await;
    let lines = ["X-User: ann", "X-Group: a", "X-Group: b", "Remote-User: ann", "X-Other: 1", "Host: evil.test"];
    let mut auth = Upstream::start(move |_| reply("200 OK", &lines, "yes")).await;
    let service = over_http(&["x-tenant", "x-forwarded-for", "content-length"], &["x-user", "x-group", "x-none"], 0);
    for (driver, http2) in WAYS {
        let what = format!("{driver:?}, HTTP/2: {http2}");
        let bed = bed(&service, upstream.address, &[auth.address], by(driver)).await;
        for number in 1..=2 {
            let lines = [
                ("authorization", "Bearer t"),
                ("x-tenant", "t1"),
                ("cookie", "c=1"),
                ("x-user", "mallory"),
                ("x_user", "mallory"),
                ("x-none", "mallory"),
                ("x-forwarded-for", "192.0.2.1"),
            ];
            let got = send(&bed, http2, ("POST", "/a/../b?c=d"), &lines, ("abc", false)).await;
            assert_eq!((got.status, got.body.as_str()), (200, "POST /b?c=d HTTP/1.1"), "{what}");
            let asked = auth.seen().await;
            assert_eq!((asked.line.as_str(), asked.body.as_str()), ("POST /check/b?c=d HTTP/1.1", ""), "{what}");
            let sent = ["host", "content-length", "authorization", "x-tenant", "x-forwarded-for", "cookie", "x-user"];
            let want = ["a.test", "0", "Bearer t", "t1", "127.0.0.1", "", ""];
            assert_eq!(sent.map(|name| asked.header(name)), want, "{what}");
            assert_eq!(asked.number, number, "{what}: each question has a connection of its own");
            let seen = upstream.seen().await;
            let sent = ["x-user", "x_user", "x-group", "x-none", "x-other", "host", "authorization", "cookie"];
            let want = ["ann", "", "a|b", "", "", "a.test", "Bearer t", "c=1"];
            assert_eq!(sent.map(|name| seen.header(name)), want, "{what}");
            assert_eq!(seen.body, "abc", "{what}");
        }
        assert!(auth.is_quiet() && upstream.is_quiet(), "{what}: asked once");
        until_counted(&bed, "allowed", "", 2).await;
        bed.until_metric("tidegate_external_auth_duration_seconds_count 2").await;
        bed.drain().await;
    }
}

/// The heads of one answer have 64 KiB together, whole or not, on a new connection and on one that was used before.
#[tokio::test]
async fn the_head_of_an_answer_has_at_most_64_kib() {
    const MAX: usize = 64 * 1024;
    /// A head of this many bytes, mostly spaces or letters.
    fn head(bytes: usize, fill: &str) -> String {
        let begin = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Pad: ";
        format!("{begin}{}x\r\n\r\n", fill.repeat(bytes - begin.len() - 5))
    }
    let interim = "HTTP/1.1 103 Early Hints\r\n\r\n";
    let upstream = Upstream::echo().await;
    let auth = Upstream::start(move |seen| {
        let path = seen.line.split(['/', ' ']).nth(3).unwrap_or_default();
        let size = |text: &str| text.parse::<usize>().unwrap();
        match path.split_once('-').unwrap() {
            ("keep", bytes) => Reply::Send(head(size(bytes), "x")),
            ("close", bytes) => Reply::SendAndClose(head(size(bytes), "x")),
            ("spaces", bytes) => Reply::Send(head(size(bytes), " ")),
            ("interim", bytes) => Reply::Send(format!("{interim}{}", head(size(bytes), "x"))),
            (other, _) => panic!("{other}"),
        }
    })
    .await;
    let service = over_http(&[], &["x-user"], 0);
    for (driver, http2) in WAYS {
        let bed = bed(&service, upstream.address, &[auth.address], by(driver)).await;
        for (path, want) in [
            (format!("keep-{MAX}"), 200),
            (format!("keep-{MAX}"), 200),
            (format!("keep-{}", MAX + 1), 503),
            (format!("keep-{MAX}"), 200),
            ("keep-66000".to_owned(), 503),
            (format!("close-{MAX}"), 200),
            (format!("close-{}", MAX + 1), 503),
            ("close-70000".to_owned(), 503),
            (format!("spaces-{MAX}"), 200),
            (format!("spaces-{}", MAX + 1), 503),
            (format!("interim-{}", MAX - interim.len()), 200),
            (format!("interim-{}", MAX - interim.len() + 1), 503),
            ("keep-200".to_owned(), 200),
        ] {
            let got = send(&bed, http2, ("GET", &format!("/{path}")), &[], ("", false)).await;
            assert_eq!(got.status, want, "{driver:?}, HTTP/2: {http2}: {path}");
        }
        until_counted(&bed, "failed", "broken", 6).await;
        bed.drain().await;
    }
}

#[tokio::test]
async fn without_a_list_all_but_hop_by_hop_and_body_headers_are_granted() {
    let mut upstream = Upstream::echo().await;
    let lines = ["X-User: ann", "Connection: keep-alive, X-Hop", "X-Hop: 1", "Content-Type: a/b", "Date: now"];
    let auth = Upstream::start(move |_| reply("200 OK", &lines, "yes")).await;
    let service = over_http(&[], &[], 0);
    for (driver, http2) in WAYS {
        let bed = bed(&service, upstream.address, &[auth.address], by(driver)).await;
        let lines = [("content-type", "c/d")];
        assert_eq!(send(&bed, http2, ("POST", "/"), &lines, ("abc", false)).await.status, 200);
        let seen = upstream.seen().await;
        let got = ["x-user", "x-hop", "content-type", "date", "content-length"].map(|name| seen.header(name));
        assert_eq!(got, ["ann", "", "c/d", "", "3"], "{driver:?}, HTTP/2: {http2}");
    }
}

#[tokio::test]
async fn a_denial_reaches_the_client_with_its_headers_and_its_body() {
    let mut upstream = Upstream::echo().await;
    let lines =
        ["WWW-Authenticate: Basic", "Set-Cookie: a=1", "Set-Cookie: b=2", "Connection: x-hop", "X-Hop: 1", "X-Why: no"];
    let auth = Upstream::start(move |seen| match seen.line.contains("elsewhere") {
        true => reply("302 Found", &["Location: https://login.test/"], ""),
        false => reply("401 Unauthorized", &lines, "log in"),
    })
    .await;
    let service = over_http(&[], &["x-user"], 0);
    for (driver, http2) in WAYS {
        let what = format!("{driver:?}, HTTP/2: {http2}");
        let bed = bed(&service, upstream.address, &[auth.address], by(driver)).await;
        let got = send(&bed, http2, ("GET", "/"), &[], ("", false)).await;
        assert_eq!((got.status, got.body.as_str()), (401, "log in"), "{what}");
        let sent = ["www-authenticate", "set-cookie", "x-why", "x-hop", "content-length"].map(|name| got.header(name));
        let challenge = if http2 { "Basic" } else { "basic" };
        assert_eq!(sent, [challenge, "a=1|b=2", "no", "", "6"], "{what}");
        let got = send(&bed, http2, ("GET", "/elsewhere"), &[], ("", false)).await;
        assert_eq!((got.status, got.header("location").as_str()), (302, "https://login.test/"), "{what}");
        let lines = [("content-type", "application/grpc"), ("te", "trailers")];
        let got = send(&bed, http2, ("POST", "/"), &lines, ("abc", false)).await;
        assert_eq!((got.status, got.header("grpc-status").as_str(), got.body.as_str()), (200, "16", ""), "{what}");
        assert!(upstream.is_quiet(), "{what}");
        until_counted(&bed, "denied", "", 3).await;
        bed.until_metric(r#"tidegate_requests_by_reason_total{reason="external-auth-denied"} 3"#).await;
    }
}

#[tokio::test]
async fn no_request_passes_without_a_valid_answer_in_time() {
    let mut upstream = Upstream::echo().await;
    let silent = Upstream::start(|_| Reply::Silence).await;
    let gone = Upstream::start(|_| Reply::Close).await;
    let nonsense = Upstream::start(|_| Reply::SendAndClose("yes\r\n\r\n".to_owned())).await;
    let long = Upstream::start(|_| reply("403 Forbidden", &[], &"x".repeat(100_000))).await;
    let allows = Upstream::start(|_| reply("200 OK", &[], "")).await;
    let service = over_http(&[], &[], 0);
    let (none, two): (&[SocketAddr], _) = (&[], [closed_port(), closed_port()]);
    for (driver, http2) in WAYS {
        for (endpoints, status, reason) in [
            (none, 503, "no-endpoint"),
            (&two, 503, "connect-failed"),
            (&[silent.address], 504, "timeout"),
            (&[gone.address], 503, "broken"),
            (&[nonsense.address], 503, "broken"),
            (&[long.address], 503, "broken"),
        ] {
            let what = format!("{driver:?}, HTTP/2: {http2}, {reason}");
            let set = |options: &mut Options| {
                options.driver = driver;
                // Only a silent service needs the timeout.
                options.upstream.external_auth = if status == 504 { Duration::from_millis(300) } else { PATIENCE };
            };
            let bed = bed(&service, upstream.address, endpoints, set).await;
            let got = send(&bed, http2, ("GET", "/"), &[], ("", false)).await;
            assert_eq!(got.status, status, "{what}");
            assert!(got.body.contains("reason: external-auth-"), "{what}: {}", got.body);
            assert!(upstream.is_quiet(), "{what}");
            until_counted(&bed, "failed", reason, 1).await;
        }
        // An endpoint that refuses connections is skipped for the next one.
        let bed = bed(&service, upstream.address, &[closed_port(), allows.address], by(driver)).await;
        for _ in 0..4 {
            assert_eq!(send(&bed, http2, ("GET", "/"), &[], ("", false)).await.status, 200);
            upstream.seen().await;
        }
    }
}

#[tokio::test]
async fn a_body_up_to_the_limit_is_shown_and_forwarded_whole() {
    let mut upstream = Upstream::echo().await;
    let mut auth = Upstream::start(|_| reply("200 OK", &[], "")).await;
    let largest = ExternalAuth::BODY_BYTES_MAX;
    for (driver, http2) in WAYS {
        for (max, length) in [(10, 10), (10, 0), (largest, largest), (10, 11), (largest, largest + 1), (10, 300_000)] {
            for chunked in [false, true] {
                let what = format!("{driver:?}, HTTP/2: {http2}, {length} of {max}, chunked: {chunked}");
                let service = over_http(&[], &[], max);
                let bed = bed(&service, upstream.address, &[auth.address], by(driver)).await;
                let body = "0123456789".repeat(length as usize / 10 + 1);
                let body = &body[..length as usize];
                let got = send(&bed, http2, ("POST", "/"), &[], (body, chunked)).await;
                if length > max {
                    assert_eq!(got.status, 413, "{what}");
                    assert!(auth.is_quiet() && upstream.is_quiet(), "{what}");
                    continue;
                }
                assert_eq!(got.status, 200, "{what}");
                let asked = auth.seen().await;
                assert!(asked.body == body && asked.header("content-length") == length.to_string(), "{what}");
                let seen = upstream.seen().await;
                assert!(seen.body.contains(body), "{what}: {} bytes", seen.body.len());
                assert!(length > 0 || !seen.body.contains('3'), "{what}: {}", seen.body);
            }
        }
    }
}

#[tokio::test]
async fn a_body_that_is_announced_as_too_large_is_not_awaited() {
    let mut upstream = Upstream::echo().await;
    let mut auth = Upstream::start(|_| reply("200 OK", &[], "")).await;
    for driver in [Driver::Both, Driver::Pingora] {
        let bed = bed(&over_http(&[], &[], 10), upstream.address, &[auth.address], by(driver)).await;
        let answer = bed.ask("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 11\r\n\r\n").await;
        assert_eq!(answer.status, 413, "{driver:?}: {}", answer.body);
        assert!(auth.is_quiet() && upstream.is_quiet(), "{driver:?}");
    }
}

#[tokio::test]
async fn the_timeout_of_a_request_bounds_the_wait_for_the_body_of_a_check() {
    let mut upstream = Upstream::echo().await;
    let mut auth = Upstream::start(|_| reply("200 OK", &[], "")).await;
    let limit = Some(Duration::from_millis(300));
    for driver in [Driver::Both, Driver::Pingora] {
        for settings in [
            Settings { request_timeout: limit, ..Settings::default() },
            Settings { total_timeout: limit, ..Settings::default() },
        ] {
            let model = Model::edited(&[upstream.address], |route| {
                route.guards = [Guard::ExternalAuth(over_http(&[], &[], 10))].into();
                route.settings = Arc::new(settings);
            });
            let bed = Bed::with(model.backend("auth", &[auth.address]), by(driver)).await;
            let answer = bed.ask("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nab").await;
            let is_timeout = answer.body.contains("reason: upstream-timeout\n");
            assert_eq!((answer.status, is_timeout), (504, true), "{driver:?}: {}", answer.body);
            assert_eq!(answer.header("connection"), Some("close"), "{driver:?}");
            assert!(auth.is_quiet() && upstream.is_quiet(), "{driver:?}");
            bed.until_metric("tidegate_requests_in_flight 0").await;
        }
    }
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_it_before_the_question() {
    let mut upstream = Upstream::echo().await;
    let auth = Upstream::start(|_| reply("200 OK", &[], "")).await;
    for driver in [Driver::Both, Driver::Pingora] {
        let bed = bed(&over_http(&[], &[], 10), upstream.address, &[auth.address], by(driver)).await;
        for (framing, sent) in [
            ("Content-Length: 3", "abc"),
            ("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"),
            ("Transfer-Encoding: chunked", "0\r\n\r\n"),
        ] {
            let mut stream = bed.connect().await;
            let head = format!("POST / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\n{framing}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut interim = [0; 25];
            timeout(PATIENCE, stream.read_exact(&mut interim)).await.expect("no interim response").unwrap();
            assert_eq!(std::str::from_utf8(&interim), Ok("HTTP/1.1 100 Continue\r\n\r\n"), "{driver:?} {framing}");
            stream.write_all(sent.as_bytes()).await.unwrap();
            assert_eq!(answer(&mut stream).await.status, 200, "{driver:?} {sent:?}");
            let seen = upstream.seen().await;
            // An empty body may be sent on as one without chunks.
            let want =
                if seen.header("transfer-encoding").is_empty() { sent.trim_end_matches("0\r\n\r\n") } else { sent };
            assert_eq!((seen.body.as_str(), seen.header("expect").as_str()), (want, ""), "{driver:?}");
        }
    }
}

#[tokio::test]
async fn a_question_is_cancelled_with_its_request() {
    let mut upstream = Upstream::echo().await;
    let mut auth = Upstream::start(|_| Reply::Silence).await;
    let service = over_http(&[], &[], 0);
    for (driver, http2) in WAYS {
        let set = |options: &mut Options| {
            options.driver = driver;
            options.upstream.external_auth = 2 * PATIENCE;
        };
        let bed = bed(&service, upstream.address, &[auth.address], set).await;
        let mut stream = bed.connect().await;
        if http2 {
            let (mut send, connection) = h2::client::handshake(stream).await.unwrap();
            let connection = tokio::spawn(connection);
            let request = Request::get("http://a.test/").body(()).unwrap();
            let (response, _) = send.send_request(request, true).unwrap();
            auth.seen().await;
            drop(response);
            until_counted(&bed, "failed", "client-gone", 1).await;
            connection.abort();
        } else {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
            auth.seen().await;
            drop(stream);
            until_counted(&bed, "failed", "client-gone", 1).await;
        }
        bed.until_metric("tidegate_requests_in_flight 0").await;
        assert!(upstream.is_quiet(), "{driver:?}, HTTP/2: {http2}");
    }
}

#[tokio::test]
async fn a_share_may_have_its_own_service_after_that_of_the_route() {
    let mut upstream = Upstream::echo().await;
    let mut auth = Upstream::start(|seen| match seen.header("x-two").as_str() {
        "" => reply("200 OK", &["X-One: 1"], ""),
        _ => reply("200 OK", &["X-Both: 2"], ""),
    })
    .await;
    for (driver, http2) in WAYS {
        let model = Model::edited(&[upstream.address], |route| {
            let target = Arc::clone(route.action.targets().next().unwrap());
            route.guards = [Guard::ExternalAuth(over_http(&[], &[], 10))].into();
            let set = [(HeaderName::from_static("x-own"), http::HeaderValue::from_static("own"))];
            let edits = HeaderEdits { set: set.into(), ..HeaderEdits::default() };
            route.action = Action::Forward(
                [WeightedTarget {
                    to: Destination::Target(target),
                    weight: 1,
                    filters: [Filter::RequestHeaders(edits)].into(),
                    external_auth: Some(over_http(&["x-two"], &[], 20)),
                }]
                .into(),
            );
        });
        let bed = Bed::with(model.backend("auth", &[auth.address]), by(driver)).await;
        let got = send(&bed, http2, ("POST", "/"), &[("x-two", "2")], ("abc", true)).await;
        assert_eq!(got.status, 200, "{driver:?}, HTTP/2: {http2}");
        for _ in 0..2 {
            assert_eq!(auth.seen().await.body, "abc");
        }
        let seen = upstream.seen().await;
        let got = ["x-one", "x-both", "x-own"].map(|name| seen.header(name));
        assert_eq!(got, ["1", "2", "own"], "{driver:?}, HTTP/2: {http2}");
        assert!(auth.is_quiet() && seen.body.contains("abc"), "{driver:?}, HTTP/2: {http2}");
    }
}

#[tokio::test]
async fn a_later_service_sees_the_grants_of_an_earlier_one() {
    let mut upstream = Upstream::echo().await;
    // The first service gets none of the client's headers.
    let mut auth = Upstream::start(|seen| match seen.header("x-stage").as_str() {
        "" => reply("200 OK", &["X-User: ann", "X-Stage: 1"], ""),
        _ => reply("200 OK", &[], ""),
    })
    .await;
    for (driver, http2) in WAYS {
        let model = Model::edited(&[upstream.address], |route| {
            let target = Arc::clone(route.action.targets().next().unwrap());
            let first = over_http(&[], &["x-user", "x-role", "x-stage"], 0);
            route.guards = [Guard::ExternalAuth(first)].into();
            let then = over_http(&["x-user", "x_user", "x-role", "x-stage"], &["x-none"], 0);
            let share = WeightedTarget { external_auth: Some(then), ..WeightedTarget::new(target, 1) };
            route.action = Action::Forward([share].into());
        });
        let bed = Bed::with(model.backend("auth", &[auth.address]), by(driver)).await;
        let forged = [("x-user", "admin"), ("x_user", "admin"), ("x-role", "admin")];
        assert_eq!(send(&bed, http2, ("GET", "/"), &forged, ("", false)).await.status, 200);
        let names = ["x-user", "x_user", "x-role", "x-stage"];
        for (seen, want) in [
            (auth.seen().await, ["", "", "", ""]),
            (auth.seen().await, ["ann", "", "", "1"]),
            (upstream.seen().await, ["ann", "", "", "1"]),
        ] {
            assert_eq!(names.map(|name| seen.header(name)), want, "{driver:?}, HTTP/2: {http2}");
        }
    }
}

#[tokio::test]
async fn the_log_shows_the_user_that_the_service_names() {
    let upstream = Upstream::echo().await;
    let auth = Upstream::start(|_| reply("200 OK", &["Remote-User: ann"], "")).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let sink = AccessLogSink::File(path.clone());
    let service = over_http(&[], &["x-user"], 0);
    let bed = bed(&service, upstream.address, &[auth.address], |options| options.access_log = sink).await;
    assert_eq!(send(&bed, false, ("GET", "/"), &[(COOKIE.as_str(), "a")], ("", false)).await.status, 200);
    bed.drain().await;
    // The log is written concurrently.
    let mut line = String::new();
    for _ in 0..4000 {
        line = std::fs::read_to_string(&path).unwrap_or_default();
        if line.ends_with('\n') {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(line.contains(r#""user":"ann""#), "{line}");
}
