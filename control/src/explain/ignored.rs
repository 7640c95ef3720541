//! Objects that name the host of a question and have no routes, because they belong to another controller or to none.

use std::fmt;

use serde::Serialize;
use tidegate_config::model::HostPattern;
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::gateway::{Hostnames, ParentRef};

use super::refused::{LISTED_MAX, takes};
use crate::options::Options;
use crate::sources::{not_attached, not_ours};
use crate::topology::Topology;
use crate::world::World;

/// An object that names a host, and has no routes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Ignored {
    /// The object.
    pub object: ObjectRef,
    /// The reason, as a sentence.
    pub why: String,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  ignored  {}: {}", self.object, self.why)
    }
}

/// The Ingresses that name a host and routes for it that are not ours, in ascending order; of either at most
/// [`LISTED_MAX`]. Looks at all of them.
pub(crate) fn ignored(world: &World, options: &Options, topology: &Topology, host: &str) -> Vec<Ignored> {
    // Without a host, an Ingress of another controller is for all requests that reach that controller.
    let names = |pattern: &HostPattern| *pattern != HostPattern::Any && pattern.matches(host);
    let ingresses = world.ingresses.iter().filter(|(_, ingress)| ingress.hosts().any(names));
    let ingresses = ingresses.filter_map(|(name, ingress)| {
        let why = not_ours(world, options, topology, ingress)?;
        Some(Ignored { object: ObjectRef::new(Kind::Ingress, name.clone()), why })
    });
    let routes = routes(world).filter(|(_, hostnames, _)| takes(hostnames, host));
    let routes = routes
        .filter_map(|(object, _, parents)| Some(Ignored { why: not_attached(world, topology, parents)?, object }));
    ingresses.take(LISTED_MAX).chain(routes.take(LISTED_MAX)).collect()
}

/// The routes that can name hosts, with their hostnames and parents.
fn routes(world: &World) -> impl Iterator<Item = (ObjectRef, &Hostnames, &[ParentRef])> {
    let of = |kind, name: &ObjectName| ObjectRef::new(kind, name.clone());
    let http = world.http_routes.iter().map(move |(name, it)| (of(Kind::HttpRoute, name), &it.hostnames, &*it.parents));
    let grpc = world.grpc_routes.iter().map(move |(name, it)| (of(Kind::GrpcRoute, name), &it.hostnames, &*it.parents));
    let tls = world.tls_routes.iter().map(move |(name, it)| (of(Kind::TlsRoute, name), &it.hostnames, &*it.parents));
    http.chain(grpc).chain(tls)
}
