//! The application of a host.

use crate::ask::get;
use crate::pair::Pair;
use crate::row::{check, differs, same};
use crate::world::World;

const AS_SENT: &str = "as the client sent it";
const EMPTY: &str = "a trailing comma";
const TAKEN: &[&str] = &["nginx status: 200", "tidegate status: 404", "tidegate page: its own"];

#[tokio::test(flavor = "multi_thread")]
async fn hosts_below_a_platform_domain() {
    let mut world = World::new(&[("platformDomain", "apps.test")]);
    world.app("blog", &[("domains", "blog,www.blog.test,*.wild.test")]).await;
    world.app("deep", &[("domains", "*.deep.wild.test, exact.wild.test,UPPER.Test")]).await;
    world.app("trailing", &[("domains", "trailing,")]).await;
    world.unroutable("off", &[("domains", "off.test")]).await;
    let Some(pair) = Pair::start(world, &[]).await else { return };
    let rows = vec![
        same("a short name", get("blog.apps.test", "/"), 200, &["x-endpoint: blog", "sees host: blog.apps.test"]),
        same("a short name alone", get("blog", "/"), 404, &[]),
        same("a short name elsewhere", get("blog.else.test", "/"), 404, &[]),
        same("a whole name", get("www.blog.test", "/"), 200, &["x-endpoint: blog"]),
        differs(
            "in odd case",
            get("WwW.BLOG.tEsT", "/"),
            AS_SENT,
            &["nginx sees host: www.blog.test", "tidegate sees host: WwW.BLOG.tEsT"],
        ),
        differs(
            "with a port",
            get("www.blog.test:8080", "/"),
            AS_SENT,
            &["nginx sees host: www.blog.test", "tidegate sees host: www.blog.test:8080"],
        ),
        differs(
            "with a dot at its end",
            get("www.blog.test.", "/"),
            AS_SENT,
            &["nginx sees host: www.blog.test", "tidegate sees host: www.blog.test."],
        ),
        differs(
            "with both",
            get("www.blog.test.:80", "/"),
            AS_SENT,
            &["nginx sees host: www.blog.test", "tidegate sees host: www.blog.test.:80"],
        ),
        same("a wildcard, one label", get("a.wild.test", "/"), 200, &["x-endpoint: blog"]),
        same("a wildcard, two labels", get("a.b.wild.test", "/"), 200, &["x-endpoint: blog"]),
        same("a wildcard, no label", get("wild.test", "/"), 404, &[]),
        same("the longer wildcard", get("a.b.deep.wild.test", "/"), 200, &["x-endpoint: deep"]),
        same("the name of the longer wildcard", get("deep.wild.test", "/"), 200, &["x-endpoint: blog"]),
        same("an exact name before a wildcard", get("exact.wild.test", "/"), 200, &["x-endpoint: deep"]),
        same("a domain listed in upper case", get("upper.test", "/"), 200, &["x-endpoint: deep"]),
        same("not routable", get("off.test", "/"), 404, &[]),
        same("a neighbour of a trailing comma", get("trailing.apps.test", "/"), 200, &["x-endpoint: trailing"]),
        differs("a trailing comma", get("nobody.apps.test", "/"), EMPTY, TAKEN),
        differs("a trailing comma, the platform's domain", get("apps.test", "/"), EMPTY, TAKEN),
        same("an unknown host", get("unknown.test", "/"), 404, &[]),
        same("health of an unknown host", get("unknown.test", "/healthz"), 200, &["page: none"]),
        same("the same with a slash", get("unknown.test", "/healthz/"), 200, &["page: none"]),
        same("a path that begins like it", get("unknown.test", "/healthzz"), 404, &[]),
        same("health of an application", get("www.blog.test", "/healthz"), 200, &["sees GET /healthz HTTP/1.1"]),
        same("an address as the host", get("127.0.0.1", "/"), 404, &[]),
    ];
    check(&pair, rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_without_a_platform_domain() {
    let mut world = World::new(&[]);
    world.app("blog", &[("domains", "blog")]).await;
    world.app("exact", &[("domains", "blog.exact.test,*.around.test")]).await;
    world.app("silent", &[]).await;
    let Some(pair) = Pair::start(world, &[]).await else { return };
    let rows = vec![
        same("a short name is a first label", get("blog.any.test", "/"), 200, &["x-endpoint: blog"]),
        same("whatever follows", get("blog.a.b.c", "/"), 200, &["x-endpoint: blog"]),
        same("nothing follows", get("blog", "/"), 404, &[]),
        same("nothing but a dot follows", get("blog.", "/"), 404, &[]),
        differs(
            "in odd case",
            get("BLOG.Any.Test", "/"),
            AS_SENT,
            &["nginx sees host: blog.any.test", "tidegate sees host: BLOG.Any.Test"],
        ),
        same("an application without domains", get("silent.any.test", "/"), 404, &[]),
        same("a label that begins like it", get("blogs.any.test", "/"), 404, &[]),
        same("a second label", get("www.blog.test", "/"), 404, &[]),
        same("an exact name goes first", get("blog.exact.test", "/"), 200, &["x-endpoint: exact"]),
        same("so does a wildcard", get("blog.around.test", "/"), 200, &["x-endpoint: exact"]),
    ];
    check(&pair, rows).await;
}
