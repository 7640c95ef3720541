//! Gateway: its listeners, and those of the ListenerSets that it allows, on its addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tidegate_config::model::{
    BindKey, BindProtocol, Certificate, Listener as Bound, ListenerName, ListenerOrigin, ListenerTls, TableName,
};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::gateway::{
    Gateway, GroupKind, Listener, ListenerProtocol, ListenerSet, OwnStatus, ValidationMode,
};

use super::address::{Assigned, assign, wanted};
use super::class;
use super::client_certificate;
use super::infrastructure::{Targets, infrastructure, service_or_older, transport};
use super::listener::{offered, settle, status};
use super::overlap;
use crate::attachment::{
    Attachment, BindClaim, ConditionReason, Conditions, GatewayInfrastructure, GatewayListeners, MergedListener,
    OtherClaims, Report, parameters,
};
use crate::sources::reader::Reader;

/// The limit of listeners of one Gateway with all of its ListenerSets.
const LISTENERS_MAX: usize = 1024;

/// The message for a listener without a port on the pods.
const NO_PORT: &str = "no port of the edge's pods is left for it (--gateway-ports)";

pub(in crate::sources) fn attach(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let world = reader.world();
    let reporting = Attachment::reporting(object, world);
    let Some(gateway) = world.gateways.get(&object.name) else { return reporting };
    let Some(class) = reader.gateway_class(&gateway.class) else { return reporting };
    let assigned = assign(reader, gateway);
    let refused = refusal(gateway, class::fault(class), &assigned);
    let sets = sets_of(reader, object);
    let mut merged = merged(reader, object, gateway, &sets);
    let nowhere = |_: &&ConditionReason| assigned.listening.is_empty();
    let idle = refused.as_ref().or(assigned.unusable.as_ref().filter(nowhere));
    for listener in &mut merged.offered {
        if let Some(why) = idle {
            listener.idle.get_or_insert_with(|| ConditionReason::new("Pending", why.message.clone()));
        }
        taken_by_operator(reader, &assigned, listener);
    }
    let binds = if refused.is_some() { Box::default() } else { binds(object, &merged, &assigned) };
    note_unopened(reader, &binds, &mut merged.offered);
    let infrastructure = desired_infrastructure(reader, gateway, (&merged, &assigned), refused.is_some());
    let status = own_status(reader, object, refused.as_ref(), &assigned, (&merged, insecure(gateway)));
    let client = merged.client.and_then(Result::ok);
    let (listeners, not_accepted) = (merged.offered.into(), refused.is_some());
    let gateway_listeners = GatewayListeners { listeners, refused: merged.refused.into(), not_accepted, client };
    let (gateway_listeners, infrastructure) = (Some(Arc::new(gateway_listeners)), infrastructure.map(Arc::new));
    let addresses = assigned.in_pool();
    Attachment {
        report: Report::of_status(world.findings_of(object), status),
        other_claims: Some(Box::new(OtherClaims {
            binds,
            addresses,
            gateway_listeners,
            infrastructure,
            ..OtherClaims::default()
        })),
        ..Attachment::default()
    }
}

/// The desired infrastructure of a Gateway. A Gateway that is not accepted keeps the existing one, so that it does not
/// lose its addresses because of a mistake.
fn desired_infrastructure(
    reader: &mut Reader<'_>,
    gateway: &Gateway,
    (merged, assigned): (&Merged<'_>, &Assigned),
    refused: bool,
) -> Option<GatewayInfrastructure> {
    let specs = merged.listeners.iter().filter_map(|listener| listener.spec.as_ref().ok());
    let ports = specs.filter_map(|spec| Some((transport(&spec.protocol)?, spec.port)));
    let target = |(transport, port)| match &assigned.targets {
        None => Some(((transport, port), port)),
        Some(targets) => targets.get(&(transport, port)).map(|target| ((transport, port), *target)),
    };
    let targets: Targets = ports.filter_map(target).collect();
    let service = service_or_older(reader, gateway);
    let lost = targets.is_empty() || service.is_err() || refused && matches!(service, Ok(None));
    let own: Vec<IpAddr> = match assigned.targets {
        None => assigned.listening.clone(),
        Some(_) => wanted(gateway).collect(),
    };
    infrastructure(reader, gateway, &targets, &own).filter(|_| !lost)
}

/// The reason why the Gateway as a whole is not accepted.
fn refusal(gateway: &Gateway, class: Option<ConditionReason>, assigned: &Assigned) -> Option<ConditionReason> {
    let infrastructure = gateway.infrastructure.parameters.as_ref();
    let infrastructure = infrastructure.map(|reference| parameters("spec.infrastructure.parametersRef", reference));
    infrastructure.or(class).or_else(|| assigned.unsupported.clone())
}

/// The ListenerSets that refer to a Gateway, oldest first.
fn sets_of<'w>(reader: &mut Reader<'w>, gateway: &ObjectRef) -> Vec<&'w Arc<ListenerSet>> {
    let mut sets: Vec<_> = reader.listener_sets().collect();
    sets.retain(|set| parent_of(set).is_some_and(|parent| parent == *gateway));
    sets.sort_by(|a, b| a.age.cmp(&b.age));
    sets
}

/// The Gateway that a ListenerSet refers to.
pub(crate) fn parent_of(set: &ListenerSet) -> Option<ObjectRef> {
    let parent = set.parent.as_ref().ok()?;
    (parent.kind == GroupKind::Known(Kind::Gateway)).then(|| ObjectRef::new(Kind::Gateway, parent.name.clone()))
}

/// The listeners of a Gateway and its ListenerSets.
struct Merged<'w> {
    listeners: Vec<&'w Listener>,
    offered: Vec<MergedListener>,
    /// The TLS settings of each listener that terminates TLS.
    tls: Vec<Option<Arc<ListenerTls>>>,
    /// The number of the Gateway's own listeners, which come first.
    own: usize,
    /// The ListenerSets that are refused as a whole, with the reasons.
    refused: Vec<(ObjectRef, ConditionReason)>,
    /// The client certificate for endpoints, if the Gateway refers to one.
    client: Option<Result<Arc<Certificate>, ConditionReason>>,
}

fn merged<'w>(
    reader: &mut Reader<'w>,
    object: &ObjectRef,
    gateway: &'w Gateway,
    sets: &[&'w Arc<ListenerSet>],
) -> Merged<'w> {
    let mut listeners: Vec<&Listener> = gateway.listeners.iter().collect();
    let tls_of = (object, &gateway.tls);
    let (mut all, mut tls): (Vec<MergedListener>, Vec<_>) =
        listeners.iter().map(|listener| offered(reader, object, listener, tls_of)).unzip();
    let (own, mut refused) = (all.len(), Vec::new());
    for set in sets {
        let name = ObjectRef::new(Kind::ListenerSet, set.age.name.clone());
        if !reader.allows(&gateway.allowed_listeners, &object.name.namespace, &set.age.name.namespace) {
            let message = format!("{object} does not allow ListenerSets of namespace {}", set.age.name.namespace);
            refused.push((name, ConditionReason::new("NotAllowed", message)));
            continue;
        }
        for listener in &set.listeners {
            let (mut offered, own_tls) = offered(reader, &name, listener, tls_of);
            if all.len() >= LISTENERS_MAX {
                let message = format!("{object} and its ListenerSets have more than {LISTENERS_MAX} listeners");
                offered.refused = Some(ConditionReason::new("TooManyListeners", message));
            }
            listeners.push(listener);
            all.push(offered);
            tls.push(own_tls);
        }
    }
    settle(&mut all, &listeners, own);
    overlap::note(&mut all, &tls);
    let client = client_certificate::of_gateway(reader, object, gateway);
    Merged { listeners, offered: all, tls, own, refused, client }
}

/// Refuses a listener without a port on the pods, or on a socket that the operator's listeners use.
fn taken_by_operator(reader: &Reader<'_>, assigned: &Assigned, listener: &mut MergedListener) {
    let transport = listener.transport;
    let taken = |socket: SocketAddr| reader.options.own_sockets().any(|own| own == (socket, transport));
    if listener.refused.is_some() || listener.port == 0 {
        return;
    }
    if assigned.targets.as_ref().is_some_and(|targets| !targets.contains_key(&(listener.transport, listener.port))) {
        listener.refused = Some(ConditionReason::new("PortUnavailable", NO_PORT));
    } else if assigned.sockets(listener.transport, listener.port).any(taken) {
        let message = format!("port {} of the address is the edge's own", listener.port);
        listener.refused = Some(ConditionReason::new("PortUnavailable", message));
    }
}

/// The sockets with their listeners, those with the most specific hosts first.
fn binds(gateway: &ObjectRef, merged: &Merged<'_>, assigned: &Assigned) -> Box<[(BindKey, BindClaim)]> {
    let mut binds: BTreeMap<BindKey, Vec<Bound>> = BTreeMap::new();
    for ((listener, offered), tls) in merged.listeners.iter().zip(&merged.offered).zip(&merged.tls) {
        let Some(spec) = listener.spec.as_ref().ok().filter(|_| offered.serves()) else { continue };
        let protocol = match spec.protocol {
            ListenerProtocol::Http => BindProtocol::Http,
            ListenerProtocol::Https | ListenerProtocol::Tls => BindProtocol::Https,
            ListenerProtocol::Tcp => BindProtocol::Tcp,
            ListenerProtocol::Udp => BindProtocol::Udp,
            ListenerProtocol::Other(_) => continue,
        };
        let TableName::Named(name) = &offered.table else { continue };
        let (name, table) = (ListenerName(Arc::clone(name)), offered.table.clone());
        let port = assigned.targets.is_some().then_some(spec.port);
        let set = (offered.listener.owner != *gateway).then(|| offered.listener.owner.clone());
        let origin = ListenerOrigin { gateway: gateway.clone(), set, name: Arc::clone(&offered.listener.section) };
        let (host, tls, origin) = (offered.host.clone(), tls.clone(), Some(Arc::new(origin)));
        let bound = Bound { name, host, table, tls, port, origin };
        for address in assigned.sockets(offered.transport, spec.port) {
            let key = BindKey { address, protocol };
            binds.entry(key).or_default().push(bound.clone());
        }
    }
    let sorted = |(key, mut listeners): (BindKey, Vec<Bound>)| {
        listeners.sort_by(|a, b| a.host.precedence().cmp(&b.host.precedence()));
        (key, BindClaim::from(listeners))
    };
    binds.into_iter().map(sorted).collect()
}

/// Records which listeners are on a socket that the data plane cannot open.
fn note_unopened(reader: &Reader<'_>, binds: &[(BindKey, BindClaim)], offered: &mut [MergedListener]) {
    for (key, error) in &*reader.world().unopened {
        let Ok(index) = binds.binary_search_by(|(bind, _)| bind.cmp(key)) else { continue };
        let tables: BTreeSet<&TableName> =
            binds.get(index).into_iter().flat_map(|(_, claim)| claim.iter().map(|it| &it.table)).collect();
        for listener in offered.iter_mut().filter(|listener| tables.contains(&listener.table)) {
            let message = format!("{} cannot be opened: {error}", key.address);
            listener.unopened.get_or_insert_with(|| ConditionReason::new("PortUnavailable", message));
        }
    }
}

/// Whether any port accepts clients without a valid certificate.
fn insecure(gateway: &Gateway) -> bool {
    let by_port = gateway.tls.by_port.iter().filter_map(|(_, own)| own.as_ref());
    gateway.tls.frontend.iter().chain(by_port).any(|asked| asked.mode == ValidationMode::AllowInsecureFallback)
}

/// The message about listeners that are not accepted.
pub(super) fn not_accepted(listeners: &[&str]) -> Option<String> {
    (!listeners.is_empty()).then(|| format!("not accepted: listeners {}", listeners.join(", ")))
}

/// The fault of a Gateway if none of its listeners has a port on the pods.
fn without_ports(listeners: &[MergedListener]) -> Option<ConditionReason> {
    let lacks = |listener: &MergedListener| listener.refused.as_ref().is_some_and(|fault| fault.message == NO_PORT);
    (!listeners.is_empty() && listeners.iter().all(lacks)).then(|| ConditionReason::new("NoResources", NO_PORT))
}

/// The fault of a Gateway if none of its listeners serves.
fn nothing_serves(listeners: &[MergedListener]) -> Option<ConditionReason> {
    let why: Option<Vec<_>> = listeners.iter().map(MergedListener::not_programmed).collect();
    let first = listeners.iter().zip(why?).find(|(listener, _)| listener.reported().is_none());
    let message =
        first.map(|(listener, why)| format!("no listener serves; {}: {}", listener.listener.section, why.message));
    Some(ConditionReason::new("Invalid", message.unwrap_or_else(|| "no listener is accepted".to_owned())))
}

/// The fault of a Gateway if references of listeners are unusable.
fn unresolved(listeners: &[MergedListener]) -> Option<ConditionReason> {
    let names: Vec<&str> =
        listeners.iter().filter(|it| it.unresolved.is_some()).map(|it| &*it.listener.section).collect();
    let message = || format!("unresolved references in listeners: {}", names.join(", "));
    (!names.is_empty()).then(|| ConditionReason::new("ListenersNotResolved", message()))
}

fn own_status(
    reader: &Reader<'_>,
    object: &ObjectRef,
    refused: Option<&ConditionReason>,
    assigned: &Assigned,
    (merged, insecure): (&Merged<'_>, bool),
) -> OwnStatus {
    let generation = reader.generation(object);
    let own = merged.offered.get(..merged.own).unwrap_or_default();
    let mut conditions = Conditions::about(generation);
    let bad: Vec<&str> = own.iter().filter(|it| it.reported().is_some()).map(|it| &*it.listener.section).collect();
    let invalid = not_accepted(&bad);
    let none = merged.offered.iter().all(|listener| listener.reported().is_some());
    match (refused, invalid) {
        (Some(fault), _) => conditions.judge("Accepted", "Accepted", Some(fault)),
        (None, Some(message)) => {
            conditions.put("Accepted", if none { "False" } else { "True" }, "ListenersNotValid", message);
        }
        (None, None) => conditions.judge("Accepted", "Accepted", None),
    }
    let programmed = refused.cloned().map(|fault| ConditionReason::new("Invalid", fault.message));
    let programmed = programmed.or_else(|| without_ports(own)).or_else(|| assigned.unusable.clone());
    let programmed = programmed.or_else(|| nothing_serves(&merged.offered).filter(|_| !own.is_empty()));
    conditions.judge("Programmed", "Programmed", programmed.as_ref());
    let client = merged.client.as_ref().and_then(|client| client.as_ref().err().cloned());
    conditions.judge("ResolvedRefs", "ResolvedRefs", client.or_else(|| unresolved(own)).as_ref());
    if insecure {
        let message = "clients without a valid certificate are accepted";
        conditions.put("InsecureFrontendValidationMode", "True", "ConfigurationChanged", message);
    }
    let of_sets = merged.offered.iter().filter(|it| it.listener.owner.kind == Kind::ListenerSet && it.sound());
    let sets: BTreeSet<&ObjectRef> = of_sets.map(|it| &it.listener.owner).collect();
    OwnStatus {
        conditions: conditions.into_list(),
        addresses: assigned.addresses.clone(),
        listeners: own.iter().map(|listener| status(listener, generation)).collect(),
        attached_sets: Some(sets.len() as u64),
        ..OwnStatus::default()
    }
}
