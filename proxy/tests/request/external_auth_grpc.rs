//! Requests that an authorisation service must allow, over gRPC: a real HTTP/2 server, and messages with the field
//! numbers of Envoy's published protocol, defined here independently.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use prost::Message;
use tidegate_config::model::{AppProtocol, AuthProtocol, ExternalAuth, Guard};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::bed::{Bed, Model, PATIENCE, closed_port};
use super::external_auth::{Got, bed, by, send, service, until_counted};
use super::retries::WAYS;
use super::upstream::Upstream;

#[derive(Clone, PartialEq, Message)]
struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    attributes: Option<Attributes>,
}

#[derive(Clone, PartialEq, Message)]
struct Attributes {
    #[prost(message, optional, tag = "1")]
    source: Option<Peer>,
    #[prost(message, optional, tag = "2")]
    destination: Option<Peer>,
    #[prost(message, optional, tag = "4")]
    request: Option<Asked>,
}

#[derive(Clone, PartialEq, Message)]
struct Peer {
    #[prost(message, optional, tag = "1")]
    address: Option<Address>,
}

#[derive(Clone, PartialEq, Message)]
struct Address {
    #[prost(message, optional, tag = "1")]
    socket_address: Option<SocketAddress>,
}

#[derive(Clone, PartialEq, Message)]
struct SocketAddress {
    #[prost(string, tag = "2")]
    address: String,
    #[prost(uint32, tag = "3")]
    port_value: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Asked {
    #[prost(message, optional, tag = "2")]
    http: Option<HttpRequest>,
}

#[derive(Clone, PartialEq, Message)]
struct HttpRequest {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    method: String,
    #[prost(map = "string, string", tag = "3")]
    headers: HashMap<String, String>,
    #[prost(string, tag = "4")]
    path: String,
    #[prost(string, tag = "5")]
    host: String,
    #[prost(string, tag = "6")]
    scheme: String,
    #[prost(int64, tag = "9")]
    size: i64,
    #[prost(string, tag = "10")]
    protocol: String,
    #[prost(string, tag = "11")]
    body: String,
}

#[derive(Clone, PartialEq, Message)]
struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    status: Option<Code>,
    #[prost(message, optional, tag = "2")]
    denied: Option<Denied>,
    #[prost(message, optional, tag = "3")]
    allowed: Option<Allowed>,
}

#[derive(Clone, PartialEq, Message)]
struct Code {
    #[prost(int32, tag = "1")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Denied {
    #[prost(message, optional, tag = "1")]
    status: Option<Code>,
    #[prost(message, repeated, tag = "2")]
    headers: Vec<HeaderOption>,
    #[prost(string, tag = "3")]
    body: String,
}

#[derive(Clone, PartialEq, Message)]
struct Allowed {
    #[prost(message, repeated, tag = "2")]
    headers: Vec<HeaderOption>,
    #[prost(string, repeated, tag = "5")]
    headers_to_remove: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    response_headers_to_add: Vec<HeaderOption>,
}

#[derive(Clone, PartialEq, Message)]
struct HeaderOption {
    #[prost(message, optional, tag = "1")]
    header: Option<Pair>,
    #[prost(message, optional, tag = "2")]
    append: Option<Flag>,
    #[prost(int32, tag = "3")]
    append_action: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Pair {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Flag {
    #[prost(bool, tag = "1")]
    value: bool,
}

/// A header with its append setting: none, the deprecated `append`, or an action.
fn option(key: &str, value: &str, append: Option<bool>, append_action: i32) -> HeaderOption {
    let header = Some(Pair { key: key.to_owned(), value: value.to_owned() });
    HeaderOption { header, append: append.map(|value| Flag { value }), append_action }
}

/// The behaviour of the server for a call.
#[derive(Clone)]
enum Act {
    Answer(CheckResponse),
    /// Answers, and ends with these trailers; with none at all if there are no names.
    Ended(CheckResponse, &'static [(&'static str, &'static str)]),
    /// Fails with a gRPC status.
    Fail(&'static str),
    Silence,
}

/// A server that reports each request to the receiver.
async fn server(act: Act) -> (SocketAddr, UnboundedReceiver<(http::request::Parts, CheckRequest)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, seen) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (sender, act) = (sender.clone(), act.clone());
            tokio::spawn(async move {
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                let mut kept = Vec::new();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let (parts, mut body) = request.into_parts();
                    let (sender, act) = (sender.clone(), act.clone());
                    if matches!(act, Act::Silence) {
                        kept.push((body, respond));
                        continue;
                    }
                    tokio::spawn(async move {
                        let mut bytes = Vec::new();
                        while let Some(Ok(piece)) = body.data().await {
                            body.flow_control().release_capacity(piece.len()).unwrap();
                            bytes.extend_from_slice(&piece);
                        }
                        assert_eq!(
                            (bytes[0], bytes.len() - 5),
                            (0, u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize)
                        );
                        sender.send((parts, CheckRequest::decode(&bytes[5..]).unwrap())).ok();
                        answer(&mut respond, &act);
                    });
                }
            });
        }
    });
    (address, seen)
}

fn answer(respond: &mut h2::server::SendResponse<Bytes>, act: &Act) {
    let response = Response::builder().header("content-type", "application/grpc");
    let (message, trailers): (_, &[_]) = match act {
        Act::Answer(message) => (message, &[("grpc-status", "0")]),
        Act::Ended(message, trailers) => (message, trailers),
        Act::Fail(status) => {
            respond.send_response(response.header("grpc-status", *status).body(()).unwrap(), true).unwrap();
            return;
        }
        Act::Silence => return,
    };
    let mut stream = respond.send_response(response.body(()).unwrap(), false).unwrap();
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.encoded_len()).unwrap());
    message.encode(&mut framed).unwrap();
    stream.send_data(framed.freeze(), trailers.is_empty()).unwrap();
    if !trailers.is_empty() {
        let trailers =
            trailers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        stream.send_trailers(trailers.collect::<HeaderMap>()).unwrap();
    }
}

fn over_grpc(names: &[&'static str], body_bytes_max: u32) -> Arc<ExternalAuth> {
    let request_headers = names.iter().map(|name| HeaderName::from_static(name)).collect();
    service(AuthProtocol::Grpc { request_headers }, AppProtocol::H2c, body_bytes_max)
}

#[tokio::test]
async fn a_service_sees_the_request_and_edits_it_both_ways() {
    let mut upstream = Upstream::start(|_| {
        super::upstream::Reply::Send("HTTP/1.1 200 OK\r\nX-Down: old\r\nContent-Length: 0\r\n\r\n".to_owned())
    })
    .await;
    let allowed = Allowed {
        headers: vec![
            option("x-set", "new", None, 0),
            option("x-more", "2", Some(true), 0),
            option("x-absent", "1", None, 1),
            option("x-there", "2", None, 1),
            option("x-only-there", "2", None, 3),
            option("x-not-there", "2", None, 3),
            option("host", "evil.test", None, 0),
            option("content-length", "999", None, 0),
            option("remote-user", "ann", None, 2),
        ],
        headers_to_remove: vec!["x-gone".to_owned(), "host".to_owned()],
        response_headers_to_add: vec![option("x-down", "new", None, 0), option("set-cookie", "a=1", Some(true), 0)],
    };
    let act = CheckResponse { status: Some(Code { code: 0 }), denied: None, allowed: Some(allowed) };
    let (auth, mut seen) = server(Act::Answer(act)).await;
    for (driver, http2) in WAYS {
        let what = format!("{driver:?}, HTTP/2: {http2}");
        let set = |options: &mut tidegate_proxy::Options| options.driver = driver;
        let bed = bed(&over_grpc(&[], 100), upstream.address, &[auth], set).await;
        let lines = [
            ("x-set", "old"),
            ("x-more", "1"),
            ("x-there", "1"),
            ("x-only-there", "1"),
            ("x-gone", "1"),
            ("x-forwarded-for", "192.0.2.1"),
        ];
        let got = send(&bed, http2, ("POST", "/a?b=c"), &lines, ("hello", false)).await;
        assert_eq!((got.status, got.header("x-down").as_str()), (200, "new"), "{what}");
        assert_eq!(got.header("set-cookie"), "a=1", "{what}");
        let (call, asked) = timeout(PATIENCE, seen.recv()).await.expect("no question").unwrap();
        assert_eq!(call.uri, "http://auth.shop.svc/envoy.service.auth.v3.Authorization/Check", "{what}");
        assert_eq!(
            (&call.headers["content-type"], &call.headers["te"]),
            (&"application/grpc".parse().unwrap(), &"trailers".parse().unwrap())
        );
        let attributes = asked.attributes.unwrap();
        let address = |peer: Option<Peer>| peer.unwrap().address.unwrap().socket_address.unwrap();
        let (source, destination) = (address(attributes.source), address(attributes.destination));
        assert_eq!((source.address.as_str(), destination.address.as_str()), ("127.0.0.1", "127.0.0.1"), "{what}");
        assert_eq!(destination.port_value, u32::from(bed.address.port()), "{what}");
        assert!(source.port_value > 0, "{what}");
        let http = attributes.request.unwrap().http.unwrap();
        let told =
            (http.method.as_str(), http.path.as_str(), http.host.as_str(), http.scheme.as_str(), http.body.as_str());
        assert_eq!(told, ("POST", "/a?b=c", "a.test", "http", "hello"), "{what}");
        assert_eq!((http.size, http.protocol.as_str()), (5, if http2 { "HTTP/2.0" } else { "HTTP/1.1" }), "{what}");
        let header = |name: &str| http.headers.get(name).map_or("", String::as_str);
        let names = [":method", ":path", ":authority", ":scheme", "x-set", "x-forwarded-for", "content-length"];
        assert_eq!(names.map(header), ["POST", "/a?b=c", "a.test", "http", "old", "127.0.0.1", ""], "{what}");
        assert!(!http.id.is_empty() && header("x-request-id") == http.id, "{what}");
        let sent = upstream.seen().await;
        assert_eq!((sent.body.as_str(), sent.header("content-length").as_str()), ("hello", "5"), "{what}");
        let names = ["x-set", "x-absent", "x-there", "x-only-there", "x-not-there", "x-gone", "host"];
        let want = ["new", "1", "1", "2", "", "", "a.test"];
        assert_eq!(names.map(|name| sent.header(name)), want, "{what}");
        assert!(["1|2", "1,2", "1, 2"].contains(&sent.header("x-more").as_str()), "{what}: {}", sent.header("x-more"));
        until_counted(&bed, "allowed", "", 1).await;
    }
}

#[tokio::test]
async fn a_service_gets_only_the_listed_headers() {
    let upstream = Upstream::echo().await;
    let (auth, mut seen) = server(Act::Answer(CheckResponse::default())).await;
    let bed = bed(&over_grpc(&["x-tenant"], 0), upstream.address, &[auth], |_| ()).await;
    let got = send(&bed, false, ("GET", "/"), &[("x-tenant", "t"), ("cookie", "c")], ("", false)).await;
    assert_eq!(got.status, 200);
    let (_, asked) = timeout(PATIENCE, seen.recv()).await.expect("no question").unwrap();
    let http = asked.attributes.unwrap().request.unwrap().http.unwrap();
    let mut names: Vec<&str> = http.headers.keys().map(String::as_str).filter(|name| !name.starts_with(':')).collect();
    names.sort_unstable();
    assert_eq!(names, ["x-tenant"]);
}

#[tokio::test]
async fn a_denial_over_grpc_is_the_clients_answer() {
    let mut upstream = Upstream::echo().await;
    let denied = |code| Denied {
        status: Some(Code { code }),
        headers: vec![
            option("www-authenticate", "Bearer", None, 0),
            option("proxy-authenticate", "Basic", None, 0),
            option("content-length", "999", None, 0),
            option("content-type", "text/x", None, 0),
            option("content-language", "en", None, 0),
            option("grpc-status", "0", None, 0),
            option("grpc-message", "fine", None, 0),
            option("date", "then", None, 0),
            option("server", "other", None, 0),
        ],
        body: "not you".to_owned(),
    };
    let code = |code| Some(Code { code });
    for (driver, http2) in WAYS {
        for (response, status, body) in [
            (CheckResponse { status: code(16), denied: Some(denied(401)), allowed: None }, 401, "not you"),
            (CheckResponse { status: code(7), denied: None, allowed: None }, 403, ""),
            (CheckResponse { status: code(7), denied: None, allowed: Some(Allowed::default()) }, 403, ""),
            (CheckResponse { status: code(0), denied: Some(denied(0)), allowed: None }, 403, "not you"),
        ] {
            let what = format!("{driver:?}, HTTP/2: {http2}, {status}");
            let (auth, _seen) = server(Act::Answer(response)).await;
            let set = |options: &mut tidegate_proxy::Options| options.driver = driver;
            let bed = bed(&over_grpc(&[], 0), upstream.address, &[auth], set).await;
            let got = send(&bed, http2, ("GET", "/"), &[], ("", false)).await;
            assert_eq!((got.status, got.body.as_str()), (status, body), "{what}");
            let challenges = if body.is_empty() { ["", ""] } else { ["bearer", "basic"] };
            let asked =
                |got: &Got| ["www-authenticate", "proxy-authenticate"].map(|name| got.header(name).to_lowercase());
            assert_eq!(asked(&got), challenges, "{what}");
            let date = got.header("date");
            assert!(!date.contains('|') && date != "then", "{what}: {date}");
            assert_eq!(got.header("server"), "tidegate", "{what}");
            let got = send(&bed, http2, ("POST", "/"), &[("content-type", "application/grpc")], ("abc", false)).await;
            let told = if status == 401 { "16" } else { "7" };
            assert_eq!((got.status, got.header("grpc-status").as_str()), (200, told), "{what}");
            let own = ["grpc-message", "content-type", "content-language", "content-length", "server"];
            let want = ["external-auth-denied", "application/grpc", "", "0", "tidegate"];
            assert_eq!(own.map(|name| got.header(name)), want, "{what}");
            assert_eq!(asked(&got), challenges, "{what}");
            until_counted(&bed, "denied", "", 2).await;
        }
    }
    assert!(upstream.is_quiet());
}

#[tokio::test]
async fn granted_response_headers_are_in_the_edges_own_answers() {
    let allowed = Allowed {
        response_headers_to_add: vec![
            option("set-cookie", "a=1", Some(true), 0),
            option("x-down", "new", None, 0),
            option("content-length", "999", None, 0),
            option("content-type", "text/x", None, 0),
            option("transfer-encoding", "chunked", None, 0),
            option("connection", "x-down", None, 0),
        ],
        ..Allowed::default()
    };
    let act = CheckResponse { status: Some(Code { code: 0 }), denied: None, allowed: Some(allowed) };
    let (auth, _seen) = server(Act::Answer(act)).await;
    let broken = Upstream::start(|_| super::upstream::Reply::Close).await;
    for (driver, http2) in WAYS {
        for (endpoints, status) in [(vec![], 503), (vec![closed_port()], 502), (vec![broken.address], 502)] {
            let what = format!("{driver:?}, HTTP/2: {http2}, {endpoints:?}");
            let guards = [Guard::ExternalAuth(over_grpc(&[], 0))];
            let model = Model::edited(&endpoints, |route| route.guards = guards.into());
            let bed = Bed::with(model.backend("auth", &[auth]), by(driver)).await;
            let got = send(&bed, http2, ("GET", "/"), &[], ("", false)).await;
            assert_eq!(
                (got.status, got.header("set-cookie"), got.header("x-down")),
                (status, "a=1".into(), "new".into())
            );
            assert_eq!(got.header("content-length"), got.body.len().to_string(), "{what}");
            assert_eq!(got.header("transfer-encoding"), "", "{what}");
            assert_ne!(got.header("content-type"), "text/x", "{what}");
            assert!(!got.header("connection").contains("x-down"), "{what}");
        }
    }
}

#[tokio::test]
async fn no_request_passes_when_a_service_over_grpc_fails() {
    let mut upstream = Upstream::echo().await;
    let odd = Denied { status: Some(Code { code: 42 }), ..Denied::default() };
    let odd = CheckResponse { status: Some(Code { code: 7 }), denied: Some(odd), allowed: None };
    let allowing = CheckResponse { status: Some(Code { code: 0 }), denied: None, allowed: Some(Allowed::default()) };
    let http1 = Upstream::echo().await;
    for (driver, http2) in WAYS {
        for (act, status, reason) in [
            (Act::Fail("14"), 503, "broken"),
            // The trailers decide, and no message comes before these.
            (Act::Fail("0"), 503, "broken"),
            // Without a status, the call did not succeed, whatever the message says.
            (Act::Ended(allowing.clone(), &[]), 503, "broken"),
            (Act::Ended(allowing.clone(), &[("grpc-message", "")]), 503, "broken"),
            (Act::Ended(allowing.clone(), &[("grpc-status", "13")]), 503, "broken"),
            (Act::Ended(allowing.clone(), &[("grpc-status", "")]), 503, "broken"),
            (Act::Answer(odd.clone()), 503, "broken"),
            (Act::Silence, 504, "timeout"),
        ] {
            let (auth, _seen) = server(act).await;
            let set = |options: &mut tidegate_proxy::Options| {
                options.driver = driver;
                options.upstream.external_auth = if status == 504 { Duration::from_millis(300) } else { PATIENCE };
            };
            let bed = bed(&over_grpc(&[], 0), upstream.address, &[auth], set).await;
            let got = send(&bed, http2, ("GET", "/"), &[], ("", false)).await;
            assert_eq!(got.status, status, "{driver:?}, HTTP/2: {http2}, {reason}");
            until_counted(&bed, "failed", reason, 1).await;
        }
        // This endpoint speaks HTTP/1.1 only.
        let set = |options: &mut tidegate_proxy::Options| {
            (options.driver, options.upstream.external_auth) = (driver, Duration::from_secs(1));
        };
        let bed = bed(&over_grpc(&[], 0), upstream.address, &[http1.address], set).await;
        let got = send(&bed, http2, ("GET", "/"), &[], ("", false)).await;
        assert!([503, 504].contains(&got.status), "{driver:?}, HTTP/2: {http2}: {}", got.status);
    }
    assert!(upstream.is_quiet());
}
