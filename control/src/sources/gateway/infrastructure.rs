//! The Service of a Gateway: its name, its target ports on the edge's pods, and its content. All of it is a function of
//! the objects, so that replicas agree and a restart changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use tidegate_config::model::Transport;
use tidegate_config::object::ObjectName;
use tidegate_config::project::gateway::{
    CONTROLLER_ANNOTATION, Gateway, GatewayService, Listener, ListenerProtocol, Options as Texts,
};

use super::address::unsupported;
use super::class;
use super::gateway_object::parent_of;
use crate::attachment::{Endpoints, GatewayInfrastructure};
use crate::options::{GatewayServices, ToPods};
use crate::sources::reader::Reader;

/// The label with the name of the Gateway that an object was created for
/// (<https://gateway-api.sigs.k8s.io/geps/gep-1762/>).
const NAME_LABEL: &str = "gateway.networking.k8s.io/gateway-name";
/// The label with the name of its class.
const CLASS_LABEL: &str = "gateway.networking.k8s.io/gateway-class-name";
/// The label with the program that created it.
const MANAGED_LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "tidegate");
/// The maximum length of the name of a Service (RFC 1035), and of the value of a label.
const LABEL_CHARACTERS_MAX: usize = 63;

/// The target ports of a Gateway on the edge's pods, by the ports of its listeners.
pub(super) type Targets = BTreeMap<(Transport, u16), u16>;

/// The name of the Service of a Gateway: `GATEWAY-CLASS`, or if that is not a valid name, a shortened one with a hash.
pub(super) fn service_name(gateway: &Gateway) -> ObjectName {
    let whole = format!("{}-{}", gateway.age.name.name, gateway.class.name);
    gateway.age.name.beside(label(&whole, is_service_name))
}

/// Whether the text is a valid Service name (RFC 1035), apart from its length.
fn is_service_name(text: &str) -> bool {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    text.starts_with(|first: char| first.is_ascii_lowercase()) && text.bytes().all(plain)
}

/// A hash that is the same in every release.
fn hash(text: &str) -> u64 {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A text as the value of a label: unchanged if it is valid, otherwise shortened, with a hash of the whole text.
fn label(text: &str, fits: impl Fn(&str) -> bool) -> String {
    if text.len() <= LABEL_CHARACTERS_MAX && fits(text) {
        return text.to_owned();
    }
    let hash = format!("-{:016x}", hash(text));
    let plain = |mark: char| if mark.is_ascii_lowercase() || mark.is_ascii_digit() { mark } else { '-' };
    let first = |mark: char| if fits(&mark.to_string()) { "" } else { "gw-" };
    let prefix = text.chars().next().map_or("", |mark| first(plain(mark)));
    let room = LABEL_CHARACTERS_MAX - hash.len() - prefix.len();
    let kept: String = text.chars().map(plain).take(room).collect();
    format!("{prefix}{kept}{hash}")
}

/// The desired infrastructure of a Gateway; `None` if nothing is created.
pub(super) fn infrastructure(
    reader: &Reader<'_>,
    gateway: &Gateway,
    targets: &Targets,
    addresses: &[IpAddr],
) -> Option<GatewayInfrastructure> {
    let options = reader.options.sources.gateway.as_ref()?;
    let own = [(CONTROLLER_ANNOTATION, &*options.controller)];
    let name = label(&gateway.age.name.name, |_| true);
    let class = label(&gateway.class.name, |_| true);
    let labels = [(NAME_LABEL, &*name), (CLASS_LABEL, &class), MANAGED_LABEL];
    let with = |written: &Texts, own: &[(&str, &str)]| {
        let mut all = written.clone();
        all.extend(own.iter().map(|(key, value)| (Arc::from(*key), Arc::from(*value))));
        all
    };
    let (kind, wanted, endpoints) = match &options.services {
        GatewayServices::Off => return None,
        GatewayServices::Headless => (None, Box::default(), Endpoints::At(addresses.into())),
        GatewayServices::ToPods(ToPods { kind, edge, .. }) => {
            (Some(*kind), addresses.into(), Endpoints::Of(edge.clone()))
        }
    };
    Some(GatewayInfrastructure {
        service: service_name(gateway),
        labels: with(&gateway.infrastructure.labels, &labels),
        annotations: with(&gateway.infrastructure.annotations, &own),
        kind,
        ports: targets.iter().map(|((transport, port), target)| (*transport, *port, *target)).collect(),
        addresses: wanted,
        endpoints,
    })
}

/// A conflict about the name of a Gateway's Service.
pub(super) struct NameConflict {
    service: ObjectName,
    by: Owner,
}

/// The owner of a Service.
enum Owner {
    /// Another Gateway.
    Gateway(ObjectName),
    /// An older Gateway, whose Service does not exist yet.
    Older(ObjectName),
    /// Not this edge.
    Other,
}

impl fmt::Display for NameConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, by } = self;
        write!(f, "Service {service}, whose name is derived from this Gateway and its class, ")?;
        match by {
            Owner::Gateway(other) => {
                write!(f, "belongs to Gateway {other}: one of the two Gateways needs another name")
            }
            Owner::Older(other) => {
                write!(f, "is reserved for Gateway {other}, which is older: one of the two Gateways needs another name")
            }
            Owner::Other => write!(
                f,
                "already exists and was not created by this edge for a Gateway, so it is left unchanged: that Service or this Gateway \
                 needs another name"
            ),
        }
    }
}

/// The Service of a Gateway, if it exists.
///
/// # Errors
/// Returns the owner if a Service of that name belongs to another one.
pub(super) fn service_of<'w>(
    reader: &mut Reader<'w>,
    gateway: &Gateway,
) -> Result<Option<&'w GatewayService>, NameConflict> {
    let name = service_name(gateway);
    let Some(service) = reader.service(&name) else { return Ok(None) };
    let controller = reader.options.sources.gateway.as_ref().map(|options| &options.controller);
    let made_here = service.gateway.as_deref().filter(|owned| owned.controller.as_ref() == controller);
    match made_here {
        Some(owned) if owned.gateway == gateway.age.name.name => Ok(Some(owned)),
        Some(owned) => {
            let by = Owner::Gateway(name.beside(Arc::clone(&owned.gateway)));
            Err(NameConflict { service: name, by })
        }
        None => Err(NameConflict { service: name, by: Owner::Other }),
    }
}

/// The same; a Service that does not exist yet may be reserved for an older Gateway.
///
/// # Errors
/// Returns the owner if a Service of that name belongs to another one, or will.
pub(super) fn service_or_older<'w>(
    reader: &mut Reader<'w>,
    gateway: &Gateway,
) -> Result<Option<&'w GatewayService>, NameConflict> {
    let service = service_of(reader, gateway)?;
    let older = if service.is_none() { older_of_same_name(reader, gateway) } else { None };
    match older {
        None => Ok(service),
        Some(older) => Err(NameConflict { service: service_name(gateway), by: Owner::Older(older) }),
    }
}

/// The oldest Gateway with a Service of the same name that is older than this one.
fn older_of_same_name(reader: &mut Reader<'_>, gateway: &Gateway) -> Option<ObjectName> {
    let own = &gateway.age.name;
    let name = service_name(gateway);
    let others = reader.gateways().filter(|other| other.age.name.namespace == own.namespace && other.age < gateway.age);
    let others = others.filter(|other| service_name(other) == name);
    let mut others: Vec<_> = others.collect();
    others.sort_by(|a, b| a.age.cmp(&b.age));
    others.into_iter().find(|other| is_made(reader, other)).map(|other| other.age.name.clone())
}

/// Whether a Gateway is accepted, so that a Service is created for it.
fn is_made(reader: &mut Reader<'_>, gateway: &Gateway) -> bool {
    let class = reader.gateway_class(&gateway.class);
    let accepted = class.is_some_and(|class| class::fault(class).is_none());
    accepted && gateway.infrastructure.parameters.is_none() && unsupported(gateway).is_none()
}

/// The target ports of a Gateway and of its ListenerSets, if Gateways have ports of their own on the pods.
pub(super) fn targets_of(reader: &mut Reader<'_>, gateway: &Gateway, (first, last): (u16, u16)) -> Targets {
    let mut gateways: Vec<_> = reader.gateways().collect();
    gateways.sort_by(|a, b| a.age.cmp(&b.age));
    let mut wanted: BTreeMap<&ObjectName, BTreeSet<(Transport, u16)>> = BTreeMap::new();
    for gateway in &gateways {
        wanted.entry(&gateway.age.name).or_default().extend(ports_of(&gateway.listeners));
    }
    let sets: Vec<_> = reader.listener_sets().collect();
    for set in sets {
        let parent = parent_of(set).and_then(|parent| gateways.iter().find(|gateway| gateway.age.name == parent.name));
        let Some(gateway) = parent else { continue };
        let name = &gateway.age.name;
        if reader.allows(&gateway.allowed_listeners, &name.namespace, &set.age.name.namespace) {
            wanted.entry(name).or_default().extend(ports_of(&set.listeners));
        }
    }
    let operator: BTreeSet<u16> = reader.options.own_sockets().map(|(socket, _)| socket.port()).collect();
    let mut taken: BTreeSet<(Transport, u16)> = BTreeSet::new();
    let mut all: BTreeMap<&ObjectName, Targets> = BTreeMap::new();
    // The first candidate depends only on the Gateway and its port, so that replicas with different views of other
    // Gateways agree.
    let count = u32::from(last - first) + 1;
    let begin = |name: &ObjectName, transport: Transport, port: u16| {
        hash(&format!("{name} {transport} {port}")) % u64::from(count)
    };
    let port_at = |step: u64| first.checked_add(u16::try_from(step).ok()?);
    // A user who may write Services could claim another Gateway's port in one. A port with several claims is kept only
    // by the Gateway whose first candidate it is.
    let mut claims: BTreeMap<(Transport, u16), u32> = BTreeMap::new();
    for gateway in &gateways {
        let Ok(Some(service)) = service_of(reader, gateway) else { continue };
        for ((transport, _), target) in &service.targets {
            *claims.entry((*transport, *target)).or_default() += 1;
        }
    }
    for gateway in &gateways {
        let Ok(Some(service)) = service_of(reader, gateway) else { continue };
        let name = &gateway.age.name;
        let kept = service.targets.iter().filter(|((transport, port), target)| {
            let asked = wanted.get(&gateway.age.name).is_some_and(|ports| ports.contains(&(*transport, *port)));
            let free = (first..=last).contains(*target) && !operator.contains(*target);
            let sole = claims.get(&(*transport, **target)) == Some(&1);
            let own = || port_at(begin(name, *transport, *port)) == Some(**target);
            asked && free && (sole || own()) && taken.insert((*transport, **target))
        });
        all.insert(&gateway.age.name, kept.map(|(port, target)| (*port, *target)).collect());
    }
    let free = |transport: Transport, target: u16, taken: &BTreeSet<_>| {
        !operator.contains(&target) && !taken.contains(&(transport, target))
    };
    for gateway in &gateways {
        let name = &gateway.age.name;
        let targets = all.entry(name).or_default();
        for (transport, port) in wanted.remove(name).unwrap_or_default() {
            if targets.contains_key(&(transport, port)) {
                continue;
            }
            let begin = begin(name, transport, port);
            let mut places = (0..u64::from(count)).filter_map(|step| port_at((begin + step) % u64::from(count)));
            if let Some(target) = places.find(|target| free(transport, *target, &taken)) {
                taken.insert((transport, target));
                targets.insert((transport, port), target);
            }
        }
    }
    all.remove(&gateway.age.name).unwrap_or_default()
}

/// The ports of listeners.
pub(super) fn ports_of(listeners: &[Listener]) -> impl Iterator<Item = (Transport, u16)> {
    listeners.iter().filter_map(|listener| {
        let spec = listener.spec.as_ref().ok()?;
        Some((transport(&spec.protocol)?, spec.port))
    })
}

/// The transport of a protocol; `None` for an unknown protocol.
pub(super) const fn transport(protocol: &ListenerProtocol) -> Option<Transport> {
    match protocol {
        ListenerProtocol::Http | ListenerProtocol::Https | ListenerProtocol::Tls | ListenerProtocol::Tcp => {
            Some(Transport::Tcp)
        }
        ListenerProtocol::Udp => Some(Transport::Udp),
        ListenerProtocol::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: &str) {
        let got = label(text, is_service_name);
        assert_eq!((&*got, got.len() <= LABEL_CHARACTERS_MAX), (want, true), "{text}");
    }

    #[test]
    fn an_invalid_service_name_is_shortened_and_gets_a_hash() {
        check("edge-tidegate", "edge-tidegate");
        check("my.edge-tidegate", "my-edge-tidegate-d99586d1ccb61718");
        check("7-tidegate", "gw-7-tidegate-79829711f443eb2f");
        let long = "x".repeat(253);
        check(&long, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-1329e1bd71a6a7b2");
        assert_ne!(label(&long, |_| true), label(&format!("{long}y"), |_| true));
        assert_eq!(label("My.Edge", |_| true), "My.Edge");
    }
}
