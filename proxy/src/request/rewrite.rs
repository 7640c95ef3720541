//! The edits of a request before it reaches an endpoint: the target, the headers about the client, and the route's own
//! edits. A driver applies the list after it has removed the hop-by-hop headers.

use std::io::Write as _;
use std::time::SystemTime;

use http::header::{CONNECTION, COOKIE, FORWARDED, HOST, TE, UPGRADE};
use http::{HeaderName, HeaderValue};
use tidegate_config::model::{
    AppProtocol, Filter, ForwardedFor, Guard, Head, PathRewrite, Route, SessionCarrier, normalize,
};

use crate::connection::AddressText;
use crate::http::cdn_loop::LoopToken;
use crate::http::edits::{Edits, Lengths};
use crate::http::names::{
    CDN_LOOP, EARLY_DATA, FORWARDED_AS, HeaderNames, X_CORRELATION_ID, X_FORWARDED_FOR, X_FORWARDED_HOST,
    X_FORWARDED_PORT, X_FORWARDED_PROTO, X_REAL_IP, X_REQUEST_ID, X_REQUEST_START, begins_like, is_odd,
    is_other_spelling,
};
use crate::request::client_url::{believed_port, client_port, default_port, write_authority};
use crate::request::path_rewrite;
use crate::request::phase::RequestFacts;
use crate::request::request_id::RequestId;
use crate::request::respond::{self, Filters};
use crate::request::validate::Protocol;

/// Set by ingress-nginx; endpoints may rely on it.
const SCHEME: &[u8] = b"x-scheme";

/// The headers by which the edge decides where a body ends.
const FRAMING: [&str; 2] = ["content-length", "transfer-encoding"];

/// The input of the rewrite of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RewriteInput<'a> {
    /// Its route.
    pub(crate) route: &'a Route,
    /// The filters of the route and share, and the grants.
    pub(crate) filters: Filters<'a>,
    /// The names of the headers by which the policies of its path decide, in lower case.
    pub(crate) decided_by: &'a [Box<str>],
    /// The protocol of the endpoint.
    pub(crate) protocol: AppProtocol,
    /// The facts about it.
    pub(crate) request: &'a RequestFacts,
    /// The addresses of its connection.
    pub(crate) text: &'a AddressText,
    /// The port that the PROXY header or the listener names.
    pub(crate) named_port: Option<u16>,
    /// Whether the connection uses TLS.
    pub(crate) tls: bool,
    /// Its id.
    pub(crate) request_id: &'a RequestId,
    /// The correlation ids, if the route forwards them.
    pub(crate) correlation: Option<&'a HeaderValue>,
    /// The arrival time, if the route forwards it.
    pub(crate) start: Option<SystemTime>,
    /// The form of `X-Forwarded-For`.
    pub(crate) forwarded_for: ForwardedFor,
    /// The token for counting passes.
    pub(crate) token: &'a LoopToken,
}

/// The requested upgrade (RFC 9110 section 7.8), if the lower-case list of allowed ones has it. Requests with a body
/// get none: the bytes after the head would be ambiguous.
pub(crate) fn upgrade<H: Head + ?Sized>(head: &H, protocol: Protocol, allowed: &[String]) -> Option<HeaderValue> {
    let token = std::str::from_utf8(head.header(UPGRADE.as_str())?).ok()?;
    let bodiless =
        head.header("transfer-encoding").is_none() && head.header("content-length").is_none_or(|l| l == b"0");
    let mut nominated = false;
    head.each_value(CONNECTION.as_str(), &mut |value| {
        nominated |= value.split(|b| *b == b',').any(|word| word.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
    });
    let may = bodiless
        && nominated
        && protocol == Protocol::Http11
        && allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(token));
    may.then(|| HeaderValue::from_str(token).ok()).flatten()
}

/// Adds the edits.
pub(crate) fn request<H: Head + HeaderNames>(head: &H, input: &RewriteInput<'_>, edits: &mut Edits) {
    // The standard header for the same claims, which is not checked.
    if head.header(FORWARDED.as_str()).is_some() {
        edits.remove(FORWARDED);
    }
    identify(head, input, edits);
    carry_over(head, input, edits);
    if input.request.protocol == Protocol::Http2 && !input.protocol.is_http2() {
        join_cookies(head, edits);
    }
    if let Some(auth) = &input.filters.outcome.auth {
        respond::apply(&auth.request, edits);
    }
    input.filters.outcome.grants.iter().for_each(|granted| respond::apply(&granted.request, edits));
    let mut rewrite: Option<&PathRewrite> = None;
    for filter in input.filters.iter() {
        match filter {
            Filter::RequestHeaders(own) => respond::apply(own, edits),
            Filter::Path(path) => rewrite = Some(path),
            Filter::Host(host) => edits.set(HOST, |out| out.extend_from_slice(host.as_bytes())),
            Filter::ResponseHeaders(_) | Filter::Cors(_) | Filter::Mirror(_) => {}
        }
    }
    edits.set(&CDN_LOOP, |out| input.token.write_added(head, out));
    remove_misleading(head, input, edits);
    let path = if rewrite.is_some() || input.request.had_dot_segments {
        normalize(head.path()).and_then(|path| path_rewrite::onward(rewrite, &input.route.path, head.path(), &path))
    } else {
        None
    };
    let path = path.as_deref().or_else(|| input.request.absolute.then(|| head.path()));
    if let Some(path) = path {
        edits.set_target(|out| {
            out.extend_from_slice(path.as_bytes());
            if let Some(query) = head.query() {
                out.push(b'?');
                out.extend_from_slice(query.as_bytes());
            }
        });
    }
}

/// Removes the headers of the client that an endpoint could mistake for ones that were decided upon: other spellings
/// of the names in the edits, and of those by which the edge or the route decides; and from an untrusted peer, claims
/// about the client that the edge does not make itself.
fn remove_misleading<H: HeaderNames>(head: &H, input: &RewriteInput<'_>, edits: &mut Edits) {
    let mut found = Vec::new();
    let trusted = input.request.client.trusted;
    // Almost no names are odd, neither the client's nor those that are decided upon, and only such ones have another
    // spelling.
    let (mut decides_by_odd, mut read, listed) = (edits.has_odd_names(), Lengths::of(&FRAMING), edits.lengths());
    for name in read_for(input) {
        read.add(name.len());
        decides_by_odd |= is_odd(name.as_bytes());
    }
    head.each_name(&mut |name| {
        let is_claim = || begins_like(name, FORWARDED_AS) || name.len() == SCHEME.len() && begins_like(name, SCHEME);
        let is_spelling =
            || edits.has_other_spelling(name) || read_by(input).any(|read| is_other_spelling(name, read.as_bytes()));
        let may_be = listed.has(name.len()) || read.has(name.len());
        let misleads = may_be && (decides_by_odd || is_odd(name)) && is_spelling()
            || !trusted && is_claim() && !edits.removes(name);
        if misleads {
            found.extend(HeaderName::from_bytes(name));
        }
    });
    found.into_iter().for_each(|name| edits.remove_first(name));
}

/// The names of the headers of a request by which the edge decides: where the body ends, and [others](read_for).
fn read_by<'a>(input: &RewriteInput<'a>) -> impl Iterator<Item = &'a str> {
    FRAMING.into_iter().chain(read_for(input))
}

/// Those that decide whether the route matches, the session, and whether policies and services allow the request.
fn read_for<'a>(input: &RewriteInput<'a>) -> impl Iterator<Item = &'a str> {
    let RewriteInput { route, decided_by, .. } = *input;
    let session = route.settings.session.as_ref().and_then(|session| match &session.carrier {
        SessionCarrier::Header(name) => Some(name.as_str()),
        SessionCarrier::Cookie(_) => None,
    });
    let services = route.guards.iter().filter_map(Guard::external_auth);
    let services = services.chain(route.action.shares().iter().filter_map(|share| share.external_auth.as_ref()));
    let shown = services.flat_map(|service| service.protocol.request_headers()).map(HeaderName::as_str);
    let matched = route.conditions.headers.iter().map(|header| &*header.name);
    matched.chain(session).chain(shown).chain(decided_by.iter().map(|name| &**name))
}

/// Adds the headers about the client and its request.
fn identify<H: Head + ?Sized>(head: &H, input: &RewriteInput<'_>, edits: &mut Edits) {
    let client = &input.request.client;
    let address = |out: &mut Vec<u8>| {
        if client.address == client.peer {
            out.extend_from_slice(input.text.peer.as_bytes());
        } else {
            // Writing to a Vec cannot fail.
            write!(out, "{}", client.address).ok();
        }
    };
    edits.set(&X_FORWARDED_FOR, |out| {
        if input.forwarded_for == ForwardedFor::Replace {
            return address(out);
        }
        if client.trusted {
            head.each_value(X_FORWARDED_FOR.as_str(), &mut |value| {
                out.extend_from_slice(value.trim_ascii());
                out.extend_from_slice(b", ");
            });
        }
        out.extend_from_slice(input.text.peer.as_bytes());
    });
    edits.set(&X_FORWARDED_PROTO, |out| out.extend_from_slice(client.scheme().as_bytes()));
    // One from a client before us stays: no proxy may remove it.
    if input.request.early {
        edits.set(&EARLY_DATA, |out| out.push(b'1'));
    }
    let mut has_host = false;
    edits.set(&X_FORWARDED_HOST, |out| has_host = write_authority(head, client, out));
    if !has_host {
        edits.remove(&X_FORWARDED_HOST);
    }
    let port = match input.forwarded_for {
        ForwardedFor::Append => client_port(head, client, input.named_port),
        ForwardedFor::Replace => believed_port(head, client).unwrap_or_else(|| default_port(input.tls)),
    };
    edits.set(&X_FORWARDED_PORT, |out| out.extend_from_slice(itoa::Buffer::new().format(port).as_bytes()));
    edits.set(&X_REAL_IP, address);
    edits.set(&X_REQUEST_ID, |out| out.extend_from_slice(input.request_id.as_str().as_bytes()));
    if let Some(ids) = input.correlation {
        edits.set(&X_CORRELATION_ID, |out| out.extend_from_slice(ids.as_bytes()));
    }
    if let Some(start) = input.start {
        let since = start.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        edits.set(&X_REQUEST_START, |out| {
            write!(out, "t={}.{:03}", since.as_secs(), since.subsec_millis()).ok();
        });
    }
}

/// Hop-by-hop headers that are sent to this endpoint again: `te` for gRPC trailers, and an upgrade in the edge's own
/// name.
fn carry_over<H: Head + ?Sized>(head: &H, input: &RewriteInput<'_>, edits: &mut Edits) {
    let trailers = head
        .header(TE.as_str())
        .is_some_and(|te| te.split(|b| *b == b',').any(|word| word.trim_ascii().eq_ignore_ascii_case(b"trailers")));
    if trailers && input.protocol.is_http2() {
        edits.set(TE, |out| out.extend_from_slice(b"trailers"));
    }
    match &input.request.upgrade {
        Some(token) if !input.protocol.is_http2() => {
            edits.set(CONNECTION, |out| out.extend_from_slice(b"Upgrade"));
            edits.set(UPGRADE, |out| out.extend_from_slice(token.as_bytes()));
        }
        // Pingora adds a WebSocket upgrade by itself; one that is not allowed is removed again.
        Some(_) | None if head.header(UPGRADE.as_str()).is_some() => {
            edits.remove(CONNECTION);
            edits.remove(UPGRADE);
        }
        Some(_) | None => {}
    }
}

/// HTTP/2 clients may send each cookie in a separate header for better compression; HTTP/1.1 allows only one header
/// (RFC 9113 section 8.2.3).
fn join_cookies<H: Head + ?Sized>(head: &H, edits: &mut Edits) {
    let mut lines = 0;
    head.each_value(COOKIE.as_str(), &mut |_| lines += 1);
    if lines > 1 {
        edits.set(COOKIE, |out| {
            let start = out.len();
            head.each_value(COOKIE.as_str(), &mut |value| {
                if out.len() > start {
                    out.extend_from_slice(b"; ");
                }
                out.extend_from_slice(value.trim_ascii());
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_config::model::{AuthProtocol, ExternalAuth, HeaderEdits, TextMatch, ValueMatch};

    use super::*;
    use crate::http::edits::Edit;
    use crate::request::client::Client;
    use crate::request::policy::PolicyOutcome;
    use crate::sample::Sample;
    use crate::sample_model::{path, route, weighted};

    #[track_caller]
    fn check_id(sent: Option<&str>, keep: bool, want: &str) {
        let head = Sample::get("a.test", "/");
        let head = sent.into_iter().fold(head, |head, id| head.with("x-request-id", id));
        assert_eq!(RequestId::choose(&head, keep, 0xabc).as_str(), want, "{sent:?}");
    }

    #[test]
    fn valid_ids_are_kept() {
        let made = "00000000000000000000000000000abc";
        check_id(None, true, made);
        check_id(Some("x-1"), true, "x-1");
        check_id(Some("x-1"), false, made);
        check_id(Some(&"x".repeat(128)), true, &"x".repeat(128));
        for bad in ["", "a b", "\"\t\"", "b\u{fc}", &"x".repeat(129)] {
            check_id(Some(bad), true, made);
        }
    }

    #[track_caller]
    fn check_upgrade(lines: &[(&str, &str)], protocol: Protocol, want: Option<&str>) {
        let head = lines.iter().fold(Sample::get("a.test", "/"), |head, (name, value)| head.with(name, value));
        let got = upgrade(&head, protocol, &["websocket".to_owned()]);
        assert_eq!(got.as_ref().map(|token| token.to_str().unwrap()), want, "{lines:?}");
    }

    #[test]
    fn upgrade_requests_are_complete_and_listed_in_connection() {
        let asked = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
        check_upgrade(&asked, Protocol::Http11, Some("WebSocket"));
        check_upgrade(&asked, Protocol::Http10, None);
        check_upgrade(&asked, Protocol::Http2, None);
        check_upgrade(&asked[1..], Protocol::Http11, None);
        check_upgrade(&[asked[0], ("upgrade", "h2c")], Protocol::Http11, None);
        check_upgrade(&[asked[0], ("upgrade", "websocket, h2c")], Protocol::Http11, None);
        check_upgrade(&[asked[0], asked[1], ("content-length", "0")], Protocol::Http11, Some("WebSocket"));
        check_upgrade(&[asked[0], asked[1], ("content-length", "1")], Protocol::Http11, None);
        check_upgrade(&[asked[0], asked[1], ("transfer-encoding", "chunked")], Protocol::Http11, None);
    }

    /// The headers for an endpoint with a protocol.
    fn sent(head: &Sample, route: &Route, protocol: AppProtocol, trusted: bool) -> Edits {
        sent_by(Protocol::Http11, head, route, protocol, trusted)
    }

    fn sent_by(spoken: Protocol, head: &Sample, route: &Route, protocol: AppProtocol, trusted: bool) -> Edits {
        let peer = [10, 0, 0, 1].into();
        let client = Client {
            address: [192, 0, 2, 1].into(),
            peer,
            trusted,
            secure: true,
            websocket: false,
            names_scheme: false,
        };
        let asks = RequestFacts {
            client,
            protocol: spoken,
            had_dot_segments: false,
            early: false,
            absolute: false,
            has_passed: false,
            upgrade: None,
        };
        let input = RewriteInput {
            route,
            filters: Filters { outcome: &PolicyOutcome::NOTHING, route: &route.filters, share: &[], secure: true },
            decided_by: &["x-asked".into()],
            protocol,
            request: &asks,
            text: &AddressText::new((peer, 9).into()),
            named_port: None,
            tls: true,
            request_id: &RequestId::of("id"),
            correlation: None,
            start: None,
            forwarded_for: ForwardedFor::Append,
            token: &LoopToken::default(),
        };
        let mut edits = Edits::default();
        request(head, &input, &mut edits);
        edits
    }

    #[track_caller]
    fn check_set(edits: &Edits, name: &str, want: Option<&str>) {
        let mut values = edits.iter().rev().filter_map(|edit| match edit {
            Edit::Set(own, value) => (own == name).then(|| std::str::from_utf8(value).unwrap()),
            Edit::Add(..) | Edit::Remove(_) => None,
        });
        assert_eq!(values.next(), want, "{name}");
    }

    #[test]
    fn the_chain_grows_only_behind_trusted_peers() {
        let head = Sample::get("a.test", "/").with("x-forwarded-for", "192.0.2.1").with("x-forwarded-for", "10.0.0.2");
        let route = route("r", path("/"));
        let trusted = sent(&head, &route, AppProtocol::Http, true);
        check_set(&trusted, "x-forwarded-for", Some("192.0.2.1, 10.0.0.2, 10.0.0.1"));
        check_set(&trusted, "x-forwarded-proto", Some("https"));
        check_set(&trusted, "x-forwarded-port", Some("443"));
        check_set(&trusted, "x-real-ip", Some("192.0.2.1"));
        check_set(&sent(&head, &route, AppProtocol::Http, false), "x-forwarded-for", Some("10.0.0.1"));
    }

    #[test]
    fn te_trailers_is_sent_on_only_over_http2() {
        let head = Sample::get("a.test", "/").with("te", "gzip, Trailers");
        let route = route("r", path("/"));
        check_set(&sent(&head, &route, AppProtocol::H2c, false), "te", Some("trailers"));
        check_set(&sent(&head, &route, AppProtocol::Http, false), "te", None);
        check_set(&sent(&Sample::get("a.test", "/"), &route, AppProtocol::H2c, false), "te", None);
    }

    #[track_caller]
    fn check_cookies(spoken: Protocol, protocol: AppProtocol, cookies: &[&str], want: Option<&str>) {
        let head = cookies.iter().fold(Sample::get("a.test", "/"), |head, cookie| head.with("cookie", cookie));
        check_set(&sent_by(spoken, &head, &route("r", path("/")), protocol, false), "cookie", want);
    }

    #[test]
    fn separate_cookie_fields_of_http2_become_one_line() {
        use AppProtocol::{H2c, Http, Https};
        use Protocol::{Http2, Http11};
        check_cookies(Http2, Http, &[], None);
        check_cookies(Http2, Http, &["a=b; c=d"], None);
        check_cookies(Http2, Http, &["a=b", "c=d; e=f", "g=h"], Some("a=b; c=d; e=f; g=h"));
        check_cookies(Http2, Https, &["a=b", "a=b"], Some("a=b; a=b"));
        check_cookies(Http2, H2c, &["a=b", "c=d"], None);
        check_cookies(Http11, Http, &["a=b", "c=d"], None);
    }

    /// The names of a client's headers that are removed, in a route with a filter, a condition and an
    /// authorisation service.
    #[track_caller]
    fn check_removed(trusted: bool, sent_names: &[&str], want: &[&str]) {
        let name = HeaderName::from_static;
        let value = HeaderValue::from_static("edge");
        let own = HeaderEdits {
            remove: [name("x-gone")].into(),
            set: [(name("x-set"), value.clone()), (name("x_low"), value.clone())].into(),
            add: [(name("x-added"), value)].into(),
        };
        let when = ValueMatch { name: "x-when".into(), value: TextMatch::Present };
        let mut route = Route { filters: [Filter::RequestHeaders(own)].into(), ..route("r", path("/")) };
        route.conditions.headers = [when].into();
        let protocol = AuthProtocol::Grpc { request_headers: [name("x-shown")].into() };
        let target = Arc::clone(weighted("authz", AppProtocol::H2c, 1).target().unwrap());
        route.guards = [Guard::ExternalAuth(Arc::new(ExternalAuth { target, protocol, body_bytes_max: 0 }))].into();
        let head = sent_names.iter().fold(Sample::get("a.test", "/"), |head, name| head.with(name, "client"));
        let edits = sent(&head, &route, AppProtocol::Http, trusted);
        let removed: Vec<&str> = sent_names.iter().copied().filter(|name| edits.removes(name.as_bytes())).collect();
        assert_eq!(removed, want);
        for (set, value) in [("x-set", "edge"), ("x_low", "edge"), ("x-forwarded-proto", "https")] {
            check_set(&edits, set, Some(value));
            assert!(edits.lasting().any(|(name, lasting)| name == set && lasting == value.as_bytes()), "{set}");
        }
    }

    #[test]
    fn other_spellings_of_decided_names_are_removed() {
        let kept = [
            "x-added",
            "x-when",
            "x-shown",
            "x-asked",
            "x_other",
            "x.own",
            "content-length",
            "transfer-encoding",
            "x_",
        ];
        check_removed(true, &kept, &[]);
        let others =
            ["x_gone", "X.GONE", "x_set", "X_Set", "x-low", "x.low", "x_added", "x_when", "x.shown", "X_Asked"];
        check_removed(true, &others, &others);
        let framing = ["content_length", "Transfer.Encoding", "cdn_loop", "x_real_ip", "x_forwarded-for"];
        check_removed(true, &framing, &framing);
        // Replaced, and not removed alone.
        check_removed(true, &["x-gone", "x-set", "x_low"], &["x-gone", "x-set", "x_low"]);
    }

    #[test]
    fn claims_of_untrusted_peers_are_removed() {
        let claims = ["x-forwarded-prefix", "X_Forwarded.Ssl", "x-forwarded-", "x-scheme", "X_SCHEME"];
        check_removed(false, &claims, &claims);
        check_removed(true, &claims, &[]);
        check_removed(false, &["x-forwarded", "x-schemes", "xforwarded-for", "x", ""], &[]);
    }

    #[test]
    fn edits_of_a_route_follow_those_of_the_edge() {
        let set = (X_REAL_IP.clone(), HeaderValue::from_static("hidden"));
        let own = HeaderEdits { set: [set].into(), remove: [CDN_LOOP.clone()].into(), ..HeaderEdits::default() };
        let filters = [Filter::RequestHeaders(own), Filter::Path(PathRewrite::Full("/new".into()))].into();
        let route = Route { filters, ..route("r", path("/")) };
        let head = Sample::get("a.test", "/old?q").with("cdn-loop", "x").with("cdn-loop", "y");
        let edits = sent(&head, &route, AppProtocol::Http, false);
        check_set(&edits, "x-real-ip", Some("hidden"));
        // Except for the count of passes, which no object can change.
        check_set(&edits, "cdn-loop", Some("x, y, tidegate"));
        assert_eq!(edits.target(), Some(b"/new?q".as_slice()));
    }
}
