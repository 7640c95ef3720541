//! The calls of rules of authentication and authorisation, for requests that wait for their answers. Calls of one wait
//! are made at the same time. Whatever the failure of a server, the rule decides as without its answer.

mod exchange;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tidegate_config::model::auth::{
    AuthCall, AuthRuleName, CALL_TIMEOUT, CallAnswer, CallFault, CallPlace, HttpCall, KeptAnswer, PlacedCall, ReplyForm,
};
use tidegate_config::model::{Backend, BackendKey};
use tidegate_config::object::ObjectName;
use tokio::time::timeout_at;

use self::exchange::{Asker, exchange};
use super::service::CallCharge;
use crate::clock;
use crate::connection::ConnectionFacts;
use crate::kept_answers::bytes_of;
use crate::observe::auth_metrics::CallOutcome;
use crate::observe::external_auth_metrics::CallFailure;
use crate::shared::Shared;

/// The limit of the time from the arrival of a request to the end of its last call, whatever the timeouts of its rules:
/// rules with different priorities are called one after the other.
const ALL_CALLS: Duration = Duration::from_secs(10);
/// The limit of the time for a call of a rule in shadow mode, which must not change what clients get.
const SHADOW_TIMEOUT: Duration = Duration::from_millis(200);
/// The limit of the memory of the answers of one request.
const ANSWERS_BYTES_MAX: usize = 2 << 20;
/// The maximum number of reviews in flight for the rules of one namespace.
const REVIEWS_MAX: u32 = 32;

/// The answers to the calls of a request so far.
#[derive(Clone, Default)]
pub(crate) struct Answers(Vec<PlacedAnswer>);

#[derive(Clone)]
struct PlacedAnswer {
    place: CallPlace,
    answer: CallAnswer,
}

impl Answers {
    /// The answer to the call of a rule.
    pub(super) fn get(&self, place: CallPlace) -> Option<CallAnswer> {
        self.0.iter().find(|placed| placed.place == place).map(|placed| placed.answer.clone())
    }

    /// About their memory.
    fn bytes(&self) -> usize {
        self.0.iter().filter_map(|placed| placed.answer.as_ref().ok()?.as_deref()).map(bytes_of).sum()
    }

    pub(super) fn put(&mut self, place: CallPlace, answer: CallAnswer) {
        self.0.push(PlacedAnswer { place, answer });
    }
}

/// Without the answers, which may be personal or secret.
impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answers", self.0.len())
    }
}

/// The calls that a request waits for.
#[derive(Debug)]
pub(crate) struct PendingCalls {
    /// The answers before them.
    answers: Answers,
    calls: Vec<PlacedCall>,
    /// The connection of the request.
    facts: Arc<ConnectionFacts>,
    /// The deadline of all of its calls.
    until: Instant,
}

impl PendingCalls {
    /// For a request that arrived at `began`, and has a deadline of its own.
    pub(crate) fn new(
        answers: Answers,
        calls: Vec<PlacedCall>,
        facts: Arc<ConnectionFacts>,
        began: Instant,
        until: Option<Instant>,
    ) -> Self {
        let all = began + ALL_CALLS;
        Self { answers, calls, facts, until: until.map_or(all, |until| until.min(all)) }
    }

    /// Makes the calls. Returns all answers of the request so far.
    pub(crate) async fn ask(&self, shared: &Shared) -> Answers {
        let asked = self.calls.iter().map(|placed| self.answer(placed, shared));
        let mut answers = self.answers.clone();
        for (placed, answer) in self.calls.iter().zip(join_all(asked).await) {
            let bytes = answer.iter().flatten().map(|value| bytes_of(value)).sum::<usize>() + answers.bytes();
            answers.put(placed.place, if bytes > ANSWERS_BYTES_MAX { Err(CallFault::NoRoom) } else { answer });
        }
        answers
    }

    /// Makes a call, counts its outcome, and keeps its answer if the rule says so.
    async fn answer(&self, placed: &PlacedCall, shared: &Shared) -> CallAnswer {
        let began = clock::now();
        let mut counted = CallCounter { shared, placed, outcome: CallOutcome::ClientGone, began };
        let answer = self.made(placed, shared).await;
        counted.outcome = CallOutcome::of(&answer);
        if let (Some(KeptAnswer { key, ttl }), Ok(Some(value))) = (&placed.kept, &answer) {
            shared.answers.keep(key, value, lifetime(&placed.call, value, *ttl));
        }
        answer
    }
}

/// Counts a call at its end, whatever the outcome.
struct CallCounter<'a> {
    shared: &'a Shared,
    placed: &'a PlacedCall,
    outcome: CallOutcome,
    began: Instant,
}

impl Drop for CallCounter<'_> {
    fn drop(&mut self) {
        let waited = clock::now().saturating_duration_since(self.began);
        self.shared.auth_metrics.called(&self.placed.rule, self.outcome, Some(waited));
    }
}

/// How long an answer may be used: facts about a token no longer than the token itself.
fn lifetime(call: &AuthCall, value: &serde_json::Value, ttl: Duration) -> Duration {
    let is_about_token = matches!(call, AuthCall::Http(call) if call.reply == ReplyForm::Introspection);
    let expires = value.get("exp").filter(|_| is_about_token).and_then(serde_json::Value::as_u64);
    let left = expires.map(|seconds| {
        let expires = std::time::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        expires.map_or(ttl, |expires| expires.duration_since(clock::wall()).unwrap_or_default())
    });
    left.map_or(ttl, |left| left.min(ttl))
}

impl PendingCalls {
    /// The answer to a call.
    async fn made(&self, placed: &PlacedCall, shared: &Shared) -> CallAnswer {
        let timeout = match &placed.call {
            AuthCall::Http(call) => call.timeout,
            AuthCall::TokenReview(_) | AuthCall::AccessReview(_) => CALL_TIMEOUT,
        };
        let timeout = if placed.shadow { timeout.min(SHADOW_TIMEOUT) } else { timeout };
        let until = self.until.min(clock::now() + timeout);
        match &placed.call {
            AuthCall::Http(call) => {
                let asker = Asker { facts: Some(&self.facts), local: self.facts.local.ip() };
                exchange(call, asker, until, shared).await
            }
            AuthCall::TokenReview(review) => review.read(&self.reviewed(placed, review.object(), until, shared).await?),
            AuthCall::AccessReview(review) => {
                review.read(&self.reviewed(placed, review.object(), until, shared).await?)
            }
        }
    }

    async fn reviewed(
        &self,
        placed: &PlacedCall,
        object: serde_json::Value,
        until: Instant,
        shared: &Shared,
    ) -> Result<serde_json::Value, CallFault> {
        let reviews = shared.options.reviews.as_ref().ok_or(CallFault::Unreachable)?;
        let _charge = CallCharge::new(0, &api_server(&placed.rule), &self.facts, shared).map_err(fault)?;
        let reviewed = timeout_at(until.into(), reviews.0.create(object)).await;
        reviewed.map_err(|_elapsed| CallFault::Timeout)?.map_err(|error| {
            tracing::debug!(%error, "the API server did not answer a review");
            if error.is_busy { CallFault::NoRoom } else { CallFault::Unreachable }
        })
    }
}

/// The API server as the rules of one namespace see it: of the reviews that may be in flight, each namespace has half.
fn api_server(rule: &AuthRuleName) -> Backend {
    let namespace = Arc::clone(&rule.policy.name.namespace);
    let key = BackendKey::tcp(ObjectName::new(namespace, "(reviews)"), 443);
    Backend { requests_max: Some(REVIEWS_MAX), ..Backend::new(key, Box::default()) }
}

const fn fault(failure: CallFailure) -> CallFault {
    match failure {
        CallFailure::NoEndpoint | CallFailure::ConnectFailed => CallFault::Unreachable,
        CallFailure::Overloaded | CallFailure::NoRoom => CallFault::NoRoom,
        CallFailure::Timeout => CallFault::Timeout,
        CallFailure::Broken | CallFailure::ClientGone => CallFault::InvalidAnswer,
    }
}

/// Makes requests whose answers do not matter, in tasks of their own, from what requests leave of the budget. Those
/// without room are not made.
pub(in crate::request) fn tell(callbacks: &[HttpCall], local: IpAddr, shared: &Arc<Shared>) {
    for call in callbacks {
        let (call, shared, until) = (call.clone(), Arc::clone(shared), clock::now() + call.timeout);
        tokio::spawn(async move {
            let told = exchange(&call, Asker { facts: None, local }, until, &shared).await;
            if let Err(fault) = told {
                tracing::debug!(server = %call.authority, fault = fault.as_str(), "a callback was not delivered");
            }
        });
    }
}
