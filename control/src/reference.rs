//! The reference: the routing model that belongs to the current objects, made from scratch by one pure function. After
//! any series of changes the control loop has the same.

use std::collections::BTreeSet;

use tidegate_config::model::BackendKey;

use crate::compile::{Compiled, Inputs};
use crate::options::Options;
use crate::sources::attach_all;
use crate::world::World;

/// Attaches and compiles everything, including the endpoints of the held Service ports.
#[must_use]
pub fn compile(world: &World, options: &Options, frozen_backends: &BTreeSet<BackendKey>) -> Compiled {
    let topology = attach_all(world, options);
    Compiled::of(Inputs { world, options, topology: &topology, frozen_backends }).0
}
