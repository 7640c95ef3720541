//! The names of headers that the edge sets or looks at in more than one place.

use http::HeaderName;

/// The header that keeps account of the passes.
pub(crate) static CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");
pub(crate) static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// How the edge calls itself in `Server`.
pub(crate) const SERVER_NAME: &str = "tidegate";

/// The ids that a request has had on its way, the newest last.
pub(crate) static X_CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");
/// When a request came to the edge.
pub(crate) static X_REQUEST_START: HeaderName = HeaderName::from_static("x-request-start");
pub(crate) static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(crate) static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(crate) static X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
pub(crate) static X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// What tells an endpoint that a request came before the TLS handshake was over (RFC 8470 section 5.1).
pub(crate) static EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

/// The names of the headers that every request gets.
pub(crate) const SET_ALWAYS: [&str; 7] = [
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-real-ip",
    "x-request-id",
    "cdn-loop",
];

/// What the names of headers begin with by which a proxy says how a request came to it. The edge sets some of them itself.
pub(crate) const FORWARDED_AS: &[u8] = b"x-forwarded-";

/// A head whose headers can be listed.
pub(crate) trait HeaderNames {
    /// Calls with the name of every header, in whatever case; one that has several values may be named more than once.
    fn each_name(&self, see: &mut dyn FnMut(&[u8]));
}

/// Whether a `Content-Type` is one of gRPC, or of a protocol that is derived from it.
pub(crate) fn is_grpc_type(value: &[u8]) -> bool {
    value.get(..16).is_some_and(|start| start.eq_ignore_ascii_case(b"application/grpc"))
}
