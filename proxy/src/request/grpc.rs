//! Failures for gRPC clients: a response of a head alone, with the status in `grpc-status` (Trailers-Only in the
//! protocol). With an HTTP status the client would have to guess.

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue};
use tidegate_config::model::Head;

use crate::reason::Reason;

static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
static GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Returns `true` for a gRPC request. The type of gRPC-Web begins with the same word, but its clients read HTTP
/// statuses.
pub(crate) fn is_asked_by<H: Head + ?Sized>(head: &H) -> bool {
    let Some(value) = head.header(CONTENT_TYPE.as_str()) else { return false };
    let (start, rest) = value.split_at(value.len().min(b"application/grpc".len()));
    start.eq_ignore_ascii_case(b"application/grpc") && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
}

/// The gRPC status for an HTTP status, by the
/// [mapping](https://grpc.github.io/grpc/core/md_doc_http-grpc-status-mapping.html) that clients use, except that an
/// invalid backend (500) is UNAVAILABLE, and a timeout (504) is DEADLINE_EXCEEDED.
const fn status(http: u16) -> &'static str {
    match http {
        400 | 431 => "13",                         // INTERNAL
        401 => "16",                               // UNAUTHENTICATED
        403 => "7",                                // PERMISSION_DENIED
        404 | 405 | 501 => "12",                   // UNIMPLEMENTED
        413 => "8",                                // RESOURCE_EXHAUSTED
        408 | 504 => "4",                          // DEADLINE_EXCEEDED
        425 | 429 | 500 | 502 | 503 | 508 => "14", // UNAVAILABLE
        _ => "2",                                  // UNKNOWN
    }
}

/// The headers of such a response.
pub(crate) fn fields(http: u16, reason: Reason) -> [(HeaderName, HeaderValue); 3] {
    [
        (CONTENT_TYPE, HeaderValue::from_static("application/grpc")),
        (GRPC_STATUS.clone(), HeaderValue::from_static(status(http))),
        (GRPC_MESSAGE.clone(), HeaderValue::from_static(reason.as_str())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    #[test]
    fn grpc_requests_are_recognised_by_their_content_type() {
        let check = |value: &str, want: bool| {
            let head = Sample::get("a.test", "/svc/Call").with("content-type", value);
            assert_eq!(is_asked_by(&head), want, "{value:?}");
        };
        for value in ["application/grpc", "Application/gRPC", "application/grpc+proto", "application/grpc;x=y"] {
            check(value, true);
        }
        for value in ["", "application/json", "application/grp", "application/grpc-web", "application/grpc-web+proto"] {
            check(value, false);
        }
        assert!(!is_asked_by(&Sample::get("a.test", "/")));
    }

    #[test]
    fn every_reason_has_a_grpc_status() {
        let known = Reason::ALL.map(|reason| (reason.as_str(), status(reason.status())));
        let of = |name: &str| known.iter().find(|(own, _)| *own == name).unwrap().1;
        for (name, want) in [
            ("no-route", "12"),
            ("no-endpoints", "14"),
            ("connect-failed", "14"),
            ("upstream-broken", "14"),
            ("service-overloaded", "14"),
            ("direct-response", "14"),
            ("invalid-backend", "14"),
            ("upstream-timeout", "4"),
            ("connect-timeout", "4"),
            ("denied", "7"),
            ("rate-limited", "14"),
            ("body-too-large", "8"),
            ("malformed-request", "13"),
        ] {
            assert_eq!(of(name), want, "{name}");
        }
        assert_eq!((status(401), status(418)), ("16", "2"));
    }
}
