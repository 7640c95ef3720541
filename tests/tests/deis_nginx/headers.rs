//! Headers about the client, the connection and the time: to endpoints and to clients.

use crate::ask::{Ask, OFFICE, TRUSTED, get};
use crate::pair::Pair;
use crate::row::{check, differs, same};
use crate::world::World;

const TRUST: &str = "all of them from `proxyRealIpCidrs` alone";
const HOST: &str = "blog.apps.test";

/// A world whose router has no header settings.
async fn plain_world() -> World {
    let mut world = World::new(&[("platformDomain", "apps.test")]);
    world.app("blog", &[("domains", "blog")]).await;
    world
}

fn strange(name: &str, value: &str) -> Ask {
    get(HOST, "/").header(name, value)
}

fn trusted(name: &str, value: &str) -> Ask {
    get(HOST, "/").from(TRUSTED).header(name, value)
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_headers() {
    let Some(pair) = Pair::start(plain_world().await, &[]).await else { return };
    let rows = vec![
        same(
            "nothing told",
            get(HOST, "/"),
            200,
            &[
                "sees host: blog.apps.test",
                "sees x-forwarded-for: 127.0.0.1",
                "sees x-forwarded-port: 80",
                "sees x-forwarded-proto: http",
            ],
        ),
        same(
            "https of a trusted peer",
            trusted("X-Forwarded-Proto", "https"),
            200,
            &["sees x-forwarded-proto: https", "sees x-forwarded-port: 80"],
        ),
        same("a port of a trusted peer", trusted("X-Forwarded-Port", "8443"), 200, &["sees x-forwarded-port: 8443"]),
        differs(
            "a port that is none",
            trusted("X-Forwarded-Port", "many"),
            "believed if it is a port",
            &["nginx sees x-forwarded-port: many", "tidegate sees x-forwarded-port: 80"],
        ),
        differs(
            "https of a stranger",
            strange("X-Forwarded-Proto", "https"),
            TRUST,
            &["nginx sees x-forwarded-proto: https", "tidegate sees x-forwarded-proto: http"],
        ),
        differs(
            "a port of a stranger",
            strange("X-Forwarded-Port", "8443"),
            TRUST,
            &["nginx sees x-forwarded-port: 8443", "tidegate sees x-forwarded-port: 80"],
        ),
        differs(
            "an address of a stranger",
            strange("X-Real-IP", "192.0.2.1"),
            TRUST,
            &["nginx sees x-real-ip: 192.0.2.1", "tidegate sees x-real-ip: 127.0.0.1"],
        ),
        differs(
            "an address of a trusted peer",
            trusted("X-Real-IP", "192.0.2.1"),
            "they get the edge's own",
            &["nginx sees x-real-ip: 192.0.2.1", "tidegate sees x-real-ip: 127.0.0.2"],
        ),
        differs(
            "a host of a stranger",
            strange("X-Forwarded-Host", "else.test"),
            TRUST,
            &["nginx sees x-forwarded-host: else.test", "tidegate sees x-forwarded-host: blog.apps.test"],
        ),
        same(
            "a host of a trusted peer",
            trusted("X-Forwarded-Host", "else.test"),
            200,
            &["sees x-forwarded-host: else.test"],
        ),
    ];
    check(&pair, rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_headers_of_clients() {
    let Some(pair) = Pair::start(plain_world().await, &[]).await else { return };
    let rows = vec![
        differs(
            "Forwarded",
            strange("Forwarded", "for=192.0.2.1"),
            "`Forwarded` is removed",
            &["nginx sees forwarded: for=192.0.2.1"],
        ),
        differs(
            "early data",
            strange("Early-Data", "1"),
            "`Early-Data` of a client is passed on",
            &["tidegate sees early-data: 1"],
        ),
        same("an id of the client", strange("X-Request-Id", "mine"), 200, &["sees x-request-id: mine"]),
        same("a correlation of the client", strange("X-Correlation-Id", "mine"), 200, &["sees x-correlation-id: mine"]),
        same("a start of the client", strange("X-Request-Start", "t=1"), 200, &["sees x-request-start: t=1"]),
    ];
    check(&pair, rows).await;
}

/// A world whose router sets every header.
async fn world() -> World {
    let mut world = World::new(&[
        ("platformDomain", "apps.test"),
        ("requestIDs", "true"),
        ("requestStartHeader", "true"),
        ("referrerPolicy", "same-origin"),
        ("ssl.hsts.enabled", "true"),
        ("ssl.hsts.maxAge", "100"),
        ("ssl.hsts.includeSubDomains", "true"),
        ("ssl.hsts.preload", "True"),
    ]);
    world.app("blog", &[("domains", "blog")]).await;
    world.app("own", &[("domains", "own"), ("referrerPolicy", "origin")]).await;
    world
        .app("quiet", &[("domains", "quiet"), ("referrerPolicy", "none"), ("disableRequestStartHeader", "True")])
        .await;
    world.app("office", &[("domains", "office"), ("whitelist", "127.0.0.5")]).await;
    world.app("closed", &[("domains", "closed"), ("maintenance", "true")]).await;
    world.app_at("gone", "gone", &[("domains", "gone")], &[]);
    world
}

/// A request from a load balancer that terminates TLS.
fn offloaded(host: &'static str, path: &str) -> Ask {
    get(host, path).from(TRUSTED).header("X-Forwarded-Proto", "https").header("X-Forwarded-For", "192.0.2.1")
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_the_router_deployment() {
    let Some(pair) = Pair::start(world().await, &[]).await else { return };
    let rows = vec![
        same(
            "all of them",
            offloaded(HOST, "/"),
            200,
            &[
                "strict-transport-security: max-age=100; includeSubDomains; preload",
                "referrer-policy: same-origin",
                "x-request-id: ID1",
                "x-correlation-id: ID1",
                "sees x-correlation-id: ID1",
                "sees x-request-start: t=TIME",
            ],
        ),
        same(
            "a correlation",
            offloaded(HOST, "/").header("X-Correlation-Id", "mine"),
            200,
            &["x-correlation-id: mine,ID1", "sees x-correlation-id: mine,ID1"],
        ),
        same("a forged id", offloaded(HOST, "/").header("X-Request-Id", "mine"), 200, &["sees x-request-id: ID1"]),
        same(
            "a forged start",
            offloaded(HOST, "/").header("X-Request-Start", "t=1"),
            200,
            &["sees x-request-start: t=TIME"],
        ),
        same("an own policy", offloaded("own.apps.test", "/"), 200, &["referrer-policy: origin"]),
        same("no policy and no start", offloaded("quiet.apps.test", "/"), 200, &["x-request-id: ID1"]),
        same(
            "a policy of the application itself",
            offloaded(HOST, "/with/referrer-policy=origin"),
            200,
            &["referrer-policy: origin", "referrer-policy: same-origin"],
        ),
        same(
            "a transport security of the application itself",
            offloaded(HOST, "/with/strict-transport-security=max-age=1"),
            200,
            &[],
        ),
        differs(
            "an id of the application itself",
            offloaded(HOST, "/with/x-request-id=own"),
            "replaces an application's own",
            &["nginx x-request-id: own"],
        ),
    ];
    check(&pair, rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_by_status() {
    let Some(pair) = Pair::start(world().await, &[]).await else { return };
    let rows = vec![
        same("201", offloaded(HOST, "/status/201"), 201, &["referrer-policy: same-origin"]),
        same("202", offloaded(HOST, "/status/202"), 202, &["x-request-id: ID1"]),
        same("304", offloaded(HOST, "/status/304"), 304, &["referrer-policy: same-origin"]),
        same("404", offloaded(HOST, "/status/404"), 404, &["x-request-id: ID1"]),
        same(
            "502",
            offloaded(HOST, "/end"),
            502,
            &["x-request-id: ID1", "strict-transport-security: max-age=100; includeSubDomains; preload"],
        ),
        differs(
            "wss",
            get(HOST, "/").from(TRUSTED).header("X-Forwarded-Proto", "wss"),
            "`ws` and `wss` are told as they are",
            &[
                "nginx sees x-forwarded-proto: wss",
                "tidegate strict-transport-security: max-age=100; includeSubDomains; preload",
                "tidegate sees x-forwarded-proto: https",
            ],
        ),
        same("the redirect", get(HOST, "/"), 301, &["x-request-id: ID1", "referrer-policy: same-origin"]),
        same(
            "403",
            offloaded("office.apps.test", "/"),
            403,
            &["x-request-id: ID1", "strict-transport-security: max-age=100; includeSubDomains; preload"],
        ),
        same("no endpoints", offloaded("gone.apps.test", "/"), 503, &["x-request-id: ID1"]),
        same("maintenance", offloaded("closed.apps.test", "/"), 503, &["page: maintenance"]),
        same("an unknown host", offloaded("unknown.test", "/"), 404, &[]),
        differs(
            "health of an unknown host",
            get("unknown.test", "/healthz"),
            "has no `Referrer-Policy`",
            &["nginx referrer-policy: same-origin"],
        ),
        // The host is not served over TLS, so no HSTS header is sent.
        differs(
            "a host without TLS over TLS",
            get("office.apps.test", "/").from(OFFICE).tls("office.apps.test"),
            "also on the 404 of a host that is not served over TLS",
            &["tidegate x-correlation-id: ID1", "tidegate x-request-id: ID1"],
        ),
    ];
    check(&pair, rows).await;
}
