//! The HTTP/2 streams that the native driver takes: the rule is as strict as for HTTP/1.1, and other streams are left
//! to the Pingora driver, unchanged.

use std::sync::Arc;

use http::HeaderValue;
use http::uri::Scheme;
use pingora::http::RequestHeader;
use tidegate_config::model::Head;
use tidegate_config::published::Published;

use super::attempts::{Transfer, UpstreamRequest};
use super::progress::Progress;
use super::request::{LINES_MAX, RequestHead, is_of_host, is_of_target};
use super::scratch::Scratch;
use super::stream::Stream;
use super::write;
use crate::clock;
use crate::connection::ConnectionFacts;
use crate::driver::client_stream::ClientStream;
use crate::driver::pingora::head::Parsed;
use crate::http::body::Framing;
use crate::http::request_framing::framing;
use crate::observe::metrics::DriverUsed;
use crate::reason::Reason;
use crate::request::decide::Decided;
use crate::request::exchange::Arrived;
use crate::request::phase;
use crate::shared::Shared;

/// Answers the request of a stream, if the native driver takes it; otherwise returns the stream.
pub(crate) async fn carry(
    mut stream: ClientStream,
    published: &Published,
    shared: &Arc<Shared>,
) -> Option<ClientStream> {
    let Some(facts) = ConnectionFacts::of(stream.digest()) else { return Some(stream) };
    if !takes(stream.request()) {
        return Some(stream);
    }
    let now = clock::now();
    let snapshot = published.pin();
    let head = Parsed::new(stream.request());
    let routed = phase::route(&snapshot, shared, &facts, &head, &head.line());
    if routed.as_ref().is_ok_and(|routed| !routed.is_http1()) {
        return Some(stream);
    }
    let arrived = Arrived::new(DriverUsed::Native, snapshot, Arc::clone(shared), now);
    let mut decided = arrived.decide(routed, &facts, &head, fastrand::u128(..));
    // The stream delimits the body; h2 checks it against the announced length (RFC 9113 section 8.1.1).
    let framing = if stream.is_bodiless() { Framing::None } else { Framing::UntilClose };
    let nothing = http::Request::new(()).into_parts().0.into();
    let request = std::mem::replace(stream.request_mut(), nothing);
    let head = Parsed::new(&request);
    let coded = framing != Framing::None && head.header("content-length").is_none();
    let outgoing = UpstreamRequest { head: &head, coded, chunked: coded, closes: false };
    let mut stream = Stream::new(stream, facts);
    let mut scratch = Scratch::take();
    let mut progress = Progress::new(framing, false);
    progress.expects = framing != Framing::None && head.header("expect").is_some();
    let mut transfer =
        Transfer { client: &mut stream, room: &mut scratch.room, progress: &mut progress, options: &shared.options };
    let over = loop {
        match decided {
            Decided::Asks(pending) => decided = Box::pin(transfer.ask(pending, &head, shared)).await,
            Decided::Forwards(ref mut forwarding) => break transfer.forward(forwarding, &outgoing).await,
            Decided::Reply(ref replied) => {
                if replied.reply().reason != Reason::ClientGone {
                    transfer.give(&replied.render(&head), Some(replied.exchange()), false).await;
                }
                break None;
            }
        }
    };
    // An unfinished stream is reset when it is dropped: without an error if the response is complete (RFC 9113 section
    // 8.1).
    drop(stream);
    scratch.give();
    decided.record(&head, &progress.end(head.target(), over));
    None
}

impl RequestHead for Parsed<'_> {
    fn target(&self) -> &str {
        std::str::from_utf8(self.request().raw_path()).unwrap_or_default()
    }

    fn pass_on(&self, passes: impl Fn(&[u8]) -> bool, out: &mut Vec<u8>) {
        // The authority may also be present as a `Host` header.
        let host = std::iter::once((b"host".as_slice(), self.authority().unwrap_or_default().as_bytes()));
        let others = self.request().headers.iter().filter(|(name, _)| *name != http::header::HOST);
        let lines = host.chain(others.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())));
        lines.filter(|(name, _)| passes(name)).for_each(|(name, value)| write::line(name, value, out));
    }
}

/// Returns `true` if a head is unambiguous. h2 and Pingora have refused malformed ones.
fn takes(request: &RequestHeader) -> bool {
    let target = request.raw_path();
    let plain = request.uri.scheme().is_some_and(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
    let authority = request.uri.authority().map(|authority| authority.as_str().as_bytes());
    let host = authority.or_else(|| request.headers.get(http::header::HOST).map(HeaderValue::as_bytes));
    plain
        && !matches!(request.method.as_str(), "CONNECT" | "TRACE")
        && target.starts_with(b"/")
        && target.iter().copied().all(is_of_target)
        && host.is_some_and(|host| !host.is_empty() && host.iter().copied().all(is_of_host))
        && request.headers.len() <= LINES_MAX
        && request.headers.iter().all(|(name, value)| may_have(name.as_str(), value.as_bytes()))
        && framing(&Parsed::new(request)).is_ok()
}

/// Returns `true` if the native driver takes requests with this header.
fn may_have(name: &str, value: &[u8]) -> bool {
    let plain = value.trim_ascii().len() == value.len();
    plain
        && match name {
            "connection" | "http2-settings" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade" => {
                false
            }
            "expect" => value.eq_ignore_ascii_case(b"100-continue"),
            // The only allowed value in HTTP/2 (RFC 9113 section 8.2.2); Firefox sends it with every request.
            "te" => value == b"trailers",
            _ => true,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, uri: &str, headers: &[(&str, &str)], want: bool) {
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = RequestHeader::from(request.body(()).unwrap().into_parts().0);
        assert_eq!(takes(&request), want, "{method} {uri} {headers:?}");
    }

    #[test]
    fn only_unambiguous_requests_are_accepted() {
        let uri = "https://a.test/a/b;c?d=%20&e";
        check("GET", uri, &[], true);
        check("POST", "http://a.test:8080/", &[("content-length", "5"), ("content-type", "text/plain")], true);
        check("GET", uri, &[("host", "a.test"), ("cookie", "a=b"), ("cookie", "c=d")], true);
        check("GET", uri, &[("te", "trailers")], true);
        check("POST", uri, &[("trailer", "x-sum"), ("expect", "100-continue"), ("proxy-authorization", "x")], true);
        check("POST", uri, &[("te", "trailers"), ("content-type", "application/grpc")], true);
        for method in ["CONNECT", "TRACE"] {
            check(method, uri, &[], false);
        }
        for uri in ["ftp://a.test/", "https://a.test/{a}", "https://a!b.test/", "https://u@a.test/", "/"] {
            check("GET", uri, &[], false);
        }
        check("OPTIONS", "*", &[("host", "a.test")], false);
        let unwanted = [
            ("te", "gzip"),
            ("te", "trailers, gzip"),
            ("te", ""),
            ("expect", "200-ok"),
            ("upgrade", "websocket"),
            ("connection", "close"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("transfer-encoding", "chunked"),
            ("http2-settings", "x"),
            ("content-length", "+5"),
            ("content-length", ""),
            ("content-length", "5, 5"),
            ("content-length", "1234567890123456789"),
            ("x-a", " b"),
            ("x-a", "b\t"),
        ];
        for header in unwanted {
            check("POST", uri, &[header], false);
        }
        check("POST", uri, &[("content-length", "5"), ("content-length", "5")], false);
        check("GET", uri, &[("x-a", "b"); LINES_MAX], true);
        check("GET", uri, &[("x-a", "b"); LINES_MAX + 1], false);
    }
}
