//! Sources: what objects ask of the edge, in terms that the compiler understands. One file a source; each turns an object into
//! an [`Attachment`] by a pure function, and whatever else it looks at on the way is noted as read.
//!
//! The compiler knows no source: it takes [`Claim`]s.

mod attachment;
mod ingress;
mod reader;

use std::sync::Arc;

pub(crate) use attachment::backends;
pub use attachment::{Attachment, Claim, Report, Verdict};
pub use ingress::{Membership, membership};
use reader::Reader;
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::ServiceKind;

use crate::options::Options;
use crate::topology::Key;
use crate::world::World;

/// What an object asks of the edge as World is now. Pure: equal arguments give equal attachments.
///
/// An object that is not there, or that cannot be read, asks for nothing.
#[must_use]
pub fn attach(world: &World, options: &Options, object: &ObjectRef) -> Attachment {
    let mut reader = Reader::new(world, options);
    let mut attachment = match object.kind {
        Kind::Ingress => ingress::attach(&mut reader, object),
        Kind::Service => {
            if let Some(ServiceKind::ExternalName(name)) = world.services.get(&object.name).map(|service| &service.kind)
            {
                reader.note(Key::Name(Arc::clone(name)));
            }
            Attachment::reporting(object, world)
        }
        Kind::EndpointSlice => {
            if let Some(service) = world.slices.get(&object.name).and_then(|slice| slice.service.as_ref()) {
                reader.note(Key::EndpointsOf(service.clone()));
            }
            Attachment::reporting(object, world)
        }
        Kind::IngressClass | Kind::Secret => Attachment::reporting(object, world),
    };
    attachment.links = reader.into_links();
    attachment
}
