//! A call over HTTP.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HOST, USER_AGENT};
use http::{HeaderValue, Request};
use http_body_util::Full;
use tidegate_config::model::Backend;
use tidegate_config::model::auth::{CallAnswer, CallFault, ClientCredentials, HttpCall, TokenFor};
use tokio::time::timeout_at;

use super::super::service::{CallCharge, Service, whole};
use super::fault;
use crate::clock;
use crate::connection::ConnectionFacts;
use crate::shared::Shared;
use crate::upstream::attempt::Attempts;

/// The time before the end of a token at which it is not used any more.
const TOKEN_MARGIN: Duration = Duration::from_secs(10);
/// How long a token without `expires_in` is used.
const TOKEN_TTL: Duration = Duration::from_secs(60);

/// Whose request needs a call.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    /// The connection that pays for it; `None` if no request waits for it.
    pub(super) facts: Option<&'a Arc<ConnectionFacts>>,
    /// The local address of the connection.
    pub(super) local: IpAddr,
}

impl Asker<'_> {
    fn charge(&self, backend: &Backend, shared: &Shared) -> Result<CallCharge, CallFault> {
        match self.facts {
            Some(facts) => CallCharge::new(0, backend, facts, shared).map_err(fault),
            None => CallCharge::spare(backend, shared).ok_or(CallFault::NoRoom),
        }
    }
}

/// Makes a call until this moment, after getting the token that it needs.
pub(super) async fn exchange(call: &HttpCall, asker: Asker<'_>, until: Instant, shared: &Shared) -> CallAnswer {
    let Some(TokenFor { client, place }) = &call.token else { return sent(call, asker, until, shared).await };
    let mut call = call.clone();
    let token = token(client, asker, until, shared).await?;
    call.put_credential(place, &token)?;
    sent(&call, asker, until, shared).await
}

/// A token for the edge itself.
async fn token(
    client: &Arc<ClientCredentials>,
    asker: Asker<'_>,
    until: Instant,
    shared: &Shared,
) -> Result<Arc<str>, CallFault> {
    if let Some(token) = shared.answers.token(client).filter(|_| client.reused) {
        return Ok(token);
    }
    let until = until.min(clock::now() + client.timeout);
    let answer = sent(&client.call()?, asker, until, shared).await?.ok_or(CallFault::InvalidAnswer)?;
    let token = answer.get("access_token").and_then(serde_json::Value::as_str).ok_or(CallFault::InvalidAnswer)?;
    let token: Arc<str> = token.into();
    if client.reused {
        let stated = answer.get("expires_in").and_then(serde_json::Value::as_u64).map(Duration::from_secs);
        let ttl = stated.map_or(TOKEN_TTL, |ttl| ttl.saturating_sub(TOKEN_MARGIN));
        shared.answers.keep_token(client, &token, ttl);
    }
    Ok(token)
}

async fn sent(call: &HttpCall, asker: Asker<'_>, until: Instant, shared: &Shared) -> CallAnswer {
    let backend = call.target.fixed.as_deref().ok_or(CallFault::Unreachable)?;
    let _charge = asker.charge(backend, shared)?;
    let answered = timeout_at(until.into(), answered(call, backend, asker, shared)).await;
    answered.unwrap_or(Err(CallFault::Timeout))
}

async fn answered(call: &HttpCall, backend: &Backend, asker: Asker<'_>, shared: &Shared) -> CallAnswer {
    let service = Service { target: &call.target, backend, local: asker.local };
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
