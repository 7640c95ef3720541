//! The attachments of all objects at once.

use std::collections::BTreeSet;

use tidegate_config::object::{Kind, Layer, ObjectRef};

use super::gateway::all_conflicting;
use super::{attach, attached_if_missing};
use crate::options::Options;
use crate::topology::Topology;
use crate::world::World;

/// Attaches every object of World, and those that are attached even if they do not exist.
#[must_use]
pub fn attach_all(world: &World, options: &Options) -> Topology {
    let mut topology = Topology::default();
    let missing: BTreeSet<ObjectRef> = attached_if_missing(options).filter(|object| !world.holds(object)).collect();
    for layer in Layer::ALL {
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.layer() == layer);
        let objects = kinds.flat_map(|kind| world.names_of(kind, None));
        let objects = objects.chain(missing.iter().filter(|object| object.kind.layer() == layer));
        let attached = objects.map(|object| (object.clone(), attach(world, options, &topology, object)));
        let attached: Vec<_> = attached.filter(|(_, attachment)| !attachment.is_empty()).collect();
        topology.add_all(attached);
        if layer == Layer::Routes {
            settle_conflicts(&mut topology, world, options);
        }
    }
    topology
}

/// Attaches the routes again that others may keep off a listener. Older routes are settled before the younger ones
/// that they keep off.
fn settle_conflicts(topology: &mut Topology, world: &World, options: &Options) {
    for object in all_conflicting(world, topology) {
        let attachment = attach(world, options, topology, &object);
        topology.replace(&object, attachment);
    }
    // Nothing is compiled yet.
    drop(topology.take_changed());
}
