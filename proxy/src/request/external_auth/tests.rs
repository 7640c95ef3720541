//! Tests of calls and grants.

use ::http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST};

use super::*;

fn shown(target: &str) -> AuthRequest {
    let mut headers = HeaderMap::new();
    for (name, value) in [("host", "a.test:8080"), ("authorization", "t"), ("cookie", "a"), ("x-a", "1"), ("x-a", "2")]
    {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    AuthRequest {
        method: "POST".into(),
        target: target.into(),
        scheme: "http",
        protocol: "HTTP/1.1",
        headers,
        request_id: "id".into(),
        client: ([192, 0, 2, 1], 1).into(),
        local: ([192, 0, 2, 2], 2).into(),
        server_name: None,
        time: SystemTime::UNIX_EPOCH,
        size: Some(3),
    }
}

#[track_caller]
fn check_target(prefix: &str, target: &str, want: Option<&str>) {
    let request = http::request(&shown(target), (prefix, &[]), false, Bytes::new());
    let got = request.map(|request| request.uri().path_and_query().unwrap().to_string());
    assert_eq!(got.as_deref(), want, "{target} behind {prefix}");
}

#[test]
fn an_authorisation_request_has_the_path_after_the_prefix() {
    check_target("", "/a?b=c", Some("/a?b=c"));
    check_target("/check", "/a?b=c", Some("/check/a?b=c"));
    check_target("/check/", "/a", Some("/check/a"));
    check_target("/check", "*", Some("/check/*"));
    check_target("/check", "/a b", None);
}

#[test]
fn an_authorisation_request_has_its_host_in_the_place_of_its_protocol() {
    let allowed = ["x-a", "host", "content-length", "authorization"].map(HeaderName::from_static);
    let request = |http2| http::request(&shown("/"), ("", &allowed), http2, Bytes::from_static(b"abc")).unwrap();
    let http1 = request(false);
    let text = |name: &HeaderName| {
        let values = http1.headers().get_all(name).iter().map(|value| value.to_str().unwrap());
        values.collect::<Vec<_>>().join("|")
    };
    let names =
        [HOST, AUTHORIZATION, CONTENT_LENGTH, HeaderName::from_static("x-a"), HeaderName::from_static("cookie")];
    assert_eq!(names.each_ref().map(text), ["a.test:8080", "t", "3", "1|2", ""]);
    let http2 = request(true);
    assert_eq!((http2.uri().host(), http2.headers().contains_key(HOST)), (Some("a.test"), false));
}

#[test]
fn an_identity_that_would_corrupt_the_log_is_ignored() {
    let of = |text: &'static str| identity(|name| (name.as_str() == "remote-user").then_some(text.as_bytes()));
    assert_eq!(of("ann").as_deref(), Some("ann"));
    assert!(of("").is_none() && of("a\nb").is_none() && of(&"x".repeat(257).leak()[..]).is_none());
}
