//! The step that charges: the limits of a path that apply to a request.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use tidegate_config::model::{Applies, Attributes, Exceeded, Head, Limit};

use crate::limit::{Counters, LimitCharge, LimitDecision, RateState, Values};
use crate::observe::limit_metrics::FailedExpression;

/// The number of limits of a path beyond which a decision allocates.
const LIMITS: usize = 16;

/// The counters, and what they have decided about one request.
#[derive(Debug)]
pub(crate) struct Limiter<'r> {
    counters: &'r Counters,
    /// The decision, once the request has come to the limits.
    pub(crate) decision: Option<LimitDecision<'r>>,
}

impl<'r> Limiter<'r> {
    /// For a request that has not come to the limits.
    pub(crate) const fn new(counters: &'r Counters) -> Self {
        Self { counters, decision: None }
    }

    /// Counts a request in all limits that apply to it, or in none if one of them refuses it, which is returned. A
    /// limit does not apply if a condition of it cannot be evaluated, unless because the request is too large.
    pub(super) fn charge<H: Head + ?Sized>(
        &mut self,
        limits: &'r [Arc<Limit>],
        attributes: &Attributes<'_, H>,
        now: Instant,
    ) -> Option<Exceeded<'r>> {
        let mut charges: SmallVec<[LimitCharge<'r>; LIMITS]> = SmallVec::new();
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
        let decision = if charges.is_empty() { LimitDecision::default() } else { self.counters.decide(&charges, now) };
        self.decision = Some(decision);
        decision.refused_by.map(|RateState { limit, rate, resets_in, .. }| Exceeded { limit, rate, resets_in })
    }
}

/// The values by which a limit counts a request.
fn values<H: Head + ?Sized>(counters: &Counters, limit: &Limit, attributes: &Attributes<'_, H>) -> Values {
    if limit.counters.is_empty() {
        return Values::Shared;
    }
    let mut values = counters.values();
    for expression in &limit.counters {
        match expression.value(attributes) {
            Ok(value) => values.add(&value),
            Err(_) => {
                counters.failed(limit, FailedExpression::Counter);
                return Values::Failed;
            }
        }
    }
    values.finish()
}
