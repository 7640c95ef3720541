//! Direct responses of a route, shares of a route, and the edits of responses.

use std::sync::Arc;

use http::header::{RETRY_AFTER, STRICT_TRANSPORT_SECURITY};
use http::{HeaderName, HeaderValue};
use tidegate_config::model::{
    Action, AppProtocol, Destination, DirectResponse, Filter, Guard, HeaderEdits, ResponseEdits, ResponseScope, Route,
    WeightedTarget,
};
use tidegate_proxy::Driver;
use tokio::io::AsyncWriteExt;

use super::bed::{Bed, Model, answer, answer_without_body, closed_port, route};
use super::upstream::Upstream;

const DRIVERS: [Driver; 2] = [Driver::Both, Driver::Pingora];

fn set(name: HeaderName, value: &'static str) -> HeaderEdits {
    HeaderEdits { set: [(name, HeaderValue::from_static(value))].into(), ..HeaderEdits::default() }
}

fn page() -> Action {
    Action::Respond(Arc::new(DirectResponse {
        status: 503,
        headers: [(RETRY_AFTER, HeaderValue::from_static("60"))].into(),
        content_type: Some(HeaderValue::from_static("text/html")),
        body: b"<p>back soon".as_slice().into(),
    }))
}

async fn driven(driver: Driver, model: Model) -> Bed {
    Bed::with(model, |options| options.driver = driver).await
}

#[tokio::test]
async fn a_direct_response_answers_every_method_and_keeps_the_connection() {
    for driver in DRIVERS {
        let bed = driven(driver, Model::edited(&[closed_port()], |route| route.action = page())).await;
        let mut stream = bed.connect().await;
        let requests = [
            ("HEAD", "", "", ""),
            ("DELETE", "", "", "<p>back soon"),
            ("POST", "Content-Length: 5\r\n", "hello", "<p>back soon"),
            ("GET", "", "", "<p>back soon"),
        ];
        // Pingora ends a connection after a request with a body that the edge answers itself.
        let count = if driver == Driver::Pingora { 3 } else { 4 };
        for (method, lines, sent, body) in requests.into_iter().take(count) {
            let request = format!("{method} / HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n{sent}");
            stream.write_all(request.as_bytes()).await.unwrap();
            let bodiless = method == "HEAD";
            let got = if bodiless { answer_without_body(&mut stream).await } else { answer(&mut stream).await };
            assert_eq!((got.status, got.body.as_str()), (503, body), "{driver:?}: {method}");
            let values = ["content-type", "content-length", "retry-after", "x-request-id"].map(|name| got.header(name));
            assert_eq!(values, [Some("text/html"), Some("12"), Some("60"), None], "{driver:?}: {method}");
        }
        bed.until_metric(&format!(r#"tidegate_requests_by_reason_total{{reason="direct-response"}} {count}"#)).await;
    }
}

#[tokio::test]
async fn a_share_is_a_status_or_a_target_with_its_own_filters() {
    let upstream = Upstream::echo().await;
    for driver in DRIVERS {
        let share = |to, weight, filters: &[Filter]| WeightedTarget {
            to,
            weight,
            filters: filters.into(),
            external_auth: None,
        };
        let model = |weights: [u32; 2]| {
            Model::edited(&[upstream.address], |route| {
                let target = Arc::clone(route.action.targets().next().unwrap());
                let edits = |value| {
                    Filter::ResponseHeaders(ResponseEdits::proxied(set(HeaderName::from_static("x-of"), value)))
                };
                route.filters = [edits("route")].into();
                route.action = Action::Forward(
                    [
                        share(Destination::Status(500), weights[0], &[]),
                        share(Destination::Target(target), weights[1], &[edits("share")]),
                    ]
                    .into(),
                );
            })
        };
        let answer = driven(driver, model([1, 0])).await.get("a.test", "/", "").await;
        assert_eq!(answer.status, 500, "{driver:?}");
        assert!(answer.body.contains("reason: invalid-backend"), "{driver:?}: {}", answer.body);
        let answer = driven(driver, model([0, 1])).await.get("a.test", "/", "").await;
        assert_eq!((answer.status, answer.header("x-of")), (200, Some("share")), "{driver:?}");
    }
}

#[tokio::test]
async fn response_edits_apply_to_our_answers_if_their_scope_says_so() {
    let upstream = Upstream::echo().await;
    for driver in DRIVERS {
        let hsts = |edit: &dyn Fn(&mut Route)| {
            let mut route = route("web", AppProtocol::Http);
            let edits = set(STRICT_TRANSPORT_SECURITY, "max-age=1");
            let own =
                ResponseEdits { edits, scope: ResponseScope::Backed, statuses: Box::default(), secure_only: true };
            route.filters = [Filter::ResponseHeaders(own)].into();
            edit(&mut route);
            route
        };
        let model = Model::default()
            .route("a.test", hsts(&|_| ()))
            .route("denied.test", hsts(&|route| route.guards = [Guard::DenyAll].into()))
            .route("tls.test", hsts(&|route| route.guards = [Guard::RequireTls { status: 301 }].into()))
            .route("page.test", hsts(&|route| route.action = page()))
            .route("nobody.test", hsts(&|it| it.action = route("nobody", AppProtocol::Http).action))
            .route("nothing.test", hsts(&|it| it.action = route("nothing", AppProtocol::Http).action))
            .backend("web", &[upstream.address])
            .backend("nobody", &[closed_port()])
            .backend("nothing", &[])
            .trusting();
        let bed = driven(driver, model).await;
        for (host, scheme, status, there) in [
            ("a.test", "https", 200, true),
            ("a.test", "http", 200, false),
            ("denied.test", "https", 403, true),
            ("tls.test", "http", 301, false),
            ("page.test", "https", 503, false),
            ("nobody.test", "https", 502, true),
            ("nothing.test", "https", 503, false),
        ] {
            let answer = bed.get(host, "/", &format!("X-Forwarded-Proto: {scheme}\r\n")).await;
            let got = answer.header("strict-transport-security");
            assert_eq!((answer.status, got.is_some()), (status, there), "{driver:?}: {host} over {scheme}");
        }
    }
}
