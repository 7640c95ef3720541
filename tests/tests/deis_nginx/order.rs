//! The precedence of several possible responses: the body limit, the whitelist, maintenance, missing endpoints, the
//! redirect to https.

use crate::ask::{OFFICE, TRUSTED, get, upgrade};
use crate::pair::Pair;
use crate::row::{check, differs, same};
use crate::world::World;

const FIRST: &str = "the whitelist comes first";
const LIMIT: &str = "it is 404 there";

const LENIENT: &str = "is believed, in any case";
const SENT: &str = "nginx status: 301";
const LOCATION: &str = "nginx location: https://secure.apps.test/a?b=c";
const OWN: &str = "nginx page: its own";
const SERVED: &str = "tidegate status: 200";

async fn world() -> World {
    let mut world = World::new(&[("platformDomain", "apps.test"), ("bodySize", "2k")]);
    let office = ("whitelist", "127.0.0.5, 192.0.2.0/24");
    let domains = |name| ("domains", name);
    world.app("open", &[domains("open")]).await;
    world.app("office", &[domains("office"), office]).await;
    world.app_at("gone", "gone", &[domains("gone")], &[]);
    world.app_at("office-gone", "office-gone", &[domains("office-gone"), office], &[]);
    world.app("secure", &[domains("secure"), ("ssl.enforce", "True")]).await;
    world.app("office-secure", &[domains("office-secure"), office, ("ssl.enforce", "true")]).await;
    world.app_at("gone-secure", "gone-secure", &[domains("gone-secure"), ("ssl.enforce", "TRUE")], &[]);
    world.app("closed", &[domains("closed"), ("maintenance", "True")]).await;
    world.app("office-closed", &[domains("office-closed"), office, ("maintenance", "true")]).await;
    world.app("closed-secure", &[domains("closed-secure"), ("maintenance", "true"), ("ssl.enforce", "true")]).await;
    world.app_at("gone-closed", "gone-closed", &[domains("gone-closed"), ("maintenance", "true")], &[]);
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn whitelist_maintenance_and_missing_endpoints() {
    let Some(pair) = Pair::start(world().await, &[]).await else { return };
    let rows = vec![
        same("whitelisted", get("office.apps.test", "/").from(OFFICE), 200, &["x-endpoint: office"]),
        same("not whitelisted", get("office.apps.test", "/"), 403, &[]),
        same("not whitelisted, a socket", upgrade("office.apps.test", "websocket"), 403, &[]),
        same("no endpoints", get("gone.apps.test", "/"), 503, &[]),
        same("no endpoints, POST", get("gone.apps.test", "/").body(5), 503, &[]),
        same("no endpoints, whitelisted", get("office-gone.apps.test", "/").from(OFFICE), 503, &[]),
        differs(
            "no endpoints, not whitelisted",
            get("office-gone.apps.test", "/"),
            FIRST,
            &["nginx status: 503", "tidegate status: 403"],
        ),
        same("no endpoints, enforcement", get("gone-secure.apps.test", "/"), 503, &[]),
        same("maintenance", get("closed.apps.test", "/any?thing"), 503, &["page: maintenance"]),
        same("maintenance, HEAD", get("closed.apps.test", "/").method("HEAD"), 503, &[]),
        differs(
            "maintenance, POST",
            get("closed.apps.test", "/").body(5),
            "every request gets the page",
            &["nginx status: 405", "nginx page: its own", "tidegate status: 503", "tidegate page: maintenance"],
        ),
        same("maintenance, whitelisted", get("office-closed.apps.test", "/").from(OFFICE), 503, &["page: maintenance"]),
        same("maintenance, not whitelisted", get("office-closed.apps.test", "/"), 403, &[]),
        same("maintenance, enforcement", get("closed-secure.apps.test", "/"), 503, &["page: maintenance"]),
        same("maintenance, no endpoints", get("gone-closed.apps.test", "/"), 503, &["page: maintenance"]),
        same(
            "enforcement, whitelisted",
            get("office-secure.apps.test", "/").from(OFFICE),
            301,
            &["location: https://office-secure.apps.test/"],
        ),
        differs(
            "enforcement, not whitelisted",
            get("office-secure.apps.test", "/"),
            FIRST,
            &["nginx status: 301", "nginx location: https://office-secure.apps.test/", "tidegate status: 403"],
        ),
    ];
    check(&pair, rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn body_size_limits() {
    let Some(pair) = Pair::start(world().await, &[]).await else { return };
    let rows = vec![
        same(
            "a body of the limit",
            get("open.apps.test", "/").body(2048),
            200,
            &["sees body of 2048: bbbbbbbbbbbbbbbbbbbb"],
        ),
        same("a body over the limit", get("open.apps.test", "/").announced(2049), 413, &[]),
        same("a body over the limit that is sent", get("open.apps.test", "/").body(3000), 413, &[]),
        same(
            "chunks of the limit",
            get("open.apps.test", "/").chunked(&[1024, 1024]),
            200,
            &["sees body of 2048: bbbbbbbbbbbbbbbbbbbb"],
        ),
        same("chunks over the limit", get("open.apps.test", "/").chunked(&[1024, 1024, 1]), 413, &[]),
        same("HTTP/1.0", get("open.apps.test", "/").http_1_0().announced(2049), 413, &[]),
        same("not whitelisted", get("office.apps.test", "/").announced(2049), 413, &[]),
        same("whitelisted", get("office.apps.test", "/").from(OFFICE).announced(2049), 413, &[]),
        same("enforcement", get("secure.apps.test", "/").announced(2049), 413, &[]),
        same("no endpoints", get("gone.apps.test", "/").announced(2049), 413, &[]),
        same("maintenance", get("closed.apps.test", "/").announced(2049), 413, &[]),
        differs(
            "an unknown host",
            get("unknown.test", "/").announced(2049),
            LIMIT,
            &["nginx status: 413", "tidegate status: 404"],
        ),
        same("no endpoints, chunks", get("gone.apps.test", "/").chunked(&[3000]), 503, &[]),
    ];
    check(&pair, rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_to_https() {
    let Some(pair) = Pair::start(world().await, &[]).await else { return };
    let host = "secure.apps.test";
    let offloaded = |scheme: &str| get(host, "/a?b=c").from(TRUSTED).header("X-Forwarded-Proto", scheme);
    let to_https: &[&str] = &["location: https://secure.apps.test/a?b=c"];
    let rows = vec![
        same("http", get(host, "/a?b=c"), 301, to_https),
        same("POST", get(host, "/a?b=c").body(5), 301, to_https),
        same("HEAD", get(host, "/a?b=c").method("HEAD"), 301, to_https),
        same("HTTP/1.0", get(host, "/a?b=c").http_1_0(), 301, to_https),
        same("the Location has no port and no case", get("SECURE.apps.test:8080", "/a?b=c"), 301, to_https),
        same(
            "the path stays as it is",
            get(host, "/a%20b//c/../d"),
            301,
            &["location: https://secure.apps.test/a%20b//c/../d"],
        ),
        same("offloaded", offloaded("https"), 200, &["sees x-forwarded-proto: https"]),
        differs(
            "an offloaded socket",
            offloaded("wss"),
            "`ws` and `wss` are told as they are",
            &["nginx sees x-forwarded-proto: wss", "tidegate sees x-forwarded-proto: https"],
        ),
        same("a socket", offloaded("ws"), 301, &["location: wss://secure.apps.test/a?b=c"]),
        same("the last scheme is https", offloaded("http, https"), 200, &["sees x-forwarded-proto: https"]),
        same("without a space", offloaded("http,https"), 200, &["sees x-forwarded-proto: https"]),
        same("the last scheme is http", offloaded("https, http"), 301, to_https),
        differs("with two spaces", offloaded("http,  https"), LENIENT, &[SENT, LOCATION, OWN, SERVED]),
        differs("a scheme in upper case", offloaded("HTTPS"), LENIENT, &[SENT, LOCATION, OWN, SERVED]),
        same("a scheme that nobody knows", offloaded("gopher"), 301, to_https),
        differs(
            "a stranger says that it is offloaded",
            get(host, "/a?b=c").header("X-Forwarded-Proto", "https"),
            "all of them from `proxyRealIpCidrs` alone",
            &[
                "nginx status: 200",
                "tidegate status: 301",
                "tidegate location: https://secure.apps.test/a?b=c",
                "tidegate page: its own",
            ],
        ),
    ];
    check(&pair, rows).await;
}
