//! Tests of decisions and edits, from the heads of both messages.

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderName, HeaderValue};
use tidegate_config::model::{DisabledAgents, MediaTypes};

use super::*;
use crate::http::edits::Edit;
use crate::sample::Sample;

fn usual() -> Compression {
    Compression {
        level: 5,
        length_min: 256,
        types: MediaTypes::new(["text/css", "application/json", "application/grpc"].into_iter()),
        http10: false,
        proxied: [Proxied::Any].into(),
        disabled: DisabledAgents::Msie6,
        vary: true,
    }
}

/// A request with lines such as `name: value`.
fn request(lines: &[&str]) -> Sample {
    lines.iter().fold(Sample::get("a.test", "/"), |head, line| {
        let (name, value) = line.split_once(": ").unwrap();
        head.with(name, value)
    })
}

fn headers(lines: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        headers.append(HeaderName::try_from(name).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// A day in 2026.
fn wall() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_780_000_000)
}

fn response(status: u16, length: Option<u64>, fields: &HeaderMap) -> Response<'_, HeaderMap> {
    Response { status, length, over_http2: false, fields, wall }
}

fn decided(compression: Compression, head: &Sample, status: u16, length: Option<u64>, lines: &[&str]) -> Decision {
    let negotiation = Negotiation::of(&Arc::new(compression), head, false);
    negotiation.decide(&response(status, length, &headers(lines)))
}

const HTML: &str = "content-type: text/html";
const GZIP: &str = "accept-encoding: gzip";

#[track_caller]
fn check_accepted(lines: &[&str], want: bool) {
    let got = decided(usual(), &request(lines), 200, None, &[HTML]);
    assert_eq!(got, if want { Decision::Compressed } else { Decision::NotHere }, "{lines:?}");
}

#[test]
fn clients_state_whether_they_accept_gzip() {
    for (value, want) in [
        ("gzip", true),
        ("GZip", true),
        ("x-gzip", true),
        ("br, gzip;q=0.8", true),
        ("gzip, deflate, br, zstd", true),
        ("deflate,gzip ; Q=0.001", true),
        ("*", true),
        ("*;q=0.5, br", true),
        ("gzip;q=1.000", true),
        ("gzip;x=y;q=0.5", true),
        ("identity;q=0, gzip", true),
        ("gzip;q=0.5, identity;q=0.5", true),
        ("", false),
        ("br", false),
        ("identity", false),
        ("gzipped", false),
        ("gzip;q=0", false),
        ("gzip;q=0.000", false),
        ("gzip;q=0, *", false),
        ("*;q=0", false),
        ("gzip, x-gzip;q=0", false),
        ("gzip;q=0.1, identity", false),
        ("gzip;q=1.5", false),
        ("gzip;q=0.5555", false),
        ("gzip;q=-1", false),
        ("gzip;q=", false),
        ("gzip;q=x", false),
        ("gzip;q=0.x", false),
    ] {
        check_accepted(&[&format!("accept-encoding: {value}")], want);
    }
    check_accepted(&[], false);
    check_accepted(&["accept-encoding: br", "accept-encoding: gzip"], true);
    check_accepted(&["accept-encoding: gzip", "accept-encoding: gzip;q=0"], false);
}

#[test]
fn requests_may_forbid_compression() {
    check_accepted(&[GZIP, "cache-control: max-age=0, No-Transform"], false);
    check_accepted(&[GZIP, "cache-control: no-cache"], true);
    check_accepted(&[GZIP, "user-agent: Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)"], false);
    check_accepted(&[GZIP, "user-agent: Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)"], true);
    check_accepted(&[GZIP, "via: 1.1 cache"], true);
    check_accepted(&[GZIP, "range: bytes=0-1"], true);
    let disabled = DisabledAgents::matching("robot").unwrap();
    let compression = Compression { disabled, ..usual() };
    let robot = request(&[GZIP, "user-agent: A Robot"]);
    assert_eq!(decided(compression, &robot, 200, None, &[HTML]), Decision::NotHere);
    for (http10, want) in [(false, Decision::NotHere), (true, Decision::Compressed)] {
        let compression = Arc::new(Compression { http10, ..usual() });
        let negotiation = Negotiation::of(&compression, &request(&[GZIP]), true);
        let fields = &headers(&[HTML]);
        assert_eq!(negotiation.decide(&response(200, None, fields)), want);
    }
}

#[track_caller]
fn check_worth(status: u16, length: Option<u64>, lines: &[&str], want: bool) {
    let want = if want { Decision::Compressed } else { Decision::Never };
    assert_eq!(decided(usual(), &request(&[GZIP]), status, length, lines), want, "{status} {length:?} {lines:?}");
    let none = if want == Decision::Never { Decision::Never } else { Decision::NotHere };
    assert_eq!(decided(usual(), &request(&[]), status, length, lines), none, "{status} {length:?} {lines:?}");
}

#[test]
fn only_suitable_responses_are_compressed() {
    for (status, want) in [(200, true), (403, true), (404, true), (201, false), (206, false), (500, false)] {
        check_worth(status, None, &[HTML], want);
    }
    for (length, want) in [(None, true), (Some(0), false), (Some(255), false), (Some(256), true), (Some(1 << 40), true)]
    {
        check_worth(200, length, &[HTML], want);
    }
    for (value, want) in [
        ("text/html; charset=utf-8", true),
        ("Text/CSS", true),
        ("application/json", true),
        ("text/plain", false),
        ("image/png", false),
        ("application/grpc", false),
    ] {
        check_worth(200, None, &[&format!("content-type: {value}")], want);
    }
    check_worth(200, None, &[], false);
    // Two types are ambiguous; the first counts.
    check_worth(200, None, &["content-type: image/png", HTML], false);
    for (line, want) in [
        ("content-encoding: gzip", false),
        ("content-encoding: br", false),
        ("content-encoding: identity", true),
        ("content-encoding: identity, gzip", false),
        ("content-range: bytes 0-1/5", false),
        ("cache-control: public, no-transform", false),
        ("cache-control: NO-TRANSFORM", false),
        ("cache-control: no-cache", true),
        ("content-digest: sha-256=:AAAA:", false),
        ("repr-digest: sha-256=:AAAA:", false),
        ("content-md5: AAAA", false),
        ("etag: \"x\"", true),
        ("vary: *", true),
    ] {
        check_worth(200, None, &[HTML, line], want);
    }
    let empty = Compression { length_min: 0, ..usual() };
    assert_eq!(decided(empty, &request(&[GZIP]), 200, Some(0), &[HTML]), Decision::Never);
}

#[test]
fn responses_without_a_body_have_the_head_of_the_full_response() {
    let (head, get) = (request(&[GZIP]).method("HEAD"), request(&[GZIP]));
    let plain = request(&[]).method("HEAD");
    for (status, length, lines, want) in [
        (200, Some(1000), [HTML].as_slice(), Decision::HeadOnly),
        (404, None, &[HTML], Decision::HeadOnly),
        (200, Some(255), &[HTML], Decision::Never),
        (200, None, &[], Decision::Never),
        (304, None, &[HTML], Decision::HeadOnly),
    ] {
        assert_eq!(decided(usual(), &head, status, length, lines), want, "{status} {length:?} {lines:?}");
        let other = if want == Decision::Never { want } else { Decision::NotHere };
        assert_eq!(decided(usual(), &plain, status, length, lines), other, "{status} {length:?} {lines:?}");
    }
    // A 304 may have a type or not, and the length of a body that it lacks.
    for (length, lines, want) in [
        (None, [].as_slice(), Decision::HeadOnly),
        (Some(0), &[], Decision::HeadOnly),
        (None, &["content-type: text/css"], Decision::HeadOnly),
        (None, &["content-type: image/png"], Decision::Never),
        (None, &["content-encoding: br"], Decision::Never),
        (None, &["cache-control: no-transform"], Decision::Never),
    ] {
        assert_eq!(decided(usual(), &get, 304, length, lines), want, "{length:?} {lines:?}");
    }
    assert_eq!(decided(usual(), &request(&[]), 304, None, &[]), Decision::NotHere);
}

#[test]
fn heads_of_http2_endpoints_do_not_state_whether_a_body_follows() {
    let compression = Arc::new(Compression { http10: true, ..usual() });
    let fields = headers(&[HTML]);
    for (is_http10, status, length, want) in [
        (false, 200, None, Decision::Never),
        (false, 200, Some(1000), Decision::Compressed),
        (false, 304, None, Decision::HeadOnly),
        (true, 200, Some(1000), Decision::NotHere),
    ] {
        let negotiation = Negotiation::of(&compression, &request(&[GZIP]), is_http10);
        let over_http2 = Response { over_http2: true, ..response(status, length, &fields) };
        assert_eq!(negotiation.decide(&over_http2), want, "{is_http10} {status} {length:?}");
    }
}

#[track_caller]
fn check_proxied(conditions: &[Proxied], asked: &[&str], lines: &[&str], want: bool) {
    let compression = Compression { proxied: conditions.into(), ..usual() };
    let head = request(&[&[GZIP, "via: 1.1 cache"], asked].concat());
    let got = decided(compression.clone(), &head, 200, None, &[&[HTML], lines].concat());
    let want = if want { Decision::Compressed } else { Decision::NotHere };
    assert_eq!(got, want, "{conditions:?} {asked:?} {lines:?}");
    // Without another proxy the conditions do not apply.
    let direct = request(&[GZIP]);
    assert_eq!(decided(compression, &direct, 200, None, &[&[HTML], lines].concat()), Decision::Compressed);
}

#[test]
fn responses_to_other_proxies_depend_on_conditions() {
    use Proxied::{Any, Auth, Expired, NoCache, NoEtag, NoLastModified, NoStore, Off, Private};
    check_proxied(&[Off], &[], &[], false);
    check_proxied(&[Off, Any], &[], &[], false);
    check_proxied(&[Any], &[], &["expires: Thu, 01 Jan 2099 00:00:00 GMT"], true);
    check_proxied(&[Auth], &["authorization: x"], &["cache-control: public"], true);
    check_proxied(&[Auth], &[], &["cache-control: public"], false);
    check_proxied(&[NoCache], &["authorization: x"], &["cache-control: public"], false);
    let (past, future) = ("expires: Thu, 01 Jan 1970 00:00:01 GMT", "expires: Thu, 01 Jan 2099 00:00:00 GMT");
    check_proxied(&[Expired], &[], &[past], true);
    check_proxied(&[Expired], &[], &[future], false);
    check_proxied(&[Expired], &[], &["expires: 0"], false);
    check_proxied(&[NoCache], &[], &[past, "cache-control: no-cache"], false);
    check_proxied(&[Expired], &[], &[future, "date: Fri, 01 Jan 2100 00:00:00 GMT"], true);
    check_proxied(&[Expired], &[], &[past, "date: Thu, 01 Jan 1970 00:00:00 GMT"], false);
    check_proxied(&[Expired], &[], &[past, "date: yesterday"], false);
    for (condition, word) in [(NoCache, "no-cache"), (NoStore, "no-store"), (Private, "private")] {
        check_proxied(&[condition], &[], &[&format!("cache-control: max-age=0, {word}")], true);
        check_proxied(&[condition], &[], &["cache-control: max-age=0"], false);
        check_proxied(&[Expired], &[], &[&format!("cache-control: {word}")], false);
    }
    check_proxied(&[NoLastModified], &[], &["last-modified: x"], false);
    check_proxied(&[NoLastModified], &[], &["etag: \"x\""], true);
    check_proxied(&[NoEtag], &[], &["etag: \"x\""], false);
    check_proxied(&[NoEtag], &[], &[], true);
    check_proxied(&[Expired], &[], &[], true);
}

/// The edits, one per text.
#[track_caller]
fn check_edits(vary: bool, here: bool, lines: &[&str], want: &[&str]) {
    check_edits_of(200, vary, here, lines, want);
}

#[track_caller]
fn check_edits_of(status: u16, vary: bool, here: bool, lines: &[&str], want: &[&str]) {
    let compression = Compression { vary, ..usual() };
    let negotiation = Negotiation::of(&Arc::new(compression), &request(&[GZIP]), false);
    let mut edits = Edits::default();
    negotiation.edit(here, &response(status, None, &headers(lines)), &mut edits);
    let said = |name: &HeaderName, sign, value: &[u8]| format!("{name}{sign}{}", String::from_utf8_lossy(value));
    let texts = edits.iter().map(|edit| match edit {
        Edit::Remove(name) => format!("no {name}"),
        Edit::Set(name, value) => said(name, "=", value),
        Edit::Add(name, value) => said(name, "+", value),
    });
    assert_eq!(texts.collect::<Vec<_>>(), want, "{lines:?}");
}

#[test]
fn the_head_describes_the_compressed_body() {
    let (vary, gzip, whole) = ("vary+Accept-Encoding", "content-encoding=gzip", "no accept-ranges");
    check_edits(true, true, &[], &[vary, gzip, whole]);
    check_edits(false, true, &[], &[gzip, whole]);
    check_edits(true, false, &["etag: \"x\""], &[vary]);
    check_edits(false, false, &["etag: \"x\""], &[]);
    check_edits(true, true, &["vary: Cookie"], &[vary, gzip, whole]);
    check_edits(true, true, &["vary: Cookie, accept-Encoding"], &[gzip, whole]);
    check_edits(true, true, &["vary: Cookie", "vary: *"], &[gzip, whole]);
    check_edits(false, true, &["etag: \"x\""], &[gzip, whole, "etag=W/\"x\""]);
    check_edits(false, true, &["etag: W/\"x\""], &[gzip, whole]);
    check_edits(false, true, &["etag: two words"], &[gzip, whole, "no etag"]);
    // The 304 has the same tag as the cached response, and no headers about a body.
    check_edits_of(304, true, true, &["etag: \"x\""], &[vary, "etag=W/\"x\""]);
    check_edits_of(304, true, false, &["etag: \"x\""], &[vary]);
}
