//! TokenRateLimitPolicy (`kuadrant.io/v1alpha1`): limits of the tokens that the answers of a language model report.
//! They are in bodies, which pass unread, so that the edge serves none. Of a policy only its target is read: the status
//! of the policy says that it has no effect, and so does `explain` where it would have one.

use super::block::SpecJson;
use super::policy::{PolicyTargetRef, fault, head, reason, target};
use crate::object::Age;
use crate::project::field::{FindingList, InvalidValue};
use crate::project::raw_object::RawObject;
use crate::project::{Projection, Sharing};

/// The parts of a TokenRateLimitPolicy that are read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenRateLimitPolicy {
    /// Its name and age.
    pub age: Age,
    /// `spec.targetRef`, or the reason why it cannot be used.
    pub target: Result<PolicyTargetRef, String>,
    /// Whether it is being deleted.
    pub is_being_deleted: bool,
}

impl TokenRateLimitPolicy {
    /// Why none has an effect.
    pub const NOT_SERVED: &str = "limits of tokens are not served by this edge";
}

impl Sharing for TokenRateLimitPolicy {}

impl Projection for TokenRateLimitPolicy {
    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let (age, _) = head(source, findings);
        let spec = SpecJson::read(source.spec);
        let target = spec.and_then(|spec| target(spec.target_ref, source.name())).map_err(|invalid| {
            findings.policy_not_enforced(&invalid);
            reason(&invalid)
        });
        findings.policy_not_enforced(&fault(
            "kind",
            "TokenRateLimitPolicy",
            "is for limits of tokens, which are not served",
        ));
        Ok(Self { age, target, is_being_deleted: source.is_being_deleted })
    }
}
