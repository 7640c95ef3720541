//! The head of a mirrored request, and the messages made of it: bytes for plain HTTP/1.1, and requests for a client.

use std::io::Write as _;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, TE};
use http::{HeaderMap, HeaderValue, Request, Uri};
use http_body_util::Full;
use tidegate_config::model::{Head, Target};

use crate::http::edited::edited;
use crate::http::edits::Edits;
use crate::http::names::HeaderNames;
use crate::request::grpc;

/// A head as sent to the endpoint, without the framing of the body.
#[derive(Debug)]
pub(super) struct CopiedHead {
    method: Box<str>,
    /// Path and query.
    target: Box<[u8]>,
    headers: HeaderMap,
    is_grpc: bool,
}

/// A copy in the form that its target takes.
#[derive(Debug)]
pub(super) enum Message {
    /// Plain HTTP/1.1, for a connection of its own.
    Plain(Bytes),
    /// Over HTTP/2, TLS or both, for a client. Boxed, as it is much larger.
    ForClient(Box<Request<Full<Bytes>>>),
    /// The host or the path is not valid in a URL.
    Invalid,
}

impl CopiedHead {
    pub(super) fn new<H: Head + HeaderNames>(head: &H, edits: &Edits) -> Self {
        let mut target = Vec::new();
        match (edits.target(), head.query()) {
            (Some(edited), _) => target.extend_from_slice(edited),
            (None, None) => target.extend_from_slice(head.path().as_bytes()),
            // Writing to a Vec cannot fail.
            (None, Some(query)) => drop(write!(target, "{}?{query}", head.path())),
        }
        Self {
            method: head.method().into(),
            target: target.into(),
            headers: edited(head, edits),
            is_grpc: grpc::is_asked_by(head),
        }
    }

    /// The whole request with its body, for a target.
    pub(super) fn message(&self, target: &Target, body: &Bytes) -> Message {
        if target.protocol.is_plain_http1() {
            return Message::Plain(self.http1(body));
        }
        let request = self.request((target.protocol.is_http2(), target.protocol.is_tls()), body);
        request.map_or(Message::Invalid, |request| Message::ForClient(Box::new(request)))
    }

    /// The announced length of the body, which may be 0 for some methods.
    fn length(&self, body: &[u8]) -> Option<usize> {
        let may_have_none = matches!(&*self.method, "GET" | "HEAD" | "DELETE" | "OPTIONS");
        (!may_have_none || !body.is_empty()).then_some(body.len())
    }

    fn http1(&self, body: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(512 + body.len());
        // Writing to a Vec cannot fail.
        write!(out, "{} ", self.method).ok();
        out.extend_from_slice(&self.target);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        for (name, value) in &self.headers {
            out.extend_from_slice(name.as_str().as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        if let Some(length) = self.length(body) {
            write!(out, "content-length: {length}\r\n").ok();
        }
        out.extend_from_slice(b"connection: close\r\n\r\n");
        out.extend_from_slice(body);
        out.into()
    }

    /// The request for a client; `None` if the host or the path is not valid in a URL.
    fn request(&self, (http2, tls): (bool, bool), body: &Bytes) -> Option<Request<Full<Bytes>>> {
        let uri = Uri::builder()
            .scheme(if tls { "https" } else { "http" })
            .authority(self.headers.get(HOST)?.as_bytes())
            .path_and_query(&*self.target)
            .build();
        let request = Request::builder().method(&*self.method).uri(uri.ok()?).body(Full::new(body.clone()));
        let mut request = request.ok()?;
        let mut headers = self.headers.clone();
        headers.extend(self.length(body).map(|length| (CONTENT_LENGTH, HeaderValue::from(length))));
        if http2 {
            headers.remove(HOST);
            // Some gRPC servers refuse requests without it.
            headers.extend(self.is_grpc.then_some((TE, HeaderValue::from_static("trailers"))));
        }
        *request.headers_mut() = headers;
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;
    use crate::sample::Sample;

    fn sample() -> (Sample, Edits) {
        let head = Sample::get("a.test", "/x?y=1").method("POST").with("x-own", "1").with("x-own", "2");
        let head = head.with("connection", "close, x-hop").with("x-hop", "3").with("transfer-encoding", "chunked");
        let mut edits = Edits::default();
        edits.set(HOST, |out| out.extend_from_slice(b"b.internal"));
        edits.add(HeaderName::from_static("x-more"), &HeaderValue::from_static("4"));
        (head, edits)
    }

    #[test]
    fn a_plain_copy_keeps_the_head_and_has_framing_of_its_own() {
        let (head, mut edits) = sample();
        let text = String::from_utf8(CopiedHead::new(&head, &edits).http1(b"abc").to_vec()).unwrap();
        let (text, body) = text.split_once("\r\n\r\n").unwrap();
        let mut lines: Vec<_> = text.split("\r\n").collect();
        assert_eq!(lines.remove(0), "POST /x?y=1 HTTP/1.1");
        lines.sort_unstable();
        let want = ["connection: close", "content-length: 3", "host: b.internal", "x-more: 4", "x-own: 1", "x-own: 2"];
        assert_eq!((lines.as_slice(), body), (want.as_slice(), "abc"));
        edits.set_target(|out| out.extend_from_slice(b"/new"));
        let bytes = CopiedHead::new(&Sample::get("a.test", "/x"), &edits).http1(b"");
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert!(text.starts_with("GET /new HTTP/1.1\r\n") && !text.contains("content-length"), "{text}");
    }

    #[track_caller]
    fn check_request(content_type: &str, (http2, tls): (bool, bool), want: (&str, &[&str])) {
        let (head, edits) = sample();
        let head = head.with("content-type", content_type).with("te", "trailers, gzip");
        let request = CopiedHead::new(&head, &edits).request((http2, tls), &Bytes::from_static(b"abc")).unwrap();
        let lines = request.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        let mut lines: Vec<_> = lines.filter(|line| !line.starts_with("x-")).collect();
        lines.sort_unstable();
        assert_eq!((request.method().as_str(), request.uri().to_string().as_str()), ("POST", want.0));
        assert_eq!(lines, want.1, "{content_type}, HTTP/2: {http2}");
    }

    #[test]
    fn a_copy_for_a_client_has_its_authority_where_its_protocol_has_one() {
        let (plain, secure) = ("http://b.internal/x?y=1", "https://b.internal/x?y=1");
        let length = "content-length: 3";
        let json = "content-type: application/json";
        check_request("application/json", (true, false), (plain, &[length, json]));
        check_request("application/json", (false, true), (secure, &[length, json, "host: b.internal"]));
        let grpc = "content-type: application/grpc+proto";
        check_request("application/grpc+proto", (true, true), (secure, &[length, grpc, "te: trailers"]));
    }

    #[test]
    fn a_head_that_is_not_valid_in_a_url_is_not_copied_over_http2() {
        for (host, path) in [("a b", "/"), ("a.test", "/a b")] {
            let head = CopiedHead::new(&Sample::get(host, path), &Edits::default());
            assert!(head.request((true, false), &Bytes::new()).is_none(), "{host}{path}");
        }
    }
}
