//! The claim of a policy on the paths through an object.

use std::sync::Arc;

use tidegate_config::model::RuleKey;
use tidegate_config::object::{Age, ObjectRef};
use tidegate_config::project::kuadrant::{AuthPolicy, RateLimitPolicy};

/// A policy that is in effect on the paths through an object, unless others override it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyClaim {
    /// The object and its section.
    pub target: PolicyTarget,
    /// The policy.
    pub policy: ObjectRef,
    /// Its age: of the policies of one target, the oldest is the least specific.
    pub age: Age,
    /// Its contents.
    pub attached: AttachedPolicy,
}

/// The object that a policy attaches to, or a section of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PolicyTarget {
    /// A Gateway, or an object with routes: a route of the Gateway API, an Ingress or a Service.
    pub object: ObjectRef,
    /// The section; `None` for the whole object.
    pub section: Option<PolicySection>,
}

/// A section of an object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PolicySection {
    /// A listener of a Gateway.
    Listener(Arc<str>),
    /// A rule of a route.
    Rule(RuleKey),
}

/// A policy of any kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttachedPolicy {
    /// Limits.
    RateLimit(Arc<RateLimitPolicy>),
    /// Authentication and authorisation, with the keys that they accept.
    Auth(Arc<AuthPolicy>),
    /// Nothing, because policies of its kind are not served.
    NotServed,
    /// Every request is refused: the object names a policy that does not exist or cannot be used, or an AuthPolicy with
    /// this target is invalid.
    Unusable,
}
