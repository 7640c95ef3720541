//! Request ids, the forwarded headers about the client, and the edge's own name in responses.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tidegate_config::model::{ForwardedFor, Guard, RequestIds, Settings};
use tidegate_proxy::{Driver, Options};

use super::bed::{Bed, Model, closed_port};
use super::upstream::{Reply, Upstream};

const DRIVERS: [Driver; 2] = [Driver::Both, Driver::Pingora];

async fn driven(driver: Driver, model: Model) -> Bed {
    Bed::with(model, |options| options.driver = driver).await
}

#[tokio::test]
async fn correlated_requests_get_a_new_id_that_the_client_sees() {
    let mut upstream = Upstream::echo().await;
    let correlated = |settings: &mut Settings| settings.request_ids = Some(RequestIds::Correlated);
    let set = |endpoint, deny: bool| {
        Model::edited(&[endpoint], move |route| {
            correlated(Arc::make_mut(&mut route.settings));
            if deny {
                route.guards = [Guard::DenyAll].into();
            }
        })
    };
    for driver in DRIVERS {
        let bed = driven(driver, set(upstream.address, false)).await;
        let lines = "X-Request-Id: mine\r\nX-Correlation-Id: before\r\n";
        let answer = bed.get("a.test", "/", lines).await;
        let seen = upstream.seen().await;
        let id = seen.header("x-request-id");
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{driver:?}: {id}");
        assert_eq!(seen.header("x-correlation-id"), format!("before,{id}"), "{driver:?}");
        let told = ["x-request-id", "x-correlation-id"].map(|name| answer.header(name).unwrap_or_default());
        assert_eq!(told, [&id, &format!("before,{id}")].map(|text| text.as_ref() as &str), "{driver:?}");
        for (model, status) in [(set(upstream.address, true), 403), (set(closed_port(), false), 502)] {
            let answer = driven(driver, model).await.get("a.test", "/", "X-Request-Id: mine\r\n").await;
            let id = answer.header("x-request-id").unwrap();
            assert_eq!((answer.status, answer.header("x-correlation-id")), (status, Some(id)), "{driver:?}");
            assert!(id.len() == 32 && answer.body.contains(id), "{driver:?}: {id}, {}", answer.body);
        }
    }
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "the edge reads the same clock")]
async fn x_request_start_and_a_single_forwarded_address_are_sent_if_set() {
    let mut upstream = Upstream::echo().await;
    for driver in DRIVERS {
        let model = Model::edited(&[upstream.address], |route| {
            let (request_start, forwarded_for) = (Some(true), Some(ForwardedFor::Replace));
            route.settings = Arc::new(Settings { request_start, forwarded_for, ..Settings::default() });
        });
        let bed = driven(driver, model.trusting()).await;
        let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        bed.get(
            "a.test",
            "/",
            "X-Forwarded-For: 192.0.2.1, 127.0.0.2\r\nX-Request-Start: t=1\r\nX_Request_Start: t=2\r\n",
        )
        .await;
        let seen = upstream.seen().await;
        assert_eq!(seen.header("x-forwarded-for"), "192.0.2.1", "{driver:?}");
        assert_eq!(seen.header("x-forwarded-port"), "80", "{driver:?}");
        let start = seen.header("x-request-start");
        assert_eq!(seen.header("x_request_start"), "", "{driver:?}");
        let (seconds, millis) = start.strip_prefix("t=").and_then(|text| text.split_once('.')).unwrap();
        assert_eq!(millis.len(), 3, "{driver:?}: {start}");
        let since = Duration::from_millis(format!("{seconds}{millis}").parse().unwrap());
        assert!(since + Duration::from_millis(1) >= before && since < before + super::bed::PATIENCE, "{start}");
    }
}

#[tokio::test]
async fn websocket_clients_are_redirected_to_wss() {
    let guarded = Model::edited(&[closed_port()], |route| route.guards = [Guard::RequireTls { status: 301 }].into());
    let bed = Bed::start(guarded.trusting()).await;
    for (scheme, location) in [("ws", "wss://a.test/x?y"), ("http", "https://a.test/x?y")] {
        let answer = bed.get("a.test", "/x?y", &format!("X-Forwarded-Proto: {scheme}\r\n")).await;
        assert_eq!((answer.status, answer.header("location")), (301, Some(location)));
    }
    assert_eq!(bed.get("a.test", "/", "X-Forwarded-Proto: wss\r\n").await.status, 502);
}

#[tokio::test]
async fn responses_without_a_server_header_get_ours_unless_it_is_off() {
    let upstream = Upstream::start(|seen| {
        let server = if seen.line.contains("named") { "Server: theirs\r\n" } else { "" };
        Reply::Send(format!("HTTP/1.1 200 OK\r\n{server}Content-Length: 0\r\n\r\n"))
    })
    .await;
    for (driver, on) in [(Driver::Both, true), (Driver::Both, false), (Driver::Pingora, true), (Driver::Pingora, false)]
    {
        let set = |options: &mut Options| (options.driver, options.server_header) = (driver, on);
        let bed = Bed::with(Model::to(&[upstream.address]), set).await;
        let own = on.then_some("tidegate");
        for (host, target, want) in [("a.test", "/named", Some("theirs")), ("a.test", "/", own), ("b.test", "/", own)] {
            let answer = bed.get(host, target, "").await;
            assert_eq!(answer.header("server"), want, "{driver:?}, {on}: {host}{target}");
        }
        let refused = bed.ask("GET / HTTP/1.1\r\nHost: a.test\n\r\n").await;
        assert_eq!((refused.status, refused.header("server")), (400, own), "{driver:?}, {on}");
    }
}
