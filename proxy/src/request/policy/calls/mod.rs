//! The calls of rules of authentication and authorisation, for requests that wait for their answers. Calls of one wait
//! are made at the same time. Whatever the failure of a server, the rule decides as without its answer.

mod exchange;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tidegate_config::model::auth::{
    AuthCall, CALL_TIMEOUT, CallAnswer, CallFault, CallPlace, HttpCall, KeptAnswer, PlacedCall, ReplyForm,
};
use tokio::time::timeout_at;

use self::exchange::exchange;
use super::service::CallCharge;
use crate::clock;
use crate::connection::ConnectionFacts;
use crate::observe::auth_metrics::CallOutcome;
use crate::observe::external_auth_metrics::CallFailure;
use crate::shared::Shared;

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
    /// The deadline of the request.
    until: Option<Instant>,
}

impl PendingCalls {
    pub(crate) const fn new(
        answers: Answers,
        calls: Vec<PlacedCall>,
        facts: Arc<ConnectionFacts>,
        until: Option<Instant>,
    ) -> Self {
        Self { answers, calls, facts, until }
    }

    /// Makes the calls. Returns all answers of the request so far.
    pub(crate) async fn ask(&self, shared: &Shared) -> Answers {
        let asked = self.calls.iter().map(|placed| self.answer(placed, shared));
        let mut answers = self.answers.clone();
        for (placed, answer) in self.calls.iter().zip(join_all(asked).await) {
            answers.put(placed.place, answer);
        }
        answers
    }

    /// Makes a call, counts its outcome, and keeps its answer if the rule says so.
    async fn answer(&self, placed: &PlacedCall, shared: &Shared) -> CallAnswer {
        let began = clock::now();
        let mut counted = CallCounter { shared, placed, outcome: CallOutcome::ClientGone, began };
        let answer = made(&placed.call, &self.facts, self.until, shared).await;
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
        self.shared.auth_metrics.called(&self.placed.rule, self.outcome, waited);
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

/// The answer to a call.
async fn made(call: &AuthCall, facts: &Arc<ConnectionFacts>, until: Option<Instant>, shared: &Shared) -> CallAnswer {
    let within = |timeout: Duration| {
        let end = clock::now() + timeout;
        until.map_or(end, |until| until.min(end))
    };
    match call {
        AuthCall::Http(call) => {
            let _charge = CallCharge::new(0, backend_of(call)?, facts, shared).map_err(fault)?;
            let asked = timeout_at(within(call.timeout).into(), exchange(call, facts, shared)).await;
            asked.unwrap_or(Err(CallFault::Timeout))
        }
        AuthCall::TokenReview(review) => {
            let asked = reviewed(review.object(), within(CALL_TIMEOUT), facts, shared).await?;
            review.read(&asked)
        }
        AuthCall::AccessReview(review) => {
            let asked = reviewed(review.object(), within(CALL_TIMEOUT), facts, shared).await?;
            review.read(&asked)
        }
    }
}

async fn reviewed(
    object: serde_json::Value,
    until: Instant,
    facts: &Arc<ConnectionFacts>,
    shared: &Shared,
) -> Result<serde_json::Value, CallFault> {
    let reviews = shared.options.reviews.as_ref().ok_or(CallFault::Unreachable)?;
    let _charge = CallCharge::new(0, None, facts, shared).map_err(fault)?;
    let reviewed = timeout_at(until.into(), reviews.0.create(object)).await.map_err(|_elapsed| CallFault::Timeout)?;
    reviewed.map_err(|error| {
        tracing::debug!(%error, "the API server did not answer a review");
        CallFault::Unreachable
    })
}

/// The endpoints of the server of a call.
fn backend_of(call: &HttpCall) -> Result<Option<&tidegate_config::model::Backend>, CallFault> {
    call.target.fixed.as_deref().map(Some).ok_or(CallFault::Unreachable)
}

const fn fault(failure: CallFailure) -> CallFault {
    match failure {
        CallFailure::NoEndpoint | CallFailure::ConnectFailed => CallFault::Unreachable,
        CallFailure::Overloaded | CallFailure::NoRoom => CallFault::NoRoom,
        CallFailure::Timeout => CallFault::Timeout,
        CallFailure::Broken | CallFailure::ClientGone => CallFault::InvalidAnswer,
    }
}

/// Makes requests whose answers do not matter, in tasks of their own. Those that the edge has no room for are not made.
pub(in crate::request) fn tell(callbacks: &[HttpCall], facts: &Arc<ConnectionFacts>, shared: &Arc<Shared>) {
    for call in callbacks {
        let backend = call.target.fixed.as_deref();
        let Ok(charge) = CallCharge::new(0, backend, facts, shared) else { continue };
        let (call, facts, shared) = (call.clone(), Arc::clone(facts), Arc::clone(shared));
        tokio::spawn(async move {
            let end = clock::now() + call.timeout;
            let told =
                timeout_at(end.into(), exchange(&call, &facts, &shared)).await.unwrap_or(Err(CallFault::Timeout));
            if let Err(fault) = told {
                tracing::debug!(server = %call.authority, fault = fault.as_str(), "a callback was not delivered");
            }
            drop(charge);
        });
    }
}
