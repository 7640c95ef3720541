//! A Service: an application, the builder, or neither.

use tidegate_config::object::ObjectRef;

use super::attach;
use super::builder::attach_builder;
use crate::attachment::Attachment;
use crate::sources::reader::Reader;

pub(in crate::sources) fn attach_service(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let world = reader.world();
    let of_deis = world.services.get(&object.name).zip(reader.options.sources.deis.as_ref());
    let Some((service, deis)) = of_deis else { return Attachment::reporting(object, world) };
    let mut attachment = match &service.deis {
        Some(app) => attach(reader, object, app, &deis.router),
        None => Attachment::reporting(object, world),
    };
    if let Some((builder, address)) = &deis.builder
        && *builder == object.name
    {
        attach_builder(reader, object, service, *address, &mut attachment);
    }
    attachment
}
