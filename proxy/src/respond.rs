//! What changes of a response before it reaches the client, and how answers of the edge's own look.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, UPGRADE};
use http::{HeaderName, HeaderValue, StatusCode};
use tidegate_config::model::{Filter, Route};

use crate::answer::Answer;
use crate::head::Edit;
use crate::rewrite::X_REQUEST_ID;

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
static PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Lists what changes: headers of the endpoint's connection go (RFC 9110 section 7.6.1), then the route's edits apply.
/// The transfer coding stays, since the driver frames by it; a successful upgrade keeps the headers it consists of.
pub(crate) fn response<'v>(route: &Route, status: u16, connection: impl Iterator<Item = &'v [u8]>) -> Vec<Edit> {
    let mut edits = Vec::new();
    if status != 101 {
        for word in connection.flat_map(|value| value.split(|b| *b == b',')).map(<[u8]>::trim_ascii) {
            let framing =
                word.eq_ignore_ascii_case(b"transfer-encoding") || word.eq_ignore_ascii_case(b"content-length");
            edits.extend(HeaderName::from_bytes(word).ok().filter(|_| !framing).map(Edit::Remove));
        }
        edits.extend([&CONNECTION, &KEEP_ALIVE, &PROXY_CONNECTION, &UPGRADE].map(|name| Edit::Remove(name.clone())));
    }
    for filter in &*route.filters {
        match filter {
            Filter::ResponseHeaders(own) => {
                edits.extend(own.remove.iter().cloned().map(Edit::Remove));
                edits.extend(own.set.iter().cloned().map(|(name, value)| Edit::Set(name, value)));
                edits.extend(own.add.iter().cloned().map(|(name, value)| Edit::Add(name, value)));
            }
            Filter::RequestHeaders(_) | Filter::Path(_) | Filter::Host(_) => {}
        }
    }
    edits
}

/// An answer of the edge's own, ready to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rendered {
    /// Its status.
    pub(crate) status: u16,
    /// Its headers.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Its body; empty for HEAD, whose length is nevertheless announced (RFC 9110 section 9.3.2).
    pub(crate) body: Bytes,
}

/// Writes an answer out: status, reason and the request id, so that a user can name the request to whoever runs the edge.
pub(crate) fn render(answer: &Answer, request_id: &HeaderValue, method: &str) -> Rendered {
    let phrase = StatusCode::from_u16(answer.status).ok().and_then(|status| status.canonical_reason());
    let body = format!(
        "{} {}\nreason: {}\nrequest: {}\n",
        answer.status,
        phrase.unwrap_or("Unknown"),
        answer.reason.as_str(),
        request_id.to_str().unwrap_or("-"),
    );
    let mut headers = vec![
        (CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (CONTENT_LENGTH, HeaderValue::from(body.len())),
        (X_REQUEST_ID.clone(), request_id.clone()),
    ];
    headers.extend(answer.location.clone().map(|location| (LOCATION, location)));
    let body = if method == "HEAD" { Bytes::new() } else { Bytes::from(body) };
    Rendered { status: answer.status, headers, body }
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::HeaderEdits;

    use super::*;
    use crate::answer::Reason;
    use crate::sample_model::{path, route};

    #[test]
    fn an_answer_names_status_reason_and_request() {
        let id = HeaderValue::from_static("abc");
        let answer = render(&Reason::NoEndpoints.into(), &id, "GET");
        assert_eq!(answer.body, "503 Service Unavailable\nreason: no-endpoints\nrequest: abc\n");
        let length = HeaderValue::from(answer.body.len());
        assert!(answer.headers.contains(&(CONTENT_LENGTH, length.clone())));
        assert!(answer.headers.contains(&(X_REQUEST_ID.clone(), id.clone())));
        let head = render(&Reason::NoEndpoints.into(), &id, "HEAD");
        assert!(head.body.is_empty() && head.headers.contains(&(CONTENT_LENGTH, length)));
        let redirect = render(&Answer::redirect(308, HeaderValue::from_static("https://a/")), &id, "GET");
        assert!(redirect.headers.contains(&(LOCATION, HeaderValue::from_static("https://a/"))));
    }

    #[track_caller]
    fn check_removed(status: u16, connection: &[&str], want: &[&str]) {
        let edits = response(&route("r", path("/")), status, connection.iter().map(|value| value.as_bytes()));
        let want: Vec<_> = want.iter().map(|name| Edit::Remove(name.parse().unwrap())).collect();
        assert_eq!(edits, want);
    }

    #[test]
    fn headers_of_the_connection_go() {
        let always = ["connection", "keep-alive", "proxy-connection", "upgrade"];
        check_removed(200, &[], &always);
        let nominated = [&["x-own", "x-more", "close"], always.as_slice()].concat();
        check_removed(200, &["X-Own, transfer-encoding,", "x-more, close, content-length"], &nominated);
        check_removed(101, &["Upgrade"], &[]);
    }

    #[test]
    fn the_routes_edits_come_last() {
        let own = HeaderEdits { remove: [http::header::SERVER].into(), ..HeaderEdits::default() };
        let edited = Route { filters: [Filter::ResponseHeaders(own)].into(), ..route("r", path("/")) };
        assert_eq!(response(&edited, 101, std::iter::empty()), [Edit::Remove(http::header::SERVER)]);
    }
}
