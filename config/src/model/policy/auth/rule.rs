//! Rules, and the rules of a path.

use std::sync::Arc;

use http::HeaderName;
use serde::{Serialize, Serializer};

use super::{
    AccessReviewRule, AuthCache, AuthCondition, AuthRuleName, Authentication, Denial, HttpRule, Success, UserInfo,
};
use crate::object::ObjectRef;

/// The rules of a path that are in effect.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PathAuth {
    /// In the order in which they are tried: those of policies in shadow mode last, then by priority, then by name. The
    /// first that succeeds gives the identity; those in shadow mode are only tried if no other has a part.
    /// Without any, every client is anonymous.
    pub authentication: Box<[Arc<AuthRule<Authentication>>]>,
    /// In the order in which they are evaluated. None must succeed.
    pub metadata: Box<[Arc<AuthRule<Metadata>>]>,
    /// In the order in which they are evaluated. All must pass.
    pub authorization: Box<[Arc<AuthRule<Authorization>>]>,
    /// The rules for an allowed request, in the order of evaluation.
    pub success: Box<[Arc<AuthRule<Success>>]>,
    /// The answer to a request without a valid identity.
    pub unauthenticated: Option<Arc<AuthRule<Denial>>>,
    /// The answer to a request that an authorisation rule refuses.
    pub unauthorized: Option<Arc<AuthRule<Denial>>>,
    /// The requests that are made after the decision, whatever it is.
    pub callbacks: Box<[Arc<AuthRule<HttpRule>>]>,
    /// Rules that cannot be used. With any, every request is refused.
    pub unusable: Box<[Arc<AuthRule<UnusableRule>>]>,
}

impl PathAuth {
    /// The rules that may decide about a request.
    pub fn deciding(&self) -> impl Iterator<Item = AuthRuleName> {
        let authentication = self.authentication.iter().map(|rule| (&**rule).into());
        let authorization = self.authorization.iter().map(|rule| (&**rule).into());
        authentication.chain(authorization).chain(self.unusable.iter().map(|rule| (&**rule).into()))
    }

    /// The rules of all phases.
    pub fn ids(&self) -> impl Iterator<Item = RuleId<'_>> {
        let authentication = self.authentication.iter().map(|rule| rule.id());
        let metadata = self.metadata.iter().map(|rule| rule.id());
        let authorization = self.authorization.iter().map(|rule| rule.id());
        let success = self.success.iter().map(|rule| rule.id());
        let denials = self.unauthenticated.iter().chain(&self.unauthorized).map(|rule| rule.id());
        let callbacks = self.callbacks.iter().map(|rule| rule.id());
        let unusable = self.unusable.iter().map(|rule| rule.id());
        let decide = authentication.chain(metadata).chain(authorization);
        decide.chain(success).chain(denials).chain(callbacks).chain(unusable)
    }
}

/// One rule of a policy; `R` is its action.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AuthRule<R> {
    /// The policy that declares it.
    pub policy: ObjectRef,
    /// Its name in the policy, within its section.
    pub name: Arc<str>,
    /// Rules with a lower priority come first.
    pub priority: i64,
    /// The conditions of its policy: unless all are true, no rule of the policy has a part in the request.
    pub policy_when: Arc<[AuthCondition]>,
    /// Its own conditions: unless all are true, the rule is skipped.
    pub when: Box<[AuthCondition]>,
    /// Whether the policy refuses no request and only counts what it would refuse (`tidegate.io/enforcement: shadow`).
    pub shadow: bool,
    /// How its result is kept; `None` if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<AuthCache>,
    /// The action.
    pub rule: R,
}

/// A rule of any section: the unit in which policies are merged. The key of a merge is the section and the name, such
/// as `authentication#partners`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum AuthEntry {
    /// `rules.authentication`.
    Authentication(Arc<AuthRule<Authentication>>),
    /// `rules.metadata`.
    Metadata(Arc<AuthRule<Metadata>>),
    /// `rules.authorization`.
    Authorization(Arc<AuthRule<Authorization>>),
    /// `rules.response.success`.
    Success(Arc<AuthRule<Success>>),
    /// `rules.response.unauthenticated`.
    Unauthenticated(Arc<AuthRule<Denial>>),
    /// `rules.response.unauthorized`.
    Unauthorized(Arc<AuthRule<Denial>>),
    /// `rules.callbacks`.
    Callback(Arc<AuthRule<HttpRule>>),
    /// A rule of any section that cannot be used.
    Unusable(Arc<AuthRule<UnusableRule>>),
}

/// The part that is known of a rule that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct UnusableRule {
    /// The reason for its author.
    pub why: String,
    /// The header of the request to the endpoint that it would make: no client may make it instead.
    #[serde(serialize_with = "as_text", skip_serializing_if = "Option::is_none")]
    pub header: Option<HeaderName>,
}

#[allow(clippy::ref_option, reason = "the form that serde calls")]
fn as_text<S: Serializer>(name: &Option<HeaderName>, serializer: S) -> Result<S::Ok, S::Error> {
    name.as_ref().map(HeaderName::as_str).serialize(serializer)
}

/// The part that rules of all sections have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleId<'r> {
    /// The policy that declares it.
    pub policy: &'r ObjectRef,
    /// Its name in the policy, within its section.
    pub name: &'r Arc<str>,
    /// Whether its policy refuses no request.
    pub shadow: bool,
}

impl<R> AuthRule<R> {
    /// The part that rules of all sections have.
    #[must_use]
    pub const fn id(&self) -> RuleId<'_> {
        RuleId { policy: &self.policy, name: &self.name, shadow: self.shadow }
    }
}

impl AuthEntry {
    /// The part that rules of all sections have.
    #[must_use]
    pub fn id(&self) -> RuleId<'_> {
        match self {
            Self::Authentication(rule) => rule.id(),
            Self::Metadata(rule) => rule.id(),
            Self::Authorization(rule) => rule.id(),
            Self::Callback(rule) => rule.id(),
            Self::Success(rule) => rule.id(),
            Self::Unauthenticated(rule) | Self::Unauthorized(rule) => rule.id(),
            Self::Unusable(rule) => rule.id(),
        }
    }

    /// The rule of authentication, if it is one.
    #[must_use]
    pub const fn authentication(&self) -> Option<&Arc<AuthRule<Authentication>>> {
        match self {
            Self::Authentication(rule) => Some(rule),
            Self::Metadata(_)
            | Self::Authorization(_)
            | Self::Callback(_)
            | Self::Success(_)
            | Self::Unauthenticated(_)
            | Self::Unauthorized(_)
            | Self::Unusable(_) => None,
        }
    }

    /// The entry in its place if it cannot be used.
    #[must_use]
    pub fn unusable(&self, why: String) -> Self {
        let RuleId { policy, name, shadow } = self.id();
        let header = match self {
            Self::Success(rule) => rule.rule.header().cloned(),
            Self::Unusable(rule) => rule.rule.header.clone(),
            Self::Authentication(_)
            | Self::Metadata(_)
            | Self::Authorization(_)
            | Self::Callback(_)
            | Self::Unauthenticated(_)
            | Self::Unauthorized(_) => None,
        };
        Self::Unusable(Arc::new(AuthRule {
            policy: policy.clone(),
            name: Arc::clone(name),
            priority: 0,
            policy_when: Arc::default(),
            when: Box::default(),
            shadow,
            cache: None,
            rule: UnusableRule { why, header },
        }))
    }
}

/// A rule that allows a request, or refuses it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Authorization {
    /// `patternMatching`: all patterns must hold.
    Patterns(Box<[AuthCondition]>),
    /// `kubernetesSubjectAccessReview`: the API server must allow it.
    AccessReview(Box<AccessReviewRule>),
}

/// A rule that fetches more facts about a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Metadata {
    /// `http`.
    Http(HttpRule),
    /// `userInfo`.
    UserInfo(UserInfo),
}
