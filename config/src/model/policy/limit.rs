//! Limits of requests: the step of the policies that charges.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::super::condition::Head;
use super::attributes::Attributes;
use super::cel::{EvaluationError, Predicate, ValueExpression};
use crate::object::ObjectRef;

/// One limit of a policy. The requests of all paths that inherit it are counted together.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Limit {
    /// The policy that declares it.
    pub policy: ObjectRef,
    /// Its name in the policy.
    pub name: Arc<str>,
    /// A request counts if all of these are true: those of the policy, then its own.
    pub when: Box<[Predicate]>,
    /// The expressions whose values have counters of their own: one counter for each tuple of values. Without any, all
    /// requests share one counter.
    pub counters: Box<[ValueExpression]>,
    /// The rates, all of which apply. No two have the same window.
    pub rates: Box<[Rate]>,
    /// Whether it only counts and never refuses a request (`tidegate.io/enforcement: shadow`).
    pub shadow: bool,
}

/// Whether a limit applies to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Applies {
    /// It does: all of its conditions are true.
    Yes,
    /// It does not: a condition is false.
    No,
    /// The request is too large for a condition, and no other one excludes it. The limit applies, so that no client
    /// switches it off by what it sends; the request is counted as if a counter expression had failed.
    ToTooLarge(EvaluationError),
    /// It does not: a condition cannot be evaluated, for example because it reads a header that the request does not
    /// have.
    Failed(EvaluationError),
}

impl Limit {
    /// Whether it applies to a request.
    pub fn applies<H: Head + ?Sized>(&self, attributes: &Attributes<'_, H>) -> Applies {
        let mut applies = Applies::Yes;
        for predicate in &self.when {
            match predicate.holds(attributes) {
                Ok(true) => {}
                Ok(false) => return Applies::No,
                Err(error) if error.is_for_size() => applies = Applies::ToTooLarge(error),
                Err(error) => return Applies::Failed(error),
            }
        }
        applies
    }

    /// Returns `true` if an expression of it refers to the identity of the client.
    #[must_use]
    pub fn reads_identity(&self) -> bool {
        let in_values = self.counters.iter().any(ValueExpression::reads_identity);
        in_values || self.when.iter().any(Predicate::reads_identity)
    }
}

/// A limit that refuses a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exceeded<'r> {
    /// The limit.
    pub limit: &'r Limit,
    /// The rate of it that the request would exceed.
    pub rate: Rate,
    /// The time until the window ends, and requests pass again.
    pub resets_in: Duration,
}

/// The number of requests in a fixed window, which begins with the first request after the end of the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Rate {
    /// The maximum number of requests in a window; 0 refuses all.
    pub max: u32,
    /// The length of the window: whole milliseconds, at least 1 ms.
    pub window: Duration,
}
