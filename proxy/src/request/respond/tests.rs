//! Rendered answers, and edits of responses.

use tidegate_config::model::ResponseEdits;

use super::*;
use crate::http::edits::Edit;
use crate::reason::Reason;

const NONE: Filters<'_> = Filters { outcome: &PolicyOutcome::NOTHING, route: &[], share: &[], secure: false };

const fn labels(request_id: &RequestId) -> ReplyFacts<'_> {
    ReplyFacts { request_id, correlation: None, limit: None, server: false, form: ReplyFormat::Text }
}

fn received<'v>(
    status: u16,
    connection: impl Iterator<Item = &'v [u8]>,
    filters: &Filters<'_>,
) -> Result<Edits, Reason> {
    let mut edits = Edits::default();
    let received = Received { status, connection, has_server: false };
    response(filters, &labels(&RequestId::of("-")), received, &mut edits).map(|()| edits)
}

#[test]
fn an_answer_names_status_reason_and_request() {
    let id = RequestId::choose(&crate::sample::Sample::default().with("x-request-id", "abc"), true, 0);
    let id = labels(&id);
    let reply = render(&Reason::NoEndpoints.into(), &id, "GET", &NONE);
    assert_eq!(reply.body, "503 Service Unavailable\nreason: no-endpoints\nrequest: abc\n");
    let length = HeaderValue::from(reply.body.len());
    assert!(reply.headers.contains(&(CONTENT_LENGTH, length.clone())));
    assert!(reply.headers.contains(&(X_REQUEST_ID.clone(), HeaderValue::from_static("abc"))));
    let head = render(&Reason::NoEndpoints.into(), &id, "HEAD", &NONE);
    assert!(head.body.is_empty() && head.headers.contains(&(CONTENT_LENGTH, length)));
    let overload = render(&Reason::ServiceOverloaded.into(), &id, "GET", &NONE);
    assert!(overload.headers.contains(&(RETRY_AFTER, HeaderValue::from_static("1"))));
    let redirect = render(&LocalReply::redirect(308, HeaderValue::from_static("https://a/")), &id, "GET", &NONE);
    assert!(redirect.headers.contains(&(LOCATION, HeaderValue::from_static("https://a/"))));
}

#[test]
fn a_client_that_asks_for_json_gets_problem_details() {
    let id = RequestId::of("abc");
    let labels = ReplyFacts { form: ReplyFormat::Json("application/problem+json"), ..labels(&id) };
    let reply = render(&Reason::NoEndpoints.into(), &labels, "GET", &NONE);
    let want = "{\"title\":\"Service Unavailable\",\"status\":503,\"reason\":\"no-endpoints\",\"request\":\"abc\"}\n";
    assert_eq!(reply.body, want);
    let lines: Vec<_> = reply.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    let length = want.len().to_string();
    let want = [
        ("content-type", "application/problem+json"),
        ("vary", "accept"),
        ("x-request-id", "abc"),
        ("content-length", &length),
    ];
    assert_eq!(lines, want);
}

#[test]
fn a_limited_client_learns_when_to_retry_and_its_limit_if_it_is_told() {
    let (id, notice) = (RequestId::of("abc"), LimitNotice::sample());
    let reply = LocalReply::limited(notice.clone());
    for form in [ReplyFormat::Text, ReplyFormat::Json("application/json"), ReplyFormat::Grpc] {
        let rendered = render(&reply, &ReplyFacts { form, ..labels(&id) }, "GET", &NONE);
        assert_eq!(values(&rendered, "retry-after"), ["13"], "{form:?}");
        assert!(values(&rendered, "ratelimit").is_empty() && values(&rendered, "ratelimit-policy").is_empty());
        let grpc = (200, vec!["14"], vec!["rate-limited"]);
        let want = if form == ReplyFormat::Grpc { grpc } else { (429, vec![], vec![]) };
        assert_eq!((rendered.status, values(&rendered, "grpc-status"), values(&rendered, "grpc-message")), want);
        let told = render(&reply, &ReplyFacts { form, limit: Some(&notice), ..labels(&id) }, "GET", &NONE);
        assert_eq!(values(&told, "ratelimit-policy"), [r#""login";q=5;w=60"#]);
        assert_eq!(values(&told, "ratelimit"), [r#""login";r=0;t=13"#]);
    }
    let text = render(&reply, &labels(&id), "GET", &NONE);
    assert_eq!(text.body, "429 Too Many Requests\nreason: rate-limited\nrequest: abc\n");
    // The edge's other answers tell it, too, and have no time to wait for.
    let other =
        render(&Reason::ConnectFailed.into(), &ReplyFacts { limit: Some(&notice), ..labels(&id) }, "GET", &NONE);
    assert_eq!((values(&other, "ratelimit").len(), values(&other, "retry-after").len()), (1, 0));
}

#[test]
fn responses_of_endpoints_tell_the_limit_in_place_of_the_endpoints_own() {
    let (id, notice) = (RequestId::of("abc"), LimitNotice::sample());
    let edited = |limit| {
        let (labels, mut edits) = (ReplyFacts { limit, ..labels(&id) }, Edits::default());
        let received = Received { status: 101, connection: std::iter::empty(), has_server: true };
        response(&NONE, &labels, received, &mut edits).unwrap();
        let text = |edit: Edit<'_>| match edit {
            Edit::Set(name, value) => format!("{name}: {}", std::str::from_utf8(value).unwrap()),
            other @ (Edit::Remove(_) | Edit::Add(..)) => panic!("{other:?}"),
        };
        edits.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(edited(None), [""; 0]);
    let want = [r#"ratelimit-policy: "login";q=5;w=60"#, r#"ratelimit: "login";r=0;t=13"#];
    assert_eq!(edited(Some(&notice)), want);
}

#[track_caller]
fn check_removed(status: u16, connection: &[&str], want: &[&str]) {
    let edits = received(status, connection.iter().map(|value| value.as_bytes()), &NONE).unwrap();
    assert!(edits.iter().all(|edit| matches!(edit, Edit::Remove(_))));
    assert_eq!(edits.iter().map(|edit| edit.name().as_str()).collect::<Vec<_>>(), want);
}

#[test]
fn connection_headers_are_removed() {
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
    let given = render(&LocalReply::direct(&response), &id, "POST", &NONE);
    assert_eq!((given.status, &*given.body), (503, b"<p>back soon".as_slice()));
    let names: Vec<_> = given.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["content-type", "retry-after", "content-length"]);
    let head = render(&LocalReply::direct(&response), &id, "HEAD", &NONE);
    assert!(head.body.is_empty() && values(&head, "content-length") == ["12"]);
    let nothing = Arc::new(DirectResponse { status: 204, ..DirectResponse::clone(&response) });
    let nothing = render(&LocalReply::direct(&nothing), &id, "GET", &NONE);
    assert!(nothing.body.is_empty() && values(&nothing, "content-length").is_empty());
    let share = render(&LocalReply::invalid_backend(500), &id, "GET", &NONE);
    assert_eq!(share.body, "500 Internal Server Error\nreason: invalid-backend\nrequest: abc\n");
}

#[test]
fn a_grpc_client_gets_a_failure_as_trailers_only() {
    let id = RequestId::of("abc");
    let labels = ReplyFacts { form: ReplyFormat::Grpc, server: true, ..labels(&id) };
    let edits = edits("x-own", "1");
    let every = ResponseEdits { scope: ResponseScope::Every, statuses: [404].into(), ..ResponseEdits::proxied(edits) };
    let filters = Filters { route: &[Filter::ResponseHeaders(every)], ..NONE };
    let given = render(&Reason::NoRoute.into(), &labels, "POST", &filters);
    assert!(given.status == 200 && given.body.is_empty());
    let lines: Vec<_> = given.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    let want = [
        ("content-type", "application/grpc"),
        ("grpc-status", "12"),
        ("grpc-message", "no-route"),
        ("x-request-id", "abc"),
        ("content-length", "0"),
        ("server", "tidegate"),
        ("x-own", "1"),
    ];
    assert_eq!(lines, want);
    let redirect = LocalReply::redirect(301, HeaderValue::from_static("https://a/"));
    assert_eq!(render(&redirect, &labels, "POST", &NONE).status, 301);
}

#[test]
fn filters_state_the_responses_that_they_apply_to() {
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
        let filters = Filters { route: &route, share: &share, secure, ..NONE };
        let edits = received(status, std::iter::empty(), &filters).unwrap();
        let set = edits.iter().filter(|edit| matches!(edit, Edit::Set(..)));
        set.map(|edit| edit.name().as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(proxied(true, 200), ["x-proxied", "x-backed", "x-every", "x-some"]);
    assert_eq!(proxied(false, 404), ["x-proxied", "x-every"]);
    let own = |secure, reply: LocalReply| {
        let id = RequestId::of("abc");
        let id = labels(&id);
        let rendered = render(&reply, &id, "GET", &Filters { route: &route, share: &share, secure, ..NONE });
        let names = rendered.headers.iter().map(|(name, _)| name.as_str().to_owned());
        names.filter(|name| name.starts_with("x-") && name != "x-request-id").collect::<Vec<_>>()
    };
    assert_eq!(own(true, Reason::Denied.into()), ["x-backed", "x-every", "x-some"]);
    assert_eq!(own(true, Reason::UpstreamBroken.into()), ["x-backed", "x-every"]);
    let redirect = LocalReply::redirect(301, HeaderValue::from_static("https://a/"));
    assert_eq!(own(false, redirect), ["x-every"]);
    assert_eq!(own(true, Reason::NoEndpoints.into()), ["x-every"]);
    // A route that does not serve this listener has no backend there.
    assert_eq!(own(true, Reason::NoRoute.into()), ["x-every"]);
    assert_eq!(own(true, LocalReply::invalid_backend(500)), ["x-every"]);
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
fn responses_have_a_request_id_and_a_server_header_where_configured() {
    let (id, ids) = (RequestId::of("abc"), HeaderValue::from_static("x,abc"));
    let labels = ReplyFacts { correlation: Some(&ids), server: true, ..labels(&id) };
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
    let page = render(&LocalReply::direct(&page), &labels, "GET", &NONE);
    assert_eq!(page.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["content-length", "server"]);
}
