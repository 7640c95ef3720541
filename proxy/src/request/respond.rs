//! What changes of a response before it reaches the client, and how answers of the edge's own look.

use std::sync::Arc;

use arrayvec::ArrayVec;
use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER, SERVER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderName, HeaderValue, StatusCode};
use tidegate_config::model::{DirectResponse, Filter, HeaderEdits, ResponseScope};

use crate::http::edits::Edits;
use crate::http::names::{SERVER_NAME, X_CORRELATION_ID, X_REQUEST_ID};
use crate::http::response::NOMINATIONS_MAX;
use crate::reason::Reason;
use crate::request::answer::Answer;
use crate::request::request_id::RequestId;

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
static PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// What a route changes of a request, and after it the share of the route that the request belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filters<'a> {
    /// Those of the route.
    pub(crate) route: &'a [Filter],
    /// Those of the share.
    pub(crate) share: &'a [Filter],
    /// Whether the client came by TLS.
    pub(crate) secure: bool,
}

impl<'a> Filters<'a> {
    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a Filter> + use<'a> {
        self.route.iter().chain(self.share)
    }

    /// The edits for a response that nothing less than `scope` covers.
    fn of_response(&self, scope: ResponseScope, status: u16) -> impl Iterator<Item = &'a HeaderEdits> + use<'a> {
        let secure = self.secure;
        self.iter().filter_map(move |filter| match filter {
            Filter::ResponseHeaders(own) if own.applies(scope, status, secure) => Some(&own.edits),
            Filter::ResponseHeaders(_) | Filter::RequestHeaders(_) | Filter::Path(_) | Filter::Host(_) => None,
        })
    }
}

/// What every response says of the request and of the edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labels<'a> {
    /// The id of the request.
    pub(crate) request_id: &'a RequestId,
    /// The ids that it has had on its way, where the route tells clients of both.
    pub(crate) correlation: Option<&'a HeaderValue>,
    /// Whether responses that name no server name the edge.
    pub(crate) server: bool,
}

/// The head of an endpoint's response.
#[derive(Debug)]
pub(crate) struct Received<I> {
    /// The status.
    pub(crate) status: u16,
    /// The values of `Connection`.
    pub(crate) connection: I,
    /// Whether it names a server.
    pub(crate) has_server: bool,
}

/// Lists what changes: headers of the endpoint's connection go (RFC 9110 section 7.6.1), then the filters apply.
/// Headers that frame the body stay, since they are the driver's own; a successful upgrade keeps the headers it consists of.
///
/// # Errors
/// [`Reason::UpstreamBroken`] when the endpoint nominates more than [`NOMINATIONS_MAX`] headers.
pub(crate) fn response<'v>(
    filters: &Filters<'_>,
    labels: &Labels<'_>,
    received: Received<impl Iterator<Item = &'v [u8]>>,
    edits: &mut Edits,
) -> Result<(), Reason> {
    let Received { status, connection, has_server } = received;
    if status != 101 {
        nominated(connection, edits)?;
        for name in [&CONNECTION, &KEEP_ALIVE, &PROXY_CONNECTION, &UPGRADE] {
            edits.remove(name);
        }
    }
    if labels.server && !has_server {
        edits.set(&SERVER, |out| out.extend_from_slice(SERVER_NAME.as_bytes()));
    }
    if let Some(ids) = labels.correlation {
        edits.set(&X_REQUEST_ID, |out| out.extend_from_slice(labels.request_id.as_str().as_bytes()));
        edits.set(&X_CORRELATION_ID, |out| out.extend_from_slice(ids.as_bytes()));
    }
    filters.of_response(ResponseScope::Proxied, status).for_each(|own| apply(own, edits));
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

/// Writes an answer out: the response that the route has ready; else status, reason and the request id, so that a user can
/// name the request to whoever runs the edge. The filters apply last.
pub(crate) fn render(answer: &Answer, labels: &Labels<'_>, method: &str, filters: &Filters<'_>) -> Rendered {
    let status = answer.status;
    let (mut headers, body) = match &answer.response {
        Some(response) => ready(response),
        None => explained(answer, labels),
    };
    // Neither has a body (RFC 9110 sections 15.3.5 and 15.4.5), and only one of them may say how long it would be.
    let bodiless = matches!(status, 204 | 304);
    if !bodiless {
        headers.push((CONTENT_LENGTH, HeaderValue::from(body.len())));
    }
    headers.extend(labels.server.then(|| (SERVER, HeaderValue::from_static(SERVER_NAME))));
    headers.extend(answer.location.clone().map(|location| (LOCATION, location)));
    headers.extend(answer.reason.is_overload().then(|| (RETRY_AFTER, HeaderValue::from_static("1"))));
    let unbacked = matches!(answer.reason, Reason::DirectResponse | Reason::NoEndpoints | Reason::NoRoute);
    let scope = if unbacked { ResponseScope::Every } else { ResponseScope::Backed };
    filters.of_response(scope, status).for_each(|own| edit(own, &mut headers));
    let body = if bodiless || method == "HEAD" { Bytes::new() } else { body };
    Rendered { status, headers, body }
}

/// Headers without the length, and the body.
type Parts = (Vec<(HeaderName, HeaderValue)>, Bytes);

fn ready(response: &Arc<DirectResponse>) -> Parts {
    let content_type = response.content_type.clone().map(|value| (CONTENT_TYPE, value));
    let others = response.headers.iter().filter(|(name, _)| !frames(name)).cloned();
    let headers = content_type.into_iter().chain(others).collect();
    (headers, Bytes::from_owner(Arc::clone(&response.body)))
}

fn explained(answer: &Answer, labels: &Labels<'_>) -> Parts {
    let request_id = labels.request_id;
    let phrase = StatusCode::from_u16(answer.status).ok().and_then(|status| status.canonical_reason());
    let body = format!(
        "{} {}\nreason: {}\nrequest: {}\n",
        answer.status,
        phrase.unwrap_or("Unknown"),
        answer.reason.as_str(),
        request_id.as_str(),
    );
    let mut headers = vec![(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))];
    headers.extend(HeaderValue::from_str(request_id.as_str()).map(|id| (X_REQUEST_ID.clone(), id)));
    headers.extend(labels.correlation.map(|ids| (X_CORRELATION_ID.clone(), ids.clone())));
    (headers, body.into())
}

/// Whether a header says where a body ends, which is for the driver to say.
fn frames(name: &HeaderName) -> bool {
    *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING
}

/// Edits the headers of an answer of the edge's own, but for what frames it.
fn edit(own: &HeaderEdits, headers: &mut Vec<(HeaderName, HeaderValue)>) {
    let removed = |name: &HeaderName| own.remove.contains(name) || own.set.iter().any(|(set, _)| set == name);
    headers.retain(|(name, _)| frames(name) || !removed(name));
    let new = own.set.iter().chain(&own.add).filter(|(name, _)| !frames(name));
    headers.extend(new.cloned());
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::ResponseEdits;

    use super::*;
    use crate::http::edits::Edit;
    use crate::reason::Reason;

    const NONE: Filters<'_> = Filters { route: &[], share: &[], secure: false };

    const fn labels(request_id: &RequestId) -> Labels<'_> {
        Labels { request_id, correlation: None, server: false }
    }

    fn received<'v>(
        status: u16,
        connection: impl Iterator<Item = &'v [u8]>,
        filters: &Filters<'_>,
    ) -> Result<Edits, Reason> {
        let mut edits = Edits::default();
        let received = Received { status, connection, has_server: false };
        response(filters, &labels(&RequestId::none()), received, &mut edits).map(|()| edits)
    }

    #[test]
    fn an_answer_names_status_reason_and_request() {
        let id = RequestId::choose(&crate::sample::Sample::default().with("x-request-id", "abc"), true, 0);
        let id = labels(&id);
        let answer = render(&Reason::NoEndpoints.into(), &id, "GET", &NONE);
        assert_eq!(answer.body, "503 Service Unavailable\nreason: no-endpoints\nrequest: abc\n");
        let length = HeaderValue::from(answer.body.len());
        assert!(answer.headers.contains(&(CONTENT_LENGTH, length.clone())));
        assert!(answer.headers.contains(&(X_REQUEST_ID.clone(), HeaderValue::from_static("abc"))));
        let head = render(&Reason::NoEndpoints.into(), &id, "HEAD", &NONE);
        assert!(head.body.is_empty() && head.headers.contains(&(CONTENT_LENGTH, length)));
        let overload = render(&Reason::ServiceOverloaded.into(), &id, "GET", &NONE);
        assert!(overload.headers.contains(&(RETRY_AFTER, HeaderValue::from_static("1"))));
        let redirect = render(&Answer::redirect(308, HeaderValue::from_static("https://a/")), &id, "GET", &NONE);
        assert!(redirect.headers.contains(&(LOCATION, HeaderValue::from_static("https://a/"))));
    }

    #[track_caller]
    fn check_removed(status: u16, connection: &[&str], want: &[&str]) {
        let edits = received(status, connection.iter().map(|value| value.as_bytes()), &NONE).unwrap();
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
            let got = received(200, std::iter::once(value.as_bytes()), &NONE).map(|_| ());
            assert_eq!(got, want, "{count} names");
        };
        check(NOMINATIONS_MAX, Ok(()));
        check(NOMINATIONS_MAX + 1, Err(Reason::UpstreamBroken));
    }

    #[test]
    fn the_routes_edits_come_last() {
        let own = HeaderEdits { remove: [http::header::SERVER].into(), ..HeaderEdits::default() };
        let filters = [Filter::ResponseHeaders(ResponseEdits::proxied(own))];
        let edits = received(101, std::iter::empty(), &Filters { route: &filters, ..NONE }).unwrap();
        assert_eq!(edits.iter().collect::<Vec<_>>(), [Edit::Remove(&http::header::SERVER)]);
    }

    fn edits(set: &'static str, value: &'static str) -> HeaderEdits {
        let set = [(HeaderName::from_static(set), HeaderValue::from_static(value))].into();
        HeaderEdits { set, ..HeaderEdits::default() }
    }

    fn values<'a>(rendered: &'a Rendered, name: &str) -> Vec<&'a str> {
        let named = rendered.headers.iter().filter(|(header, _)| header == name);
        named.map(|(_, value)| value.to_str().unwrap()).collect()
    }

    #[test]
    fn a_direct_response_is_given_as_it_is() {
        let response = Arc::new(DirectResponse {
            status: 503,
            headers: [(RETRY_AFTER, HeaderValue::from_static("60")), (CONTENT_LENGTH, HeaderValue::from(1))].into(),
            content_type: Some(HeaderValue::from_static("text/html")),
            body: b"<p>back soon".as_slice().into(),
        });
        let id = RequestId::of("abc");
        let id = labels(&id);
        let given = render(&Answer::direct(&response), &id, "POST", &NONE);
        assert_eq!((given.status, &*given.body), (503, b"<p>back soon".as_slice()));
        let names: Vec<_> = given.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["content-type", "retry-after", "content-length"]);
        let head = render(&Answer::direct(&response), &id, "HEAD", &NONE);
        assert!(head.body.is_empty() && values(&head, "content-length") == ["12"]);
        let nothing = Arc::new(DirectResponse { status: 204, ..DirectResponse::clone(&response) });
        let nothing = render(&Answer::direct(&nothing), &id, "GET", &NONE);
        assert!(nothing.body.is_empty() && values(&nothing, "content-length").is_empty());
        let share = render(&Answer::status(500), &id, "GET", &NONE);
        assert_eq!(share.body, "500 Internal Server Error\nreason: direct-response\nrequest: abc\n");
    }

    #[test]
    fn filters_say_which_responses_they_are_for() {
        let filter = |name, scope, statuses: &[u16], secure_only| {
            let (edits, statuses) = (edits(name, "1"), statuses.into());
            Filter::ResponseHeaders(ResponseEdits { edits, scope, statuses, secure_only })
        };
        let route = [
            filter("x-proxied", ResponseScope::Proxied, &[], false),
            filter("x-backed", ResponseScope::Backed, &[], true),
            filter("x-every", ResponseScope::Every, &[], false),
        ];
        let share = [filter("x-some", ResponseScope::Every, &[200, 403], false)];
        let proxied = |secure, status| {
            let filters = Filters { route: &route, share: &share, secure };
            let edits = received(status, std::iter::empty(), &filters).unwrap();
            let set = edits.iter().filter(|edit| matches!(edit, Edit::Set(..)));
            set.map(|edit| edit.name().as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(proxied(true, 200), ["x-proxied", "x-backed", "x-every", "x-some"]);
        assert_eq!(proxied(false, 404), ["x-proxied", "x-every"]);
        let own = |secure, answer: Answer| {
            let id = RequestId::of("abc");
            let id = labels(&id);
            let rendered = render(&answer, &id, "GET", &Filters { route: &route, share: &share, secure });
            let names = rendered.headers.iter().map(|(name, _)| name.as_str().to_owned());
            names.filter(|name| name.starts_with("x-") && name != "x-request-id").collect::<Vec<_>>()
        };
        assert_eq!(own(true, Reason::Denied.into()), ["x-backed", "x-every", "x-some"]);
        assert_eq!(own(true, Reason::UpstreamBroken.into()), ["x-backed", "x-every"]);
        let redirect = Answer::redirect(301, HeaderValue::from_static("https://a/"));
        assert_eq!(own(false, redirect), ["x-every"]);
        assert_eq!(own(true, Reason::NoEndpoints.into()), ["x-every"]);
        // A route that is not for this listener has no backend there.
        assert_eq!(own(true, Reason::NoRoute.into()), ["x-every"]);
        assert_eq!(own(true, Answer::status(500)), ["x-every"]);
    }

    #[test]
    fn edits_of_an_own_answer_replace_and_add_but_leave_its_length() {
        let policy = HeaderName::from_static("x-policy");
        let own = HeaderEdits {
            remove: [X_REQUEST_ID.clone()].into(),
            set: [(CONTENT_TYPE, HeaderValue::from_static("text/x")), (CONTENT_LENGTH, HeaderValue::from(1))].into(),
            add: ["a", "b"].map(|value| (policy.clone(), HeaderValue::from_static(value))).into(),
        };
        let every = ResponseEdits { scope: ResponseScope::Every, ..ResponseEdits::proxied(own) };
        let filters = Filters { route: &[Filter::ResponseHeaders(every)], ..NONE };
        let given = render(&Reason::Denied.into(), &labels(&RequestId::of("abc")), "GET", &filters);
        assert!(values(&given, "x-request-id").is_empty());
        assert_eq!(values(&given, "content-type"), ["text/x"]);
        assert_eq!(values(&given, "content-length"), [given.body.len().to_string()]);
        assert_eq!(values(&given, "x-policy"), ["a", "b"]);
    }

    #[test]
    fn responses_name_the_request_and_the_edge_where_they_are_to() {
        let (id, ids) = (RequestId::of("abc"), HeaderValue::from_static("x,abc"));
        let labels = Labels { request_id: &id, correlation: Some(&ids), server: true };
        let set = |has_server, filters: &[Filter]| {
            let mut edits = Edits::default();
            let received = Received { status: 101, connection: std::iter::empty(), has_server };
            response(&Filters { route: filters, ..NONE }, &labels, received, &mut edits).unwrap();
            edits.iter().map(|edit| edit.name().as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(set(false, &[]), ["server", "x-request-id", "x-correlation-id"]);
        assert_eq!(set(true, &[]), ["x-request-id", "x-correlation-id"]);
        let own = render(&Reason::Denied.into(), &labels, "GET", &NONE);
        assert_eq!((values(&own, "server"), values(&own, "x-correlation-id")), (vec!["tidegate"], vec!["x,abc"]));
        let (headers, body) = (Box::default(), [].into());
        let page = Arc::new(DirectResponse { status: 200, headers, content_type: None, body });
        let page = render(&Answer::direct(&page), &labels, "GET", &NONE);
        assert_eq!(
            page.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["content-length", "server"]
        );
    }
}
