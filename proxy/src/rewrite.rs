//! What changes of a request before it reaches an endpoint: the target, the headers by which endpoints know the
//! client, and the route's own edits. The result is a list that a driver applies after it has removed what
//! belongs to the client's connection alone.

use std::net::IpAddr;

use http::header::{CONNECTION, HOST, TE, UPGRADE};
use http::{HeaderName, HeaderValue};
use tidegate_config::model::{AppProtocol, Filter, Head, Normalized, PathRewrite, Route};

use crate::forwarded::Client;
use crate::head::Edit;
use crate::passes::{CDN_LOOP, LoopToken};
use crate::refuse::Protocol;
use crate::target;

pub(crate) static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
static X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
static X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Spellings that servers which turn headers into variables (CGI, WSGI) cannot tell from the edge's own, and the
/// standard's form of the same claims, which is not checked.
static MISLEADING: [HeaderName; 7] = [
    HeaderName::from_static("forwarded"),
    HeaderName::from_static("x_forwarded_for"),
    HeaderName::from_static("x_forwarded_proto"),
    HeaderName::from_static("x_forwarded_host"),
    HeaderName::from_static("x_forwarded_port"),
    HeaderName::from_static("x_real_ip"),
    HeaderName::from_static("x_request_id"),
];

/// Characters of a client's request id that are kept.
const REQUEST_ID_CHARACTERS_MAX: usize = 128;

/// What a request has been found to be by the time it is rewritten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Onward<'a> {
    /// Its route.
    pub(crate) route: &'a Route,
    /// What the endpoint speaks.
    pub(crate) protocol: AppProtocol,
    /// Its path as rules see it.
    pub(crate) path: &'a Normalized<'a>,
    /// Who sent it.
    pub(crate) client: &'a Client,
    /// The port it came in over.
    pub(crate) port: u16,
    /// Its id.
    pub(crate) request_id: &'a HeaderValue,
    /// The upgrade that it asks for and may have.
    pub(crate) upgrade: Option<&'a HeaderValue>,
    /// Under what name it passes here.
    pub(crate) token: &'a LoopToken,
    /// Whether its target is in absolute form, which only proxies are sent.
    pub(crate) absolute: bool,
}

/// What changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RequestEdits {
    /// The target in origin form, where it differs from the one that was sent.
    pub(crate) target: Option<String>,
    /// The headers, in order.
    pub(crate) headers: Vec<Edit>,
}

/// The id of a request: the client's where it is well-formed and may be kept, else 128 bits of chance in hexadecimal.
pub(crate) fn request_id<H: Head + ?Sized>(head: &H, keep: bool, chance: u128) -> HeaderValue {
    let kept = head.header(X_REQUEST_ID.as_str()).filter(|id| {
        keep && (1..=REQUEST_ID_CHARACTERS_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
    });
    kept.and_then(|id| HeaderValue::from_bytes(id).ok())
        .unwrap_or_else(|| HeaderValue::try_from(format!("{chance:032x}")).unwrap_or(HeaderValue::from_static("-")))
}

/// The upgrade that a request asks for (RFC 9110 section 7.8), where the list, in lower case, has it. Requests with a body
/// get none: the bytes after the head would be read in two ways.
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

/// Lists what changes.
pub(crate) fn request<H: Head + ?Sized>(head: &H, onward: &Onward<'_>) -> RequestEdits {
    let mut headers = Vec::with_capacity(16);
    headers.extend(MISLEADING.iter().filter(|name| head.header(name.as_str()).is_some()).cloned().map(Edit::Remove));
    identify(head, onward, &mut headers);
    carry_over(head, onward, &mut headers);
    let mut rewrite: Option<&PathRewrite> = None;
    for filter in &*onward.route.filters {
        match filter {
            Filter::RequestHeaders(edits) => {
                headers.extend(edits.remove.iter().cloned().map(Edit::Remove));
                headers.extend(edits.set.iter().cloned().map(|(name, value)| Edit::Set(name, value)));
                headers.extend(edits.add.iter().cloned().map(|(name, value)| Edit::Add(name, value)));
            }
            Filter::Path(path) => rewrite = Some(path),
            Filter::Host(host) => set(&mut headers, &HOST, HeaderValue::from_str(host).ok()),
            Filter::ResponseHeaders(_) => {}
        }
    }
    set(&mut headers, &CDN_LOOP, onward.token.added(head));
    let path = target::onward(rewrite, &onward.route.path, head.path(), onward.path);
    let path = path.or_else(|| onward.absolute.then(|| head.path().to_owned()));
    let target = path.map(|path| match head.query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    });
    RequestEdits { target, headers }
}

/// Sets a header, or removes it when there is no value for it: what the client claims never stands in for ours.
fn set(headers: &mut Vec<Edit>, name: &HeaderName, value: Option<HeaderValue>) {
    headers.push(match value {
        Some(value) => Edit::Set(name.clone(), value),
        None => Edit::Remove(name.clone()),
    });
}

/// Says who the client is and what it asked for.
fn identify<H: Head + ?Sized>(head: &H, onward: &Onward<'_>, headers: &mut Vec<Edit>) {
    let client = onward.client;
    let believed = |name: &HeaderName| {
        let value = client.trusted.then(|| head.header(name.as_str())).flatten()?;
        HeaderValue::from_bytes(value).ok()
    };
    let mut chain = Vec::new();
    if client.trusted {
        head.each_value(X_FORWARDED_FOR.as_str(), &mut |value| {
            chain.extend_from_slice(value.trim_ascii());
            chain.extend_from_slice(b", ");
        });
    }
    chain.extend_from_slice(client.peer.to_string().as_bytes());
    let host = || head.authority().and_then(|host| HeaderValue::from_str(host).ok());
    set(headers, &X_FORWARDED_FOR, HeaderValue::try_from(chain).ok());
    set(headers, &X_FORWARDED_PROTO, Some(HeaderValue::from_static(client.scheme())));
    set(headers, &X_FORWARDED_HOST, believed(&X_FORWARDED_HOST).or_else(host));
    set(headers, &X_FORWARDED_PORT, believed(&X_FORWARDED_PORT).or_else(|| Some(onward.port.into())));
    set(headers, &X_REAL_IP, address_value(client.address));
    set(headers, &X_REQUEST_ID, Some(onward.request_id.clone()));
}

fn address_value(address: IpAddr) -> Option<HeaderValue> {
    HeaderValue::try_from(address.to_string()).ok()
}

/// Hop-by-hop headers that mean something to this endpoint: gRPC asks for trailers (`te`), and an upgrade is asked for
/// again in our own name.
fn carry_over<H: Head + ?Sized>(head: &H, onward: &Onward<'_>, headers: &mut Vec<Edit>) {
    let trailers = head
        .header(TE.as_str())
        .is_some_and(|te| te.split(|b| *b == b',').any(|word| word.trim_ascii().eq_ignore_ascii_case(b"trailers")));
    if trailers && onward.protocol == AppProtocol::H2c {
        headers.push(Edit::Set(TE, HeaderValue::from_static("trailers")));
    }
    match onward.upgrade {
        Some(token) if onward.protocol != AppProtocol::H2c => {
            headers.push(Edit::Set(CONNECTION, HeaderValue::from_static("Upgrade")));
            headers.push(Edit::Set(UPGRADE, token.clone()));
        }
        // Pingora asks for a WebSocket by itself; one that the list does not have is taken back.
        Some(_) | None if head.header(UPGRADE.as_str()).is_some() => {
            headers.extend([Edit::Remove(CONNECTION), Edit::Remove(UPGRADE)]);
        }
        Some(_) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::{HeaderEdits, normalize};

    use super::*;
    use crate::sample::Sample;
    use crate::sample_model::{path, route};

    #[track_caller]
    fn check_id(sent: Option<&str>, keep: bool, want: &str) {
        let head = Sample::get("a.test", "/");
        let head = sent.into_iter().fold(head, |head, id| head.with("x-request-id", id));
        assert_eq!(request_id(&head, keep, 0xabc), want, "{sent:?}");
    }

    #[test]
    fn ids_are_kept_where_they_are_sane() {
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
    fn upgrades_are_asked_for_in_full_and_listed() {
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

    /// What is sent to an endpoint that speaks a protocol, header by header.
    fn sent(head: &Sample, route: &Route, protocol: AppProtocol, trusted: bool) -> RequestEdits {
        let peer = [10, 0, 0, 1].into();
        let client = Client { address: [192, 0, 2, 1].into(), peer, trusted, secure: true };
        let onward = Onward {
            route,
            protocol,
            path: &normalize(head.path()).unwrap(),
            client: &client,
            port: 443,
            request_id: &HeaderValue::from_static("id"),
            upgrade: None,
            token: &LoopToken::default(),
            absolute: false,
        };
        request(head, &onward)
    }

    #[track_caller]
    fn check_set(edits: &RequestEdits, name: &str, want: Option<&str>) {
        let values = edits.headers.iter().filter_map(|edit| match edit {
            Edit::Set(own, value) => (own == name).then(|| value.to_str().unwrap()),
            Edit::Add(..) | Edit::Remove(_) => None,
        });
        assert_eq!(values.last(), want, "{name}");
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
    fn trailers_are_asked_for_again_only_over_http2() {
        let head = Sample::get("a.test", "/").with("te", "gzip, Trailers");
        let route = route("r", path("/"));
        check_set(&sent(&head, &route, AppProtocol::H2c, false), "te", Some("trailers"));
        check_set(&sent(&head, &route, AppProtocol::Http, false), "te", None);
        check_set(&sent(&Sample::get("a.test", "/"), &route, AppProtocol::H2c, false), "te", None);
    }

    #[test]
    fn a_routes_own_edits_come_after_ours() {
        let set = (X_REAL_IP.clone(), HeaderValue::from_static("hidden"));
        let own = HeaderEdits { set: [set].into(), remove: [CDN_LOOP.clone()].into(), ..HeaderEdits::default() };
        let filters = [Filter::RequestHeaders(own), Filter::Path(PathRewrite::Full("/new".into()))].into();
        let route = Route { filters, ..route("r", path("/")) };
        let head = Sample::get("a.test", "/old?q").with("cdn-loop", "x").with("cdn-loop", "y");
        let edits = sent(&head, &route, AppProtocol::Http, false);
        check_set(&edits, "x-real-ip", Some("hidden"));
        // But for the account of passes, which no object can change.
        check_set(&edits, "cdn-loop", Some("x, y, tidegate"));
        assert_eq!(edits.target.as_deref(), Some("/new?q"));
    }
}
