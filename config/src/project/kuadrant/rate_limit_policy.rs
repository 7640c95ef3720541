//! RateLimitPolicy (`kuadrant.io/v1`): limits of requests.

use super::policy::{PolicyBlock, PolicyTargetRef};
use crate::model::Limit;
use crate::object::Age;
use crate::project::field::{FindingList, InvalidValue};
use crate::project::raw_object::RawObject;
use crate::project::{Projection, Sharing};

/// The parts of a RateLimitPolicy that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateLimitPolicy {
    /// Its name and age.
    pub age: Age,
    /// `spec.targetRef`, or the reason why it cannot be used.
    pub target: Result<PolicyTargetRef, String>,
    /// The limits, or the reason why the specification contradicts itself or cannot be read.
    pub limits: Result<PolicyBlock<Limit>, String>,
    /// The limits that are left out because an expression of theirs cannot be used, with the reasons.
    pub left_out: Box<[String]>,
}

impl Sharing for RateLimitPolicy {}

impl Projection for RateLimitPolicy {
    fn project(_: &RawObject<'_>, _: &mut FindingList) -> Result<Self, InvalidValue> {
        Err(InvalidValue { field: String::new(), value: String::new(), why: "is not read yet".to_owned() })
    }
}
