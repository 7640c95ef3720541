//! The conditions of an object that policies attach to, or attach above, one for each kind of policy: they name the
//! policies, so that the owner of a route learns of those of its Gateway.

use std::borrow::Cow;

use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::gateway::{
    AUTHORISED_CONDITION, Condition, OwnStatus, RATE_LIMITED_CONDITION, WrittenRef,
};

use crate::attachment::{AttachedPolicy, PolicySection};
use crate::reconcile::model::Model;
use crate::sources::parent_of;

/// The status of a Gateway or a ListenerSet, with the policies of the Gateway and of each listener.
pub(super) fn of_listeners(model: &Model, object: &ObjectRef, mut status: OwnStatus) -> OwnStatus {
    let Some(gateway) = gateway_of(model, object).filter(|_| model.topology.has_any_policies()) else { return status };
    let generation = model.world.generation_of(object).unwrap_or_default();
    if object.kind == Kind::Gateway {
        add(&mut status.conditions, generation, &policies(model, &gateway, None));
    }
    for listener in &mut status.listeners {
        // A section names a listener of the Gateway itself.
        let section = (object.kind == Kind::Gateway).then_some(&*listener.name);
        add(&mut listener.conditions, generation, &policies(model, &gateway, section));
    }
    status
}

/// The status of a route, with the policies of the route itself, and of the Gateway and the listener of each parent.
pub(super) fn of_route(model: &Model, route: &ObjectRef, mut status: OwnStatus) -> OwnStatus {
    if !model.topology.has_any_policies() {
        return status;
    }
    let generation = model.world.generation_of(route).unwrap_or_default();
    let own = policies(model, route, None);
    for parent in &mut status.parents {
        let object = parent_object(route, &parent.parent);
        let gateway = object.as_ref().and_then(|object| gateway_of(model, object));
        let section = parent.parent.section_name.as_deref();
        let section = section.filter(|_| object.is_some_and(|object| object.kind == Kind::Gateway));
        let mut names = gateway.map(|gateway| policies(model, &gateway, section)).unwrap_or_default();
        names.extend(own.iter().cloned());
        names.sort_unstable();
        names.dedup();
        add(&mut parent.conditions, generation, &names);
    }
    status
}

/// The Gateway that an object is, or belongs to.
fn gateway_of(model: &Model, object: &ObjectRef) -> Option<ObjectRef> {
    match object.kind == Kind::ListenerSet {
        true => model.world.listener_sets.get(&object.name).and_then(|set| parent_of(set)),
        false => Some(object.clone()),
    }
}

fn parent_object(route: &ObjectRef, parent: &WrittenRef) -> Option<ObjectRef> {
    let namespace = parent.namespace.as_ref().unwrap_or(&route.name.namespace);
    let kind = Kind::of(&parent.group, &parent.kind)?;
    Some(ObjectRef::new(kind, ObjectName::new(namespace.clone(), parent.name.clone())))
}

/// The accepted policies of an object, and those of one of its listeners.
fn policies(model: &Model, target: &ObjectRef, listener: Option<&str>) -> Vec<ObjectRef> {
    let applies = |section: &Option<PolicySection>| match section {
        None => true,
        Some(PolicySection::Listener(name)) => Some(&**name) == listener,
        Some(PolicySection::Rule(_)) => false,
    };
    let claims = model.topology.policies_of(target).filter(|claim| applies(&claim.target.section));
    let accepted = claims.filter(|claim| claim.attached != AttachedPolicy::Unusable);
    let mut names: Vec<ObjectRef> = accepted.map(|claim| claim.policy.clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn add(conditions: &mut Vec<Condition>, generation: i64, policies: &[ObjectRef]) {
    let kinds = [(Kind::RateLimitPolicy, RATE_LIMITED_CONDITION), (Kind::AuthPolicy, AUTHORISED_CONDITION)];
    for (kind, condition) in kinds {
        let names: Vec<String> =
            policies.iter().filter(|policy| policy.kind == kind).map(|policy| policy.name.to_string()).collect();
        if names.is_empty() {
            continue;
        }
        conditions.push(Condition {
            kind: Cow::Borrowed(condition),
            status: "True".into(),
            reason: "Accepted".into(),
            message: format!("affected by {kind} [{}]", names.join(", ")).into(),
            observed_generation: generation,
        });
    }
    conditions.sort_unstable();
}
