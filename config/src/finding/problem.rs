//! All problems of objects: reason, severity and message.

use std::fmt;

use serde::Serialize;

use super::Severity;
use crate::object::{Kind, ObjectRef};

/// A problem of an object. The message of each variant states the consequence.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(tag = "reason")]
pub enum Problem {
    /// The object as a whole cannot be read; it has no routes.
    Unreadable {
        /// The reason, from the parser.
        why: String,
    },
    /// A match of a rule, or an entry of a list, cannot be read; that rule or entry is dropped.
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
    /// A setting that restricts access cannot be read, or is not enforced; the object's routes refuse every request.
    FailedClosed {
        /// The value as written.
        value: String,
        /// Why it cannot be read, or is not enforced.
        why: String,
    },
    /// The setting that requires TLS cannot be read; plain-text requests are redirected as if it were on.
    RedirectAssumed {
        /// The value as written.
        value: String,
        /// Why it cannot be read.
        why: String,
    },
    /// A route refers to an object that cannot be a backend; it answers 503.
    BackendUnusable {
        /// The reference as written.
        value: String,
        /// Why it cannot be used.
        why: String,
    },
    /// A filter or a backend of the Gateway API cannot be read; its requests are answered 500.
    FilterOrBackendInvalid {
        /// The value as written.
        value: String,
        /// Why it cannot be read.
        why: String,
    },
    /// A policy contradicts itself, cannot be read, has a condition that cannot be used, or is of a kind that is not
    /// served; it limits nothing.
    PolicyNotEnforced {
        /// The value as written.
        value: String,
        /// Why it cannot be used.
        why: String,
    },
    /// A limit of a policy cannot be used; it limits nothing.
    LimitNotEnforced {
        /// The value as written.
        value: String,
        /// Why it cannot be used.
        why: String,
    },
    /// A rule of a policy that restricts access, or all of its rules, cannot be used; the requests that the policy is
    /// for are refused.
    AccessClosed {
        /// The value as written.
        value: String,
        /// Why it cannot be used.
        why: String,
    },
    /// The setting that restricts the routes of a listener cannot be read; no route may attach.
    AttachmentRefused {
        /// The value as written.
        value: String,
        /// Why it cannot be read.
        why: String,
    },
    /// The Service of a route does not exist; the route answers 503.
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
    /// An older object, or an earlier rule of the same one, has the same rule; this one gets no requests.
    RuleLost {
        /// The host of the rule, `*` if it has none.
        host: String,
        /// The path of the rule and its kind, such as `prefix /a`.
        path: String,
        /// The object whose rule serves.
        winner: ObjectRef,
    },
    /// An older route already takes the connections or datagram flows of this host or listener; this route gets none
    /// there.
    ConnectionsLost {
        /// The host, and the route table of the listener.
        host: String,
        /// The route that takes them.
        winner: ObjectRef,
    },
    /// An older route of the other kind, HTTPRoute or GRPCRoute, has hostnames of this one on a listener; this one is
    /// not attached there.
    ListenerLost {
        /// The listener.
        listener: String,
        /// The route that is attached.
        winner: ObjectRef,
    },
    /// An older object has a default backend for the host; the default backend of this one gets no requests there.
    DefaultLost {
        /// The host, `*` if it has none.
        host: String,
        /// The object whose default backend serves.
        winner: ObjectRef,
    },
    /// The host belongs to the namespace of the oldest object that claims it. This object's rules for the host are not
    /// in effect, or, if hosts are shared, this is a warning only.
    HostOwned {
        /// The host.
        host: String,
        /// The oldest object that claims it.
        owner: ObjectRef,
        /// Whether the rules are in effect nevertheless, because hosts are shared.
        shared: bool,
    },
    /// A TLS entry is for server names that no rule of its object serves, so it is not used for them.
    TlsUnused {
        /// The host as written, or a description of it.
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
    CertificateNotForHost {
        /// The Secret.
        secret: String,
        /// The host that its names do not cover.
        host: String,
    },
    /// An address leads to the edge's own host or network, or to the API server, and is not used.
    AddressRefused {
        /// The address or name.
        address: String,
        /// Why it is refused.
        why: String,
    },
    /// The name of an ExternalName Service, whose routes answer 503, or of a server that a rule asks, has no addresses
    /// at present.
    NameUnresolved {
        /// The DNS name.
        name: String,
        /// The reason, from the resolver.
        why: String,
    },
    /// The class that the object names does not exist; it has no routes.
    ClassUnknown {
        /// The class.
        class: String,
    },
    /// A setting is unknown, or valid and without effect.
    WithoutEffect {
        /// The value as written.
        value: String,
        /// Why it has no effect, or what to use instead.
        why: String,
    },
    /// A path has characters of a pattern, and matches only itself and the paths below it.
    PathLiteral {
        /// The path as written.
        path: String,
    },
    /// An object asks for routes and names no usable host; it has no routes.
    NoHost {
        /// A description of the hosts it names instead.
        why: String,
    },
    /// The Deployment of the Deis router does not exist. It may restrict access to applications, so all access is
    /// refused.
    RouterMissing {
        /// The Deployment.
        router: String,
    },
    /// Another client keeps overwriting the status of objects of this class, or of this object. Both serve the routes.
    StatusContested {
        /// One of the objects.
        object: ObjectRef,
        /// The other client; `None` if it is unknown.
        writer: Option<String>,
    },
    /// The object was read, but Tidegate failed to process it. Its last result stays in effect until it changes.
    ProcessingFailed {
        /// The message of the failure.
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
            Self::FailedClosed { .. } => "FailedClosed",
            Self::RedirectAssumed { .. } => "RedirectAssumed",
            Self::BackendUnusable { .. } => "BackendUnusable",
            Self::FilterOrBackendInvalid { .. } => "FilterOrBackendInvalid",
            Self::PolicyNotEnforced { .. } => "PolicyNotEnforced",
            Self::LimitNotEnforced { .. } => "LimitNotEnforced",
            Self::AccessClosed { .. } => "AccessClosed",
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
            Self::CertificateNotForHost { .. } => "CertificateNotForHost",
            Self::AddressRefused { .. } => "AddressRefused",
            Self::NameUnresolved { .. } => "NameUnresolved",
            Self::ClassUnknown { .. } => "ClassUnknown",
            Self::WithoutEffect { .. } => "WithoutEffect",
            Self::PathLiteral { .. } => "PathLiteral",
            Self::NoHost { .. } => "NoHost",
            Self::RouterMissing { .. } => "RouterMissing",
            Self::StatusContested { .. } => "StatusContested",
            Self::ProcessingFailed { .. } => "ProcessingFailed",
        }
    }

    /// The severity.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        match self {
            Self::SettingIgnored { .. }
            | Self::RedirectAssumed { .. }
            | Self::WithoutEffect { .. }
            | Self::PathLiteral { .. }
            | Self::StatusContested { .. }
            | Self::HostOwned { shared: true, .. } => Severity::Warning,
            Self::Unreadable { .. }
            | Self::RuleDropped { .. }
            | Self::FailedClosed { .. }
            | Self::BackendUnusable { .. }
            | Self::FilterOrBackendInvalid { .. }
            | Self::PolicyNotEnforced { .. }
            | Self::LimitNotEnforced { .. }
            | Self::AccessClosed { .. }
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
            | Self::CertificateNotForHost { .. }
            | Self::AddressRefused { .. }
            | Self::NameUnresolved { .. }
            | Self::ClassUnknown { .. }
            | Self::NoHost { .. }
            | Self::RouterMissing { .. }
            | Self::ProcessingFailed { .. } => Severity::Error,
        }
    }
}

/// Writes a value, its fault and the consequence, without the value if it is missing.
fn write_wrong(f: &mut fmt::Formatter<'_>, value: &str, why: &str, so: &str) -> fmt::Result {
    if value.is_empty() && why.starts_with("is required but ") {
        write!(f, "{why}, so {}", if so == DROPPED { "the entry is dropped" } else { so })
    } else {
        write!(f, "{value:?} {why}, so {so}")
    }
}

/// Writes that a host is claimed by an older object, with the consequence.
fn write_owned(f: &mut fmt::Formatter<'_>, host: &str, owner: &ObjectRef, shared: bool) -> fmt::Result {
    if shared {
        write!(f, "host {host} is shared with {owner}, which is older: its rule wins where both have one path")
    } else {
        write!(f, "host {host} belongs to the namespace of {owner}, which is older, ")?;
        f.write_str("so this object's rules for it have no effect")
    }
}

/// Writes that an older route has the connections or datagrams for a host.
fn write_connections_lost(f: &mut fmt::Formatter<'_>, host: &str, winner: &ObjectRef) -> fmt::Result {
    let what = if winner.kind == Kind::UdpRoute { "datagrams" } else { "connections" };
    write!(f, "{what} for {host} go to {winner}, which is older")
}

const OLDER_WINS: &str = "the older object, or the earlier rule of one object, wins";
const NOT_ATTACHED: &str = "so this route is not attached there";
const DROPPED: &str = "it is dropped";
const REDIRECTED: &str = "plain-text requests are redirected to https";
const ANSWERED_500: &str = "the edge answers 500 in its place";
const LAST_RESULT_STAYS: &str = "its last result stays in effect until it changes, but not over a restart";
const CONTESTED: &str = "so repairs become rare; the routes are served all the same. \
    Edges of one class need the same --lease, or a class each";
const PATTERNS: &str = "an HTTPRoute can have regular expressions";

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { why } => write!(f, "cannot be read ({why}), so it has no routes"),
            Self::RuleDropped { value, why } => write_wrong(f, value, why, DROPPED),
            Self::SettingIgnored { value, why } => write_wrong(f, value, why, "the default applies"),
            Self::FailedClosed { value, why } => write_wrong(f, value, why, "every request is refused"),
            Self::RedirectAssumed { value, why } => write_wrong(f, value, why, REDIRECTED),
            Self::BackendUnusable { value, why } => write!(f, "{value} {why}, so the route answers 503"),
            Self::FilterOrBackendInvalid { value, why } => write_wrong(f, value, why, ANSWERED_500),
            Self::PolicyNotEnforced { value, why } => write_wrong(f, value, why, "the policy is not enforced"),
            Self::LimitNotEnforced { value, why } => write_wrong(f, value, why, "the limit is not enforced"),
            Self::AccessClosed { value, why } => write_wrong(f, value, why, "requests under the policy are refused"),
            Self::AttachmentRefused { value, why } => write_wrong(f, value, why, "nothing may attach there"),
            Self::ServiceMissing { service } => {
                write!(f, "Service {service} does not exist, so the route answers 503")
            }
            Self::PortMissing { service, port } => {
                write!(f, "Service {service} has no port {port}, so the route answers 503")
            }
            Self::RuleLost { host, path, winner } => {
                write!(f, "{path} of {host} is served by {winner}: {OLDER_WINS}")
            }
            Self::ConnectionsLost { host, winner } => write_connections_lost(f, host, winner),
            Self::ListenerLost { listener, winner } => {
                write!(f, "{winner} is older and has some of the hostnames on {listener}, {NOT_ATTACHED}")
            }
            Self::DefaultLost { host, winner } => {
                write!(
                    f,
                    "requests for {host} that match no rule go to the default backend of {winner}, which is older"
                )
            }
            Self::HostOwned { host, owner, shared } => write_owned(f, host, owner, *shared),
            Self::TlsUnused { value, why } => write!(f, "{value} {why}, so no certificate is presented for it"),
            Self::CertificateMissing { secret, host } => {
                write!(f, "Secret {secret} does not exist, so {host} falls back to another certificate")
            }
            Self::CertificateBroken { secret, why } => {
                write!(f, "Secret {secret} holds no usable certificate ({why}), so its hosts fall back to another")
            }
            Self::CertificateNotForHost { secret, host } => {
                write!(f, "the certificate of Secret {secret} does not name {host}, which falls back to another")
            }
            Self::AddressRefused { address, why } => write!(f, "address {address} is not used: {why}"),
            Self::NameUnresolved { name, why } => write!(f, "{name} has no addresses ({why})"),
            Self::ClassUnknown { class } => {
                write!(f, "IngressClass {class} does not exist, so this object has no routes")
            }
            Self::WithoutEffect { value, why } => write!(f, "{value:?} has no effect: {why}"),
            Self::PathLiteral { path } => {
                write!(
                    f,
                    "{path:?} looks like a pattern, but an Ingress path matches only itself and the paths below it; {PATTERNS}"
                )
            }
            Self::NoHost { why } => write!(f, "{why}, so it has no routes"),
            Self::RouterMissing { router } => {
                write!(
                    f,
                    "Deployment {router} does not exist; it may restrict access to applications, so every request is refused"
                )
            }
            Self::StatusContested { object, writer } => {
                let writer = writer.as_deref().unwrap_or("another client");
                write!(f, "{writer} keeps overwriting the status of {object}, {CONTESTED}")
            }
            Self::ProcessingFailed { why } => {
                write!(f, "could not be processed (internal error: {why}); {LAST_RESULT_STAYS}")
            }
        }
    }
}
