//! Questions to authorisation services, for guards that wait. The steps make a [`Question`] of a request, as data; a driver waits for
//! its [`Verdict`] and goes on with it. Whatever keeps a service from answering, no request passes without its yes.

pub(crate) mod client;
mod grpc;
mod http;
mod messages;

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use ::http::header::HOST;
use ::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use tidegate_config::model::{AuthProtocol, Backend, Balance, DirectResponse, ExternalAuth, HeaderEdits};
use tokio::time::timeout_at;

use crate::budget::{Charge, Cost};
use crate::clock;
use crate::connection::ConnectionFacts;
use crate::http::edited::OF_CONNECTION;
use crate::http::names::CDN_LOOP;
use crate::observe::external_auth_metrics::{Failure, Outcome};
use crate::reason::Reason;
use crate::request::answer::Answer;
use crate::shared::Shared;
use crate::upstream::attempt::{Attempts, Here, Sign};
use crate::upstream::balance::Draw;

/// Endpoints of a service that are tried when none takes a connection.
const TRIES_MAX: usize = 3;

/// Bytes of an answer's body; a longer one is no answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Bytes of what is logged as the identity of a client.
const IDENTITY_BYTES_MAX: usize = 256;

/// The headers by which authorisation services say who the client is, as oauth2-proxy, Authelia and others have them.
const IDENTITY: [HeaderName; 3] = [
    HeaderName::from_static("x-auth-request-user"),
    HeaderName::from_static("remote-user"),
    HeaderName::from_static("x-forwarded-user"),
];

/// A request as an authorisation service is shown it: with the headers by which the edge tells endpoints of clients, and before its
/// route changes anything.
pub(crate) struct Shown {
    pub(crate) method: Box<str>,
    /// Path and query.
    pub(crate) target: Box<str>,
    pub(crate) scheme: &'static str,
    pub(crate) protocol: &'static str,
    /// The host among them; none that belongs to the connection.
    pub(crate) headers: HeaderMap,
    pub(crate) request_id: Box<str>,
    pub(crate) client: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) server_name: Option<Arc<str>>,
    pub(crate) time: SystemTime,
    /// The bytes that its body announces; `None` where it does not say.
    pub(crate) size: Option<u64>,
}

/// A question, and until when it is to be answered.
pub(crate) struct Question {
    /// Who is asked, and how.
    pub(crate) service: Arc<ExternalAuth>,
    /// The endpoints of the service.
    pub(crate) backend: Arc<Backend>,
    /// What about.
    pub(crate) shown: Shown,
    /// When no answer is worth waiting for any more.
    pub(crate) until: Option<Instant>,
    /// The connection of the request.
    pub(crate) facts: Arc<ConnectionFacts>,
    /// What it takes, for as long as it is there.
    pub(crate) _charge: Charged,
}

/// What a service grants beside the passage.
#[derive(Default)]
pub(crate) struct Grants {
    /// Who the client is, for the log.
    pub(crate) identity: Option<Box<str>>,
    /// What changes of the request.
    pub(crate) request: HeaderEdits,
    /// What changes of the response.
    pub(crate) response: HeaderEdits,
}

/// What a service says.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The request may pass.
    Allowed(Grants),
    /// It may not, and the client gets this answer.
    Denied(Arc<DirectResponse>),
    /// Nothing that could be understood, or not in time.
    Failed(Failure),
}

impl fmt::Debug for Grants {
    /// Without values, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grants").finish_non_exhaustive()
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").field("service", &self.service).finish_non_exhaustive()
    }
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Self {
        let reason = match failure {
            Failure::Timeout => Reason::ExternalAuthTimeout,
            Failure::ClientGone => Reason::ClientGone,
            Failure::NoEndpoint | Failure::NoRoom | Failure::ConnectFailed | Failure::Broken => {
                Reason::ExternalAuthFailed
            }
        };
        reason.into()
    }
}

/// What a question takes of the edge and of its client's share, until it is dropped.
#[derive(Debug)]
pub(crate) struct Charged {
    facts: Arc<ConnectionFacts>,
    cost: Cost,
    _edge: Charge,
}

impl Charged {
    /// Charges a question that holds so many bytes of a body; `None` where there is no room for it.
    pub(crate) fn new(body_bytes_max: u32, facts: &Arc<ConnectionFacts>, shared: &Shared) -> Option<Self> {
        let cost = Cost::EXTERNAL_AUTH.and(Cost::new(0, body_bytes_max.div_ceil(1024)));
        if facts.client.as_ref().is_some_and(|client| !client.charge(cost)) {
            return None;
        }
        let Some(edge) = shared.room(cost) else {
            facts.client.as_ref().inspect(|client| client.release(cost));
            return None;
        };
        Some(Self { facts: Arc::clone(facts), cost, _edge: edge })
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        self.facts.client.as_ref().inspect(|client| client.release(self.cost));
    }
}

/// Asks, and counts what became of it. Dropped before it is ready, it counts as a question whose client has gone.
pub(crate) async fn ask(question: &Question, body: Bytes, shared: &Shared) -> Verdict {
    let began = clock::now();
    let _in_flight = shared.external_auth.enter();
    let mut counted = Counted { shared, outcome: Outcome::Failed(Failure::ClientGone), began };
    let mut attempts = Attempts::default();
    let patience = began + shared.options.upstream.external_auth;
    let until = question.until.map_or(patience, |end| end.min(patience));
    let asked = timeout_at(until.into(), tries(question, body, shared, &mut attempts)).await;
    let verdict = asked.unwrap_or_else(|_| {
        // An endpoint that had less time than usual, because the request has a limit of its own, is not to blame.
        if until == patience {
            let now = clock::now();
            attempts.first_byte(Sign::Broken, now, shared.endpoints.moment(now));
        }
        Verdict::Failed(Failure::Timeout)
    });
    counted.outcome = match &verdict {
        Verdict::Allowed(_) => Outcome::Allowed,
        Verdict::Denied(_) => Outcome::Denied,
        Verdict::Failed(failure) => Outcome::Failed(*failure),
    };
    verdict
}

/// Counts a question when it is over, whichever way that is.
struct Counted<'a> {
    shared: &'a Shared,
    outcome: Outcome,
    began: Instant,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.shared.external_auth.count(self.outcome);
        self.shared.external_auth.waited(clock::now().saturating_duration_since(self.began));
    }
}

/// Asks one endpoint after the other until one takes the question.
async fn tries(question: &Question, body: Bytes, shared: &Shared, attempts: &mut Attempts) -> Verdict {
    let here = Here { listening: &shared.listening, local: Some(question.facts.local.ip()) };
    loop {
        let (now, draw) = (clock::now(), fastrand::u64(..));
        let chance = (now, &mut Draw::new(draw));
        let endpoint = attempts.next(&question.backend, Balance::PowerOfTwo, here, &shared.endpoints, chance);
        let Some(endpoint) = endpoint else { return Verdict::Failed(Failure::NoEndpoint) };
        let http2 = question.service.target.protocol.is_http2();
        let request = match &question.service.protocol {
            AuthProtocol::Http { path, request_headers, .. } => {
                http::request(&question.shown, (path, request_headers), http2, body.clone())
            }
            AuthProtocol::Grpc { request_headers } => grpc::request(question, request_headers, body.clone()),
        };
        let Some(request) = request else { return Verdict::Failed(Failure::Broken) };
        let client = client::of(&question.service, endpoint, request.uri(), &shared.options.upstream);
        attempts.connected(true, now);
        let mut answered = client.request(request.clone()).await;
        if answered.as_ref().is_err_and(client::was_closed) {
            answered = client.request(request).await;
        }
        let error = match answered {
            Ok(response) => {
                let now = clock::now();
                attempts.first_byte(Sign::Answer, now, shared.endpoints.moment(now));
                let verdict = match &question.service.protocol {
                    AuthProtocol::Http { response_headers, .. } => http::verdict(response, response_headers).await,
                    AuthProtocol::Grpc { .. } => grpc::verdict(response, &question.shown.headers).await,
                };
                return verdict.unwrap_or_else(Verdict::Failed);
            }
            Err(error) => error,
        };
        tracing::debug!(service = %question.service, address = %endpoint.address, %error, "an authorisation service did not answer");
        let now = clock::now();
        match client::refusal(&error) {
            Some(Reason::OutOfResources) => return Verdict::Failed(Failure::NoRoom),
            Some(_) => attempts.refused(now, Some(shared.endpoints.moment(now))),
            None => {
                attempts.first_byte(Sign::Broken, now, shared.endpoints.moment(now));
                return Verdict::Failed(Failure::Broken);
            }
        }
        if attempts.count() >= TRIES_MAX || !attempts.leaves(&question.backend, here) {
            return Verdict::Failed(Failure::ConnectFailed);
        }
    }
}

/// The body of an answer, which may have trailers.
async fn whole(
    response: ::http::Response<hyper::body::Incoming>,
) -> Result<(::http::response::Parts, http_body_util::Collected<Bytes>), Failure> {
    use http_body_util::{BodyExt, Limited};
    let (parts, body) = response.into_parts();
    let whole = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    whole.map(|body| (parts, body)).map_err(|error: Box<dyn Error + Send + Sync>| {
        tracing::debug!(%error, "the answer of an authorisation service broke off or is too long");
        Failure::Broken
    })
}

/// What is logged as the identity of a client, of the headers by which a service tells it.
fn identity<'v>(value_of: impl Fn(&HeaderName) -> Option<&'v [u8]>) -> Option<Box<str>> {
    let text = IDENTITY.iter().find_map(value_of).and_then(|value| std::str::from_utf8(value).ok())?;
    let sound = !text.is_empty() && text.len() <= IDENTITY_BYTES_MAX && !text.contains(char::is_control);
    sound.then(|| text.into())
}

/// Whether a service may change a header of the request. None may change how its body is framed, where it goes, and how often it came
/// this way.
fn may_change(name: &HeaderName) -> bool {
    !OF_CONNECTION.contains(name) && *name != HOST && *name != CDN_LOOP
}

/// The spellings in a head of the headers that a service decides upon which an endpoint may not be able to tell from them, for to many
/// servers underscores are hyphens.
pub(crate) fn misleading(edits: &HeaderEdits, each_name: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Vec<HeaderName> {
    let mut found = Vec::new();
    let named = edits.set.iter().chain(&edits.add).map(|(name, _)| name).chain(&edits.remove);
    let names: Vec<&HeaderName> = named.collect();
    each_name(&mut |sent| {
        let folded = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
        let meant = |name: &HeaderName| {
            let name = name.as_str().as_bytes();
            !name.eq_ignore_ascii_case(sent)
                && name.iter().map(|byte| folded(*byte)).eq(sent.iter().map(|byte| folded(*byte)))
        };
        if names.iter().any(|name| meant(name)) {
            found.extend(HeaderName::from_bytes(sent));
        }
    });
    found
}

/// A header with a value, where both are sound.
fn header(name: &str, value: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(value).ok()?))
}

#[cfg(test)]
mod tests;
