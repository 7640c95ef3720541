//! Read access to World for sources. Every read object is recorded as a dependency, so that the object is attached
//! again when one changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use tidegate_config::finding::Problem;
use tidegate_config::model::{
    AppProtocol, BackendKey, Certificate, CertificateFault, HostPattern, Target, Transport, UpstreamTls,
};
use tidegate_config::object::{Age, Kind, ObjectName, ObjectRef};
use tidegate_config::project::gateway::{
    AllowedNamespaces, Gateway, GatewayClass, GroupKind, ListenerSet, ObjectReference, Unreadable,
};
use tidegate_config::project::{
    BackendRef, DeisApp, DeisDomain, DeisRouter, IngressClass, PortRef, Service, ServiceKind,
};

use super::gateway::{parent_of, winner};
use crate::addresses::{Allowed, KUBERNETES};
use crate::attachment::{Fault, GatewayListeners, Key, MergedListener};
use crate::options::Options;
use crate::topology::Topology;
use crate::world::World;

/// A view of World for one attachment.
pub(super) struct Reader<'w> {
    world: &'w World,
    pub(super) options: &'w Options,
    topology: &'w Topology,
    links: Vec<Key>,
}

impl<'w> Reader<'w> {
    pub(super) const fn new(world: &'w World, options: &'w Options, topology: &'w Topology) -> Self {
        Self { world, options, topology, links: Vec::new() }
    }

    /// Records a dependency.
    pub(super) fn note(&mut self, key: Key) {
        self.links.push(key);
    }

    /// The dependencies, in ascending order without duplicates.
    pub(super) fn into_links(mut self) -> Box<[Key]> {
        self.links.sort_unstable();
        self.links.dedup();
        self.links.into()
    }

    /// World, for the content of the object itself.
    pub(super) const fn world(&self) -> &'w World {
        self.world
    }

    pub(super) fn class(&mut self, name: &ObjectName) -> Option<&'w Arc<IngressClass>> {
        self.note(Key::Object(ObjectRef::new(Kind::IngressClass, name.clone())));
        self.world.classes.get(name)
    }

    /// Every IngressClass.
    pub(super) fn classes(&mut self) -> impl Iterator<Item = &'w Arc<IngressClass>> + use<'w> {
        self.note(Key::Any(Kind::IngressClass));
        self.world.classes.values()
    }

    pub(super) fn service(&mut self, name: &ObjectName) -> Option<&'w Arc<Service>> {
        self.note(Key::Object(ObjectRef::new(Kind::Service, name.clone())));
        self.world.services.get(name)
    }

    /// The reason why an address in the object is refused; `None` if it is allowed.
    pub(super) fn refusal(&mut self, address: IpAddr, port: u16) -> Option<&'static str> {
        self.note(Key::ApiServer);
        self.note(Key::Object(ObjectRef::new(Kind::EndpointSlice, KUBERNETES.clone())));
        Allowed::of(None, &self.options.addresses, self.world).refusal(address, port)
    }

    /// The settings of a Deis router's Deployment, if it exists.
    pub(super) fn deis_router(&mut self, name: &ObjectName) -> Option<&'w DeisRouter> {
        self.note(Key::Object(ObjectRef::new(Kind::Deployment, name.clone())));
        self.world.deployments.get(name).map(|deployment| &deployment.router)
    }

    /// The oldest application in a namespace that lists a domain.
    pub(super) fn deis_app(&mut self, namespace: &Arc<str>, domain: &DeisDomain) -> Option<&'w DeisApp> {
        self.note(Key::in_namespace(Kind::Service, namespace));
        let names = self.world.names_of(Kind::Service, Some(namespace));
        let apps = names.filter_map(|object| self.world.services.get(&object.name)?.deis.as_deref());
        apps.filter(|app| app.domains.binary_search(domain).is_ok()).min_by(|a, b| a.age.cmp(&b.age))
    }

    /// The certificate in a Secret, if the Secret exists.
    pub(super) fn secret(&mut self, name: &ObjectName) -> Option<&'w Result<Arc<Certificate>, CertificateFault>> {
        self.note(Key::Object(ObjectRef::new(Kind::Secret, name.clone())));
        self.world.secrets.get(name).map(|secret| &secret.certificate)
    }

    /// The certificate in a Secret, for a name that is one of an entry of the object or below it.
    pub(super) fn certificate(
        &mut self,
        secret: &ObjectName,
        asked: &HostPattern,
        name: &HostPattern,
    ) -> Result<&'w Arc<Certificate>, Problem> {
        let certificate = self.any_certificate(secret, asked)?;
        if certificate.covers(name) {
            return Ok(certificate);
        }
        Err(Problem::CertificateElsewhere { secret: secret.to_string(), host: name.to_string() })
    }

    /// The certificate in a Secret, whatever its names. `host` is the one that would lack it.
    pub(super) fn any_certificate(
        &mut self,
        secret: &ObjectName,
        host: impl fmt::Display,
    ) -> Result<&'w Arc<Certificate>, Problem> {
        match self.secret(secret) {
            Some(Ok(certificate)) => Ok(certificate),
            Some(Err(fault)) => Err(Problem::CertificateBroken { secret: secret.to_string(), why: fault.to_string() }),
            None => Err(Problem::CertificateMissing { secret: secret.to_string(), host: host.to_string() }),
        }
    }

    /// The target of requests for a Service port.
    pub(super) fn target(&mut self, backend: &BackendRef) -> Result<Target, Problem> {
        self.target_over(Transport::Tcp, backend)
    }

    /// The same, or the target of datagrams for a UDP port.
    pub(super) fn target_over(&mut self, transport: Transport, backend: &BackendRef) -> Result<Target, Problem> {
        let name = &backend.service;
        let Some(service) = self.service(name) else {
            return Err(Problem::ServiceMissing { service: name.to_string() });
        };
        let port = service.ports.iter().filter(|port| port.transport == transport).find(|port| match &backend.port {
            PortRef::Name(name) => port.name == *name,
            PortRef::Number(number) => port.number == *number,
        });
        let external = match &service.kind {
            ServiceKind::ExternalName(dns) => Some(dns),
            ServiceKind::Slices => None,
        };
        let (number, protocol) = match (port, &backend.port) {
            (Some(port), _) => (port.number, port.protocol),
            (None, PortRef::Number(number)) if external.is_some() && service.ports.is_empty() => {
                (*number, AppProtocol::default())
            }
            (None, PortRef::Number(number)) => {
                return Err(Problem::PortMissing { service: name.to_string(), port: number.to_string() });
            }
            (None, PortRef::Name(port)) => {
                return Err(Problem::PortMissing { service: name.to_string(), port: port.to_string() });
            }
        };
        let unverified = || UpstreamTls { server_name: external.cloned(), verification: None, client: None };
        let tls = protocol.is_tls().then(unverified);
        Ok(Target {
            backend: BackendKey { service: name.clone(), port: number, transport },
            protocol,
            tls,
            fixed: None,
        })
    }
}

/// The expected kind of a reference of the Gateway API, and the reasons of conditions for other references.
pub(super) struct Sought {
    pub(super) kind: Kind,
    /// The name of the field in messages.
    pub(super) written: &'static str,
    /// The reason for an unreadable reference.
    pub(super) invalid: &'static str,
    /// The reason for a reference to another kind.
    pub(super) wrong_kind: &'static str,
}

/// Reads for the Gateway API.
impl<'w> Reader<'w> {
    /// The generation of an object, for its conditions.
    pub(super) fn generation(&self, object: &ObjectRef) -> i64 {
        self.world.generation_of(object).unwrap_or_default()
    }

    /// The release in each CustomResourceDefinition; empty if none has been read.
    pub(super) fn releases(&mut self) -> &'w BTreeMap<Kind, Arc<str>> {
        self.note(Key::Definitions);
        &self.world.releases
    }

    /// A GatewayClass of ours.
    pub(super) fn gateway_class(&mut self, name: &ObjectName) -> Option<&'w Arc<GatewayClass>> {
        let options = self.options.sources.gateway.as_ref()?;
        self.note(Key::Object(ObjectRef::new(Kind::GatewayClass, name.clone())));
        self.world.gateway_classes.get(name).filter(|class| class.controller == options.controller)
    }

    /// Every Gateway of our classes.
    pub(super) fn gateways(&mut self) -> impl Iterator<Item = &'w Arc<Gateway>> {
        self.note(Key::Any(Kind::Gateway));
        let all = self.world.gateways.values();
        all.filter(|gateway| self.gateway_class(&gateway.class).is_some())
    }

    /// Whether an object exists, whether it is ours and can be read or not.
    pub(super) fn exists(&mut self, object: &ObjectRef) -> bool {
        self.note(Key::Object(object.clone()));
        self.world.holds(object)
    }

    /// Every ListenerSet.
    pub(super) fn listener_sets(&mut self) -> impl Iterator<Item = &'w Arc<ListenerSet>> + use<'w> {
        self.note(Key::Any(Kind::ListenerSet));
        self.world.listener_sets.values()
    }

    pub(super) fn listener_set(&mut self, name: &ObjectName) -> Option<&'w Arc<ListenerSet>> {
        self.note(Key::Object(ObjectRef::new(Kind::ListenerSet, name.clone())));
        self.world.listener_sets.get(name)
    }

    /// The offer of a Gateway; `None` if it does not exist or is not ours.
    pub(super) fn offer(&mut self, gateway: &ObjectRef) -> Option<Arc<GatewayListeners>> {
        self.note(Key::GatewayListeners(gateway.name.clone()));
        self.topology.offer(gateway).cloned()
    }

    /// The route of another kind that takes precedence over this one for `hosts` on a listener.
    pub(super) fn winner(
        &mut self,
        route: (&ObjectRef, &Age),
        listener: &MergedListener,
        hosts: &[HostPattern],
    ) -> Option<ObjectRef> {
        let winner = winner((self.world, self.topology), route, listener, hosts)?;
        self.note(Key::Contested(Arc::clone(&listener.listener)));
        Some(winner)
    }

    /// The Gateways with an attached route that refers to a Service and heeds BackendTLSPolicies.
    pub(super) fn gateways_naming(&mut self, service: &ObjectName) -> BTreeSet<ObjectRef> {
        self.note(Key::RoutesTo(service.clone()));
        let parents = self.topology.parents_naming(service).into_iter();
        let gateway = |parent: ObjectRef| match parent.kind == Kind::ListenerSet {
            true => self.listener_set(&parent.name).and_then(|set| parent_of(set)),
            false => Some(parent),
        };
        parents.filter_map(gateway).collect()
    }

    /// Whether objects of a namespace may attach to an object in another one.
    pub(super) fn allows(&mut self, allowed: &AllowedNamespaces, own: &str, namespace: &str) -> bool {
        match allowed {
            AllowedNamespaces::None => false,
            AllowedNamespaces::Same => own == namespace,
            AllowedNamespaces::All => true,
            AllowedNamespaces::Selected(selector) => {
                let name = ObjectName::new("", namespace);
                self.note(Key::Object(ObjectRef::new(Kind::Namespace, name.clone())));
                self.world.namespaces.get(&name).is_some_and(|namespace| selector.selects(&namespace.labels))
            }
        }
    }

    /// Whether an object may refer to another one: in the same namespace, or by a ReferenceGrant in the other one.
    pub(super) fn granted(&mut self, from: &ObjectRef, to: &ObjectReference) -> bool {
        let (own, other) = (&from.name.namespace, &to.name.namespace);
        if own == other {
            return true;
        }
        self.note(Key::in_namespace(Kind::ReferenceGrant, other));
        let mut grants = self.world.names_of(Kind::ReferenceGrant, Some(other));
        let kind = GroupKind::Known(from.kind);
        grants.any(|grant| self.world.grants.get(&grant.name).is_some_and(|grant| grant.permits(&kind, own, to)))
    }

    /// The referenced object, if it is of the expected kind and the reference is permitted.
    ///
    /// # Errors
    /// Returns the reason and the message for a condition. About another namespace it says nothing else than that the
    /// reference is not permitted.
    pub(super) fn permitted<'r>(
        &mut self,
        owner: &ObjectRef,
        reference: &'r Result<ObjectReference, Unreadable>,
        sought: &Sought,
    ) -> Result<&'r ObjectReference, Fault> {
        let Sought { kind, written, invalid, wrong_kind } = sought;
        let reference = reference.as_ref().map_err(|_| Fault::new(invalid, format!("{written} cannot be read")))?;
        if reference.kind != GroupKind::Known(*kind) {
            return Err(Fault::new(wrong_kind, format!("{reference} is not a {kind}")));
        }
        if !self.granted(owner, reference) {
            let message = format!("no ReferenceGrant permits {owner} to refer to {reference}");
            return Err(Fault::new("RefNotPermitted", message));
        }
        Ok(reference)
    }

    /// The certificate that a Gateway or a listener refers to. About another namespace the error says nothing else than
    /// that the reference is not permitted.
    pub(super) fn granted_certificate(
        &mut self,
        owner: &ObjectRef,
        reference: &Result<ObjectReference, Unreadable>,
        sought: &Sought,
    ) -> Result<&'w Arc<Certificate>, Fault> {
        let reference = self.permitted(owner, reference, sought)?;
        let invalid = |why: String| Fault::new(sought.invalid, why);
        match self.secret(&reference.name) {
            None => Err(invalid(format!("{reference} does not exist"))),
            Some(Err(fault)) => Err(invalid(format!("{reference} holds no usable certificate: {fault}"))),
            Some(Ok(certificate)) => Ok(certificate),
        }
    }
}
