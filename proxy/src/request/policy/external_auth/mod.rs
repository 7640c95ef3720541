//! Calls to authorisation services, for guards that wait. The steps make an [`AuthCheck`] from a request, as data; a
//! driver awaits its [`CheckResult`] and continues. Whatever the failure of a service, no request passes without its
//! permission.

mod grpc;
mod http;
mod messages;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use ::http::header::{DATE, HOST, PROXY_AUTHENTICATE, SERVER};
use ::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use tidegate_config::model::{AuthProtocol, Backend, CONNECTION_HEADERS, DirectResponse, ExternalAuth, HeaderEdits};
use tokio::time::timeout_at;

use super::service::{CallCharge, Service};
use crate::clock;
use crate::connection::ConnectionFacts;
use crate::http::names::CDN_LOOP;
use crate::observe::external_auth_metrics::{CallFailure, Outcome};
use crate::reason::Reason;
use crate::request::local_reply::LocalReply;
use crate::shared::Shared;
use crate::upstream::attempt::{AttemptOutcome, Attempts};

/// The maximum length of a client's identity in the log.
const IDENTITY_BYTES_MAX: usize = 256;

/// The headers with the client's identity, as oauth2-proxy, Authelia and others send them.
const IDENTITY: [HeaderName; 3] = [
    HeaderName::from_static("x-auth-request-user"),
    HeaderName::from_static("remote-user"),
    HeaderName::from_static("x-forwarded-user"),
];

/// A request in the form that an authorisation service gets: with the headers about the client that endpoints get, with
/// the grants of the services that have allowed it, and before the edits of its route.
pub(crate) struct AuthRequest {
    pub(crate) method: Box<str>,
    /// Path and query.
    pub(crate) target: Box<str>,
    pub(crate) scheme: &'static str,
    pub(crate) protocol: &'static str,
    /// With the host, and without hop-by-hop headers.
    pub(crate) headers: HeaderMap,
    pub(crate) request_id: Box<str>,
    pub(crate) client: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) server_name: Option<Arc<str>>,
    pub(crate) time: SystemTime,
    /// The announced length of its body; `None` if it has none.
    pub(crate) size: Option<u64>,
}

/// A call to an authorisation service, with its deadline.
pub(crate) struct AuthCheck {
    /// The service.
    pub(crate) service: Arc<ExternalAuth>,
    /// The endpoints of the service.
    pub(crate) backend: Arc<Backend>,
    /// The request.
    pub(crate) shown: AuthRequest,
    /// The deadline of the answer.
    pub(crate) until: Option<Instant>,
    /// The connection of the request.
    pub(crate) facts: Arc<ConnectionFacts>,
    /// The charge of the call, until it is dropped.
    pub(crate) _charge: CallCharge,
}

/// The grants of an allowing answer.
#[derive(Default)]
pub(crate) struct Grants {
    /// The client's identity, for the log.
    pub(crate) identity: Option<Box<str>>,
    /// The edits of the request.
    pub(crate) request: HeaderEdits,
    /// The edits of the response.
    pub(crate) response: HeaderEdits,
}

/// The answer of a service.
#[derive(Debug)]
pub(crate) enum CheckResult {
    /// The request is allowed.
    Allowed(Grants),
    /// The request is denied, and the client gets this response.
    Denied(Arc<DirectResponse>),
    /// There is no valid answer in time.
    Failed(CallFailure),
}

impl fmt::Debug for Grants {
    /// Without values, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grants").finish_non_exhaustive()
    }
}

impl fmt::Debug for AuthCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthCheck").field("service", &self.service).finish_non_exhaustive()
    }
}

impl From<CallFailure> for LocalReply {
    fn from(failure: CallFailure) -> Self {
        let reason = match failure {
            CallFailure::Timeout => Reason::ExternalAuthTimeout,
            CallFailure::ClientGone => Reason::ClientGone,
            CallFailure::NoEndpoint
            | CallFailure::Overloaded
            | CallFailure::NoRoom
            | CallFailure::ConnectFailed
            | CallFailure::Broken => Reason::ExternalAuthFailed,
        };
        reason.into()
    }
}

/// Calls the service, and counts the outcome. If it is dropped before the end, the client has disconnected.
pub(crate) async fn ask(auth_check: &AuthCheck, body: Bytes, shared: &Shared) -> CheckResult {
    let began = clock::now();
    let _in_flight = shared.external_auth.enter();
    let mut counted = CallCounter { shared, outcome: Outcome::Failed(CallFailure::ClientGone), began };
    let mut attempts = Attempts::default();
    let patience = began + shared.options.upstream.external_auth;
    let until = auth_check.until.map_or(patience, |end| end.min(patience));
    let asked = timeout_at(until.into(), answer(auth_check, body, shared, &mut attempts)).await;
    let result = asked.unwrap_or_else(|_| {
        // An endpoint that had less time than usual, because of the request's own deadline, is not penalised.
        if until == patience {
            let now = clock::now();
            attempts.first_byte(AttemptOutcome::Broken, now, shared.endpoints.moment(now));
        }
        CheckResult::Failed(CallFailure::Timeout)
    });
    counted.outcome = match &result {
        CheckResult::Allowed(_) => Outcome::Allowed,
        CheckResult::Denied(_) => Outcome::Denied,
        CheckResult::Failed(failure) => Outcome::Failed(*failure),
    };
    result
}

/// Counts a call at its end, whatever the outcome.
struct CallCounter<'a> {
    shared: &'a Shared,
    outcome: Outcome,
    began: Instant,
}

impl Drop for CallCounter<'_> {
    fn drop(&mut self) {
        self.shared.external_auth.count(self.outcome);
        self.shared.external_auth.waited(clock::now().saturating_duration_since(self.began));
    }
}

/// Asks endpoints one after the other until one takes the call.
async fn answer(auth_check: &AuthCheck, body: Bytes, shared: &Shared, attempts: &mut Attempts) -> CheckResult {
    let AuthCheck { service, backend, shown, facts, .. } = auth_check;
    let asked = Service { target: &service.target, backend, local: facts.local.ip() };
    let make = || match &service.protocol {
        AuthProtocol::Http { path, request_headers, .. } => {
            http::request(shown, (path, request_headers), service.target.protocol.is_http2(), body.clone())
        }
        AuthProtocol::Grpc { request_headers } => grpc::request(auth_check, request_headers, body.clone()),
    };
    let response = match asked.send(make, shared, attempts).await {
        Ok(response) => response,
        Err(failure) => return CheckResult::Failed(failure),
    };
    let result = match &service.protocol {
        AuthProtocol::Http { response_headers, .. } => http::check_result(response, response_headers).await,
        AuthProtocol::Grpc { .. } => grpc::check_result(response, &shown.headers).await,
    };
    result.unwrap_or_else(CheckResult::Failed)
}

/// The client's identity for the log, from the headers of a service's answer.
fn identity<'v>(value_of: impl Fn(&HeaderName) -> Option<&'v [u8]>) -> Option<Box<str>> {
    let text = IDENTITY.iter().find_map(value_of).and_then(|value| std::str::from_utf8(value).ok())?;
    let sound = !text.is_empty() && text.len() <= IDENTITY_BYTES_MAX && !text.contains(char::is_control);
    sound.then(|| text.into())
}

/// Returns `true` if a service may change a header of the request. The framing of the body, the host, and the count of
/// passes may not be changed.
fn may_change(name: &HeaderName) -> bool {
    !CONNECTION_HEADERS.contains(name) && *name != HOST && *name != CDN_LOOP
}

/// Returns `true` if a header of a denial is for the client. Those of the connection to the service are not, nor are
/// those in which the edge names itself; but a proxy may ask for credentials, and so may a service.
fn may_deny_with(name: &HeaderName) -> bool {
    let is_own = CONNECTION_HEADERS.contains(name) || *name == DATE || *name == SERVER;
    !is_own || *name == PROXY_AUTHENTICATE
}

/// A header with a value, if both are valid.
fn header(name: &str, value: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(value).ok()?))
}

#[cfg(test)]
mod tests;
