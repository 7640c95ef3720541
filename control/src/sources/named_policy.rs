//! The policies that an Ingress or an application of a Deis router names by annotation, for all of its routes: those of
//! every kind with the name.

use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::object::{Age, Kind, ObjectRef};

use super::kuadrant::attached;
use super::reader::Reader;
use crate::attachment::{AttachedPolicy, Attachment, Key, PolicyClaim, PolicyTarget};
use crate::world::InheritedPolicy;

const FIELD: &str = "metadata.annotations[tidegate.io/policy]";

/// The kinds of policies that a name is looked up in.
const KINDS: [Kind; 2] = [Kind::RateLimitPolicy, Kind::AuthPolicy];

impl<'w> Reader<'w> {
    /// Adds the policies of a name in the namespace of an object to its attachment. If there is none, or one of them
    /// cannot be used, the object refuses every request, and a finding says why: which requests it may get is unknown.
    pub(super) fn add_named_policies(&mut self, object: &ObjectRef, name: &Arc<str>, attachment: &mut Attachment) {
        let policies = KINDS.map(|kind| ObjectRef::new(kind, object.name.beside(Arc::clone(name))));
        let is_read = self.options.sources.kuadrant.is_some();
        let read = policies.map(|policy| (if is_read { self.usable(&policy) } else { Ok(None) }, policy));
        let target = PolicyTarget { object: object.clone(), section: None };
        let closed = |policy: &ObjectRef| {
            let age = Age { created_s: 0, name: policy.name.clone() };
            let (target, policy, attached) = (target.clone(), policy.clone(), AttachedPolicy::Unusable);
            PolicyClaim { target, policy, age, attached }
        };
        let mut claims = Vec::new();
        let mut faults = Vec::new();
        for (read, policy) in &read {
            match read {
                Ok(None) => {}
                Ok(Some(found)) => {
                    let (target, policy, age) = (target.clone(), policy.clone(), found.age().clone());
                    // The policy itself has the findings about its keys.
                    let (attached, _) = attached(self, *found);
                    claims.push(PolicyClaim { target, policy, age, attached });
                }
                Err(why) => {
                    claims.push(closed(policy));
                    faults.push(format!("names {policy}, {why}"));
                }
            }
        }
        if let Some((_, first)) = read.first().filter(|_| claims.is_empty()) {
            claims.push(closed(first));
            let [one, other] = KINDS;
            faults.push(match is_read {
                true => format!("names neither a {one} nor an {other} in {}", first.name.namespace),
                false => "names a policy, and policies are not read: --source does not list kuadrant".to_owned(),
            });
        }
        for why in faults {
            let problem = Problem::FailedClosed { value: name.to_string(), why };
            attachment.add_findings([Finding::new(object.clone(), FIELD, problem)]);
        }
        attachment.other_claims_mut().policies = claims.into();
    }

    /// A policy, if it exists, or the reason why it cannot be used.
    fn usable(&mut self, policy: &ObjectRef) -> Result<Option<InheritedPolicy<'w>>, String> {
        self.note(Key::Object(policy.clone()));
        let (world, namespace) = (self.world(), &policy.name.namespace);
        if !world.knows_in(policy.kind, namespace) {
            return Err(format!("and policies in {namespace} have not been listed yet"));
        }
        if !world.holds(policy) {
            return Ok(None);
        }
        let read = world.inherited_policy(policy).ok_or("which cannot be read")?;
        if read.is_being_deleted() {
            return Err("which is being deleted".to_owned());
        }
        read.invalid().map_or(Ok(Some(read)), |why| Err(format!("which is invalid: {why}")))
    }
}
