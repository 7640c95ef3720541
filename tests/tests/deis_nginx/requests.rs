//! Changes to requests and responses on their way.

use crate::ask::{get, upgrade};
use crate::pair::Pair;
use crate::row::{check, differs, same};
use crate::world::World;

const HOST: &str = "www.blog.test";

async fn world() -> World {
    let mut world = World::new(&[]);
    world.app("blog", &[("domains", HOST)]).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_requests() {
    let Some(pair) = Pair::start(world().await, &[]).await else { return };
    let rows = vec![
        same("a query", get(HOST, "/a/b?c=d&e=%20f"), 200, &["sees GET /a/b?c=d&e=%20f HTTP/1.1"]),
        same("escaped characters stay", get(HOST, "/%7Eme/%C3%A4"), 200, &["sees GET /%7Eme/%C3%A4 HTTP/1.1"]),
        same("two slashes stay", get(HOST, "/a//b"), 200, &["sees GET /a//b HTTP/1.1"]),
        differs(
            "dots go",
            get(HOST, "/a/../b/./c"),
            "dots are resolved",
            &["nginx sees GET /a/../b/./c HTTP/1.1", "tidegate sees GET /b/c HTTP/1.1"],
        ),
        same("above the root", get(HOST, "/../a"), 400, &[]),
        same("a NUL", get(HOST, "/a%00b"), 400, &[]),
        same("an absolute target", get(HOST, "http://www.blog.test/x"), 200, &["sees GET /x HTTP/1.1"]),
        differs(
            "an absolute target of another host",
            get("else.test", "http://www.blog.test/x"),
            "a target that names another host than the `Host` header",
            &["nginx status: 200", "tidegate status: 400", "tidegate page: its own"],
        ),
        same("OPTIONS", get(HOST, "/x").method("OPTIONS"), 200, &["sees OPTIONS /x HTTP/1.1"]),
        same("a method that nobody knows", get(HOST, "/x").method("BREW"), 200, &["sees BREW /x HTTP/1.1"]),
        same("HEAD", get(HOST, "/x").method("HEAD"), 200, &["x-endpoint: blog"]),
        same("HTTP/1.0", get(HOST, "/x").http_1_0(), 200, &["sees GET /x HTTP/1.1"]),
        same("HTTP/1.0 without a host", get(HOST, "/").http_1_0().without_host(), 404, &[]),
        same("the same for health", get(HOST, "/healthz").http_1_0().without_host(), 200, &[]),
        same("HTTP/1.1 without a host", get(HOST, "/").without_host(), 400, &[]),
        same("two hosts", get(HOST, "/").header("Host", "else.test"), 400, &[]),
        same("a host that is none", get("www.blog.test/x", "/"), 400, &[]),
        differs(
            "a name with an underscore",
            get(HOST, "/").header("X_Hidden", "a"),
            "of headers with underscores, only other spellings of",
            &["tidegate sees x_hidden: a"],
        ),
        same("hop-by-hop headers", get(HOST, "/").header("Keep-Alive", "5").header("TE", "trailers"), 200, &[]),
        same(
            "a header twice",
            get(HOST, "/").header("X-A", "1").header("X-A", "2"),
            200,
            &["sees x-a: 1", "sees x-a: 2"],
        ),
    ];
    check(&pair, rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_and_responses() {
    let Some(pair) = Pair::start(world().await, &[]).await else { return };
    let rows = vec![
        same("a body", get(HOST, "/").body(1000), 200, &["sees body of 1000: bbbbbbbbbbbbbbbbbbbb"]),
        same(
            "a slow body in chunks",
            get(HOST, "/").chunked(&[5, 6, 7]),
            200,
            &["sees body of 18: bbbbbbbbbbbbbbbbbb"],
        ),
        same("a length and chunks", get(HOST, "/").chunked(&[5]).header("Content-Length", "5"), 400, &[]),
        differs(
            "expecting 100",
            get(HOST, "/").header("Expect", "100-continue").body(5),
            "`Expect: 100-continue` reaches an application that speaks HTTP/1.1",
            &["tidegate sees expect: 100-continue"],
        ),
        same("a response in chunks", get(HOST, "/chunked"), 200, &["sees GET /chunked HTTP/1.1"]),
        same("204", get(HOST, "/status/204"), 204, &["x-endpoint: blog"]),
        same("304", get(HOST, "/status/304"), 304, &["x-endpoint: blog"]),
        same("404 of an application", get(HOST, "/status/404"), 404, &["x-endpoint: blog"]),
        same("503 of an application", get(HOST, "/status/503"), 503, &["x-endpoint: blog"]),
        same(
            "a redirect of an application",
            get(HOST, "/with/location=http://www.blog.test:5000/"),
            200,
            &["location: http://www.blog.test:5000/"],
        ),
        same("a cookie", get(HOST, "/with/set-cookie=a=b;Path=/"), 200, &["set-cookie: a=b;Path=/"]),
        same("a socket", upgrade(HOST, "websocket"), 101, &["tunnel: hello"]),
        differs(
            "another protocol",
            upgrade(HOST, "anything/1.0"),
            "a connection can be upgraded to any protocol",
            &["nginx status: 101", "tidegate status: 200"],
        ),
    ];
    check(&pair, rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_forwarded_request_in_full() {
    let Some(pair) = Pair::start(world().await, &[]).await else { return };
    let why = "they get the edge's own";
    let rows = vec![
        differs(
            "a request",
            get(HOST, "/"),
            why,
            &[
                "tidegate sees cdn-loop: tidegate",
                "tidegate sees x-forwarded-host: www.blog.test",
                "tidegate sees x-real-ip: 127.0.0.1",
                "tidegate sees x-request-id: ID1",
            ],
        )
        .with_headers_on_top(),
    ];
    check(&pair, rows).await;
}
