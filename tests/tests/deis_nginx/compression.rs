//! Responses that are compressed, and those that are not. Bodies are compared in decoded form.

use crate::ask::{Ask, get};
use crate::pair::Pair;
use crate::row::{check, differs, same};
use crate::world::World;

const HOST: &str = "www.blog.test";

/// The headers of every compressed response.
const GZIP: &[&str] = &["content-encoding: gzip", "vary: Accept-Encoding"];
/// The header of responses that other clients get compressed.
const VARY: &[&str] = &["vary: Accept-Encoding"];

const UNMODIFIED: &str = "sends a 304 with the strong `ETag`";
const NO_TRANSFORM: &str = "compresses responses that say `no-transform`";
const WEIGHTS: &str = "takes `Accept-Encoding` by its weights";

async fn pair(router: &[(&str, &str)]) -> Option<Pair> {
    let mut world = World::new(router);
    world.app("blog", &[("domains", HOST)]).await;
    Pair::start(world, &[]).await
}

/// Requests a page of the endpoint without an `Accept-Encoding`.
fn plain(page: &str) -> Ask {
    get(HOST, &format!("/page/{page}"))
}

/// Requests a page, and accepts gzip.
fn page(page: &str) -> Ask {
    plain(page).header("Accept-Encoding", "gzip")
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_responses() {
    let Some(pair) = pair(&[]).await else { return };
    let rows = vec![
        same("200", page("200/3000?content-type=text/html"), 200, GZIP),
        same("403", page("403/3000?content-type=text/html"), 403, GZIP),
        same("404", page("404/3000?content-type=text/html"), 404, GZIP),
        same("500", page("500/3000?content-type=text/html"), 500, &[]),
        same("201", page("201/3000?content-type=text/html"), 201, &[]),
        same("the least length", page("200/256?content-type=text/html"), 200, GZIP),
        same("less than that", page("200/255?content-type=text/html"), 200, &[]),
        same("an unknown length", page("200/chunked?content-type=text/html"), 200, GZIP),
        same("a listed type", page("200/3000?content-type=application/json"), 200, GZIP),
        same("a type with parameters", page("200/3000?content-type=text/css;charset=utf-8"), 200, GZIP),
        same("an unlisted type", page("200/3000?content-type=image/png"), 200, &["content-type: image/png"]),
        same("no type", page("200/3000"), 200, &[]),
        same(
            "a coding of the application",
            page("200/3000?content-type=text/html&content-encoding=br"),
            200,
            &["content-encoding: br"],
        ),
        same(
            "a strong tag becomes weak",
            page("200/3000?content-type=text/html&etag=%22a%22"),
            200,
            &["content-encoding: gzip", "etag: W/\"a\""],
        ),
        same("a weak tag stays", page("200/3000?content-type=text/html&etag=W/%22a%22"), 200, &["etag: W/\"a\""]),
        same("the parts of a body", page("200/3000?content-type=text/html&accept-ranges=bytes"), 200, GZIP),
        same(
            "a Vary of the application",
            page("200/3000?content-type=text/html&vary=Cookie"),
            200,
            &["vary: Accept-Encoding", "vary: Cookie"],
        ),
        differs(
            "no-transform",
            page("200/3000?content-type=text/html&cache-control=no-transform"),
            NO_TRANSFORM,
            &["nginx content-encoding: gzip", "nginx vary: Accept-Encoding"],
        ),
        same(
            "HEAD",
            page("200/3000?content-type=text/html&etag=%22a%22").method("HEAD"),
            200,
            &["content-encoding: gzip", "etag: W/\"a\"", "vary: Accept-Encoding"],
        ),
        differs(
            "304",
            page("304/0?etag=%22a%22"),
            UNMODIFIED,
            &["nginx etag: \"a\"", "tidegate etag: W/\"a\"", "tidegate vary: Accept-Encoding"],
        ),
    ];
    check(&pair, rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_compressed_responses() {
    let Some(pair) = pair(&[]).await else { return };
    let html = "200/3000?content-type=text/html";
    let takes = |codings: &str| plain(html).header("Accept-Encoding", codings);
    let agent = |agent: &str| page(html).header("User-Agent", agent);
    let rows = vec![
        same("who says nothing", plain(html), 200, VARY),
        same("who takes gzip among others", takes("br, gzip, deflate"), 200, GZIP),
        same("who refuses gzip", takes("gzip;q=0"), 200, VARY),
        same("who takes something else", takes("br"), 200, VARY),
        differs("who takes everything", takes("*"), WEIGHTS, &["tidegate content-encoding: gzip"]),
        differs("who would rather not", takes("gzip;q=0.5, identity"), WEIGHTS, &["nginx content-encoding: gzip"]),
        same("another proxy", page(html).header("Via", "1.1 cache"), 200, GZIP),
        same("Internet Explorer 6", agent("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)"), 200, VARY),
        same("the same with SV1", agent("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)"), 200, GZIP),
        same("HTTP/1.0", page(html).http_1_0(), 200, VARY),
    ];
    check(&pair, rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compression_settings_of_the_router() {
    let said = [
        ("gzip.proxied", "expired no-store"),
        ("gzip.types", "application/x-own"),
        ("gzip.minLength", "10"),
        ("gzip.vary", "off"),
        ("gzip.httpVersion", "1.0"),
        ("gzip.disable", "^robot"),
    ];
    let Some(pair) = pair(&said).await else { return };
    let via = |fields: &str| page(&format!("200/3000?content-type=text/html{fields}")).header("Via", "1.1 cache");
    let gzip = &["content-encoding: gzip"];
    let rows = vec![
        same("another proxy", via(""), 200, gzip),
        same("another proxy, what may be stored", via("&cache-control=max-age=60"), 200, &[]),
        same("another proxy, what may not", via("&cache-control=no-store"), 200, gzip),
        same("another proxy, what has expired", via("&expires=Thu,%2001%20Jan%201970%2000:00:01%20GMT"), 200, gzip),
        same("no other proxy", page("200/3000?content-type=text/html&cache-control=max-age=60"), 200, gzip),
        same("a listed type", page("200/3000?content-type=application/x-own"), 200, gzip),
        same("a type that is listed no more", page("200/3000?content-type=text/css"), 200, &[]),
        same("the least length", page("200/10?content-type=text/html"), 200, gzip),
        same("HTTP/1.0", page("200/3000?content-type=text/html").http_1_0(), 200, gzip),
        same("a robot", page("200/3000?content-type=text/html").header("User-Agent", "Robot/1"), 200, &[]),
    ];
    check(&pair, rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disabled_compression() {
    let Some(pair) = pair(&[("gzip.enabled", "False")]).await else { return };
    let rows = vec![
        same("200", page("200/3000?content-type=text/html&etag=%22a%22"), 200, &["etag: \"a\""]),
        same("304", page("304/0?etag=%22a%22"), 304, &["etag: \"a\""]),
    ];
    check(&pair, rows).await;
}
