//! The policies that an Ingress or an application of a Deis router names by annotation, for all of its routes.

use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::object::{Age, Kind, ObjectRef};
use tidegate_config::project::kuadrant::RateLimitPolicy;

use super::reader::Reader;
use crate::attachment::{AttachedPolicy, Attachment, Key, PolicyClaim, PolicyTarget};

const FIELD: &str = "metadata.annotations[tidegate.io/policy]";

impl<'w> Reader<'w> {
    /// Adds the policies of a name in the namespace of an object to its attachment. If there is none, or one of them
    /// cannot be used, the object refuses every request, and a finding says why: which requests it may get is unknown.
    pub(super) fn add_named_policies(&mut self, object: &ObjectRef, name: &Arc<str>, attachment: &mut Attachment) {
        let policy = ObjectRef::new(Kind::RateLimitPolicy, object.name.beside(Arc::clone(name)));
        let attached = self.usable(&policy).map(|limits| AttachedPolicy::RateLimit(Arc::clone(limits)));
        let attached = attached.unwrap_or_else(|why| {
            let problem = Problem::FailedClosed { value: name.to_string(), why: format!("names {policy}, {why}") };
            attachment.add_findings([Finding::new(object.clone(), FIELD, problem)]);
            AttachedPolicy::Unusable
        });
        let target = PolicyTarget { object: object.clone(), section: None };
        let age = match &attached {
            AttachedPolicy::RateLimit(limits) => limits.age.clone(),
            AttachedPolicy::Unusable => Age { created_s: 0, name: policy.name.clone() },
        };
        attachment.other_claims_mut().policies = [PolicyClaim { target, policy, age, attached }].into();
    }

    /// A policy, or the reason why it cannot be used.
    fn usable(&mut self, policy: &ObjectRef) -> Result<&'w Arc<RateLimitPolicy>, String> {
        self.note(Key::Object(policy.clone()));
        let (world, namespace) = (self.world(), &policy.name.namespace);
        if self.options.sources.kuadrant.is_none() {
            return Err("which is not read: --source does not list kuadrant".to_owned());
        }
        if !world.knows_in(policy.kind, namespace) {
            return Err(format!("and policies in {namespace} have not been listed yet"));
        }
        if !world.holds(policy) {
            return Err("which does not exist".to_owned());
        }
        let limits = world.rate_limit_policies.get(&policy.name).ok_or("which cannot be read")?;
        limits.invalid().map_or(Ok(limits), |why| Err(format!("which is invalid: {why}")))
    }
}
