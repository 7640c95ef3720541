//! The forwarded request and the returned response.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use tidegate_config::model::{
    Action, Filter, Guard, HeaderEdits, PathMatch, PathRewrite, Redirect, ResponseEdits, TextMatch, ValueMatch,
};
use tidegate_proxy::Driver;

use super::bed::{Bed, Model};
use super::external_auth::send;
use super::retries::WAYS;
use super::upstream::{Reply, Upstream};

#[tokio::test]
async fn an_endpoint_gets_the_forwarded_headers() {
    let mut upstream = Upstream::echo().await;
    let bed = Bed::start(Model::to(&[upstream.address])).await;
    let answer = bed.get("a.test:8080", "/x?y=1", "X-Own: kept\r\n").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "GET /x?y=1 HTTP/1.1"));
    let seen = upstream.seen().await;
    for (name, want) in [
        ("host", "a.test:8080"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "a.test:8080"),
        ("x-forwarded-port", "8080"),
        ("x-real-ip", "127.0.0.1"),
        ("x-own", "kept"),
        ("connection", ""),
    ] {
        assert_eq!(seen.header(name), want, "{name}");
    }
    let id = seen.header("x-request-id");
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert_eq!(answer.header("server"), Some("tidegate"));
}

const CLAIMS: &str = "X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: b.test\r\n\
    X-Forwarded-Port: 443\r\nX-Real-IP: 198.51.100.9\r\nForwarded: for=198.51.100.1\r\nX_Forwarded_For: 198.51.100.1\r\n\
    X-Forwarded-Prefix: /p\r\nX-FORWARDED-SSL: on\r\nX_Forwarded-User: root\r\nX-Scheme: https\r\nX-Forwarded: 1\r\n";

#[track_caller]
fn check(seen: &super::upstream::Seen, name: &str, want: &str) {
    assert_eq!(seen.header(name), want, "{name}");
}

#[tokio::test]
async fn forwarded_headers_of_untrusted_clients_are_replaced() {
    let mut upstream = Upstream::echo().await;
    let bed = Bed::start(Model::to(&[upstream.address])).await;
    bed.get("a.test", "/", CLAIMS).await;
    let seen = upstream.seen().await;
    check(&seen, "x-forwarded-for", "127.0.0.1");
    check(&seen, "x-forwarded-proto", "http");
    check(&seen, "x-forwarded-host", "a.test");
    check(&seen, "x-real-ip", "127.0.0.1");
    for name in
        ["forwarded", "x_forwarded_for", "x-forwarded-prefix", "x-forwarded-ssl", "x_forwarded-user", "x-scheme"]
    {
        check(&seen, name, "");
    }
    check(&seen, "x-forwarded", "1");
}

/// Every spelling of a name with other characters for its hyphens, except its own.
fn other_spellings(name: &str) -> Vec<String> {
    let hyphens: Vec<usize> = name.match_indices('-').map(|(at, _)| at).collect();
    let mut spellings = Vec::new();
    for other in [b'_', b'.'] {
        for choice in 1..1 << hyphens.len() {
            let mut name = name.as_bytes().to_vec();
            hyphens.iter().enumerate().filter(|(bit, _)| choice >> bit & 1 == 1).for_each(|(_, at)| name[*at] = other);
            spellings.push(String::from_utf8(name).unwrap());
        }
    }
    spellings
}

#[tokio::test]
async fn other_spellings_of_names_that_filters_decide_are_removed() {
    let pair = |name, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
    let own = HeaderEdits {
        remove: [HeaderName::from_static("x-my-secret")].into(),
        set: [pair("x-my-set", "edge"), pair("x_our_set", "edge")].into(),
        add: [pair("x-my-list", "edge")].into(),
    };
    let mut lines = String::new();
    for name in ["X-My-Secret", "x-my-set", "X-MY-LIST", "x-our-set", "X-When-Sent"] {
        other_spellings(name).iter().for_each(|name| lines += &format!("{name}: forged\r\n"));
    }
    lines += "x-our-set: forged\r\nX_My: kept\r\nX-When-Sent: yes\r\nX-My-List: client\r\n";
    for driver in [Driver::Both, Driver::Pingora] {
        let mut upstream = Upstream::echo().await;
        let model = Model::edited(&[upstream.address], |route| {
            route.filters = [Filter::RequestHeaders(own.clone())].into();
            route.conditions.headers = [ValueMatch { name: "x-when-sent".into(), value: TextMatch::Present }].into();
        });
        let bed = Bed::with(model, |options| options.driver = driver).await;
        bed.get("a.test", "/", &lines).await;
        let seen = upstream.seen().await;
        assert!(!seen.head.contains("forged"), "{driver:?}: {}", seen.head);
        for (name, value) in [("x-my-set", "edge"), ("x_our_set", "edge"), ("x_my", "kept"), ("x-when-sent", "yes")] {
            check(&seen, name, value);
        }
        assert!(seen.head.to_lowercase().contains("x-my-list: client\r\n"), "{driver:?}: {}", seen.head);
    }
}

#[tokio::test]
async fn other_spellings_of_the_forwarded_headers_are_removed() {
    let names =
        ["X-Forwarded-For", "x-forwarded-proto", "X-Forwarded-Host", "x-forwarded-port", "X-Real-IP", "X-Request-ID"];
    let mut lines = String::new();
    for name in names {
        other_spellings(name).iter().for_each(|name| lines += &format!("{name}: forged\r\n"));
    }
    lines += "CDN_Loop: forged\r\nContent_Length: forged\r\nTransfer_Encoding: forged\r\nX_Own: kept\r\n";
    for driver in [Driver::Both, Driver::Pingora] {
        let mut upstream = Upstream::echo().await;
        let bed = Bed::with(Model::to(&[upstream.address]), |options| options.driver = driver).await;
        bed.get("a.test", "/", &lines).await;
        let seen = upstream.seen().await;
        assert!(!seen.head.contains("forged"), "{driver:?}: {}", seen.head);
        check(&seen, "x_own", "kept");
    }
}

/// Two proxies before the edge name the client's URL: each appends its own to a list, or as a line.
#[tokio::test]
async fn scheme_host_and_port_are_those_of_the_nearest_trusted_proxy() {
    let near = [("x-forwarded-proto", "https"), ("x-forwarded-host", "b.test:8443"), ("x-forwarded-port", "8443")];
    let own = [("x-forwarded-proto", "http"), ("x-forwarded-host", "a.test"), ("x-forwarded-port", "80")];
    for driver in [Driver::Both, Driver::Pingora] {
        let check = async |lines: &str, want: &[(&str, &str)], location: &str| {
            let mut upstream = Upstream::echo().await;
            let redirected = Model::edited(&[], |route| {
                let redirect = Redirect { scheme: None, host: None, port: None, path: None, status: 302 };
                route.action = Action::Redirect(Box::new(redirect));
            });
            let guarded = Model::edited(&[], |route| route.guards = [Guard::RequireTls { status: 308 }].into());
            let forwarded = Model::to(&[upstream.address]);
            let start = |model: Model| Bed::with(model.trusting(), |options| options.driver = driver);
            start(forwarded).await.get("a.test", "/", lines).await;
            let seen = upstream.seen().await;
            want.iter().for_each(|(name, want)| assert_eq!(seen.header(name), *want, "{driver:?} {lines}: {name}"));
            let answer = start(redirected).await.get("a.test", "/x", lines).await;
            assert_eq!(answer.header("location"), Some(location), "{driver:?} {lines}");
            let is_secure = location.starts_with("https:");
            let answer = start(guarded).await.get("a.test", "/x", lines).await;
            assert_eq!(answer.status == 308, !is_secure, "{driver:?} {lines}: {}", answer.status);
        };
        let (proto, host, port) = ("X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port");
        let lists = format!("{proto}: http, https\r\n{host}: a.test:81,b.test:8443\r\n");
        check(&lists, &near, "https://a.test/x").await;
        check(&format!("{lists}{port}: 81, 8443\r\n"), &near, "https://a.test:8443/x").await;
        let lines = format!("{proto}: http\r\n{host}: a.test:81\r\n{proto}: https\r\n{host}: b.test:8443\r\n");
        check(&lines, &near, "https://a.test/x").await;
        check(&format!("{port}: 81\r\n{lines}{port}: 8443\r\n"), &near, "https://a.test:8443/x").await;
        let last_names_nothing = format!("{proto}: https, \r\n{host}: b.test:8443\r\n{host}: \r\n{port}: 8443,x\r\n");
        check(&last_names_nothing, &own, "http://a.test/x").await;
    }
}

#[tokio::test]
async fn forwarded_headers_of_trusted_proxies_are_kept() {
    let mut upstream = Upstream::echo().await;
    let bed = Bed::start(Model::to(&[upstream.address]).trusting()).await;
    bed.get("a.test", "/", CLAIMS).await;
    let seen = upstream.seen().await;
    check(&seen, "x-forwarded-for", "198.51.100.1, 127.0.0.1");
    check(&seen, "x-forwarded-proto", "https");
    check(&seen, "x-forwarded-host", "b.test");
    check(&seen, "x-forwarded-port", "443");
    check(&seen, "x-real-ip", "198.51.100.1");
    check(&seen, "x_forwarded_for", "");
    check(&seen, "x-forwarded-prefix", "/p");
    check(&seen, "x-forwarded-ssl", "on");
    check(&seen, "x_forwarded-user", "root");
    check(&seen, "x-scheme", "https");
}

#[tokio::test]
async fn valid_request_ids_are_kept_and_others_are_generated() {
    let mut upstream = Upstream::echo().await;
    let bed = Bed::start(Model::to(&[upstream.address])).await;
    bed.get("a.test", "/", "X-Request-Id: abc-123\r\n").await;
    check(&upstream.seen().await, "x-request-id", "abc-123");
    for bad in ["has space", "", &"x".repeat(129), "b\u{fc}cher"] {
        bed.get("a.test", "/", &format!("X-Request-Id: {bad}\r\n")).await;
        let id = upstream.seen().await.header("x-request-id");
        assert!(id.len() == 32 && id != bad, "{id}");
    }
    let answer = bed.get("nobody.test", "/", "X-Request-Id: abc-123\r\n").await;
    assert_eq!((answer.status, answer.header("x-request-id")), (404, Some("abc-123")));
}

#[tokio::test]
async fn hop_by_hop_headers_are_not_forwarded() {
    let reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: X-Hop, keep-alive\r\nKeep-Alive: timeout=5\r\n\
        X-Hop: 1\r\nX-End: 1\r\nUpgrade: h2c\r\nServer: theirs\r\n\r\n";
    let mut upstream = Upstream::start(move |_| Reply::Send(reply.to_owned())).await;
    let bed = Bed::start(Model::to(&[upstream.address])).await;
    let lines = "Connection: X-Hop, close\r\nX-Hop: 1\r\nTE: trailers\r\nProxy-Authorization: secret\r\nKeep-Alive: 5\r\n\
        Upgrade: h2c\r\n";
    let answer = bed.get("a.test", "/", lines).await;
    let seen = upstream.seen().await;
    for name in ["x-hop", "te", "proxy-authorization", "keep-alive", "upgrade", "connection"] {
        check(&seen, name, "");
    }
    for name in ["x-hop", "keep-alive", "upgrade"] {
        assert!(answer.header(name).is_none(), "{name}");
    }
    assert_eq!((answer.header("x-end"), answer.header("server")), (Some("1"), Some("theirs")));
    assert_eq!(answer.header("connection"), Some("close"));
}

#[track_caller]
fn check_line(seen: &super::upstream::Seen, want: &str) {
    assert_eq!(seen.line, format!("GET {want} HTTP/1.1"));
}

#[tokio::test]
async fn paths_are_forwarded_as_sent_except_for_dot_segments() {
    let mut upstream = Upstream::echo().await;
    let bed = Bed::start(Model::to(&[upstream.address])).await;
    for (sent, want) in [
        ("/a%2Fb//c?d=%2e", "/a%2Fb//c?d=%2e"),
        ("/a/../b", "/b"),
        ("/a/%2e%2e/b%20c?q", "/b%20c?q"),
        ("http://a.test/abs?x", "/abs?x"),
        ("http://a.test", "/"),
        ("http://a.test?x", "/?x"),
    ] {
        assert_eq!(bed.get("a.test", sent, "").await.status, 200, "{sent}");
        check_line(&upstream.seen().await, want);
    }
}

#[tokio::test]
async fn edits_of_a_route_apply_in_order() {
    let mut upstream = Upstream::echo().await;
    let edits = |set: &[(&'static str, &'static str)], remove: &[&'static str]| HeaderEdits {
        remove: remove.iter().map(|name| HeaderName::from_static(name)).collect(),
        set: set.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect(),
        add: [(HeaderName::from_static("x-more"), HeaderValue::from_static("2"))].into(),
    };
    let filters = Arc::new([
        Filter::RequestHeaders(edits(&[("x-set", "1")], &["x-gone"])),
        Filter::ResponseHeaders(ResponseEdits::proxied(edits(&[("x-set", "3")], &["content-type"]))),
        Filter::Path(PathRewrite::Prefix("/new".into())),
        Filter::Host("b.test".into()),
    ]);
    let model = Model::edited(&[upstream.address], |route| {
        route.path = PathMatch::prefix("/old").unwrap();
        route.filters = filters;
    });
    let bed = Bed::start(model).await;
    let answer = bed.get("a.test", "/old/x%2Fy?z", "X-Gone: 1\r\nX-More: 1\r\nX-Set: 0\r\n").await;
    let seen = upstream.seen().await;
    check_line(&seen, "/new/x%2Fy?z");
    for (name, want) in
        [("host", "b.test"), ("x-forwarded-host", "a.test"), ("x-set", "1"), ("x-more", "1|2"), ("x-gone", "")]
    {
        check(&seen, name, want);
    }
    assert_eq!((answer.header("x-set"), answer.header("x-more")), (Some("3"), Some("2")));
}

#[tokio::test]
async fn a_connection_is_not_reused_after_surplus_bytes() {
    const SURPLUS: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    for (driver, http2) in WAYS {
        for body in ["Content-Length: 2\r\n\r\nok", "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"] {
            for (surplus, numbers) in [(SURPLUS, [1, 1]), ("\r\n", [1, 1]), ("", [1, 2])] {
                let what = format!("{driver:?}, HTTP/2: {http2}: {body:?} {surplus:?}");
                let mut upstream =
                    Upstream::start(move |_| Reply::Send(format!("HTTP/1.1 200 OK\r\n{body}{surplus}"))).await;
                let bed = Bed::with(Model::to(&[upstream.address]), |options| options.driver = driver).await;
                for number in numbers {
                    let got = send(&bed, http2, ("GET", "/"), &[], ("", false)).await;
                    assert_eq!((got.status, got.body.contains("evil")), (200, false), "{what}");
                    assert_eq!(upstream.seen().await.number, number, "{what}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_connection_is_not_reused_when_a_response_announced_a_body_that_it_must_not_have() {
    for (driver, http2) in WAYS {
        for (announced, numbers) in
            [("Content-Length: 46\r\n", [1, 1]), ("Transfer-Encoding: chunked\r\n", [1, 1]), ("", [1, 2])]
        {
            let what = format!("{driver:?}, HTTP/2: {http2}: {announced:?}");
            let reply = move |_: &_| Reply::Send(format!("HTTP/1.1 204 No Content\r\n{announced}\r\n"));
            let mut upstream = Upstream::start(reply).await;
            let bed = Bed::with(Model::to(&[upstream.address]), |options| options.driver = driver).await;
            for number in numbers {
                assert_eq!(send(&bed, http2, ("GET", "/"), &[], ("", false)).await.status, 204, "{what}");
                assert_eq!(upstream.seen().await.number, number, "{what}");
            }
        }
    }
}
