//! Certificates by server name, and hosts over TLS.

use crate::ask::{TRUSTED, get, upgrade};
use crate::pair::Pair;
use crate::row::{check, differs, same};
use crate::world::World;

const SHORT: &str = "goes before the platform's certificate";

async fn world(platform: bool) -> World {
    let mut world = World::new(&[("platformDomain", "apps.test")]);
    if platform {
        world.certificate("deis", "deis-router-platform-cert", &["*.apps.test"]);
    }
    world.certificate("blog", "www-cert", &["www.blog.test"]);
    world.certificate("blog", "wild-cert", &["*.wild.test"]);
    world.certificate("mapped", "mapped-cert", &["mapped.apps.test"]);
    let domains = "blog,www.blog.test,plain.blog.test,*.wild.test,stale.test,named.apps.test";
    let certificates = "www.blog.test:www,*.wild.test:wild,stale.test:gone";
    world.app("blog", &[("domains", domains), ("certificates", certificates)]).await;
    world.app("mapped", &[("domains", "mapped"), ("certificates", "mapped:mapped"), ("ssl.enforce", "true")]).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_with_a_platform_certificate() {
    let Some(pair) = Pair::start(world(true).await, &[]).await else { return };
    let rows = vec![
        same(
            "a mapped domain",
            get("www.blog.test", "/").tls("www.blog.test"),
            200,
            &["certificate: blog/www-cert", "sees x-forwarded-proto: https", "sees x-forwarded-port: 443"],
        ),
        same("a mapped wildcard", get("a.wild.test", "/").tls("a.wild.test"), 200, &["certificate: blog/wild-cert"]),
        same("two labels of it", get("a.b.wild.test", "/").tls("a.b.wild.test"), 200, &["certificate: blog/wild-cert"]),
        same(
            "a short name",
            get("blog.apps.test", "/").tls("blog.apps.test"),
            200,
            &["certificate: deis/deis-router-platform-cert"],
        ),
        differs(
            "a mapped short name",
            get("mapped.apps.test", "/").tls("mapped.apps.test"),
            SHORT,
            &["nginx certificate: deis/deis-router-platform-cert", "tidegate certificate: mapped/mapped-cert"],
        ),
        same(
            "a domain without a certificate",
            get("plain.blog.test", "/").tls("plain.blog.test"),
            404,
            &["certificate: deis/deis-router-platform-cert"],
        ),
        same("the same without TLS", get("plain.blog.test", "/"), 200, &[]),
        same(
            "a whole name below the platform's",
            get("named.apps.test", "/").tls("named.apps.test"),
            404,
            &["certificate: deis/deis-router-platform-cert"],
        ),
        same(
            "a Secret that is gone",
            get("stale.test", "/").tls("stale.test"),
            404,
            &["certificate: deis/deis-router-platform-cert"],
        ),
        same(
            "an unknown name",
            get("unknown.test", "/").tls("unknown.test"),
            404,
            &["certificate: deis/deis-router-platform-cert"],
        ),
        same("health of an unknown name", get("unknown.test", "/healthz").tls("unknown.test"), 200, &["page: none"]),
        same(
            "no name",
            get("www.blog.test", "/").tls("127.0.0.1"),
            200,
            &["certificate: deis/deis-router-platform-cert"],
        ),
    ];
    check(&pair, rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_over_tls() {
    let Some(pair) = Pair::start(world(true).await, &[]).await else { return };
    let rows = vec![
        same(
            "a name and another host",
            get("a.wild.test", "/").tls("www.blog.test"),
            200,
            &["certificate: blog/www-cert", "sees host: a.wild.test"],
        ),
        same("a name and a host without TLS", get("plain.blog.test", "/").tls("www.blog.test"), 404, &[]),
        same(
            "a name in odd case",
            get("www.blog.test", "/").tls("WWW.Blog.test"),
            200,
            &["certificate: blog/www-cert"],
        ),
        same("plain HTTP", get("www.blog.test", "/").plain_to_tls(), 400, &[]),
        differs(
            "a trusted peer says over TLS that its client has none",
            get("www.blog.test", "/").tls("www.blog.test").from(TRUSTED).header("X-Forwarded-Proto", "http"),
            "over TLS, nor in upper case",
            &["nginx sees x-forwarded-proto: https", "tidegate sees x-forwarded-proto: http"],
        ),
        same("a socket", upgrade("www.blog.test", "websocket").tls("www.blog.test"), 101, &["tunnel: hello"]),
        same(
            "HTTP/2",
            get("www.blog.test", "/x?y").h2("www.blog.test"),
            200,
            &["certificate: blog/www-cert", "sees GET /x?y HTTP/1.1", "sees x-forwarded-proto: https"],
        ),
        same(
            "HTTP/2, a body",
            get("www.blog.test", "/").h2("www.blog.test").body(30),
            200,
            &["sees body of 30: bbbbbbbbbbbbbbbbbbbb"],
        ),
        same("HTTP/2, another host", get("a.wild.test", "/").h2("www.blog.test"), 200, &["sees host: a.wild.test"]),
        differs(
            "HTTP/2, a host with a port",
            get("www.blog.test:8443", "/").h2("www.blog.test"),
            "as the client sent it",
            &["nginx sees host: www.blog.test", "tidegate sees host: www.blog.test:8443"],
        ),
        same("HTTP/2, a host without TLS", get("plain.blog.test", "/").h2("www.blog.test"), 404, &[]),
        same("HTTP/2, a body over the limit", get("www.blog.test", "/").h2("www.blog.test").body(2 << 20), 413, &[]),
        same("enforcement is satisfied", get("blog.apps.test", "/").h2("blog.apps.test"), 200, &[]),
    ];
    check(&pair, rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_without_a_platform_certificate() {
    let Some(pair) = Pair::start(world(false).await, &[]).await else { return };
    let rows = vec![
        same("a mapped domain", get("www.blog.test", "/").tls("www.blog.test"), 200, &["certificate: blog/www-cert"]),
        same("a short name", get("blog.apps.test", "/").tls("blog.apps.test"), 404, &["certificate: default"]),
        differs(
            "a mapped short name",
            get("mapped.apps.test", "/").tls("mapped.apps.test"),
            SHORT,
            &[
                "nginx status: 404",
                "nginx certificate: default",
                "nginx page: its own",
                "tidegate status: 200",
                "tidegate certificate: mapped/mapped-cert",
            ],
        ),
        same("a short name is redirected all the same", get("mapped.apps.test", "/"), 301, &[]),
        same("no name", get("unknown.test", "/").tls("127.0.0.1"), 404, &["certificate: default"]),
    ];
    check(&pair, rows).await;
}
