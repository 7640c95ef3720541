//! The references of each kind: one entry a kind. Linking two kinds is a line here and nothing elsewhere.

use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::{ClassRef, EndpointSlice, Ingress, Object, Service, ServiceKind};

use super::Key;

/// What an object refers to, each key once and in ascending order.
#[must_use]
pub fn references(object: &Object) -> Vec<Key> {
    let mut keys = match object {
        Object::Ingress(ingress) => ingress_references(ingress),
        Object::EndpointSlice(slice) => slice_references(slice),
        Object::Service(service) => service_references(service),
        Object::IngressClass(_) | Object::Secret(_) => Vec::new(),
    };
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn ingress_references(ingress: &Ingress) -> Vec<Key> {
    let object = |kind, name: &ObjectName| Key::Object(ObjectRef::new(kind, name.clone()));
    let class = match &ingress.class {
        ClassRef::Field(class) => Some(object(Kind::IngressClass, class)),
        ClassRef::Annotation(_) => None,
        ClassRef::Default => Some(Key::Any(Kind::IngressClass)),
    };
    let mut keys = Vec::from_iter(class);
    keys.extend(ingress.backends().map(|backend| object(Kind::Service, &backend.service)));
    keys.extend(ingress.tls.iter().map(|it| object(Kind::Secret, &it.secret)));
    keys.extend(ingress.hosts().cloned().map(Key::Host));
    keys
}

fn slice_references(slice: &EndpointSlice) -> Vec<Key> {
    slice.service.iter().map(|name| Key::Object(ObjectRef::new(Kind::Service, name.clone()))).collect()
}

fn service_references(service: &Service) -> Vec<Key> {
    match &service.kind {
        ServiceKind::ExternalName(name) => vec![Key::Name(name.clone())],
        ServiceKind::Slices => Vec::new(),
    }
}
