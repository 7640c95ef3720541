//! Header names that are used in more than one place.

use http::HeaderName;

/// The header that counts the passes through the edge.
pub(crate) static CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");
pub(crate) static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The name of the edge in `Server`.
pub(crate) const SERVER_NAME: &str = "tidegate";

/// The ids of a request on its way, the newest last.
pub(crate) static X_CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");
/// The arrival time of a request at the edge.
pub(crate) static X_REQUEST_START: HeaderName = HeaderName::from_static("x-request-start");
pub(crate) static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(crate) static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(crate) static X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
pub(crate) static X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The header for a request that came before the TLS handshake was complete (RFC 8470 section 5.1).
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

/// The prefix of headers with which a proxy describes how a request reached it. The edge sets some of them itself.
pub(crate) const FORWARDED_AS: &[u8] = b"x-forwarded-";

/// A head whose headers can be listed.
pub(crate) trait HeaderNames {
    /// Calls `see` with the name of every header, in any case; a name with several values may occur more than once.
    fn each_name(&self, see: &mut dyn FnMut(&[u8]));
}

/// Returns `true` for the `Content-Type` of gRPC, or of a protocol derived from it.
pub(crate) fn is_grpc_type(value: &[u8]) -> bool {
    value.get(..16).is_some_and(|start| start.eq_ignore_ascii_case(b"application/grpc"))
}
