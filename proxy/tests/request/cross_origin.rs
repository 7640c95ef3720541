//! Requests from pages of other origins (CORS).

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use tidegate_config::model::{
    Action, AnyOr, AppProtocol, Cors, Filter, Guard, HeaderEdits, OriginPattern, ResponseEdits, Route, TextMatch,
    ValueMatch,
};
use tidegate_proxy::Driver;

use super::bed::{Answer, Bed, Model, route};
use super::external_auth::over_http;
use super::upstream::{Reply, Upstream};

const DRIVERS: [Driver; 2] = [Driver::Both, Driver::Pingora];

fn cors() -> Filter {
    Filter::Cors(Arc::new(Cors {
        origins: AnyOr::These([OriginPattern::parse("https://www.foo.com").unwrap()].into()),
        credentials: true,
        methods: AnyOr::These(["PUT".into()].into()),
        headers: AnyOr::Any,
        exposed: AnyOr::These([HeaderName::from_static("x-own")].into()),
        max_age_s: 60,
    }))
}

fn with(filters: Vec<Filter>, edit: impl FnOnce(&mut Route)) -> Route {
    let mut route = route("web", AppProtocol::Http);
    route.filters = filters.into();
    edit(&mut route);
    route
}

/// Adds the filter to the share of a route.
fn in_share(route: &mut Route) {
    if let Action::Forward(shares) = &mut route.action {
        shares[0].filters = [cors()].into();
    }
}

/// The values of the CORS headers, by the last word of their names.
fn told(answer: &Answer) -> Vec<String> {
    let lines = answer.head.lines().filter_map(|line| line.strip_prefix("access-control-"));
    let mut lines: Vec<_> = lines.map(str::to_owned).collect();
    lines.sort();
    lines
}

const FOO: &str = "Origin: https://www.foo.com\r\n";
const ASKS: &str = "Access-Control-Request-Method: PUT\r\nAccess-Control-Request-Headers: x-a, x-b\r\n";
const ALLOWED: [&str; 3] = ["allow-credentials: true", "allow-origin: https://www.foo.com", "expose-headers: x-own"];

#[tokio::test]
async fn preflights_are_answered_by_the_edge() {
    for driver in DRIVERS {
        let mut upstream = Upstream::echo().await;
        let model = Model::default()
            .route("a.test", with(vec![cors()], |_| ()))
            .route("b.test", with(vec![cors()], |route| route.guards = [Guard::DenyAll].into()))
            .route("c.test", with(Vec::new(), in_share))
            .backend("web", &[upstream.address]);
        let bed = Bed::with(model, |options| options.driver = driver).await;
        let ask = async |host: &str, lines: &str| {
            bed.ask(&format!("OPTIONS /x HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n")).await
        };
        for host in ["a.test", "c.test"] {
            let answer = ask(host, &format!("{FOO}{ASKS}")).await;
            let want = ["allow-headers: x-a, x-b", "allow-methods: put", "max-age: 60"];
            let mut want: Vec<_> = want.iter().chain(&ALLOWED).map(ToString::to_string).collect();
            want.sort();
            assert_eq!((answer.status, told(&answer)), (200, want), "{driver:?}: {host}");
            assert_eq!((answer.header("vary"), answer.body.as_str()), (Some("origin"), ""), "{driver:?}: {host}");
            let other = ask(host, &format!("Origin: https://foo.com\r\n{ASKS}")).await;
            assert_eq!((other.status, told(&other)), (200, Vec::new()), "{driver:?}: {host}");
        }
        let denied = ask("b.test", &format!("{FOO}{ASKS}")).await;
        assert_eq!((denied.status, told(&denied)), (403, ALLOWED.map(str::to_owned).to_vec()), "{driver:?}");
        assert!(upstream.is_quiet());
        // Another OPTIONS request is forwarded to the endpoint.
        assert_eq!(ask("a.test", FOO).await.status, 200);
        assert!(upstream.seen().await.line.starts_with("OPTIONS /x "), "{driver:?}");
    }
}

/// A rule that matches by method or header gets the preflights of its requests, and no other OPTIONS request. Its
/// guards apply to them.
#[tokio::test]
async fn preflights_go_to_the_rule_of_the_request_that_they_ask_about() {
    let asks = |method: &str, names: &str| {
        format!("{FOO}Access-Control-Request-Method: {method}\r\nAccess-Control-Request-Headers: {names}\r\n")
    };
    for driver in DRIVERS {
        let mut upstream = Upstream::echo().await;
        let by_method = |route: &mut Route| route.conditions.methods = ["PUT".into()].into();
        let by_header = |route: &mut Route| {
            let value = TextMatch::Exact("secret".into());
            route.conditions.headers = [ValueMatch { name: "x-key".into(), value }].into();
        };
        let denied = |route: &mut Route| route.guards = [Guard::DenyAll].into();
        let model = Model::default()
            .route("a.test", with(vec![cors()], by_method))
            .route("b.test", with(vec![cors()], by_header))
            .route("c.test", with(Vec::new(), by_method))
            .route("d.test", with(vec![cors()], |route| (by_method(route), denied(route)).0))
            .route("e.test", with(vec![cors()], |route| (by_header(route), denied(route)).0))
            .backend("web", &[upstream.address]);
        let bed = Bed::with(model, |options| options.driver = driver).await;
        for (host, lines, want) in [
            ("a.test", asks("PUT", "x-a"), 200),
            ("a.test", asks("GET", "x-a"), 404),
            ("a.test", FOO.to_owned(), 404),
            ("a.test", String::new(), 404),
            ("b.test", asks("GET", "x-a, X-Key"), 200),
            ("b.test", asks("GET", "x-a"), 404),
            ("b.test", format!("{}X-Key: guess\r\n", asks("GET", "x-key")), 404),
            ("c.test", asks("PUT", "x-a"), 404),
            ("d.test", asks("PUT", "x-a"), 403),
            ("d.test", asks("GET", "x-a"), 404),
            ("e.test", asks("PUT", "x-key"), 403),
        ] {
            let answer = bed.ask(&format!("OPTIONS /x HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n")).await;
            assert_eq!(answer.status, want, "{driver:?}: {host} {lines:?}");
        }
        assert!(upstream.is_quiet());
    }
}

/// Preflights come without the credentials that the service judges by. The guards behind it apply to them.
#[tokio::test]
async fn preflights_are_answered_without_the_authorisation_service() {
    let auth = Upstream::start(|_| Reply::Send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".into())).await;
    for driver in DRIVERS {
        let upstream = Upstream::echo().await;
        let asks = Guard::ExternalAuth(over_http(&[], &[], 0));
        let guards = |guards: &[&Guard]| guards.iter().copied().cloned().collect();
        let model = Model::default()
            .route("a.test", with(vec![cors()], |route| route.guards = guards(&[&asks])))
            .route("b.test", with(vec![cors()], |route| route.guards = guards(&[&asks, &Guard::DenyAll])))
            .route(
                "c.test",
                with(Vec::new(), |route| {
                    in_share(route);
                    route.guards = guards(&[&asks]);
                }),
            )
            .route(
                "d.test",
                with(Vec::new(), |route| {
                    in_share(route);
                    route.guards = guards(&[&asks, &Guard::DenyAll]);
                }),
            )
            .route("e.test", with(Vec::new(), |route| route.guards = guards(&[&asks])))
            .backend("web", &[upstream.address])
            .backend("auth", &[auth.address]);
        let bed = Bed::with(model, |options| options.driver = driver).await;
        for (host, preflight) in [("a.test", 200), ("b.test", 403), ("c.test", 200), ("d.test", 403), ("e.test", 401)] {
            for (lines, want) in [(format!("{FOO}{ASKS}"), preflight), (FOO.to_owned(), 401)] {
                let answer = bed.ask(&format!("OPTIONS /x HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n")).await;
                assert_eq!(answer.status, want, "{driver:?}: {host} {lines:?}");
            }
        }
    }
}

#[tokio::test]
async fn responses_carry_the_cors_headers() {
    let own = "Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\nVary: Cookie\r\n";
    let response = format!("HTTP/1.1 200 OK\r\n{own}Content-Length: 0\r\n\r\n");
    let upstream = Upstream::start(move |_| Reply::Send(response.clone())).await;
    for driver in DRIVERS {
        let set = [(HeaderName::from_static("access-control-expose-headers"), HeaderValue::from_static("x-later"))];
        let later =
            Filter::ResponseHeaders(ResponseEdits::proxied(HeaderEdits { set: set.into(), ..HeaderEdits::default() }));
        let model = Model::default()
            .route("a.test", with(vec![cors()], |_| ()))
            .route("b.test", with(vec![cors(), later], |_| ()))
            .route("c.test", with(vec![cors()], |it| it.action = route("nothing", AppProtocol::Http).action))
            .route("d.test", with(vec![cors()], in_share))
            .backend("web", &[upstream.address]);
        let bed = Bed::with(model, |options| options.driver = driver).await;
        let check = async |host: &str, lines: &str, status: u16, want: &[&str]| {
            let answer = bed.get(host, "/", lines).await;
            assert_eq!(answer.status, status, "{driver:?}: {host}");
            assert_eq!(told(&answer), want, "{driver:?}: {host} {lines:?}");
            let varies = answer.head.lines().filter(|line| *line == "vary: origin").count();
            assert_eq!(varies, 1, "{driver:?}: {}", answer.head);
        };
        check("a.test", FOO, 200, &ALLOWED).await;
        check("a.test", "Origin: https://foo.com\r\n", 200, &[]).await;
        check("a.test", "Origin: https://foo.com/.www.foo.com\r\n", 200, &[]).await;
        check("a.test", &format!("{FOO}{FOO}"), 200, &[]).await;
        check("a.test", "", 200, &[]).await;
        check(
            "b.test",
            FOO,
            200,
            &["allow-credentials: true", "allow-origin: https://www.foo.com", "expose-headers: x-later"],
        )
        .await;
        check("c.test", FOO, 503, &ALLOWED).await;
        check("d.test", FOO, 200, &ALLOWED).await;
    }
}
