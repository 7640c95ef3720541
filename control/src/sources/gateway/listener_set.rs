//! ListenerSet: additional listeners for a Gateway. The Gateway merges them; this file makes the status of the set.

use tidegate_config::object::ObjectRef;
use tidegate_config::project::gateway::OwnStatus;

use super::gateway_object::{not_accepted, parent_of};
use super::listener::status;
use crate::attachment::{Attachment, ConditionReason, Conditions, MergedListener, Report};
use crate::sources::reader::Reader;

pub(in crate::sources) fn attach(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let world = reader.world();
    let reporting = Attachment::reporting(object, world);
    let Some(parent) = world.listener_sets.get(&object.name).and_then(|set| parent_of(set)) else { return reporting };
    let Some(merged) = reader.gateway_listeners(&parent) else {
        return if reader.exists(&parent) { reporting } else { orphan(reader, object, &parent) };
    };
    let generation = reader.generation(object);
    let listeners: Vec<&MergedListener> = merged.of(object).collect();
    let not_allowed = merged.refused.iter().find(|(set, _)| set == object).map(|(_, fault)| fault.clone());
    let (sound, bad): (Vec<&MergedListener>, Vec<&MergedListener>) =
        listeners.iter().partition(|listener| listener.sound() && listener.unopened.is_none());
    let none = || ConditionReason::new("ListenersNotValid", format!("none of its listeners is accepted by {parent}"));
    let parent_refused = || ConditionReason::new("ParentNotAccepted", format!("{parent} is not accepted"));
    let refused = not_allowed.or_else(|| merged.not_accepted.then(parent_refused));
    let refused = refused.or_else(|| sound.is_empty().then(none));
    let mut conditions = Conditions::about(generation);
    let bad: Vec<&str> = bad.iter().map(|listener| &*listener.listener.section).collect();
    match not_accepted(&bad).filter(|_| refused.is_none()) {
        None => conditions.judge("Accepted", "Accepted", refused.as_ref()),
        Some(message) => conditions.put("Accepted", "True", "ListenersNotValid", message),
    }
    let programmed = refused.map(|fault| not_programmed(&listeners, fault)).or_else(|| {
        // If no valid listener serves, the reason is the Gateway.
        let idle = sound.iter().find_map(|listener| listener.idle.as_ref());
        let why = idle.filter(|_| !sound.iter().any(|listener| listener.serves()));
        why.map(|why| ConditionReason::new("ParentNotProgrammed", why.message.clone()))
    });
    conditions.judge("Programmed", "Programmed", programmed.as_ref());
    let listeners = listeners.into_iter().map(|listener| status(listener, generation)).collect();
    let status = OwnStatus { conditions: conditions.into_list(), listeners, ..OwnStatus::default() };
    Attachment { report: Report::of_status(world.findings_of(object), status), ..Attachment::default() }
}

/// The attachment of a set whose Gateway does not exist. The conditions from before its deletion are out of date.
fn orphan(reader: &Reader<'_>, object: &ObjectRef, parent: &ObjectRef) -> Attachment {
    let message = format!("{parent} does not exist");
    let mut conditions = Conditions::about(reader.generation(object));
    conditions.judge("Accepted", "Accepted", Some(&ConditionReason::new("ParentNotAccepted", message.clone())));
    conditions.judge("Programmed", "Programmed", Some(&ConditionReason::new("ParentNotProgrammed", message)));
    let status = OwnStatus { conditions: conditions.into_list(), ..OwnStatus::default() };
    Attachment { report: Report::of_orphan(reader.world().findings_of(object), status), ..Attachment::default() }
}

/// The fault of the condition `Programmed` for a set that is not accepted.
fn not_programmed(listeners: &[&MergedListener], fault: ConditionReason) -> ConditionReason {
    let unavailable =
        |listener: &&MergedListener| listener.reported().cloned().filter(|fault| fault.reason == "PortUnavailable");
    let ports: Option<Vec<ConditionReason>> = listeners.iter().map(unavailable).collect();
    match (fault.reason, ports.and_then(|ports| ports.into_iter().next())) {
        ("ParentNotAccepted", _) => ConditionReason::new("ParentNotProgrammed", fault.message),
        ("ListenersNotValid", Some(port)) => port,
        _ => fault,
    }
}
