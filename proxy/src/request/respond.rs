//! What changes of a response before it reaches the client, and how answers of the edge's own look.

use arrayvec::ArrayVec;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER, UPGRADE};
use http::{HeaderName, HeaderValue, StatusCode};
use tidegate_config::model::{Filter, HeaderEdits, Route};

use crate::http::edits::Edits;
use crate::http::names::X_REQUEST_ID;
use crate::http::response::NOMINATIONS_MAX;
use crate::reason::Reason;
use crate::request::answer::Answer;
use crate::request::request_id::RequestId;

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
static PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Lists what changes: headers of the endpoint's connection go (RFC 9110 section 7.6.1), then the route's edits apply.
/// Headers that frame the body stay, since they are the driver's own; a successful upgrade keeps the headers it consists of.
///
/// # Errors
/// [`Reason::UpstreamBroken`] when the endpoint nominates more than [`NOMINATIONS_MAX`] headers.
pub(crate) fn response<'v>(
    route: &Route,
    status: u16,
    connection: impl Iterator<Item = &'v [u8]>,
    edits: &mut Edits,
) -> Result<(), Reason> {
    if status != 101 {
        nominated(connection, edits)?;
        for name in [&CONNECTION, &KEEP_ALIVE, &PROXY_CONNECTION, &UPGRADE] {
            edits.remove(name);
        }
    }
    for filter in &*route.filters {
        match filter {
            Filter::ResponseHeaders(own) => apply(own, edits),
            Filter::RequestHeaders(_) | Filter::Path(_) | Filter::Host(_) => {}
        }
    }
    Ok(())
}

/// Lists the headers that the endpoint nominates in `Connection`, each once.
fn nominated<'v>(connection: impl Iterator<Item = &'v [u8]>, edits: &mut Edits) -> Result<(), Reason> {
    let mut names = ArrayVec::<&[u8], NOMINATIONS_MAX>::new();
    for word in connection.flat_map(|value| value.split(|b| *b == b',')).map(<[u8]>::trim_ascii) {
        let stays = [b"close".as_slice(), b"keep-alive", b"transfer-encoding", b"content-length"];
        let is_listed = |listed: &[&[u8]]| listed.iter().any(|name| name.eq_ignore_ascii_case(word));
        if is_listed(&stays) || is_listed(&names) {
            continue;
        }
        // A word that cannot name a header nominates none.
        let Ok(name) = HeaderName::from_bytes(word) else { continue };
        names.try_push(word).map_err(|_| Reason::UpstreamBroken)?;
        edits.remove(&name);
    }
    Ok(())
}

/// Lists the edits of a route's own filter.
pub(crate) fn apply(own: &HeaderEdits, edits: &mut Edits) {
    own.remove.iter().for_each(|name| edits.remove(name));
    own.set.iter().for_each(|(name, value)| edits.set(name, |out| out.extend_from_slice(value.as_bytes())));
    own.add.iter().for_each(|(name, value)| edits.add(name, value));
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
pub(crate) fn render(answer: &Answer, request_id: &RequestId, method: &str) -> Rendered {
    let phrase = StatusCode::from_u16(answer.status).ok().and_then(|status| status.canonical_reason());
    let body = format!(
        "{} {}\nreason: {}\nrequest: {}\n",
        answer.status,
        phrase.unwrap_or("Unknown"),
        answer.reason.as_str(),
        request_id.as_str(),
    );
    let mut headers = vec![
        (CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (CONTENT_LENGTH, HeaderValue::from(body.len())),
    ];
    headers.extend(HeaderValue::from_str(request_id.as_str()).map(|id| (X_REQUEST_ID.clone(), id)));
    headers.extend(answer.location.clone().map(|location| (LOCATION, location)));
    headers.extend(answer.reason.is_overload().then(|| (RETRY_AFTER, HeaderValue::from_static("1"))));
    let body = if method == "HEAD" { Bytes::new() } else { Bytes::from(body) };
    Rendered { status: answer.status, headers, body }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::edits::Edit;
    use crate::reason::Reason;
    use crate::sample_model::{path, route};

    #[test]
    fn an_answer_names_status_reason_and_request() {
        let id = RequestId::choose(&crate::sample::Sample::default().with("x-request-id", "abc"), true, 0);
        let answer = render(&Reason::NoEndpoints.into(), &id, "GET");
        assert_eq!(answer.body, "503 Service Unavailable\nreason: no-endpoints\nrequest: abc\n");
        let length = HeaderValue::from(answer.body.len());
        assert!(answer.headers.contains(&(CONTENT_LENGTH, length.clone())));
        assert!(answer.headers.contains(&(X_REQUEST_ID.clone(), HeaderValue::from_static("abc"))));
        let head = render(&Reason::NoEndpoints.into(), &id, "HEAD");
        assert!(head.body.is_empty() && head.headers.contains(&(CONTENT_LENGTH, length)));
        let overload = render(&Reason::ServiceOverloaded.into(), &id, "GET");
        assert!(overload.headers.contains(&(RETRY_AFTER, HeaderValue::from_static("1"))));
        let redirect = render(&Answer::redirect(308, HeaderValue::from_static("https://a/")), &id, "GET");
        assert!(redirect.headers.contains(&(LOCATION, HeaderValue::from_static("https://a/"))));
    }

    #[track_caller]
    fn check_removed(status: u16, connection: &[&str], want: &[&str]) {
        let mut edits = Edits::default();
        response(&route("r", path("/")), status, connection.iter().map(|value| value.as_bytes()), &mut edits).unwrap();
        assert!(edits.iter().all(|edit| matches!(edit, Edit::Remove(_))));
        assert_eq!(edits.iter().map(|edit| edit.name().as_str()).collect::<Vec<_>>(), want);
    }

    #[test]
    fn headers_of_the_connection_go() {
        let always = ["connection", "keep-alive", "proxy-connection", "upgrade"];
        check_removed(200, &[], &always);
        let nominated = [&["x-own", "x-more"], always.as_slice()].concat();
        check_removed(200, &["X-Own, transfer-encoding,", "x-more, close, content-length"], &nominated);
        check_removed(200, &["x-own, X-OWN,,x-own", "a b, x-own"], &[["x-own"].as_slice(), &always].concat());
        check_removed(101, &["Upgrade"], &[]);
    }

    #[test]
    fn an_endpoint_nominates_a_bounded_number_of_headers() {
        let check = |count: usize, want: Result<(), Reason>| {
            let words: Vec<String> = (0..count).map(|n| format!("x-{n}")).collect();
            // Repeated words count once.
            let value = [words.join(","), words.join(", ")].join(",");
            let mut edits = Edits::default();
            let got = response(&route("r", path("/")), 200, std::iter::once(value.as_bytes()), &mut edits);
            assert_eq!(got, want, "{count} names");
        };
        check(NOMINATIONS_MAX, Ok(()));
        check(NOMINATIONS_MAX + 1, Err(Reason::UpstreamBroken));
    }

    #[test]
    fn the_routes_edits_come_last() {
        let own = HeaderEdits { remove: [http::header::SERVER].into(), ..HeaderEdits::default() };
        let edited = Route { filters: [Filter::ResponseHeaders(own)].into(), ..route("r", path("/")) };
        let mut edits = Edits::default();
        response(&edited, 101, std::iter::empty(), &mut edits).unwrap();
        assert_eq!(edits.iter().collect::<Vec<_>>(), [Edit::Remove(&http::header::SERVER)]);
    }
}
