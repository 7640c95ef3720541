//! Answers that the edge makes itself.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_config::model::{AppProtocol, Guard, Settings};
use tidegate_proxy::Driver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::bed::{Answer, Bed, Model, PATIENCE, answer, answer_without_body, closed_port, route};
use super::upstream::{Reply, Upstream};

#[track_caller]
fn check(answer: &Answer, status: u16, reason: &str) {
    assert_eq!(answer.status, status, "{}{}", answer.head, answer.body);
    let lines: Vec<_> = answer.body.lines().collect();
    assert!(lines[0].starts_with(&status.to_string()), "{lines:?}");
    assert_eq!(lines[1], format!("reason: {reason}"));
    assert_eq!(lines[2], format!("request: {}", answer.header("x-request-id").unwrap()));
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    assert!(answer.header("server") == Some("tidegate") && answer.header("date").is_some());
}

#[tokio::test]
async fn a_missing_route_or_endpoint_is_a_404_or_503() {
    let bed = Bed::start(Model::to(&[])).await;
    check(&bed.get("a.test", "/", "").await, 503, "no-endpoints");
    check(&bed.get("b.test", "/", "").await, 404, "no-route");
    bed.until_metric(r#"tidegate_requests_by_reason_total{reason="no-endpoints"} 1"#).await;
}

#[tokio::test]
async fn a_client_that_asks_for_json_gets_json_from_both_drivers() {
    for driver in [Driver::Both, Driver::Pingora] {
        let bed = Bed::with(Model::to(&[]), |options| options.driver = driver).await;
        let answer = bed.get("a.test", "/", "Accept: text/html;q=0.5, application/json\r\n").await;
        let id = answer.header("x-request-id").unwrap();
        let want = json!({"title": "Service Unavailable", "status": 503, "reason": "no-endpoints", "request": id});
        assert_eq!(serde_json::from_str::<Value>(&answer.body).unwrap(), want, "{driver:?}");
        assert_eq!((answer.status, answer.header("content-type")), (503, Some("application/json")), "{driver:?}");
        check(&bed.get("a.test", "/", "Accept: text/html, */*\r\n").await, 503, "no-endpoints");
    }
}

/// The answer to a head, and whether the connection ends with it. If the answer does not announce that, the next
/// request on the connection must be answered.
async fn answered(bed: &Bed, head: &str) -> (u16, bool) {
    let mut client = bed.connect().await;
    client.write_all(head.as_bytes()).await.unwrap();
    let refused = answer(&mut client).await;
    let ends = refused.header("connection") == Some("close");
    if ends {
        let mut rest = Vec::new();
        timeout(PATIENCE, client.read_to_end(&mut rest)).await.expect("the connection stays open").unwrap();
        assert!(rest.is_empty());
    } else {
        client.write_all(b"GET / HTTP/1.1\r\nHost: unknown.test\r\n\r\n").await.unwrap();
        assert_eq!(answer(&mut client).await.status, 404, "after {head:?}");
    }
    (refused.status, ends)
}

#[tokio::test]
async fn an_answer_in_place_of_100_continue_ends_the_connection() {
    for driver in [Driver::Both, Driver::Pingora] {
        let bed = Bed::with(Model::to(&[]), |options| options.driver = driver).await;
        for (host, status) in [("a.test", 503), ("b.test", 404)] {
            let head = format!("POST / HTTP/1.1\r\nHost: {host}\r\nExpect: 100-continue\r\n");
            let waits = format!("{head}Content-Length: 5\r\n\r\n");
            assert_eq!(answered(&bed, &waits).await, (status, true), "{driver:?} {host}");
            // Without a body there is nothing to wait for.
            assert_eq!(answered(&bed, &format!("{head}\r\n")).await, (status, false), "{driver:?} {host}");
        }
    }
}

#[tokio::test]
async fn a_failure_of_an_endpoint_leaves_the_clients_connection_open() {
    let silent = Upstream::start(|_| Reply::Silence).await;
    let closing = Upstream::start(|_| Reply::Close).await;
    let quick = Settings { request_timeout: Some(Duration::from_millis(200)), ..Settings::default() };
    let get = "GET / HTTP/1.1\r\nHost: a.test\r\n";
    let post = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n";
    for (endpoint, status, of_half) in
        [(closed_port(), 502, 502), (closing.address, 502, 504), (silent.address, 504, 504)]
    {
        let model = Model::edited(&[endpoint], |route| route.settings = Arc::new(quick.clone()));
        let bed = Bed::start(model).await;
        assert_eq!(answered(&bed, &format!("{get}\r\n")).await, (status, false), "{endpoint}");
        let mut client = bed.connect().await;
        for _ in 0..3 {
            client.write_all(format!("{get}\r\n").as_bytes()).await.unwrap();
            assert_eq!(answer(&mut client).await.status, status, "{endpoint}");
        }
        // The bytes of another protocol may follow.
        let upgrade = format!("{get}Connection: upgrade\r\nUpgrade: websocket\r\n\r\n");
        assert_eq!(answered(&bed, &upgrade).await, (status, true), "{endpoint}");
        assert_eq!(answered(&bed, &format!("{get}Connection: close\r\n\r\n")).await, (status, true), "{endpoint}");
        // A part of the body has not come, and the client may leave it out.
        for waits in [format!("{post}\r\nabc"), format!("{post}Expect: 100-continue\r\n\r\n")] {
            assert_eq!(answered(&bed, &waits).await, (of_half, true), "{endpoint}");
        }
    }
    // The endpoint had the whole body.
    let bed = Bed::start(Model::to(&[closing.address])).await;
    assert_eq!(answered(&bed, &format!("{post}\r\nabcde")).await, (502, false));
}

/// Pingora closes the connection of a request that it has sent to an endpoint, and that failed.
#[tokio::test]
async fn the_pingora_driver_keeps_a_connection_after_the_failure_of_an_http2_endpoint() {
    let get = "GET / HTTP/1.1\r\nHost: a.test\r\n";
    let post = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n";
    for (protocol, ends) in [(AppProtocol::H2c, false), (AppProtocol::Http, true)] {
        let model = || Model::default().route("a.test", route("web", protocol)).backend("web", &[closed_port()]);
        let bed = Bed::with(model(), |options| options.driver = Driver::Pingora).await;
        assert_eq!(answered(&bed, &format!("{get}\r\n")).await, (502, ends), "{protocol:?}");
        let upgrade = format!("{get}Connection: upgrade\r\nUpgrade: websocket\r\n\r\n");
        for closes in [upgrade, format!("{get}Connection: close\r\n\r\n"), format!("{post}\r\nabc")] {
            assert_eq!(answered(&bed, &closes).await, (502, true), "{protocol:?}");
        }
    }
}

#[tokio::test]
async fn a_failing_endpoint_is_a_502() {
    let bed = Bed::start(Model::to(&[closed_port()])).await;
    check(&bed.get("a.test", "/", "").await, 502, "connect-failed");

    for reply in ["", "nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-"] {
        let upstream = Upstream::start(move |_| Reply::SendAndClose(reply.to_owned())).await;
        let bed = Bed::start(Model::to(&[upstream.address])).await;
        check(&bed.get("a.test", "/", "").await, 502, "upstream-broken");
    }
}

#[tokio::test]
async fn a_silent_endpoint_is_a_504() {
    let upstream = Upstream::start(|_| Reply::Silence).await;
    let quick = |settings: Settings| Model::edited(&[upstream.address], |route| route.settings = Arc::new(settings));
    let moment = Some(Duration::from_millis(200));
    let bed = Bed::start(quick(Settings { read_timeout: moment, ..Settings::default() })).await;
    check(&bed.get("a.test", "/", "").await, 504, "upstream-timeout");
    let bed = Bed::start(quick(Settings { request_timeout: moment, ..Settings::default() })).await;
    check(&bed.get("a.test", "/", "").await, 504, "upstream-timeout");
}

#[tokio::test]
async fn a_truncated_response_is_counted_as_broken() {
    let broken = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    let upstream = Upstream::start(move |_| Reply::SendAndClose(broken.to_owned())).await;
    let bed = Bed::start(Model::to(&[upstream.address])).await;
    let answer = bed.get("a.test", "/", "").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "half"));
    bed.until_metric(r#"tidegate_requests_by_reason_total{reason="upstream-broken"} 1"#).await;
}

/// The response for an HTTP/1.0 client, up to the end of its connection; the endpoint's connection may end earlier.
async fn ask_http10(response: &'static str, closes: bool, lines: &str) -> String {
    let reply = if closes { Reply::SendAndClose } else { Reply::Send };
    let upstream = Upstream::start(move |_| reply(response.to_owned())).await;
    let bed = Bed::start(Model::to(&[upstream.address])).await;
    let mut client = bed.connect().await;
    client.write_all(format!("GET / HTTP/1.0\r\nHost: a.test\r\n{lines}\r\n").as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    timeout(PATIENCE, client.read_to_end(&mut bytes)).await.expect("it stays open").unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn an_http_1_0_client_gets_neither_chunks_nor_early_hints() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let until_close = "HTTP/1.1 200 OK\r\n\r\nhello";
    let hinted = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let kept = "Connection: keep-alive\r\n";
    for (response, closes, lines) in [
        (chunked, false, ""),
        (chunked, false, kept),
        (until_close, true, ""),
        (until_close, true, kept),
        (hinted, false, ""),
    ] {
        let text = ask_http10(response, closes, lines).await;
        let plain = !text.to_ascii_lowercase().contains("transfer-encoding");
        assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("\r\n\r\nhello") && plain, "{lines:?}: {text}");
    }
    let coded = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let text = ask_http10(coded, false, "").await;
    assert!(text.starts_with("HTTP/1.1 502 "), "{text}");
}

#[tokio::test]
async fn a_head_request_gets_no_body_and_keeps_the_connection() {
    let bed = Bed::start(Model::to(&[])).await;
    let mut stream = bed.connect().await;
    for method in ["HEAD", "GET", "HEAD"] {
        let request = format!("{method} / HTTP/1.1\r\nHost: a.test\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = method == "HEAD";
        let answer = if head { answer_without_body(&mut stream).await } else { super::bed::answer(&mut stream).await };
        assert_eq!((answer.status, answer.body.is_empty()), (503, head));
        assert!(answer.header("content-length").unwrap().parse::<usize>().unwrap() > 20);
    }
}

#[tokio::test]
async fn guards_answer_before_anything_is_sent() {
    let mut upstream = Upstream::echo().await;
    let guarded = |guard: Guard| Model::edited(&[upstream.address], |route| route.guards = [guard].into());
    let bed = Bed::start(guarded(Guard::RequireTls { status: 308 })).await;
    let answer = bed.get("a.test:8080", "/x?y", "").await;
    assert_eq!((answer.status, answer.header("location")), (308, Some("https://a.test/x?y")));
    check(&answer, 308, "redirect");
    let bed = Bed::start(guarded(Guard::AllowSources(["192.0.2.0/24".parse().unwrap()].into()))).await;
    check(&bed.get("a.test", "/", "X-Forwarded-For: 192.0.2.1\r\n").await, 403, "denied");
    let bed = Bed::start(guarded(Guard::AllowSources(["192.0.2.0/24".parse().unwrap()].into())).trusting()).await;
    assert!(upstream.is_quiet());
    assert_eq!(bed.get("a.test", "/", "X-Forwarded-For: 192.0.2.1\r\n").await.status, 200);
}
