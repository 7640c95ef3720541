//! What is wrong, as one closed list: reason, severity and words.

use std::fmt;

use serde::Serialize;

use super::Severity;
use crate::object::{Kind, ObjectRef};

/// What is wrong. Each variant states its consequence in its message.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(tag = "reason")]
pub enum Problem {
    /// The object as a whole cannot be read; it has no routes.
    Unreadable {
        /// Why, in the parser's words.
        why: String,
    },
    /// What a rule matches on, or an entry of a list, cannot be read; that rule or entry is dropped.
    RuleDropped {
        /// The value as written, cut to a printable length.
        value: String,
        /// Why it cannot be read.
        why: String,
    },
    /// A setting cannot be read; its default applies.
    SettingIgnored {
        /// The value as written.
        value: String,
        /// Why it cannot be read.
        why: String,
    },
    /// A setting that restricts access cannot be read; the object's routes refuse every request.
    GuardClosed {
        /// The value as written.
        value: String,
        /// Why it cannot be read.
        why: String,
    },
    /// The setting that asks for TLS cannot be read; plain-text requests are redirected as if it did.
    RedirectAssumed {
        /// The value as written.
        value: String,
        /// Why it cannot be read.
        why: String,
    },
    /// A route points at something that cannot be a backend; it answers 503.
    BackendUnusable {
        /// What is named there.
        value: String,
        /// Why it cannot be used.
        why: String,
    },
    /// A filter or a backend of the Gateway API cannot be read; what it is for answers 500.
    AnsweredWith500 {
        /// The value as written.
        value: String,
        /// Why it cannot be read.
        why: String,
    },
    /// What says who may attach to a listener cannot be read; nobody may.
    AttachmentRefused {
        /// The value as written.
        value: String,
        /// Why it cannot be read.
        why: String,
    },
    /// The Service that a route points at does not exist; the route answers 503.
    ServiceMissing {
        /// The Service.
        service: String,
    },
    /// The Service has no such port; the route answers 503.
    PortMissing {
        /// The Service.
        service: String,
        /// The port's name or number.
        port: String,
    },
    /// An older object, or an earlier rule of the same one, has the same rule; this one serves nobody.
    RuleLost {
        /// The host of the rule, `*` for none.
        host: String,
        /// The path of the rule and its kind, such as `prefix /a`.
        path: String,
        /// The object that serves it.
        winner: ObjectRef,
    },
    /// An older route has the connections for a host of a listener, or all of it, or its flows of datagrams; this one gets none there.
    ConnectionsLost {
        /// The host, and the table of the listener.
        host: String,
        /// The route that has them.
        winner: ObjectRef,
    },
    /// An older route of the other kind, HTTPRoute or GRPCRoute, has hostnames of this one on a listener; this one is not attached there.
    ListenerLost {
        /// The listener.
        listener: String,
        /// The route that is attached.
        winner: ObjectRef,
    },
    /// An older object has a default backend for the host; this one's serves nobody there.
    DefaultLost {
        /// The host, `*` for none.
        host: String,
        /// The object whose default backend serves.
        winner: ObjectRef,
    },
    /// The host belongs to the namespace of the oldest object that claims it; this object's rules for
    /// it are not in effect (or, where hosts are shared, only worth knowing).
    HostOwned {
        /// The host.
        host: String,
        /// The oldest object that claims it.
        owner: ObjectRef,
        /// Whether the rules still serve because hosts are shared.
        shared: bool,
    },
    /// A TLS entry is for server names whose requests go to no rule of its object, so it is not used for them.
    TlsUnused {
        /// The host as written, or what stands for it.
        value: String,
        /// Why it is not used.
        why: String,
    },
    /// The Secret of a TLS entry does not exist; the host falls back to another of its certificates or the default one.
    CertificateMissing {
        /// The Secret.
        secret: String,
        /// The host of the TLS entry.
        host: String,
    },
    /// The Secret holds no usable certificate and key; the host falls back as above.
    CertificateBroken {
        /// The Secret.
        secret: String,
        /// Why it cannot be used. Never holds key material.
        why: String,
    },
    /// The certificate does not name the host; the host falls back as above.
    CertificateElsewhere {
        /// The Secret.
        secret: String,
        /// The host that its names do not cover.
        host: String,
    },
    /// An address leads to the edge's own host or network, or to the API server, and is left out.
    AddressRefused {
        /// The address or name.
        address: String,
        /// Why it is refused.
        why: String,
    },
    /// The name of an ExternalName Service has no addresses now; its routes answer 503.
    NameUnresolved {
        /// The DNS name.
        name: String,
        /// Why, in the resolver's words.
        why: String,
    },
    /// The class that the object names does not exist; it has no routes.
    ClassUnknown {
        /// The class.
        class: String,
    },
    /// A setting was read and changes nothing.
    WithoutEffect {
        /// The value as written.
        value: String,
        /// Why it changes nothing, or what to use instead.
        why: String,
    },
    /// An object asks to be routed and names no host that can be used; it has no routes.
    NoHost {
        /// What there is instead.
        why: String,
    },
    /// The Deployment of the Deis router is not there. It may say who may use applications, so nobody may.
    RouterMissing {
        /// The Deployment.
        router: String,
    },
    /// Handling this object failed inside Tidegate; the object is set aside until it changes.
    SetAside {
        /// What is known of the failure.
        why: String,
    },
}

impl Problem {
    /// The name of the reason, as Kubernetes conditions and Events want it (CamelCase).
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "Unreadable",
            Self::RuleDropped { .. } => "RuleDropped",
            Self::SettingIgnored { .. } => "SettingIgnored",
            Self::GuardClosed { .. } => "GuardClosed",
            Self::RedirectAssumed { .. } => "RedirectAssumed",
            Self::BackendUnusable { .. } => "BackendUnusable",
            Self::AnsweredWith500 { .. } => "AnsweredWith500",
            Self::AttachmentRefused { .. } => "AttachmentRefused",
            Self::ServiceMissing { .. } => "ServiceMissing",
            Self::PortMissing { .. } => "PortMissing",
            Self::RuleLost { .. } => "RuleLost",
            Self::ConnectionsLost { winner, .. } if matches!(winner.kind, Kind::UdpRoute) => "FlowsLost",
            Self::ConnectionsLost { .. } => "ConnectionsLost",
            Self::ListenerLost { .. } => "ListenerLost",
            Self::DefaultLost { .. } => "DefaultLost",
            Self::HostOwned { .. } => "HostOwned",
            Self::TlsUnused { .. } => "TlsUnused",
            Self::CertificateMissing { .. } => "CertificateMissing",
            Self::CertificateBroken { .. } => "CertificateBroken",
            Self::CertificateElsewhere { .. } => "CertificateElsewhere",
            Self::AddressRefused { .. } => "AddressRefused",
            Self::NameUnresolved { .. } => "NameUnresolved",
            Self::ClassUnknown { .. } => "ClassUnknown",
            Self::WithoutEffect { .. } => "WithoutEffect",
            Self::NoHost { .. } => "NoHost",
            Self::RouterMissing { .. } => "RouterMissing",
            Self::SetAside { .. } => "SetAside",
        }
    }

    /// How much it matters.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        match self {
            Self::SettingIgnored { .. }
            | Self::RedirectAssumed { .. }
            | Self::WithoutEffect { .. }
            | Self::HostOwned { shared: true, .. } => Severity::Warning,
            Self::Unreadable { .. }
            | Self::RuleDropped { .. }
            | Self::GuardClosed { .. }
            | Self::BackendUnusable { .. }
            | Self::AnsweredWith500 { .. }
            | Self::AttachmentRefused { .. }
            | Self::ServiceMissing { .. }
            | Self::PortMissing { .. }
            | Self::RuleLost { .. }
            | Self::ConnectionsLost { .. }
            | Self::ListenerLost { .. }
            | Self::DefaultLost { .. }
            | Self::HostOwned { .. }
            | Self::TlsUnused { .. }
            | Self::CertificateMissing { .. }
            | Self::CertificateBroken { .. }
            | Self::CertificateElsewhere { .. }
            | Self::AddressRefused { .. }
            | Self::NameUnresolved { .. }
            | Self::ClassUnknown { .. }
            | Self::NoHost { .. }
            | Self::RouterMissing { .. }
            | Self::SetAside { .. } => Severity::Error,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { why } => write!(f, "cannot be read ({why}), so it has no routes"),
            Self::RuleDropped { value, why } => write!(f, "{value:?} {why}, so it is dropped"),
            Self::SettingIgnored { value, why } => write!(f, "{value:?} {why}, so the default applies"),
            Self::GuardClosed { value, why } => write!(f, "{value:?} {why}, so every request is refused"),
            Self::RedirectAssumed { value, why } => {
                write!(f, "{value:?} {why}, so plain-text requests are redirected to https")
            }
            Self::BackendUnusable { value, why } => write!(f, "{value} {why}, so the route answers 503"),
            Self::AnsweredWith500 { value, why } => write!(f, "{value:?} {why}, so the edge answers 500 in its place"),
            Self::AttachmentRefused { value, why } => write!(f, "{value:?} {why}, so nothing may attach there"),
            Self::ServiceMissing { service } => {
                write!(f, "Service {service} does not exist, so the route answers 503")
            }
            Self::PortMissing { service, port } => {
                write!(f, "Service {service} has no port {port}, so the route answers 503")
            }
            Self::RuleLost { host, path, winner } => {
                write!(
                    f,
                    "{path} of {host} is served by {winner}: the older object, or the earlier rule of one object, wins"
                )
            }
            Self::ConnectionsLost { host, winner } => {
                let what = if winner.kind == Kind::UdpRoute { "datagrams" } else { "connections" };
                write!(f, "{what} for {host} go where {winner} says, which is older")
            }
            Self::ListenerLost { listener, winner } => {
                write!(
                    f,
                    "{winner} is older and has hostnames of this route on {listener}, so this route has none there"
                )
            }
            Self::DefaultLost { host, winner } => {
                write!(f, "what no rule of {host} takes goes to the default backend of {winner}, which is older")
            }
            Self::HostOwned { host, owner, shared: true } => {
                write!(f, "host {host} is shared with {owner}, which is older")
            }
            Self::HostOwned { host, owner, shared: false } => {
                write!(f, "host {host} belongs to the namespace of {owner}, which is older")
            }
            Self::TlsUnused { value, why } => write!(f, "{value} {why}, so no certificate is shown for it"),
            Self::CertificateMissing { secret, host } => {
                write!(f, "Secret {secret} does not exist, so {host} falls back to another certificate")
            }
            Self::CertificateBroken { secret, why } => {
                write!(f, "Secret {secret} holds no usable certificate ({why}), so its hosts fall back to another")
            }
            Self::CertificateElsewhere { secret, host } => {
                write!(f, "the certificate of Secret {secret} does not name {host}, which falls back to another")
            }
            Self::AddressRefused { address, why } => write!(f, "address {address} is left out: {why}"),
            Self::NameUnresolved { name, why } => write!(f, "{name} has no addresses ({why})"),
            Self::ClassUnknown { class } => write!(f, "IngressClass {class} does not exist, so it has no routes"),
            Self::WithoutEffect { value, why } => write!(f, "{value:?} has no effect: {why}"),
            Self::NoHost { why } => write!(f, "{why}, so it has no routes"),
            Self::RouterMissing { router } => {
                write!(
                    f,
                    "the Deployment {router} is not there, which says who may use applications, so every request is refused"
                )
            }
            Self::SetAside { why } => write!(f, "set aside until it changes: {why}"),
        }
    }
}
