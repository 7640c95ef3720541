//! A made-up cluster of a given shape and size, as projections. Keys of certificates are shared, because generating
//! 100,000 of them would take longer than all measurements.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use clap::ValueEnum;
use serde::Serialize;
use tidegate_config::model::{Certificate, HostPattern, PathMatch, WildcardDepth};
use tidegate_config::object::{Age, Kind, ObjectName, ObjectRef};
use tidegate_config::project::gateway::StatusReading;
use tidegate_config::project::{
    BackendRef, ClassRef, DefaultBackend, EndpointSlice, Ingress, IngressClass, Meta, Object, PortRef, Projected, Rule,
    RulePath, Rules, Secret, SecretTexts, Service, ServiceKind, ServicePort, SliceEndpoint, SlicePort, Tls, TlsSecret,
};
use tidegate_control::{Collection, Event};

/// The distribution of a cluster's routes over hosts. Every route is one Ingress with a Service and an EndpointSlice of
/// its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Shape {
    /// Each has its own host with its own certificate; every tenth host is a wildcard.
    Hosts,
    /// Like `Hosts`, but all of them lead to two Services, as they do to a login page or a front door.
    TwoServices,
    /// All are paths of one host.
    OneHost,
    /// All are paths of rules without a host.
    NoHost,
}

impl Shape {
    /// Its name in tables.
    #[must_use]
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::TwoServices => "hosts on two Services",
            Self::OneHost => "paths on one host",
            Self::NoHost => "paths without a host",
        }
    }

    /// Returns `true` if each route has a host of its own.
    #[must_use]
    pub(super) const fn many_hosts(self) -> bool {
        matches!(self, Self::Hosts | Self::TwoServices)
    }
}

/// The host of [`Shape::OneHost`].
pub(super) const ONE_HOST: &str = "one.example.com";
/// The number of objects in one namespace.
const NAMESPACE_SIZE: usize = 10;
const CLASS: &str = "tidegate";

/// A cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    /// The distribution of its routes over hosts.
    pub(super) shape: Shape,
    /// The number of its routes.
    pub(super) size: usize,
    /// Two certificates, for turning one into the other; `None` leaves TLS out.
    certificates: Option<[Certificate; 2]>,
}

impl Cluster {
    /// A cluster with a certificate for each host, where routes have hosts of their own.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub(super) fn new(shape: Shape, size: usize) -> anyhow::Result<Self> {
        let certificates = if shape.many_hosts() { Some([certificate()?, certificate()?]) } else { None };
        Ok(Self { shape, size, certificates })
    }

    /// A cluster without TLS.
    #[must_use]
    pub(super) const fn plain(shape: Shape, size: usize) -> Self {
        Self { shape, size, certificates: None }
    }

    /// Returns `true` if hosts have certificates.
    #[must_use]
    pub(super) const fn tls(&self) -> bool {
        self.certificates.is_some()
    }

    /// The completed lists at start-up.
    pub(super) fn lists(&self, now: Instant) -> impl Iterator<Item = Event> {
        Kind::ALL.into_iter().map(move |kind| Event::Listed {
            collection: Collection { kind, namespace: None },
            objects: self.objects(kind),
            complete: true,
            resource_version: "1".into(),
            received: now,
        })
    }

    fn objects(&self, kind: Kind) -> Vec<Projected> {
        let all = 0..self.size;
        match kind {
            Kind::IngressClass => {
                let name = ObjectName::new("", CLASS);
                let class = IngressClass { name, controller: "tidegate.io/ingress".into(), is_default: false };
                vec![projected(kind, class.name.clone(), Object::IngressClass(Arc::new(class)))]
            }
            Kind::Ingress => all.map(|i| self.ingress(i, i)).chain([self.catch_all()]).collect(),
            Kind::Service => all.map(|i| self.service(i)).collect(),
            Kind::EndpointSlice => all.map(|i| self.slice(i, 2)).collect(),
            Kind::Secret => all.filter_map(|i| self.secret(i, 0)).collect(),
            Kind::Deployment => Vec::new(),
            Kind::Namespace
            | Kind::ConfigMap
            | Kind::GatewayClass
            | Kind::Gateway
            | Kind::ReferenceGrant
            | Kind::HttpRoute
            | Kind::ListenerSet
            | Kind::GrpcRoute
            | Kind::TlsRoute
            | Kind::TcpRoute
            | Kind::UdpRoute
            | Kind::BackendTlsPolicy
            | Kind::RateLimitPolicy
            | Kind::TokenRateLimitPolicy
            | Kind::AuthPolicy => Vec::new(),
        }
    }

    /// The Ingress of a route, leading to the Service of a route of the same namespace.
    #[must_use]
    pub(super) fn ingress(&self, i: usize, to: usize) -> Projected {
        self.ingress_named(&app(i), i, to)
    }

    /// An Ingress beside those of [`Cluster::ingress`], with a host or path that no other has.
    #[must_use]
    pub(super) fn new_ingress(&self, i: usize) -> Projected {
        self.ingress_named(&format!("new-{i:06}"), i, i)
    }

    /// The name of [`Cluster::new_ingress`].
    #[must_use]
    pub(super) fn new_ingress_name(&self, i: usize) -> ObjectRef {
        ObjectRef::new(Kind::Ingress, ObjectName::new(self.namespace(i), format!("new-{i:06}")))
    }

    fn ingress_named(&self, name: &str, i: usize, to: usize) -> Projected {
        let (host, path) = match self.shape {
            Shape::Hosts | Shape::TwoServices => (self.host(name, i), PathMatch::Prefix("".into())),
            Shape::OneHost => (HostPattern::Exact(ONE_HOST.into()), PathMatch::Prefix(format!("/{name}").into())),
            Shape::NoHost => (HostPattern::Any, PathMatch::Prefix(format!("/{name}").into())),
        };
        let tls =
            self.certificates.as_ref().map(|_| TlsSecret { host: Some(host.clone()), entry: 0, secret: self.name(i) });
        let backend = BackendRef { service: self.name(self.led_to(to)), port: PortRef::Number(80) };
        let path = RulePath { field: "spec.rules[0].http.paths[0]".into(), path, backend: Some(backend) };
        let ingress = Ingress {
            age: self.age(i, name),
            class: ClassRef::Field(ObjectName::new("", CLASS)),
            default_backend: None,
            rules: [Rule { host, paths: [path].into() }].into_iter().collect(),
            tls: tls.into_iter().collect(),
            guards: Arc::default(),
            filters: Arc::default(),
            settings: Arc::default(),
            protocol: None,
            policy: None,
        };
        projected(Kind::Ingress, ingress.age.name.clone(), Object::Ingress(Arc::new(ingress)))
    }

    fn host(&self, name: &str, i: usize) -> HostPattern {
        let host = format!("{name}.example.com").into();
        if wildcard(i) { HostPattern::Wildcard(host, WildcardDepth::One) } else { HostPattern::Exact(host) }
    }

    /// The Secret of a host, in its first or its other version; `None` without TLS.
    #[must_use]
    pub(super) fn secret(&self, i: usize, version: usize) -> Option<Projected> {
        let mut certificate = self.certificates.as_ref()?.get(version)?.clone();
        certificate.secret = self.name(i);
        certificate.names = [self.host(&app(i), i), self.host(&format!("new-{i:06}"), i)].into();
        let secret = Secret {
            name: self.name(i),
            certificate: Ok(Arc::new(certificate)),
            api_key: None,
            texts: SecretTexts::default(),
        };
        Some(projected(Kind::Secret, secret.name.clone(), Object::Secret(Arc::new(secret))))
    }

    /// An EndpointSlice of the Service that a route leads to. Its addresses are the route's.
    #[must_use]
    pub(super) fn slice(&self, i: usize, endpoints: u8) -> Projected {
        let endpoint = |number: u8| {
            let [_, a, b, c] = u32::try_from(i).unwrap_or(0).to_be_bytes();
            let address = IpAddr::V4(Ipv4Addr::new(10 + number, a, b, c));
            SliceEndpoint { address, ready: true, serving: true, pod: Some(format!("pod-{i:06}-{number}").into()) }
        };
        let service = self.name(self.led_to(i));
        let name = service.beside(format!("{}-x7k2p", service.name));
        let ports = [SlicePort { name: "".into(), number: 8080, transport: Default::default() }].into();
        let endpoints = (0..endpoints).map(endpoint).collect();
        let slice = EndpointSlice { name, service: Some(service), ports, endpoints };
        projected(Kind::EndpointSlice, slice.name.clone(), Object::EndpointSlice(Arc::new(slice)))
    }

    fn service(&self, i: usize) -> Projected {
        let ports = [ServicePort {
            name: "".into(),
            number: 80,
            target: None,
            transport: Default::default(),
            protocol: Default::default(),
        }]
        .into();
        let service = Service {
            name: self.name(i),
            kind: ServiceKind::Slices,
            ports,
            requests_max: None,
            deis: None,
            deis_builder: None,
            proxy_header: None,
            udp_idle_timeout: None,
            gateway: None,
        };
        projected(Kind::Service, service.name.clone(), Object::Service(Arc::new(service)))
    }

    /// The Ingress for all requests that match no other.
    fn catch_all(&self) -> Projected {
        let backend = BackendRef { service: self.name(0), port: PortRef::Number(80) };
        let ingress = Ingress {
            age: self.age(0, "catch-all"),
            class: ClassRef::Field(ObjectName::new("", CLASS)),
            default_backend: Some(DefaultBackend { backend: Some(backend), alone: true }),
            rules: Rules::default(),
            tls: Tls::default(),
            guards: Arc::default(),
            filters: Arc::default(),
            settings: Arc::default(),
            protocol: None,
            policy: None,
        };
        projected(Kind::Ingress, ingress.age.name.clone(), Object::Ingress(Arc::new(ingress)))
    }

    /// The route whose Service a route leads to.
    const fn led_to(&self, i: usize) -> usize {
        if matches!(self.shape, Shape::TwoServices) { i % 2 } else { i }
    }

    fn namespace(&self, i: usize) -> String {
        format!("team-{:05}", if self.shape == Shape::TwoServices { 0 } else { i / NAMESPACE_SIZE })
    }

    fn name(&self, i: usize) -> ObjectName {
        ObjectName::new(self.namespace(i), app(i))
    }

    fn age(&self, i: usize, name: &str) -> Age {
        Age { created_s: 1_750_000_000 + i64::try_from(i).unwrap_or(0), name: ObjectName::new(self.namespace(i), name) }
    }
}

/// Returns `true` if the host of a route is a wildcard.
#[must_use]
pub(super) const fn wildcard(i: usize) -> bool {
    i % 10 == 9
}

/// The name of the objects of a route.
#[must_use]
pub(super) fn app(i: usize) -> String {
    format!("app-{i:06}")
}

fn projected(kind: Kind, name: ObjectName, object: Object) -> Projected {
    let key = ObjectRef::new(kind, name);
    let meta = Meta { object: key, uid: None, resource_version: "12345678".into(), generation: Some(1) };
    Projected {
        meta,
        object: Some(object),
        findings: Vec::new(),
        addresses: Vec::new(),
        status: StatusReading::default(),
    }
}

fn certificate() -> anyhow::Result<Certificate> {
    let made = rcgen::generate_simple_self_signed(vec!["app.example.com".to_owned()])?;
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    Certificate::from_pem(ObjectName::new("", ""), chain.as_bytes(), key.as_bytes())
        .map_err(|fault| anyhow::anyhow!("the certificate that was made here cannot be read: {fault}"))
}
