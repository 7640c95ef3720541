//! Limits of requests: the step of the policies that charges.

use std::hash::{BuildHasher as _, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::Serialize;

use super::super::condition::Head;
use super::attributes::Attributes;
use super::cel::{EvaluationError, Predicate, ValueExpression};
use crate::object::ObjectRef;

/// One limit of a policy. The requests of all paths that inherit it are counted together.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Limit {
    /// The policy that declares it, and its name there.
    #[serde(flatten)]
    pub id: LimitId,
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

/// The identity of a limit: the policy that declares it, and its name there. Two ids are equal if both are.
///
/// Each request looks up the counters of its limits, so the hash is made once, with a random key of the process: nobody
/// can choose names that hash alike.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LimitId {
    #[serde(skip)]
    hash: u64,
    policy: ObjectRef,
    name: Arc<str>,
}

impl LimitId {
    /// The identity of the limit with this name in a policy.
    #[must_use]
    pub fn new(policy: ObjectRef, name: Arc<str>) -> Self {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self { hash: KEY.hash_one((&policy, &name)), policy, name }
    }

    /// The policy that declares the limit.
    #[must_use]
    pub const fn policy(&self) -> &ObjectRef {
        &self.policy
    }

    /// The name of the limit in the policy.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl Hash for LimitId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::object::{Kind, ObjectName};

    fn id(policy: &str, name: &str) -> LimitId {
        LimitId::new(ObjectRef::new(Kind::RateLimitPolicy, ObjectName::new("shop", policy)), name.into())
    }

    #[test]
    fn ids_with_equal_hashes_differ_by_policy_and_name() {
        let mut ids: Vec<LimitId> =
            ["api", "web"].iter().flat_map(|policy| [id(policy, "a"), id(policy, "b")]).collect();
        let hashes: HashSet<u64> = ids.iter().map(|id| id.hash).collect();
        assert_eq!(hashes.len(), 4);
        ids.iter_mut().for_each(|id| id.hash = 7);
        let distinct: HashSet<&LimitId> = ids.iter().collect();
        assert_eq!(distinct.len(), 4);
    }

    #[test]
    fn equal_ids_have_equal_hashes() {
        assert_eq!(id("api", "a"), id("api", "a"));
        assert_eq!(id("api", "a").hash, id("api", "a").hash);
    }
}
