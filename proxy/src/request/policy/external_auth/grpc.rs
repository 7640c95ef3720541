//! Calls with Envoy's `ext_authz` over gRPC: `envoy.service.auth.v3.Authorization/Check`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HOST, TE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use prost::Message;
use tidegate_config::model::{DirectResponse, HeaderEdits};

use super::messages::{
    Address, AttributeContext, AttributeRequest, CheckRequest, CheckResponse, DeniedHttpResponse, HeaderAppendAction,
    HeaderValueOption, HttpRequest, HttpResponse, OkHttpResponse, Peer, SocketAddress, Timestamp, TlsSession,
};
use super::{AuthCheck, AuthRequest, CheckResult, Grants, header, identity, may_change, may_deny_with};
use crate::observe::external_auth_metrics::CallFailure;
use crate::request::policy::service::whole;

const PATH: &str = "/envoy.service.auth.v3.Authorization/Check";

/// The length of a message's prefix: the compression flag, and the message length.
const PREFIX_BYTES: usize = 5;

/// The call; `None` if the service's name is not valid in a URL.
pub(super) fn request(auth_check: &AuthCheck, allowed: &[HeaderName], body: Bytes) -> Option<Request<Full<Bytes>>> {
    let target = &auth_check.service.target;
    let service = &target.backend.service;
    let scheme = if target.protocol.is_tls() { "https" } else { "http" };
    let message = check(&auth_check.shown, allowed, body);
    let length = message.encoded_len();
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).ok()?);
    message.encode(&mut framed).ok()?;
    Request::post(format!("{scheme}://{}.{}.svc{PATH}", service.name, service.namespace))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .body(Full::new(framed.freeze()))
        .ok()
}

fn check(shown: &AuthRequest, allowed: &[HeaderName], body: Bytes) -> CheckRequest {
    let host = shown.headers.get(HOST).map(text).unwrap_or_default();
    let mut headers: std::collections::HashMap<String, String> =
        [(":authority", &*host), (":method", &*shown.method), (":path", &*shown.target), (":scheme", shown.scheme)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
    for name in shown.headers.keys().filter(|name| allowed.is_empty() || allowed.contains(name)) {
        let values: Vec<String> = shown.headers.get_all(name).iter().map(text).collect();
        // Cookies have a separator of their own (RFC 9113 section 8.2.3).
        let separator = if *name == http::header::COOKIE { "; " } else { "," };
        headers.insert(name.as_str().to_owned(), values.join(separator));
    }
    let size = if body.is_empty() { shown.size } else { Some(body.len() as u64) };
    let (body, raw_body) = match std::str::from_utf8(&body) {
        Ok(text) => (text.to_owned(), Bytes::new()),
        Err(_) => (String::new(), body),
    };
    let request = HttpRequest {
        id: shown.request_id.to_string(),
        method: shown.method.to_string(),
        headers,
        path: shown.target.to_string(),
        host,
        scheme: shown.scheme.to_owned(),
        // Envoy's value for a body of unknown length.
        size: size.map_or(-1, |size| i64::try_from(size).unwrap_or(i64::MAX)),
        protocol: shown.protocol.to_owned(),
        body,
        raw_body,
    };
    let since = shown.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_nanos()).unwrap_or_default(),
    };
    let session = shown.server_name.as_ref().map(|name| TlsSession { sni: name.to_string() });
    CheckRequest {
        attributes: Some(AttributeContext {
            source: Some(peer(shown.client)),
            destination: Some(peer(shown.local)),
            request: Some(AttributeRequest { time: Some(time), http: Some(request) }),
            tls_session: session,
        }),
    }
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn peer(address: SocketAddr) -> Peer {
    let socket_address = SocketAddress { address: address.ip().to_string(), port_value: address.port().into() };
    Peer { address: Some(Address { socket_address: Some(socket_address) }) }
}

/// Reads the answer. `sent` are the headers of the request, on which some edits depend.
///
/// # Errors
/// If it is invalid, or reports a failure of the service.
pub(super) async fn check_result(response: Response<Incoming>, sent: &HeaderMap) -> Result<CheckResult, CallFailure> {
    if response.status() != StatusCode::OK {
        return Err(CallFailure::Broken);
    }
    let (parts, body) = whole(response).await?;
    let trailers = body.trailers().cloned();
    let status = trailers.as_ref().and_then(|it| it.get("grpc-status")).or_else(|| parts.headers.get("grpc-status"));
    if status.is_none_or(|status| status != "0") {
        return Err(CallFailure::Broken);
    }
    let bytes = body.to_bytes();
    let message = match &*bytes {
        [0, a, b, c, d, message @ ..] if u32::from_be_bytes([*a, *b, *c, *d]) as usize == message.len() => message,
        _ => return Err(CallFailure::Broken),
    };
    let answer = CheckResponse::decode(message).map_err(|_| CallFailure::Broken)?;
    // An answer without a status has the default value: OK.
    let is_ok = answer.status.is_none_or(|status| status.code == 0);
    Ok(match answer.http_response {
        Some(HttpResponse::Ok(granted)) if is_ok => CheckResult::Allowed(grants(&granted, sent)),
        None if is_ok => CheckResult::Allowed(Grants::default()),
        Some(HttpResponse::Denied(denied)) => CheckResult::Denied(Arc::new(denial(&denied)?)),
        Some(HttpResponse::Ok(_)) | None => CheckResult::Denied(Arc::new(denial(&DeniedHttpResponse::default())?)),
    })
}

fn grants(granted: &OkHttpResponse, sent: &HeaderMap) -> Grants {
    let mut request = edits(&granted.headers, |name| Some(sent.contains_key(name)));
    request.remove = granted
        .headers_to_remove
        .iter()
        .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
        .filter(may_change)
        .collect();
    let value_of = |name: &HeaderName| {
        let mut set = request.set.iter().chain(&request.add);
        set.find(|(own, _)| own == name).map(|(_, value)| value.as_bytes())
    };
    let identity = identity(value_of);
    // Whether an endpoint's response has a header is not known yet.
    let response = edits(&granted.response_headers_to_add, |_| None);
    Grants { identity, request, response }
}

/// Edits in the form of the model. The default is to replace existing values.
fn edits(options: &[HeaderValueOption], is_there: impl Fn(&HeaderName) -> Option<bool>) -> HeaderEdits {
    use HeaderAppendAction as A;
    let (mut set, mut add) = (Vec::new(), Vec::new());
    for option in options {
        let Some((name, value)) = read(option).filter(|(name, _)| may_change(name)) else { continue };
        let appends = option.append.is_some_and(|append| append.value);
        match (option.append_action(), is_there(&name)) {
            (A::AddIfAbsent, Some(true)) | (A::OverwriteIfExists, Some(false)) => {}
            (A::AppendIfExistsOrAdd, _) if appends => add.push((name, value)),
            (A::AppendIfExistsOrAdd | A::OverwriteIfExistsOrAdd | A::OverwriteIfExists, _)
            | (A::AddIfAbsent, Some(false)) => set.push((name, value)),
            (A::AddIfAbsent, None) => add.push((name, value)),
        }
    }
    HeaderEdits { remove: Box::default(), set: set.into(), add: add.into() }
}

fn read(option: &HeaderValueOption) -> Option<(HeaderName, HeaderValue)> {
    let own = option.header.as_ref()?;
    let value = if own.value.is_empty() { &*own.raw_value } else { own.value.as_bytes() };
    header(&own.key, value)
}

fn denial(denied: &DeniedHttpResponse) -> Result<DirectResponse, CallFailure> {
    let status = match denied.status.map_or(0, |status| status.code) {
        0 => 403,
        code => u16::try_from(code).ok().filter(|code| (200..600).contains(code)).ok_or(CallFailure::Broken)?,
    };
    let headers = denied.headers.iter().filter_map(read).filter(|(name, _)| may_deny_with(name));
    Ok(DirectResponse { status, headers: headers.collect(), content_type: None, body: denied.body.as_bytes().into() })
}
