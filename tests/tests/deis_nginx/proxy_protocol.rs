//! The PROXY protocol, with a second Tidegate.

use std::net::Ipv4Addr;

use crate::ask::{Ask, STRANGER, TRUSTED, get};
use crate::pair::Pair;
use crate::row::{check, differs, none, same};
use crate::world::{TRUSTED_NETWORK, World};

const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_protocol() {
    let mut world = World::new(&[("platformDomain", "apps.test"), ("useProxyProtocol", "true")]);
    world.certificate("blog", "www-cert", &["www.blog.test"]);
    let domains = ("domains", "blog,www.blog.test");
    world.app("blog", &[domains, ("certificates", "www.blog.test:www")]).await;
    world.app("office", &[("domains", "office"), ("whitelist", "192.0.2.7")]).await;
    let arguments = ["--proxy-protocol", "--trusted-proxies", TRUSTED_NETWORK];
    let Some(pair) = Pair::start(world, &arguments).await else { return };
    let host = || get("blog.apps.test", "/").from(TRUSTED);
    let office = || get("office.apps.test", "/").from(TRUSTED);
    let over_tls = |ask: Ask| ask.from(TRUSTED).tls("www.blog.test");
    let client: &[&str] = &["sees x-forwarded-for: 192.0.2.7"];
    let rows = vec![
        same("version 1", host().proxy_v1("192.0.2.7"), 200, client),
        same("version 2", host().proxy_v2(CLIENT), 200, client),
        same("version 1 before TLS", over_tls(get("www.blog.test", "/")).proxy_v1("192.0.2.7"), 200, client),
        same("version 2 before TLS", over_tls(get("www.blog.test", "/")).proxy_v2(CLIENT), 200, client),
        same(
            "version 2 before HTTP/2",
            get("www.blog.test", "/").from(TRUSTED).h2("www.blog.test").proxy_v2(CLIENT),
            200,
            client,
        ),
        same(
            "of a connection of the balancer itself",
            host().after(b"PROXY UNKNOWN\r\n"),
            200,
            &["sees x-forwarded-for: 127.0.0.2"],
        ),
        same("from a stranger", host().from(STRANGER).proxy_v1("192.0.2.7"), 200, &["sees x-forwarded-for: 127.0.0.1"]),
        same(
            "X-Forwarded-For beside it",
            host().proxy_v1("192.0.2.7").header("X-Forwarded-For", "192.0.2.9"),
            200,
            client,
        ),
        same("a whitelist", office().proxy_v1("192.0.2.7"), 200, &["x-endpoint: office"]),
        same("not on it", office().proxy_v1("192.0.2.8"), 403, &[]),
        same("from a stranger, not on it", office().from(STRANGER).proxy_v1("192.0.2.7"), 403, &[]),
        differs(
            "https offloaded",
            host().proxy_v1("192.0.2.7").header("X-Forwarded-Proto", "https"),
            "all of them from `proxyRealIpCidrs` alone",
            &["nginx sees x-forwarded-proto: https", "tidegate sees x-forwarded-proto: http"],
        ),
        none("none", host()),
        none("none before TLS", over_tls(get("www.blog.test", "/"))),
        none("something else", host().after(b"PROXY of nobody\r\n")),
    ];
    check(&pair, rows).await;
}
