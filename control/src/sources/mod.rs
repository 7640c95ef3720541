//! Sources: the claims of objects, in terms of the compiler. Each source has a file and turns an object into an
//! [`Attachment`] with a pure function that records all other objects that it reads.
//!
//! The compiler does not know the sources: it takes the claims of attachments.

mod all;
mod default_certificate;
mod deis;
mod gateway;
mod ingress;
mod kuadrant;
mod named_policy;
mod reader;
mod spec;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use all::attach_all;
pub(crate) use gateway::{not_attached, parent_of};
pub(crate) use ingress::not_ours;
use reader::Reader;
use spec::attached_if_missing;
pub(crate) use spec::{
    class_kind, read_anywhere, reads_by_name, reads_kind, required_kinds, service_label, watched_beside,
};
use tidegate_config::caught::{caught, for_owner};
use tidegate_config::finding::{Finding, Problem};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::ServiceKind;

use crate::attachment::{Attachment, Key};
use crate::options::Options;
use crate::topology::Topology;
use crate::world::World;

/// Attaches an object with the current World, if `topology` has the attachments of the earlier layers. Pure: equal
/// arguments give equal attachments.
///
/// An object that does not exist or cannot be read makes no claims, unless settings of it have defaults. If its source
/// panics, it keeps its attachment in `topology`, with a finding.
#[must_use]
pub fn attach(world: &World, options: &Options, topology: &Topology, object: &ObjectRef) -> Attachment {
    let mut reader = Reader::new(world, options, topology);
    let attached = caught(|| {
        #[cfg(test)]
        tests::trip(object);
        by_kind(&mut reader, object)
    });
    let links = reader.into_links();
    match attached {
        Ok(attachment) => Attachment { links, ..attachment },
        Err(panic) => keep_last(topology.get(object), links, object, &panic),
    }
}

/// The last attachment of an object whose source has panicked. It is attached again when something changes that it, or
/// the failed attempt, depends on.
fn keep_last(last: Option<&Attachment>, read: Box<[Key]>, object: &ObjectRef, panic: &str) -> Attachment {
    let last = last.cloned().unwrap_or_default();
    let links: BTreeSet<Key> = last.links.iter().cloned().chain(read).collect();
    let mut report = last.report.map(Arc::unwrap_or_clone).unwrap_or_default();
    // The finding about this panic replaces the one about an earlier panic.
    report.findings.retain(|finding| !matches!(finding.problem, Problem::ProcessingFailed { .. }));
    let why = for_owner(object.kind, panic);
    report.findings.push(Finding::new(object.clone(), "", Problem::ProcessingFailed { why }));
    Attachment { links: links.into_iter().collect(), report: report.unless_empty(), ..last }
}

fn by_kind(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let (world, options) = (reader.world(), reader.options);
    match object.kind {
        Kind::Ingress => ingress::attach(reader, object),
        Kind::Service => {
            if let Some(ServiceKind::ExternalName(name)) = world.services.get(&object.name).map(|service| &service.kind)
            {
                reader.note(Key::of_name(name));
            }
            deis::attach_service(reader, object)
        }
        Kind::EndpointSlice => {
            if let Some(service) = world.slices.get(&object.name).and_then(|slice| slice.service.as_ref()) {
                reader.note(Key::EndpointsOf(service.clone()));
            }
            Attachment::reporting(object, world)
        }
        Kind::Deployment if options.sources.deis.as_ref().is_some_and(|deis| deis.router == object.name) => {
            deis::attach_router(reader, object)
        }
        Kind::Secret if options.default_certificate.as_ref() == Some(&object.name) => {
            default_certificate::attach(reader, object)
        }
        Kind::GatewayClass => gateway::attach_class(reader, object),
        Kind::Gateway => gateway::attach_gateway(reader, object),
        Kind::ListenerSet => gateway::attach_listener_set(reader, object),
        Kind::HttpRoute => gateway::attach_http(reader, object),
        Kind::GrpcRoute => gateway::attach_grpc(reader, object),
        Kind::TlsRoute => gateway::attach_tls(reader, object),
        Kind::TcpRoute | Kind::UdpRoute => gateway::attach_layer4(reader, object),
        Kind::IngressClass
        | Kind::Secret
        | Kind::Deployment
        | Kind::Namespace
        | Kind::ConfigMap
        | Kind::ReferenceGrant => Attachment::reporting(object, world),
        Kind::BackendTlsPolicy => gateway::attach_policy(reader, object),
        Kind::RateLimitPolicy | Kind::TokenRateLimitPolicy | Kind::AuthPolicy => kuadrant::attach(reader, object),
    }
}

/// The objects to attach again after this one has changed, in addition to its dependents: routes with some of its
/// hostnames, and routes to the Services of a policy.
pub(crate) fn conflicting(
    world: &World,
    topology: &Topology,
    object: &ObjectRef,
    [before, after]: [&Attachment; 2],
) -> BTreeSet<ObjectRef> {
    if object.kind == Kind::BackendTlsPolicy {
        return gateway::routes_of(topology, [before, after]);
    }
    gateway::conflicting(world, topology, object, (&before.listeners, &after.listeners))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use serde_json::json;
    use tidegate_config::object::ObjectName;
    use tidegate_config::project::project;

    use super::*;

    thread_local! {
        /// The object whose source panics in this test.
        static TRIPS: RefCell<Option<ObjectRef>> = const { RefCell::new(None) };
    }

    /// Called before each object is attached.
    pub(super) fn trip(object: &ObjectRef) {
        let trips = TRIPS.with_borrow(|trips| trips.as_ref() == Some(object));
        assert!(!trips, "tripped");
    }

    fn ingress(host: &str, service: &str) -> World {
        let backend = json!({"service": {"name": service, "port": {"number": 80}}});
        let rule = json!({"host": host, "http": {"paths": [{"pathType": "Prefix", "path": "/", "backend": backend}]}});
        let object = json!({
            "metadata": {"namespace": "shop", "name": "a", "resourceVersion": "1"},
            "spec": {"ingressClassName": "tidegate", "rules": [rule]},
        });
        let class = json!({
            "metadata": {"name": "tidegate", "resourceVersion": "1"}, "spec": {"controller": "tidegate.io/ingress"},
        });
        let mut world = World::default();
        for (kind, object) in [(Kind::Ingress, object), (Kind::IngressClass, class)] {
            world.apply(project(kind, object.to_string().as_bytes()).unwrap());
        }
        world
    }

    #[test]
    fn an_object_whose_source_panics_keeps_its_attachment() {
        let options = Options::default();
        let object = ObjectRef::new(Kind::Ingress, ObjectName::new("shop", "a"));
        let (before, after) = (ingress("a.example", "one"), ingress("b.example", "two"));
        let mut topology = attach_all(&before, &options);
        let last = topology.get(&object).unwrap().clone();
        assert_eq!(last.claims.len(), 1);

        TRIPS.set(Some(object.clone()));
        let finding = Finding::new(object.clone(), "", Problem::ProcessingFailed { why: "tripped".to_owned() });
        for attempt in ["first", "second"] {
            let kept = attach(&after, &options, &topology, &object);
            assert_eq!((&kept.claims, &kept.links), (&last.claims, &last.links), "{attempt} attempt");
            let findings = &kept.report.as_ref().unwrap().findings;
            assert_eq!(
                findings.iter().filter(|found| **found == finding).count(),
                1,
                "{attempt} attempt: {findings:?}"
            );
            topology.replace(&object, kept);
        }
        // After a restart the object has no attachment to keep.
        let started = attach_all(&after, &options);
        let alone = started.get(&object).unwrap();
        assert_eq!((alone.claims.len(), &alone.report.as_ref().unwrap().findings), (0, &vec![finding.clone()]));

        TRIPS.set(None);
        let mended = attach(&after, &options, &topology, &object);
        assert_ne!(mended.claims, last.claims);
        assert!(!mended.report.unwrap().findings.contains(&finding));
    }
}
