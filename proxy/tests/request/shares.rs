//! Shares of a route with filters of their own, and redirects of the Gateway API.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use tidegate_config::model::{
    Action, Destination, Filter, HeaderEdits, PathMatch, PathRewrite, Redirect, ResponseEdits, Route, WeightedTarget,
};
use tidegate_proxy::Driver;

use super::bed::{Bed, Model};
use super::upstream::Upstream;

const DRIVERS: [Driver; 2] = [Driver::Both, Driver::Pingora];

fn edits(set: &'static str, add: &'static str) -> HeaderEdits {
    let pair = |name, value| [(HeaderName::from_static(name), HeaderValue::from_static(value))].into();
    HeaderEdits { set: pair("x-set", set), add: pair("x-add", add), ..HeaderEdits::default() }
}

fn of(level: &'static str) -> Arc<[Filter]> {
    [
        Filter::RequestHeaders(edits(level, level)),
        Filter::ResponseHeaders(ResponseEdits::proxied(edits(level, level))),
        Filter::Host(format!("{level}.internal").into()),
        Filter::Path(PathRewrite::Prefix(format!("/{level}").into())),
    ]
    .into()
}

fn with_shares(route: &mut Route, weights: [u32; 2]) {
    let target = Arc::clone(route.action.targets().next().unwrap());
    let share = |weight, filters| WeightedTarget {
        to: Destination::Target(Arc::clone(&target)),
        weight,
        filters,
        external_auth: None,
    };
    route.path = PathMatch::prefix("/old").unwrap();
    route.filters = of("route");
    route.action = Action::Forward([share(weights[0], of("share")), share(weights[1], Arc::default())].into());
}

#[tokio::test]
async fn the_filters_of_a_share_apply_after_those_of_its_route() {
    for driver in DRIVERS {
        for (weights, set, adds, host, line) in [
            ([1, 0], "share", "route|share", "share.internal", "GET /share/x?y HTTP/1.1"),
            ([0, 1], "route", "route", "route.internal", "GET /route/x?y HTTP/1.1"),
        ] {
            let mut upstream = Upstream::echo().await;
            let model = Model::edited(&[upstream.address], |route| with_shares(route, weights));
            let bed = Bed::with(model, |options| options.driver = driver).await;
            let answer = bed.get("a.test", "/old/x?y", "X-Set: client\r\n").await;
            let seen = upstream.seen().await;
            assert_eq!((seen.line.as_str(), seen.header("host").as_str()), (line, host), "{driver:?}");
            assert_eq!((seen.header("x-set").as_str(), seen.header("x-add").as_str()), (set, adds), "{driver:?}");
            let added: Vec<_> = answer.head.lines().filter_map(|line| line.strip_prefix("x-add: ")).collect();
            assert_eq!((answer.header("x-set"), added.join("|").as_str()), (Some(set), adds), "{driver:?}");
        }
    }
}

#[tokio::test]
async fn a_redirect_without_a_port_uses_that_of_the_client() {
    for driver in DRIVERS {
        let check = async |scheme: Option<&str>, port, host: &str, lines: &str, want: &str| {
            let redirect = Redirect {
                scheme: scheme.map(Into::into),
                host: Some("b.test".into()),
                port,
                path: Some(PathRewrite::Prefix("/new".into())),
                status: 303,
            };
            let model = Model::edited(&[], |route| {
                route.path = PathMatch::prefix("/old").unwrap();
                route.action = Action::Redirect(Box::new(redirect));
            });
            let model = if lines.is_empty() { model } else { model.trusting() };
            let bed = Bed::with(model, |options| options.driver = driver).await;
            let answer = bed.get(host, "/old/x?y", lines).await;
            assert_eq!((answer.status, answer.header("location")), (303, Some(want)), "{driver:?}");
        };
        check(None, None, "a.test", "", "http://b.test/new/x?y").await;
        check(None, None, "a.test:8000", "", "http://b.test:8000/new/x?y").await;
        check(Some("https"), None, "a.test:8000", "", "https://b.test/new/x?y").await;
        check(None, Some(8080), "a.test:8000", "", "http://b.test:8080/new/x?y").await;
        check(None, None, "a.test", "X-Forwarded-Proto: https\r\n", "https://b.test/new/x?y").await;
        check(None, None, "a.test", "X-Forwarded-Port: 8443\r\n", "http://b.test:8443/new/x?y").await;
    }
}
