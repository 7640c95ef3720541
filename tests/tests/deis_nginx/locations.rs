//! Paths of a host that belong to another application.

use crate::ask::{OFFICE, get};
use crate::pair::Pair;
use crate::row::{check, differs, same};
use crate::world::World;

const DOTS: &str = "dots are resolved";

async fn world() -> World {
    let mut world = World::new(&[("platformDomain", "apps.test")]);
    world.app("blog", &[("domains", "blog,www.blog.test"), ("referrerPolicy", "origin")]).await;
    let on = |paths| [("domains", "blog-api"), ("proxyDomain", "blog"), ("proxyLocations", paths)];
    world.app_in("blog", "blog-api", &on("/api, = /only,~ ^/v[0-9]+/,^~ /files/,/api/deep")).await;
    let secure =
        [("domains", "blog-pay"), ("proxyDomain", "blog"), ("proxyLocations", "/pay"), ("ssl.enforce", "true")];
    world.app_in("blog", "blog-pay", &secure).await;
    let closed =
        [("domains", "blog-old"), ("proxyDomain", "blog"), ("proxyLocations", "/old"), ("maintenance", "true")];
    world.app_in("blog", "blog-old", &closed).await;
    let gone = [("domains", "blog-gone"), ("proxyDomain", "blog"), ("proxyLocations", "/gone")];
    world.app_at("blog", "blog-gone", &gone, &[]);
    let foreign = [("domains", "thief"), ("proxyDomain", "blog"), ("proxyLocations", "/stolen")];
    world.app("thief", &foreign).await;
    let office = [("domains", "office"), ("whitelist", "127.0.0.5")];
    world.app("office", &office).await;
    let api =
        [("domains", "office-api"), ("proxyDomain", "office"), ("proxyLocations", "/api"), ("whitelist", "127.0.0.6")];
    world.app_in("office", "office-api", &api).await;
    world.app("shut", &[("domains", "shut"), ("maintenance", "true")]).await;
    let api = [("domains", "shut-api"), ("proxyDomain", "shut"), ("proxyLocations", "/api")];
    world.app_in("shut", "shut-api", &api).await;
    let both = [("domains", "shut-old"), ("proxyDomain", "shut"), ("proxyLocations", "/old"), ("maintenance", "true")];
    world.app_in("shut", "shut-old", &both).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_on_the_host_of_another_application() {
    let Some(pair) = Pair::start(world().await, &[]).await else { return };
    let of = |path: &str| get("blog.apps.test", path);
    let api: &[&str] = &["x-endpoint: blog-api"];
    let blog: &[&str] = &["x-endpoint: blog"];
    let rows = vec![
        same("the rest of the host", of("/"), 200, blog),
        same("a path", of("/api"), 200, api),
        same("a path below", of("/api/x?y"), 200, &["x-endpoint: blog-api", "sees GET /api/x?y HTTP/1.1"]),
        same("a path that begins so", of("/apix"), 200, api),
        same("in upper case", of("/API"), 200, blog),
        same("escaped", of("/%61pi"), 200, &["x-endpoint: blog-api", "sees GET /%61pi HTTP/1.1"]),
        same("with two slashes", of("//api"), 200, &["x-endpoint: blog-api", "sees GET //api HTTP/1.1"]),
        differs(
            "with dots",
            of("/x/../api"),
            DOTS,
            &["nginx sees GET /x/../api HTTP/1.1", "tidegate sees GET /api HTTP/1.1"],
        ),
        differs(
            "out of it by dots",
            of("/api/../x"),
            DOTS,
            &["nginx sees GET /api/../x HTTP/1.1", "tidegate sees GET /x HTTP/1.1"],
        ),
        same("an exact path", of("/only"), 200, api),
        same("a path below an exact one", of("/only/x"), 200, blog),
        same("an expression", of("/v12/x"), 200, api),
        same("no match of the expression", of("/vx/"), 200, blog),
        same("a strong prefix", of("/files/v1/"), 200, api),
        same("its other domain", get("www.blog.test", "/api"), 200, api),
        same("its own domain", get("blog-api.apps.test", "/"), 200, api),
        same("a header of the host", of("/api"), 200, &["referrer-policy: origin"]),
        same("enforcement of the attached one", of("/pay"), 301, &["location: https://blog.apps.test/pay"]),
        same("the attached one has no endpoints", of("/gone"), 503, &[]),
        differs(
            "the attached one is in maintenance",
            of("/old"),
            "every request gets the page",
            &["nginx page: its own", "tidegate page: maintenance"],
        ),
        differs(
            "of another namespace",
            of("/stolen"),
            "only to a host whose oldest claim is of the same namespace",
            &["nginx x-endpoint: thief", "tidegate x-endpoint: blog"],
        ),
        same("whitelist of the host", get("office.apps.test", "/api").from(OFFICE), 200, &["x-endpoint: office-api"]),
        same("not on it", get("office.apps.test", "/api"), 403, &[]),
        same("the host is in maintenance", get("shut.apps.test", "/"), 503, &["page: maintenance"]),
        same("and its guest is not", get("shut.apps.test", "/api"), 200, &["x-endpoint: shut-api"]),
        same("both are", get("shut.apps.test", "/old"), 503, &["page: maintenance"]),
    ];
    check(&pair, rows).await;
}
