//! Policies of Kuadrant, whatever their kind.

use std::sync::Arc;

use tidegate_config::object::{Age, Kind, ObjectRef};
use tidegate_config::project::kuadrant::{AuthPolicy, PolicyTargetRef, RateLimitPolicy, TokenRateLimitPolicy};

use super::World;

/// A policy that can be read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InheritedPolicy<'w> {
    RateLimit(&'w Arc<RateLimitPolicy>),
    TokenRateLimit(&'w TokenRateLimitPolicy),
    Auth(&'w Arc<AuthPolicy>),
}

impl World {
    /// A policy of Kuadrant; `None` if it does not exist, cannot be read, or is an object of another kind.
    pub(crate) fn inherited_policy(&self, key: &ObjectRef) -> Option<InheritedPolicy<'_>> {
        let name = &key.name;
        if key.kind == Kind::RateLimitPolicy {
            self.rate_limit_policies.get(name).map(InheritedPolicy::RateLimit)
        } else if key.kind == Kind::TokenRateLimitPolicy {
            self.token_rate_limit_policies.get(name).map(|policy| InheritedPolicy::TokenRateLimit(policy))
        } else {
            self.auth_policies.get(name).filter(|_| key.kind == Kind::AuthPolicy).map(InheritedPolicy::Auth)
        }
    }
}

impl<'w> InheritedPolicy<'w> {
    /// Its name and age.
    pub(crate) fn age(self) -> &'w Age {
        match self {
            Self::RateLimit(policy) => &policy.age,
            Self::TokenRateLimit(policy) => &policy.age,
            Self::Auth(policy) => &policy.age,
        }
    }

    /// Its target, if it can be used.
    pub(crate) fn target(self) -> Option<&'w PolicyTargetRef> {
        match self {
            Self::RateLimit(policy) => policy.target.as_ref().ok(),
            Self::TokenRateLimit(policy) => policy.target.as_ref().ok(),
            Self::Auth(policy) => policy.target.as_ref().ok(),
        }
    }

    /// The reason why it is not accepted, whatever objects there are.
    pub(crate) fn invalid(self) -> Option<&'w str> {
        match self {
            Self::RateLimit(policy) => policy.invalid(),
            Self::TokenRateLimit(policy) => policy.target.as_ref().err().map(String::as_str),
            Self::Auth(policy) => policy.invalid(),
        }
    }

    /// Whether it is being deleted: it takes no part any more.
    pub(crate) fn is_being_deleted(self) -> bool {
        match self {
            Self::RateLimit(policy) => policy.is_being_deleted,
            Self::TokenRateLimit(policy) => policy.is_being_deleted,
            Self::Auth(policy) => policy.is_being_deleted,
        }
    }

    /// The reasons for entries of it that cannot be used.
    pub(crate) fn unusable(self) -> &'w [String] {
        match self {
            Self::RateLimit(policy) => &policy.left_out,
            Self::TokenRateLimit(_) => &[],
            Self::Auth(policy) => &policy.unusable,
        }
    }
}
