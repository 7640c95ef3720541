//! Limits of requests: the step of the policies that charges.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::cel::{Predicate, ValueExpression};
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

/// The number of requests in a fixed window, which begins with the first request after the end of the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Rate {
    /// The maximum number of requests in a window; 0 refuses all.
    pub max: u32,
    /// The length of the window: whole milliseconds, at least 1 ms.
    pub window: Duration,
}
