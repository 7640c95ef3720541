//! A call over HTTP.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HOST, USER_AGENT};
use http::{HeaderValue, Request};
use http_body_util::Full;
use tidegate_config::model::auth::{CallAnswer, CallFault, ClientCredentials, HttpCall, TokenFor};

use super::super::service::{Service, whole};
use super::{backend_of, fault};
use crate::clock;
use crate::connection::ConnectionFacts;
use crate::shared::Shared;
use crate::upstream::attempt::Attempts;

/// The time before the end of a token at which it is not used any more.
const TOKEN_MARGIN: Duration = Duration::from_secs(10);
/// How long a token without `expires_in` is used.
const TOKEN_TTL: Duration = Duration::from_secs(60);

/// Makes a call, after getting the token that it needs.
pub(super) async fn exchange(call: &HttpCall, facts: &ConnectionFacts, shared: &Shared) -> CallAnswer {
    let Some(TokenFor { client, place }) = &call.token else { return sent(call, facts, shared).await };
    let mut call = call.clone();
    let token = token(client, facts, shared).await?;
    call.put_credential(place, &token)?;
    sent(&call, facts, shared).await
}

/// A token for the edge itself.
async fn token(
    client: &Arc<ClientCredentials>,
    facts: &ConnectionFacts,
    shared: &Shared,
) -> Result<Arc<str>, CallFault> {
    if let Some(token) = shared.answers.token(client).filter(|_| client.reused) {
        return Ok(token);
    }
    let answer = sent(&client.call()?, facts, shared).await?.ok_or(CallFault::InvalidAnswer)?;
    let token = answer.get("access_token").and_then(serde_json::Value::as_str).ok_or(CallFault::InvalidAnswer)?;
    let token: Arc<str> = token.into();
    if client.reused {
        let stated = answer.get("expires_in").and_then(serde_json::Value::as_u64).map(Duration::from_secs);
        let ttl = stated.map_or(TOKEN_TTL, |ttl| ttl.saturating_sub(TOKEN_MARGIN));
        shared.answers.keep_token(client, &token, ttl);
    }
    Ok(token)
}

async fn sent(call: &HttpCall, facts: &ConnectionFacts, shared: &Shared) -> CallAnswer {
    let backend = backend_of(call)?.ok_or(CallFault::Unreachable)?;
    let service = Service { target: &call.target, backend, facts };
    let mut attempts = Attempts::default();
    let response = service.send(|| request(call), shared, &mut attempts).await.map_err(fault)?;
    // A compressed document is not the one that was asked for, and could be as large as the edge has memory.
    let is_plain = |coding: &HeaderValue| coding == "identity";
    if !response.headers().get_all(CONTENT_ENCODING).iter().all(is_plain) {
        return Err(CallFault::InvalidAnswer);
    }
    let (head, body) = whole(response).await.map_err(fault)?;
    call.read(head.status.as_u16(), &head.headers, &body.to_bytes(), clock::wall())
}

/// The message; `None` if one of its parts is not valid.
fn request(call: &HttpCall) -> Option<Request<Full<Bytes>>> {
    let body = Bytes::copy_from_slice(&call.body);
    let mut request = Request::builder()
        .method(&call.method)
        .uri(format!("http://{}{}", call.authority, call.path))
        .header(HOST, &*call.authority)
        .header(ACCEPT_ENCODING, "identity")
        .header(USER_AGENT, "tidegate")
        .body(Full::new(body))
        .ok()?;
    request.headers_mut().extend(call.headers.clone());
    Some(request)
}
