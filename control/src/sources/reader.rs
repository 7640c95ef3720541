//! Read access to World for sources. A read object is recorded as a dependency, so that the object is attached again
//! when that one changes. What only one source reads is in an `impl Reader` of that source.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use tidegate_config::finding::Problem;
use tidegate_config::model::{
    AppProtocol, BackendKey, Certificate, CertificateFault, HostPattern, Target, Transport, UpstreamTls,
};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::{BackendRef, PortRef, Service, ServiceKind};

use crate::addresses::{Allowed, KUBERNETES};
use crate::attachment::{GatewayListeners, Key};
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

    /// World, for the content of the object itself, and for reads that are recorded with a key of their own.
    pub(super) const fn world(&self) -> &'w World {
        self.world
    }

    /// The attachments so far, likewise.
    pub(super) const fn topology(&self) -> &'w Topology {
        self.topology
    }

    /// The generation of an object, for its conditions.
    pub(super) fn generation(&self, object: &ObjectRef) -> i64 {
        self.world.generation_of(object).unwrap_or_default()
    }

    /// Whether an object exists, whether it is ours and can be read or not.
    pub(super) fn exists(&mut self, object: &ObjectRef) -> bool {
        self.note(Key::Object(object.clone()));
        self.world.holds(object)
    }

    /// The listeners of a Gateway; `None` if it does not exist or is not ours.
    pub(super) fn gateway_listeners(&mut self, gateway: &ObjectRef) -> Option<Arc<GatewayListeners>> {
        self.note(Key::GatewayListeners(gateway.name.clone()));
        self.topology.gateway_listeners(gateway).cloned()
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
        Err(Problem::CertificateNotForHost { secret: secret.to_string(), host: name.to_string() })
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
        self.target_over(Transport::Tcp, backend, None)
    }

    /// The same, or the target of datagrams for a UDP port. `protocol` replaces that of the Service port.
    pub(super) fn target_over(
        &mut self,
        transport: Transport,
        backend: &BackendRef,
        protocol: Option<AppProtocol>,
    ) -> Result<Target, Problem> {
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
        let (number, of_port) = match (port, &backend.port) {
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
        let protocol = protocol.unwrap_or(of_port);
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
