//! The annotations of a policy, and the annotation with which other objects name one.

use super::{Annotation, OnInvalid, TIDEGATE, read};
use crate::project::field::FindingList;
use crate::project::raw_object::Annotations;

/// The key of the annotation that names a policy, and the form of its value.
pub(super) const POLICY_NAME: &str = "policy";
pub(super) const NAME_OF_POLICY: &str = "name of a policy";

/// The effect of the annotation that names a policy.
pub(super) const POLICY_EFFECT: &str = "The [RateLimitPolicy and the AuthPolicy](policies.md#ingresses-and-deis-applications) of this name, in the same namespace, are for all routes. If neither exists, or one is invalid, every request is refused.";

/// The effects of a policy's annotations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::project) struct PolicyEffects {
    /// Whether it only counts, and refuses no request.
    pub(in crate::project) shadow: bool,
}

/// Every annotation of a policy.
pub(super) const POLICY: [Annotation<PolicyEffects>; 1] = [Annotation {
    key: "enforcement",
    form: "`shadow`",
    default: |_| "the policy is enforced".to_owned(),
    effect: "The limits and rules of the policy count and are logged as if they were enforced, but refuse no request.",
    otherwise: OnInvalid::Default,
    inert: None,
    read: |effects, text| {
        effects.shadow = text == "shadow";
        if effects.shadow { Ok(()) } else { Err("is not shadow".to_owned()) }
    },
}];

/// Reads the annotations of a policy.
pub(in crate::project) fn of_policy(annotations: &Annotations<'_>, findings: &mut FindingList) -> PolicyEffects {
    let mut effects = PolicyEffects::default();
    read(TIDEGATE, &POLICY, &mut effects, annotations, findings);
    effects
}
