//! The state that the policies of a request use: the counters of limits, tokens that were accepted, and the answers to
//! calls.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use smallvec::SmallVec;
use tidegate_config::model::auth::{
    AuthFacts, AuthResult, AuthRuleName, CacheKey, CallAnswer, CallFault, CallPlace, HttpCall, Jwt, PathAuth,
    TokenFault, VerifiedToken,
};
use tidegate_config::model::{Applies, Attributes, Charged, Exceeded, Head, Limit, PolicyState};

use super::Answers;
use crate::clock;
use crate::kept_answers::KeptAnswers;
use crate::limit::{Counters, LeaseWait, LimitCharge, LimitDecision, RateState, Values};
use crate::observe::auth_metrics::{AuthEffect, AuthMetrics, CallOutcome};
use crate::observe::limit_metrics::FailedExpression;
use crate::shared::Shared;
use crate::verified_tokens::VerifiedTokens;

/// The number of limits of a path beyond which a decision allocates.
const LIMITS: usize = 16;

/// The state for one request, and what was decided about it.
#[derive(Debug)]
pub(crate) struct RequestState<'r> {
    counters: &'r Counters,
    auth_metrics: &'r AuthMetrics,
    tokens: &'r VerifiedTokens,
    kept: &'r KeptAnswers,
    /// What was found before the request waited for the store.
    resumed: Option<WaitingLimits>,
    /// The answers to calls that the request has waited for.
    pub(crate) answers: Answers,
    /// The end of its wait for the store, which is one for all of its limits.
    until: Option<Instant>,
    /// The decision of all limits that the request has come to; `None` before the first.
    pub(crate) decision: Option<LimitDecision<'r>>,
    /// If the request has to wait for the store, what it waits for.
    pub(super) waiting: Option<WaitingLimits>,
    /// The rule of authentication or authorisation that refuses the request.
    pub(crate) refused_by: Option<AuthRuleName>,
    /// The requests to make now, whose answers do not matter.
    pub(crate) callbacks: Box<[HttpCall]>,
}

/// What a request has waited for.
#[derive(Debug)]
pub(crate) enum Waited {
    /// The store of limits.
    Limits(WaitingLimits),
    /// The calls of rules, with the answers of earlier ones.
    Calls(Answers),
}

/// A request that waits for the store of limits.
#[derive(Debug)]
pub(crate) struct WaitingLimits {
    /// The places of the limits that apply to it among those of the step, and its values. No expression is evaluated
    /// twice.
    charges: Box<[PlacedCharge]>,
    /// What it waits for.
    pub(crate) wait: LeaseWait,
}

/// A [`LimitCharge`] apart from the snapshot.
#[derive(Clone, Copy, Debug)]
struct PlacedCharge {
    place: usize,
    values: Values,
}

impl<'r> RequestState<'r> {
    /// For a request that has waited for this, or not yet.
    pub(crate) fn new(shared: &'r Shared, waited: Option<Waited>) -> Self {
        let (resumed, answers) = match waited {
            None => (None, Answers::default()),
            Some(Waited::Limits(limits)) => (Some(limits), Answers::default()),
            Some(Waited::Calls(answers)) => (None, answers),
        };
        Self {
            counters: &shared.counters,
            auth_metrics: &shared.auth_metrics,
            tokens: &shared.tokens,
            kept: &shared.answers,
            resumed,
            answers,
            until: None,
            decision: None,
            waiting: None,
            refused_by: None,
            callbacks: Box::default(),
        }
    }

    /// The limits that apply to a request. A limit does not apply if a condition of it cannot be evaluated, unless
    /// because the request is too large.
    fn charges<H: Head + ?Sized>(
        &self,
        limits: &'r [Arc<Limit>],
        attributes: &Attributes<'_, H>,
    ) -> SmallVec<[LimitCharge<'r>; LIMITS]> {
        let mut charges: SmallVec<[LimitCharge<'r>; LIMITS]> = SmallVec::new();
        charges.reserve(limits.len());
        for limit in limits {
            match limit.applies(attributes) {
                Applies::Yes => charges.push(LimitCharge { limit, values: values(self.counters, limit, attributes) }),
                Applies::No => {}
                Applies::ToTooLarge(_) => {
                    self.counters.failed(limit, FailedExpression::When);
                    let values = if limit.counters.is_empty() { Values::Shared } else { Values::Failed };
                    charges.push(LimitCharge { limit, values });
                }
                Applies::Failed(_) => self.counters.failed(limit, FailedExpression::When),
            }
        }
        charges
    }
}

impl WaitingLimits {
    fn new(limits: &[Arc<Limit>], charges: &[LimitCharge<'_>], wait: LeaseWait) -> Self {
        let placed = |charge: &LimitCharge<'_>| {
            let place = limits.iter().position(|limit| std::ptr::eq(&**limit, charge.limit))?;
            Some(PlacedCharge { place, values: charge.values })
        };
        Self { charges: charges.iter().filter_map(placed).collect(), wait }
    }

    fn charges<'r>(&self, limits: &'r [Arc<Limit>]) -> SmallVec<[LimitCharge<'r>; LIMITS]> {
        let charge = |placed: &PlacedCharge| {
            let limit = limits.get(placed.place)?;
            Some(LimitCharge { limit, values: placed.values })
        };
        self.charges.iter().filter_map(charge).collect()
    }
}

impl<'r> PolicyState<'r> for RequestState<'r> {
    fn charge<H: Head + ?Sized>(&mut self, limits: &'r [Arc<Limit>], attributes: &Attributes<'_, H>) -> Charged<'r> {
        let resumed = self.resumed.take();
        self.until = resumed.as_ref().map(|waited| waited.wait.until()).or(self.until);
        let charges = match resumed {
            Some(waited) => waited.charges(limits),
            None => self.charges(limits, attributes),
        };
        let decided = match &*charges {
            [] => Ok(LimitDecision::default()),
            charges => self.counters.decide(charges, clock::now(), self.until),
        };
        let decision = match decided {
            Ok(decision) => decision,
            Err(wait) => {
                self.waiting = Some(WaitingLimits::new(limits, &charges, wait));
                return Charged::Waits;
            }
        };
        self.decision = Some(self.decision.unwrap_or_default().and(decision));
        match decision {
            LimitDecision { refused_by: Some(RateState { limit, rate, resets_in, .. }), .. } => {
                Charged::Exceeded(Exceeded { limit, rate, resets_in })
            }
            LimitDecision { is_uncounted: true, .. } => Charged::Uncounted,
            LimitDecision { .. } => Charged::Counted,
        }
    }

    fn authorise<H: Head + ?Sized>(&mut self, auth: &'r PathAuth, attributes: &Attributes<'_, H>) -> AuthResult {
        let mut decided = auth.decide(attributes, self);
        match &mut decided {
            AuthResult::Granted(grant) => {
                let shadow = grant.shadow.iter().map(|rule| (rule, AuthEffect::ShadowRefused));
                let effects = grant.by.iter().map(|rule| (rule, AuthEffect::Allowed)).chain(shadow);
                effects.for_each(|(rule, effect)| self.auth_metrics.count(rule, effect));
                self.callbacks = std::mem::take(&mut grant.callbacks);
            }
            AuthResult::Refused(denial) => {
                self.auth_metrics.count(&denial.by, denial.refusal.into());
                self.refused_by = Some(denial.by.clone());
                self.callbacks = std::mem::take(&mut denial.callbacks);
            }
            AuthResult::Waits(_) => {}
        }
        decided
    }
}

impl AuthFacts for RequestState<'_> {
    fn verify(&mut self, jwt: &Jwt, token: &str, now: SystemTime) -> Result<Arc<VerifiedToken>, TokenFault> {
        self.tokens.verify(jwt, token, now)
    }

    fn answer(&mut self, place: CallPlace, kept: Option<&CacheKey>) -> Option<CallAnswer> {
        if let Some(answer) = self.answers.get(place) {
            return Some(answer);
        }
        let answer = Ok(Some(self.kept.get(kept?)?));
        self.answers.put(place, answer.clone());
        Some(answer)
    }

    fn fail(&mut self, place: CallPlace, rule: AuthRuleName, fault: CallFault) {
        self.auth_metrics.called(&rule, CallOutcome::Failed(fault), None);
        self.answers.put(place, Err(fault));
    }
}

/// The values by which a limit counts a request.
fn values<H: Head + ?Sized>(counters: &Counters, limit: &Limit, attributes: &Attributes<'_, H>) -> Values {
    if limit.counters.is_empty() {
        return Values::Shared;
    }
    let mut values = counters.values();
    for expression in &limit.counters {
        if expression.with_value(attributes, |value| values.add(value)).is_err() {
            counters.failed(limit, FailedExpression::Counter);
            return Values::Failed;
        }
    }
    values.finish()
}
