//! The state of policies in the proxy: the counters of limits, which the step that charges uses.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use tidegate_config::model::auth::{AuthDenial, AuthGrant, AuthRuleName, PathAuth};
use tidegate_config::model::{Applies, Attributes, Charged, Exceeded, Head, Limit, PolicyState};

use crate::clock;
use crate::limit::{Counters, LeaseWait, LimitCharge, LimitDecision, RateState, Values};
use crate::observe::auth_metrics::{AuthEffect, AuthMetrics};
use crate::observe::limit_metrics::FailedExpression;
use crate::shared::Shared;
use crate::verified_tokens::VerifiedTokens;

/// The number of limits of a path beyond which a decision allocates.
const LIMITS: usize = 16;

/// The counters, and what they have decided about one request.
#[derive(Debug)]
pub(crate) struct Limiter<'r> {
    counters: &'r Counters,
    auth_metrics: &'r AuthMetrics,
    tokens: &'r VerifiedTokens,
    /// What was found before the request waited for the store.
    resumed: Option<WaitingLimits>,
    /// The end of its wait for the store, which is one for all of its limits.
    until: Option<Instant>,
    /// The decision of all limits that the request has come to; `None` before the first.
    pub(crate) decision: Option<LimitDecision<'r>>,
    /// If the request has to wait for the store, what it waits for.
    pub(super) waiting: Option<WaitingLimits>,
    /// The rule of authentication or authorisation that refuses the request.
    pub(crate) refused_by: Option<AuthRuleName>,
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

impl<'r> Limiter<'r> {
    /// For a request that has not come to the limits, or has waited there.
    pub(crate) const fn new(shared: &'r Shared, resumed: Option<WaitingLimits>) -> Self {
        let (counters, auth_metrics, tokens) = (&shared.counters, &shared.auth_metrics, &shared.tokens);
        Self { counters, auth_metrics, tokens, resumed, until: None, decision: None, waiting: None, refused_by: None }
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

impl<'r> PolicyState<'r> for Limiter<'r> {
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

    fn authorise<H: Head + ?Sized>(
        &mut self,
        auth: &'r PathAuth,
        attributes: &Attributes<'_, H>,
    ) -> Result<AuthGrant, AuthDenial> {
        let decided = auth.decide(attributes, |jwt, token, now| self.tokens.verify(jwt, token, now));
        match &decided {
            Ok(AuthGrant { by, shadow, .. }) => {
                let shadow = shadow.iter().map(|rule| (rule, AuthEffect::ShadowRefused));
                let effects = by.iter().map(|rule| (rule, AuthEffect::Allowed)).chain(shadow);
                effects.for_each(|(rule, effect)| self.auth_metrics.count(rule, effect));
            }
            Err(denial) => {
                self.auth_metrics.count(&denial.by, denial.refusal.into());
                self.refused_by = Some(denial.by.clone());
            }
        }
        decided
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
