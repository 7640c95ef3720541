//! Listeners of Gateways and ListenerSets: what each offers to routes, and conflicts between them.

use std::sync::Arc;

use tidegate_config::model::{
    Certificate, ClientVerification, HostPattern, ListenerTls as Terminated, TableName, TlsMode as TlsListenerMode,
    Transport, VerificationMode,
};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::gateway::{
    AllowedNamespaces, ClientValidation, GatewayTls, GroupKind, Listener, ListenerProtocol, ListenerSpec,
    ListenerStatus, RouteKind, TlsMode, ValidationMode,
};

use super::infrastructure::transport;
use super::reader::ExpectedKind;
use crate::attachment::{ConditionReason, Conditions, ListenerRef, MergedListener, named};
use crate::sources::reader::Reader;

/// The reason for a listener with an unsupported protocol.
const UNSUPPORTED: &str = "UnsupportedProtocol";

/// The kinds of routes for a protocol.
const fn kinds_of(protocol: &ListenerProtocol) -> &'static [Kind] {
    match protocol {
        ListenerProtocol::Http | ListenerProtocol::Https => &[Kind::HttpRoute, Kind::GrpcRoute],
        ListenerProtocol::Tls => &[Kind::TlsRoute],
        ListenerProtocol::Tcp => &[Kind::TcpRoute],
        ListenerProtocol::Udp => &[Kind::UdpRoute],
        ListenerProtocol::Other(_) => &[],
    }
}

/// One listener as routes see it, before it is compared with others; and its TLS settings, which do not matter for
/// attached objects.
pub(super) fn offered(
    reader: &mut Reader<'_>,
    owner: &ObjectRef,
    listener: &Listener,
    (gateway, tls): (&ObjectRef, &GatewayTls),
) -> (MergedListener, Option<Arc<Terminated>>) {
    // Namespaces contain no dots, so the tables of ListenerSets and Gateways never have the same name.
    let prefix = if owner.kind == Kind::ListenerSet { "listener.set/" } else { "" };
    let table = format!("{prefix}{}/{}", owner.name, listener.name);
    let mut offered = MergedListener {
        listener: Arc::new(ListenerRef { owner: owner.clone(), section: Arc::clone(&listener.name) }),
        port: 0,
        transport: Transport::Tcp,
        host: HostPattern::Any,
        kinds: Box::default(),
        namespaces: AllowedNamespaces::None,
        table: TableName::Named(table.into()),
        passes_on: false,
        refused: None,
        unopened: None,
        conflicts: false,
        unresolved: None,
        idle: None,
        overlap: None,
    };
    let Ok(spec) = &listener.spec else {
        offered.refused = Some(ConditionReason::new("UnsupportedValue", format!("{} cannot be read", listener.field)));
        return (offered, None);
    };
    read(spec, &mut offered);
    let Some(mode) = mode(spec) else { return (offered, None) };
    offered.passes_on = mode == TlsListenerMode::Passthrough;
    let certificates = if offered.passes_on { Vec::new() } else { certificates(reader, owner, spec, &mut offered) };
    // The API only defines client verification for HTTPS.
    let asked = tls.validation(spec.port).filter(|_| mode == TlsListenerMode::Http);
    let clients = asked.and_then(|asked| clients(reader, gateway, asked, &mut offered));
    let certificates = certificates.into();
    (offered, Some(Arc::new(Terminated { mode, certificates, clients })))
}

/// The TLS mode of a listener; `None` without TLS.
fn mode(spec: &ListenerSpec) -> Option<TlsListenerMode> {
    match &spec.protocol {
        ListenerProtocol::Https => Some(TlsListenerMode::Http),
        ListenerProtocol::Tls => Some(match spec.tls.as_ref().map(|tls| tls.mode) {
            Some(TlsMode::Passthrough) => TlsListenerMode::Passthrough,
            Some(TlsMode::Terminate) | None => TlsListenerMode::Terminate,
        }),
        ListenerProtocol::Http | ListenerProtocol::Tcp | ListenerProtocol::Udp | ListenerProtocol::Other(_) => None,
    }
}

fn read(spec: &ListenerSpec, offered: &mut MergedListener) {
    offered.port = spec.port;
    offered.transport = transport(&spec.protocol).unwrap_or(offered.transport);
    // Protocols without hostnames ignore the field.
    if !matches!(spec.protocol, ListenerProtocol::Tcp | ListenerProtocol::Udp) {
        offered.host = spec.host.clone();
    }
    offered.namespaces = spec.routes.namespaces.clone();
    let by_protocol = kinds_of(&spec.protocol);
    if by_protocol.is_empty() {
        let message = format!("protocol {} is not supported", spec.protocol);
        offered.refused = Some(ConditionReason::new(UNSUPPORTED, message));
        return;
    }
    match &spec.routes.kinds {
        None => offered.kinds = by_protocol.into(),
        Some(kinds) => {
            let known = |kind: &Kind| kinds.contains(&Ok(GroupKind::Known(*kind)));
            offered.kinds = by_protocol.iter().filter(|kind| known(kind)).copied().collect();
            let unfit = kinds.iter().find(|kind| match kind {
                Ok(GroupKind::Known(kind)) => !by_protocol.contains(kind),
                Ok(GroupKind::Other { .. }) | Err(_) => true,
            });
            if let Some(unfit) = unfit {
                let (named, protocol) = (named(unfit), &spec.protocol);
                let message = format!("allowedRoutes.kinds names {named}, which is not a kind of route for {protocol}");
                offered.unresolved = Some(ConditionReason::new("InvalidRouteKinds", message));
            }
        }
    }
}

const CERTIFICATE_REF: ExpectedKind = ExpectedKind {
    kind: Kind::Secret,
    written: "a certificateRef",
    invalid: "InvalidCertificateRef",
    wrong_kind: "InvalidCertificateRef",
};

/// The usable certificates; without any, the listener does not serve.
fn certificates(
    reader: &mut Reader<'_>,
    owner: &ObjectRef,
    spec: &ListenerSpec,
    offered: &mut MergedListener,
) -> Vec<Arc<Certificate>> {
    let (mut usable, mut fault) = (Vec::new(), None);
    for reference in spec.tls.iter().flat_map(|tls| &*tls.certificates) {
        match reader.granted_certificate(owner, reference, &CERTIFICATE_REF) {
            Ok(certificate) => usable.push(Arc::clone(certificate)),
            Err(why) => fault = fault.or(Some(why)),
        }
    }
    let missing = || ConditionReason::new("InvalidCertificateRef", "tls.certificateRefs has no certificate");
    if usable.is_empty() {
        let why = fault.clone().unwrap_or_else(missing);
        offered.idle = Some(ConditionReason::new("Invalid", why.message.clone()));
        fault = Some(why);
    }
    if let Some(fault) = fault {
        offered.unresolved = Some(fault);
    }
    usable
}

/// The verification of client certificates. Without a usable CA bundle the listener accepts no client.
fn clients(
    reader: &mut Reader<'_>,
    gateway: &ObjectRef,
    asked: &ClientValidation,
    offered: &mut MergedListener,
) -> Option<Arc<ClientVerification>> {
    let mode = match asked.mode {
        ValidationMode::AllowValidOnly => VerificationMode::ValidOnly,
        ValidationMode::AllowInsecureFallback => VerificationMode::InsecureFallback,
    };
    match reader.granted_authorities(gateway, &asked.authorities) {
        Ok((authorities, fault)) => {
            offered.unresolved = offered.unresolved.take().or(fault);
            Some(Arc::new(ClientVerification { authorities, mode }))
        }
        Err(fault) => {
            offered.refused = Some(ConditionReason::new("NoValidCACertificate", fault.message.clone()));
            offered.unresolved = Some(fault);
            None
        }
    }
}

/// A conflict of two listeners on one port.
enum PortConflict {
    Hostname,
    Protocol,
    /// Both: different protocols that cannot share a port, for the same host.
    Listener,
}

/// The conflict of two listeners, if there is one. TCP and UDP ports are separate.
fn port_conflict(a: &ListenerSpec, b: &ListenerSpec) -> Option<PortConflict> {
    use ListenerProtocol::{Https, Tcp, Tls, Udp};
    if a.port != b.port || (a.protocol == Udp) != (b.protocol == Udp) {
        return None;
    }
    let by_server_name = |protocol: &ListenerProtocol| matches!(protocol, Https | Tls);
    if a.protocol == Udp || a.protocol == Tcp || b.protocol == Tcp {
        return Some(PortConflict::Protocol);
    }
    match a.protocol == b.protocol || by_server_name(&a.protocol) && by_server_name(&b.protocol) {
        true if a.host == b.host => Some(PortConflict::Hostname),
        true => None,
        false if a.host == b.host => Some(PortConflict::Listener),
        false => Some(PortConflict::Protocol),
    }
}

/// Whether a listener occupies its port, which includes one with an unsupported protocol.
fn competes(offered: &MergedListener) -> bool {
    offered.refused.as_ref().is_none_or(|fault| fault.reason == UNSUPPORTED)
}

/// Refuses each listener that conflicts with an earlier one that is not refused. Of the first `equals` listeners, which
/// belong to one object, both of two conflicting ones are refused.
pub(super) fn settle(offered: &mut [MergedListener], listeners: &[&Listener], equals: usize) {
    let specs: Vec<Option<&ListenerSpec>> = listeners.iter().map(|listener| listener.spec.as_ref().ok()).collect();
    for (index, spec) in specs.iter().enumerate() {
        let Some(spec) = spec.filter(|_| offered.get(index).is_some_and(competes)) else { continue };
        let others = if index < equals { 0..equals } else { 0..index };
        let conflict = others.filter(|other| *other != index).find_map(|number| {
            let other = offered.get(number)?;
            // A conflict among these refuses both, so one that is refused only for a conflict still counts.
            let counts = competes(other) || index < equals && other.conflicts;
            let of_other = specs.get(number).copied().flatten().filter(|_| counts);
            Some((of_other.and_then(|of_other| port_conflict(spec, of_other))?, other.listener.to_string()))
        });
        let (Some((conflict, other)), Some(own)) = (conflict, offered.get_mut(index)) else { continue };
        own.conflicts = true;
        let cannot_share = |reason, what: &str| {
            ConditionReason::new(reason, format!("{other} has the {what}, with a protocol that cannot share it"))
        };
        own.refused = Some(match conflict {
            PortConflict::Hostname => {
                ConditionReason::new("HostnameConflict", format!("{other} has the same hostname and port"))
            }
            // The API defines this reason for listeners of ListenerSets only.
            PortConflict::Listener if own.listener.owner.kind == Kind::ListenerSet => {
                cannot_share("ListenerConflict", "same hostname and port")
            }
            PortConflict::Protocol | PortConflict::Listener => cannot_share("ProtocolConflict", "port"),
        });
    }
}

/// The status of a listener in its Gateway or ListenerSet; the number of attached routes is filled in later.
pub(super) fn status(offered: &MergedListener, generation: i64) -> ListenerStatus {
    let mut conditions = Conditions::about(generation);
    conditions.judge("Accepted", "Accepted", offered.reported());
    conditions.judge("ResolvedRefs", "ResolvedRefs", offered.unresolved.as_ref());
    if let Some(fault) = &offered.overlap {
        conditions.put("OverlappingTLSConfig", "True", fault.reason, fault.message.clone());
    }
    match offered.reported() {
        Some(fault) if offered.conflicts => {
            conditions.put("Conflicted", "True", fault.reason, fault.message.clone());
            conditions.judge("Programmed", "Programmed", Some(fault));
        }
        Some(fault) => {
            conditions.put("Conflicted", "False", "NoConflicts", "");
            // The API defines this reason for listeners of ListenerSets only.
            let is_told = offered.listener.owner.kind == Kind::ListenerSet && fault.reason == "PortUnavailable";
            let reason = if is_told { fault.reason } else { "Invalid" };
            conditions.judge("Programmed", "Programmed", Some(&ConditionReason::new(reason, fault.message.clone())));
        }
        None => {
            conditions.put("Conflicted", "False", "NoConflicts", "");
            conditions.judge("Programmed", "Programmed", offered.idle.as_ref());
        }
    }
    let kind = |kind: &Kind| RouteKind { group: kind.group().into(), kind: kind.as_str().into() };
    ListenerStatus {
        name: Arc::clone(&offered.listener.section),
        supported_kinds: offered.kinds.iter().map(kind).collect(),
        attached_routes: 0,
        conditions: conditions.into_list(),
    }
}
