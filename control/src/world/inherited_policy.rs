//! Policies of Kuadrant, whatever their kind.

use std::sync::Arc;

use tidegate_config::object::{Age, Kind, ObjectRef};
use tidegate_config::project::kuadrant::{AuthPolicy, PolicyTargetRef, RateLimitPolicy};

use super::World;

/// A policy that can be read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InheritedPolicy<'w> {
    RateLimit(&'w Arc<RateLimitPolicy>),
    Auth(&'w Arc<AuthPolicy>),
}

impl World {
    /// A policy of Kuadrant; `None` if it does not exist, cannot be read, or is an object of another kind.
    pub(crate) fn inherited_policy(&self, key: &ObjectRef) -> Option<InheritedPolicy<'_>> {
        match key.kind == Kind::AuthPolicy {
            true => self.auth_policies.get(&key.name).map(InheritedPolicy::Auth),
            false if key.kind == Kind::RateLimitPolicy => {
                self.rate_limit_policies.get(&key.name).map(InheritedPolicy::RateLimit)
            }
            false => None,
        }
    }
}

impl<'w> InheritedPolicy<'w> {
    /// Its name and age.
    pub(crate) fn age(self) -> &'w Age {
        match self {
            Self::RateLimit(policy) => &policy.age,
            Self::Auth(policy) => &policy.age,
        }
    }

    /// Its target, if it can be used.
    pub(crate) fn target(self) -> Option<&'w PolicyTargetRef> {
        match self {
            Self::RateLimit(policy) => policy.target.as_ref().ok(),
            Self::Auth(policy) => policy.target.as_ref().ok(),
        }
    }

    /// The reason why it is not accepted, whatever objects there are.
    pub(crate) fn invalid(self) -> Option<&'w str> {
        match self {
            Self::RateLimit(policy) => policy.invalid(),
            Self::Auth(policy) => policy.invalid(),
        }
    }

    /// Whether it is being deleted: it takes no part any more.
    pub(crate) fn is_being_deleted(self) -> bool {
        match self {
            Self::RateLimit(policy) => policy.is_being_deleted,
            Self::Auth(policy) => policy.is_being_deleted,
        }
    }

    /// The reasons for entries of it that cannot be used.
    pub(crate) fn unusable(self) -> &'w [String] {
        match self {
            Self::RateLimit(policy) => &policy.left_out,
            Self::Auth(policy) => &policy.unusable,
        }
    }
}
