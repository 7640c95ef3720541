//! ListenerSet: listeners that somebody else adds to a Gateway. The Gateway merges them; here is what their owner is told.

use tidegate_config::object::ObjectRef;
use tidegate_config::project::gateway::OwnStatus;

use super::condition::{Conditions, Fault};
use super::gateway_object::parent_of;
use super::listener::status;
use super::offer::Offered;
use crate::sources::attachment::{Attachment, Report};
use crate::sources::reader::Reader;

pub(in crate::sources) fn attach(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let world = reader.world();
    let reporting = Attachment::reporting(object, world);
    let parent = world.listener_sets.get(&object.name).and_then(|set| parent_of(set));
    let Some((parent, offer)) = parent.and_then(|parent| Some((parent.clone(), reader.offer(&parent)?))) else {
        return reporting;
    };
    let generation = reader.generation(object);
    let listeners: Vec<&Offered> = offer.of(object).collect();
    let not_allowed = offer.refused.iter().find(|(set, _)| set == object).map(|(_, fault)| fault.clone());
    let accepted = listeners.iter().any(|listener| listener.sound());
    let none = || Fault::new("ListenersNotValid", format!("none of its listeners is accepted by {parent}"));
    let not_accepted = || Fault::new("ParentNotAccepted", format!("{parent} is not accepted"));
    let refused = not_allowed.or_else(|| offer.not_accepted.then(not_accepted));
    let refused = refused.or_else(|| (!accepted).then(none));
    let idle =
        listeners.iter().filter(|listener| listener.refused.is_none()).find_map(|listener| listener.idle.clone());
    let mut conditions = Conditions::about(generation);
    conditions.judge("Accepted", "Accepted", refused.as_ref());
    conditions.judge("Programmed", "Programmed", refused.as_ref().or(idle.as_ref()));
    let listeners = listeners.into_iter().map(|listener| status(listener, generation)).collect();
    let status = OwnStatus { conditions: conditions.into_list(), listeners, ..OwnStatus::default() };
    Attachment { report: Report::of_status(world.findings_of(object), status), ..Attachment::default() }
}
