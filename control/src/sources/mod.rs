//! Sources: the claims of objects, in terms of the compiler. Each source has a file and turns an object into an
//! [`Attachment`] with a pure function that records all other objects that it reads.
//!
//! The compiler does not know the sources: it takes the claims of attachments.

mod all;
mod default_certificate;
mod deis;
mod gateway;
mod ingress;
mod reader;
mod spec;

use std::collections::BTreeSet;

pub use all::attach_all;
pub(crate) use gateway::parent_of;
use reader::Reader;
use spec::attached_if_missing;
pub(crate) use spec::{class_kind, read_anywhere, reads_by_name, reads_kind, required_kinds, service_label};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::ServiceKind;

use crate::attachment::{Attachment, Key};
use crate::options::Options;
use crate::topology::Topology;
use crate::world::World;

/// The layers in which objects are attached: an attachment reads only those of earlier layers. In the order of kinds,
/// objects of an earlier layer come before those of a later one that read them.
const LAYERS: [fn(Kind) -> bool; 3] = [
    |kind| kind == Kind::Gateway,
    |kind| !matches!(kind, Kind::Gateway | Kind::BackendTlsPolicy),
    |kind| kind == Kind::BackendTlsPolicy,
];

/// Attaches an object with the current World, if `topology` has the attachments of the earlier layers. Pure: equal
/// arguments give equal attachments.
///
/// An object that does not exist or cannot be read makes no claims, unless settings of it have defaults.
#[must_use]
pub fn attach(world: &World, options: &Options, topology: &Topology, object: &ObjectRef) -> Attachment {
    let mut reader = Reader::new(world, options, topology);
    let mut attachment = match object.kind {
        Kind::Ingress => ingress::attach(&mut reader, object),
        Kind::Service => service(&mut reader, object),
        Kind::EndpointSlice => {
            if let Some(service) = world.slices.get(&object.name).and_then(|slice| slice.service.as_ref()) {
                reader.note(Key::EndpointsOf(service.clone()));
            }
            Attachment::reporting(object, world)
        }
        Kind::Deployment if options.sources.deis.as_ref().is_some_and(|deis| deis.router == object.name) => {
            deis::attach_router(&mut reader, object)
        }
        Kind::Secret if options.default_certificate.as_ref() == Some(&object.name) => {
            default_certificate::attach(&mut reader, object)
        }
        Kind::GatewayClass => gateway::attach_class(&mut reader, object),
        Kind::Gateway => gateway::attach_gateway(&mut reader, object),
        Kind::ListenerSet => gateway::attach_listener_set(&mut reader, object),
        Kind::HttpRoute => gateway::attach_http(&mut reader, object),
        Kind::GrpcRoute => gateway::attach_grpc(&mut reader, object),
        Kind::TlsRoute => gateway::attach_tls(&mut reader, object),
        Kind::TcpRoute | Kind::UdpRoute => gateway::attach_layer4(&mut reader, object),
        Kind::IngressClass
        | Kind::Secret
        | Kind::Deployment
        | Kind::Namespace
        | Kind::ConfigMap
        | Kind::ReferenceGrant => Attachment::reporting(object, world),
        Kind::BackendTlsPolicy => gateway::attach_policy(&mut reader, object),
    };
    attachment.links = reader.into_links();
    attachment
}

/// The objects to attach again after this one has changed, in addition to its dependents: routes with some of its hostnames,
/// and routes to the Services of a policy.
pub(crate) fn disturbed(
    world: &World,
    topology: &Topology,
    object: &ObjectRef,
    [before, after]: [&Attachment; 2],
) -> BTreeSet<ObjectRef> {
    if object.kind == Kind::BackendTlsPolicy {
        return gateway::routes_of(topology, [before, after]);
    }
    gateway::disturbed(world, topology, object, (&before.listeners, &after.listeners))
}

/// A Service may have an external name, and may be an application of the Deis router.
fn service(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let world = reader.world();
    let Some(service) = world.services.get(&object.name) else { return Attachment::reporting(object, world) };
    if let ServiceKind::ExternalName(name) = &service.kind {
        reader.note(Key::of_name(name));
    }
    let Some(deis) = &reader.options.sources.deis else { return Attachment::reporting(object, world) };
    let mut attachment = match &service.deis {
        Some(app) => deis::attach(reader, object, app, &deis.router),
        None => Attachment::reporting(object, world),
    };
    if let Some((builder, address)) = &deis.builder
        && *builder == object.name
    {
        deis::attach_builder(reader, object, service, *address, &mut attachment);
    }
    attachment
}
