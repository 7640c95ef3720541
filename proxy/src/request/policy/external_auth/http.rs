//! Calls over HTTP: the request itself, below another path and with few of its headers. The status 200 allows it, and
//! every other answer goes to the client (Gateway API, `HTTPExternalAuthFilter`).

use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, DATE, HOST, SERVER, SET_COOKIE, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tidegate_config::model::{DirectResponse, HeaderEdits};

use super::{AuthRequest, CheckResult, Grants, identity, may_change, may_deny_with};
use crate::http::edited::nominated;
use crate::observe::external_auth_metrics::CallFailure;
use crate::request::policy::service::whole;

/// The placeholder authority for HTTP/1.1, where the host is a header: connections are pooled by it.
const SERVICE: &str = "service.invalid";

/// The call; `None` if the target or, over HTTP/2, the host is not valid in a URL.
pub(super) fn request(
    shown: &AuthRequest,
    (path, allowed): (&str, &[HeaderName]),
    http2: bool,
    body: Bytes,
) -> Option<Request<Full<Bytes>>> {
    let slash = if shown.target.starts_with('/') { "" } else { "/" };
    let path = path.trim_end_matches('/');
    let host = shown.headers.get(HOST);
    let authority = host.filter(|_| http2).map_or(Some(SERVICE), |host| host.to_str().ok())?;
    let mut request = Request::builder()
        .method(&*shown.method)
        .uri(format!("http://{authority}{path}{slash}{}", shown.target))
        .body(Full::new(body.clone()))
        .ok()?;
    let headers = request.headers_mut();
    headers.extend(host.filter(|_| !http2).map(|host| (HOST, host.clone())));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    let allowed = allowed.iter().filter(|name| **name != AUTHORIZATION && **name != HOST && **name != CONTENT_LENGTH);
    for name in std::iter::once(&AUTHORIZATION).chain(allowed) {
        headers.extend(shown.headers.get_all(name).iter().map(|value| (name.clone(), value.clone())));
    }
    Some(request)
}

/// Reads the answer.
///
/// # Errors
/// If it is invalid.
pub(super) async fn check_result(
    response: Response<Incoming>,
    allowed: &[HeaderName],
) -> Result<CheckResult, CallFailure> {
    let status = response.status();
    if status == StatusCode::OK {
        let granted = granted(response.headers(), allowed);
        // It is read so that the connection can be reused; an error does not matter, because the answer is known.
        drop(whole(response).await);
        return Ok(CheckResult::Allowed(granted));
    }
    if !(200..600).contains(&status.as_u16()) {
        return Err(CallFailure::Broken);
    }
    let (parts, body) = whole(response).await?;
    let nominated = nominated(&parts.headers);
    let given = parts.headers.iter().filter(|(name, _)| may_deny_with(name) && !nominated.contains(name));
    Ok(CheckResult::Denied(Arc::new(DirectResponse {
        status: status.as_u16(),
        headers: given.map(|(name, value)| (name.clone(), value.clone())).collect(),
        content_type: None,
        body: (*body.to_bytes()).into(),
    })))
}

/// The grants of an allowing answer: the headers that may be copied from it replace the client's, whether the answer
/// has them or not. Without a list all may be copied, except those that describe the answer itself.
fn granted(headers: &HeaderMap, allowed: &[HeaderName]) -> Grants {
    let nominated = nominated(headers);
    let copied = |name: &HeaderName| may_change(name) && !nominated.contains(name);
    let describes =
        |name: &HeaderName| name.as_str().starts_with("content-") || [DATE, SERVER, SET_COOKIE, VARY].contains(name);
    let (names, remove): (Vec<&HeaderName>, Box<[HeaderName]>) = if allowed.is_empty() {
        (headers.keys().filter(|name| copied(name) && !describes(name)).collect(), Box::default())
    } else {
        (
            allowed.iter().filter(|name| copied(name)).collect(),
            allowed.iter().filter(|name| may_change(name)).cloned().collect(),
        )
    };
    let (mut set, mut add) = (Vec::new(), Vec::new());
    for name in names {
        for (number, value) in headers.get_all(name).iter().enumerate() {
            let list = if number == 0 { &mut set } else { &mut add };
            list.push((name.clone(), value.clone()));
        }
    }
    Grants {
        identity: identity(|name| headers.get(name).map(HeaderValue::as_bytes)),
        request: HeaderEdits { remove, set: set.into(), add: add.into() },
        response: HeaderEdits::default(),
    }
}
