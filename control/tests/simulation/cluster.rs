//! The API server of the simulation: the current objects, and the events of their changes. It uses few names, so that
//! objects often conflict and refer to each other.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::auth::ApiKeyHash;
use tidegate_config::model::{Certificate, CertificateFault, EdgeSettings, Extent, HostPattern, PathMatch, RegexCase};
use tidegate_config::object::{Age, Kind, ObjectName, ObjectRef};
use tidegate_config::project::gateway::StatusReading;
use tidegate_config::project::{
    ApiKeySecret, BackendRef, ClassRef, DefaultBackend, DeisBuilder, DeisRouter, Deployment, EndpointSlice, Ingress,
    IngressClass, Meta, Object, PortRef, Projected, Rule, RulePath, Secret, SecretTexts, Service, ServiceKind,
    ServicePort, SliceEndpoint, SlicePort, TlsSecret,
};
use tidegate_control::{Collection, Event, Resolution, World};

use crate::{deis, gateways};

const NAMESPACES: [&str; 2] = ["blue", "red"];
const HOSTS: [&str; 5] = ["a.example", "b.example", "*.example", "c.test", ""];
const PATHS: [&str; 9] = ["/", "/a", "/a/b", "/a/", "/b", "/a/b/c", "/c", "/c/d", "/a/c"];
const NAMES: [&str; 2] = ["one.test", "two.test"];

/// Certificates for some of the hosts each; generating them for each seed would take most of the time.
static CERTIFICATES: LazyLock<Vec<(Vec<u8>, Vec<u8>)>> = LazyLock::new(|| {
    let names: [&[&str]; 3] = [&["a.example", "b.example"], &["*.example"], &["c.test"]];
    let made = names.map(|names| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        (made.cert.pem().into_bytes(), made.signing_key.serialize_pem().into_bytes())
    });
    made.into()
});

#[derive(Debug, Default)]
pub(crate) struct Cluster {
    objects: BTreeMap<ObjectRef, (Object, Vec<Finding>, u64)>,
    names: BTreeMap<Arc<str>, Resolution>,
    version: u64,
    /// A factor for the number of objects with routes. If it is above one, most of them claim one host.
    crowd: u32,
}

/// The address of the Deis router's default service.
const DEFAULT_SERVICE: [u8; 4] = [10, 9, 9, 9];

impl Cluster {
    pub(crate) fn new(crowded: bool) -> Self {
        Self { crowd: if crowded { 8 } else { 1 }, ..Self::default() }
    }

    /// One change, with its event.
    pub(crate) fn change(&mut self, die: &mut Rng, now: Instant) -> Option<Event> {
        if die.u32(0..20) == 0 {
            return Some(self.resolve(die));
        }
        if die.u32(0..40) == 0 {
            return Some(Event::ApiServer { sockets: Arc::new((0..die.usize(0..3)).map(|_| socket(die)).collect()) });
        }
        if die.u32(0..40) == 0 {
            let sockets = (0..die.usize(0..3)).map(|_| (gateways::socket(die), "address in use".into())).collect();
            return Some(Event::BindFailures { sockets: Arc::new(sockets) });
        }
        let of_any = *die.choice(&[
            Kind::Ingress,
            Kind::Ingress,
            Kind::Service,
            Kind::EndpointSlice,
            Kind::Secret,
            Kind::IngressClass,
            Kind::Deployment,
            Kind::GatewayClass,
            Kind::Namespace,
            Kind::ReferenceGrant,
            Kind::Gateway,
            Kind::ListenerSet,
            Kind::HttpRoute,
            Kind::HttpRoute,
            Kind::GrpcRoute,
            Kind::TlsRoute,
            Kind::TcpRoute,
            Kind::UdpRoute,
            Kind::BackendTlsPolicy,
            Kind::RateLimitPolicy,
            Kind::RateLimitPolicy,
            Kind::TokenRateLimitPolicy,
            Kind::AuthPolicy,
            Kind::AuthPolicy,
            Kind::ConfigMap,
        ])?;
        let of_many = self.crowd > 1 && die.bool();
        let object = pick(die, if of_many { Kind::Ingress } else { of_any }, self.crowd);
        if die.u32(0..4) == 0 {
            self.objects.remove(&object)?;
            self.version += 1;
            return Some(Event::Deleted { object, resource_version: self.version.to_string().into(), received: now });
        }
        let (projection, findings) = make(die, &object, self.crowd > 1);
        self.put(object.clone(), projection, findings);
        self.applied(&object, now)
    }

    /// A repeated event.
    pub(crate) fn repeat(&self, die: &mut Rng, now: Instant) -> Option<Event> {
        let count = self.objects.len();
        let object = self.objects.keys().nth(die.usize(0..count.max(1)))?;
        self.applied(object, now)
    }

    pub(crate) fn list(&self, kind: Kind, now: Instant) -> Event {
        let objects = self.objects.keys().filter(|object| object.kind == kind).filter_map(|o| self.projected(o));
        Event::Listed {
            collection: Collection { kind, namespace: None },
            objects: objects.collect(),
            complete: true,
            resource_version: self.version.to_string().into(),
            received: now,
        }
    }

    pub(crate) fn put_service(&mut self, object: &ObjectRef) {
        let ports = [ServicePort {
            name: "".into(),
            number: 80,
            target: None,
            transport: Default::default(),
            protocol: Default::default(),
        }];
        let service = Service {
            name: object.name.clone(),
            kind: ServiceKind::Slices,
            ports: ports.into(),
            requests_max: None,
            deis: None,
            deis_builder: None,
            proxy_header: None,
            udp_idle_timeout: None,
            gateway: None,
        };
        self.put(object.clone(), Object::Service(Arc::new(service)), Vec::new());
    }

    /// A list that claims to be complete and lacks some objects, each with the same probability.
    pub(crate) fn list_lacking(&self, kind: Kind, die: &mut Rng, now: Instant) -> Event {
        let lacks = die.f32();
        let mut event = self.list(kind, now);
        if let Event::Listed { objects, .. } = &mut event {
            objects.retain(|_| die.f32() >= lacks);
        }
        event
    }

    pub(crate) fn clear(&mut self, kind: Kind) {
        self.objects.retain(|object, _| object.kind != kind);
    }

    /// World must equal the current objects, without kinds that are not watched.
    pub(crate) fn check_world(&self, world: &World, heard: impl Fn(Kind) -> bool, seed: u64) {
        for kind in Kind::ALL {
            let of_kind = |object: &&ObjectRef| object.kind == kind && heard(kind);
            let here: Vec<&ObjectRef> = self.objects.keys().filter(of_kind).collect();
            let held: Vec<&ObjectRef> = world.names_of(kind, None).collect();
            assert_eq!(held, here, "seed {seed}: {kind}");
        }
        for (object, (projection, findings, _)) in self.objects.iter().filter(|(o, _)| heard(o.kind)) {
            assert_eq!(world.get(object).as_ref(), Some(projection), "seed {seed}: {object}");
            assert_eq!(world.findings_of(object), findings, "seed {seed}: {object}");
        }
    }

    fn put(&mut self, object: ObjectRef, projection: Object, findings: Vec<Finding>) {
        self.version += 1;
        self.objects.insert(object, (projection, findings, self.version));
    }

    fn applied(&self, object: &ObjectRef, now: Instant) -> Option<Event> {
        Some(Event::Applied { projected: Box::new(self.projected(object)?), received: now })
    }

    fn projected(&self, object: &ObjectRef) -> Option<Projected> {
        let (projection, findings, version) = self.objects.get(object)?;
        let version: Arc<str> = version.to_string().into();
        let meta = Meta { object: object.clone(), uid: None, resource_version: version, generation: None };
        let (object, findings) = (Some(projection.clone()), findings.clone());
        Some(Projected { meta, object, findings, addresses: Vec::new(), status: StatusReading::default() })
    }

    /// The addresses of a name, if they were set.
    pub(crate) fn resolved(&self, name: &Arc<str>) -> Option<Event> {
        let addresses = self.names.get(name)?.clone();
        Some(Event::Resolved { name: Arc::clone(name), addresses })
    }

    fn resolve(&mut self, die: &mut Rng) -> Event {
        let name: Arc<str> = (*die.choice(&NAMES).expect("a name")).into();
        let addresses = match die.u32(0..4) {
            0 => Err("no such name".to_owned()),
            1 => Ok([IpAddr::V4(Ipv4Addr::LOCALHOST)].into()),
            _ => Ok([IpAddr::V4(Ipv4Addr::new(192, 0, 2, die.u8(1..3)))].into()),
        };
        self.names.insert(Arc::clone(&name), addresses.clone());
        Event::Resolved { name, addresses }
    }
}

/// Another address for endpoints.
/// A socket of some endpoints, or of the Deis router's default service.
fn socket(die: &mut Rng) -> SocketAddr {
    if die.u32(0..4) == 0 {
        return (DEFAULT_SERVICE, 80).into();
    }
    SocketAddr::from(([10, 0, 0, die.u8(1..5)], 8000 + die.u16(0..2)))
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the others are of the Gateway API")]
fn pick(die: &mut Rng, kind: Kind, crowd: u32) -> ObjectRef {
    if kind == Kind::EndpointSlice && die.u32(0..10) == 0 {
        return ObjectRef::new(kind, ObjectName::new("default", "kubernetes"));
    }
    let namespace = if kind.namespaced() { NAMESPACES[die.usize(0..2)] } else { "" };
    let name = match kind {
        Kind::Ingress => format!("i{}", die.u32(0..6 * crowd)),
        Kind::IngressClass => format!("c{}", die.u32(0..2)),
        Kind::Service => format!("b{}", die.u32(0..3)),
        Kind::EndpointSlice => format!("b{}-{}", die.u32(0..3), die.u32(0..2)),
        // Secrets with the names that the Deis router uses are there too.
        Kind::Secret => {
            (*die.choice(&["s0", "s1", "s2", "s0-cert", "deis-router-platform-cert"]).expect("a name")).into()
        }
        Kind::Deployment => "deis-router".to_owned(),
        Kind::Namespace => NAMESPACES[die.usize(0..2)].to_owned(),
        Kind::ConfigMap => "authorities".to_owned(),
        Kind::HttpRoute => format!("g{}", die.u32(0..3 * crowd)),
        Kind::RateLimitPolicy | Kind::TokenRateLimitPolicy | Kind::AuthPolicy => format!("p{}", die.u32(0..4)),
        kind if kind.is_of_gateway_api() => format!("g{}", die.u32(0..3)),
        kind => panic!("{kind} is not made"),
    };
    ObjectRef::new(kind, ObjectName::new(namespace, name))
}

/// One of few keys, so that several Secrets have the same one.
fn api_key(die: &mut Rng, name: &ObjectName) -> ApiKeySecret {
    let app = die.choice(&["shop", "other"]).map(|app| ("app".into(), (*app).into()));
    ApiKeySecret {
        created_s: die.i64(0..3),
        key: if die.u32(0..5) == 0 { Err("its api_key is empty") } else { Ok(ApiKeyHash::of(&[die.u8(0..3)])) },
        labels: app.into_iter().collect(),
        identity: Arc::new(serde_json::json!({"metadata": {"name": name.name}})),
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the others are of the Gateway API")]
fn make(die: &mut Rng, object: &ObjectRef, crowded: bool) -> (Object, Vec<Finding>) {
    let name = object.name.clone();
    match object.kind {
        Kind::Ingress => {
            let problem = Problem::SettingIgnored { value: "x".to_owned(), why: "is no duration".to_owned() };
            let finding = Finding::new(object.clone(), "metadata.annotations", problem);
            let findings = if die.u32(0..5) == 0 { vec![finding] } else { Vec::new() };
            (Object::Ingress(Arc::new(ingress(die, name, crowded))), findings)
        }
        Kind::IngressClass => {
            let controller = if die.u32(0..4) == 0 { "other/controller" } else { "tidegate.io/ingress" };
            let class = IngressClass { name, controller: controller.into(), is_default: die.bool() };
            (Object::IngressClass(Arc::new(class)), Vec::new())
        }
        Kind::Service => (Object::Service(Arc::new(service(die, name))), Vec::new()),
        Kind::EndpointSlice => (Object::EndpointSlice(Arc::new(slice(die, name))), Vec::new()),
        Kind::Secret => {
            let certificate = match die.usize(0..4) {
                3 => Err(CertificateFault("has no tls.crt".to_owned())),
                which => {
                    let (chain, key) = &CERTIFICATES[which];
                    Certificate::from_pem(name.clone(), chain, key).map(Arc::new)
                }
            };
            let api_key = die.bool().then(|| Box::new(api_key(die, &name)));
            (Object::Secret(Arc::new(Secret { name, certificate, api_key, texts: SecretTexts::default() })), Vec::new())
        }
        Kind::Deployment => {
            let router = DeisRouter {
                platform_domain: (die.u32(0..3) > 0).then(|| ["example", "test"][die.usize(0..2)].into()),
                enforce_whitelists: die.u32(0..4) == 0,
                ssl_enforce: die.bool(),
                default_service: die.bool().then(|| (DEFAULT_SERVICE.into(), "landing".into())),
                regex_domains: die.bool(),
                edge: EdgeSettings { proxy_protocol: die.bool(), ..EdgeSettings::default() },
                compression: die.bool().then(|| DeisRouter::default().compression).flatten(),
                trusted_proxies: die.bool().then(|| ["192.0.2.0/24".parse().expect("a network")].into()),
                ..DeisRouter::default()
            };
            (Object::Deployment(Arc::new(Deployment { name, router })), Vec::new())
        }
        _ => gateways::make(die, object),
    }
}

fn ingress(die: &mut Rng, name: ObjectName, crowded: bool) -> Ingress {
    let class = match die.u32(0..8) {
        2..5 if crowded => ClassRef::Annotation("tidegate".into()),
        0 => ClassRef::Annotation("tidegate".into()),
        1 => ClassRef::Annotation("nginx".into()),
        2 => ClassRef::Default,
        number => ClassRef::Field(ObjectName::new("", format!("c{}", number % 3))),
    };
    let rules: Vec<Rule> = (0..die.usize(0..3))
        .map(|rule| {
            let field = |path: usize| format!("spec.rules[{rule}].http.paths[{path}]");
            let paths = (0..die.usize(0..4)).map(|path| rule_path(die, &name, &field(path), crowded));
            let paths: Vec<RulePath> = paths.collect();
            let crowded = crowded && die.u32(0..4) > 0;
            Rule { host: if crowded { HostPattern::Exact(HOSTS[0].into()) } else { host(die) }, paths: paths.into() }
        })
        .collect();
    // Sometimes a route had rules that could not be read.
    let default_backend = (die.u32(0..4) == 0)
        .then(|| DefaultBackend { backend: backend(die, &name), alone: rules.is_empty() && die.u32(0..4) > 0 });
    let tls: Vec<TlsSecret> = (0..die.u32(0..3))
        .flat_map(|entry| {
            let hosts: Vec<_> = (0..die.usize(0..3)).map(|_| host(die)).filter(|h| *h != HostPattern::Any).collect();
            let secret = name.beside(format!("s{}", die.u32(0..3)));
            let hosts = if hosts.is_empty() { vec![None] } else { hosts.into_iter().map(Some).collect() };
            hosts.into_iter().map(move |host| TlsSecret { host, entry, secret: secret.clone() })
        })
        .collect();
    Ingress {
        age: Age { created_s: die.i64(0..3), name },
        class,
        default_backend,
        rules: rules.into_iter().collect(),
        tls: tls.into_iter().collect(),
        guards: Arc::default(),
        filters: Arc::default(),
        settings: Arc::default(),
        protocol: None,
        policy: policy(die),
    }
}

/// Sometimes, the name of a policy that may exist.
pub(crate) fn policy(die: &mut Rng) -> Option<Arc<str>> {
    (die.u32(0..4) == 0).then(|| format!("p{}", die.u32(0..5)).into())
}

pub(crate) fn host(die: &mut Rng) -> HostPattern {
    match HOSTS[die.usize(0..HOSTS.len())] {
        "" => HostPattern::Any,
        text => HostPattern::parse(text).expect("a host"),
    }
}

/// Expressions of which a host may have one: two exceed its limit of steps. They match no path that is looked up.
static DEAR: LazyLock<[PathMatch; 3]> = LazyLock::new(|| {
    ["x", "y", "z"].map(|name| {
        let pattern = format!("/never/{name}(?:.*a.{{6}}|.*b.{{6}})");
        PathMatch::regex(&pattern, RegexCase::Sensitive, Extent::Whole).expect("an expression")
    })
});

fn rule_path(die: &mut Rng, ingress: &ObjectName, field: &str, crowded: bool) -> RulePath {
    if die.u32(0..8) == 0 {
        let path = DEAR[die.usize(0..DEAR.len())].clone();
        return RulePath { field: field.into(), path, backend: backend(die, ingress) };
    }
    let text = PATHS[die.usize(0..if crowded { PATHS.len() } else { 5 })];
    let path = if die.bool() { PathMatch::exact(text) } else { PathMatch::prefix(text) };
    RulePath { field: field.into(), path: path.expect("a path"), backend: backend(die, ingress) }
}

fn backend(die: &mut Rng, ingress: &ObjectName) -> Option<BackendRef> {
    let port = match die.u32(0..4) {
        0 => PortRef::Name("web".into()),
        1 => PortRef::Number(81),
        _ => PortRef::Number(80),
    };
    let backend = BackendRef { service: ingress.beside(format!("b{}", die.u32(0..3))), port };
    (die.u32(0..8) > 0).then_some(backend)
}

fn service(die: &mut Rng, name: ObjectName) -> Service {
    let kind =
        if die.u32(0..4) == 0 { ServiceKind::ExternalName(NAMES[die.usize(0..2)].into()) } else { ServiceKind::Slices };
    let port = |name: &str, number| ServicePort {
        name: name.into(),
        number,
        target: None,
        transport: Default::default(),
        protocol: Default::default(),
    };
    let ports: Vec<ServicePort> = match die.u32(0..4) {
        0 => Vec::new(),
        1 => vec![port("web", 80)],
        2 => vec![port("", 80)],
        3 if die.bool() => vec![port("web", 80), port("ssh", 2222)],
        _ => vec![port("web", 81), port("api", 80)],
    };
    let requests_max = (die.u32(0..3) == 0).then(|| die.u32(0..3));
    let deis = (die.u32(0..3) == 0).then(|| Arc::new(deis::app(die, &name)));
    let connect_timeout = Duration::from_secs(die.u64(1..3));
    let deis_builder = die.bool().then(|| Arc::new(DeisBuilder { connect_timeout, ..DeisBuilder::default() }));
    Service {
        name,
        kind,
        ports: ports.into(),
        requests_max,
        deis,
        deis_builder,
        proxy_header: None,
        udp_idle_timeout: None,
        gateway: None,
    }
}

fn slice(die: &mut Rng, name: ObjectName) -> EndpointSlice {
    let service = (die.u32(0..8) > 0).then(|| name.beside(format!("b{}", die.u32(0..3))));
    let ports = ["web", "", "api"].map(|name| SlicePort {
        name: name.into(),
        number: 8000 + die.u16(0..2),
        transport: Default::default(),
    });
    let endpoints = (0..die.usize(0..4)).map(|_| {
        let loopback = die.u32(0..6) == 0;
        let address = if loopback { Ipv4Addr::LOCALHOST } else { Ipv4Addr::new(10, 0, 0, die.u8(1..5)) };
        SliceEndpoint { address: address.into(), ready: die.bool(), serving: die.bool(), pod: None }
    });
    EndpointSlice { name, service, ports: ports.into(), endpoints: endpoints.collect() }
}
