//! Listeners of Gateways and ListenerSets.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::allowed::AllowedRoutes;
use super::hostname::hostname;
use super::reference::{Form, ObjectReference, Unreadable, checked, port, reference, section};
use crate::model::HostPattern;
use crate::object::{Kind, ObjectName};
use crate::project::field::{FindingList, InvalidValue, read};

/// The maximum number of listeners of one object.
pub(super) const LISTENERS_MAX: usize = 64;
/// The maximum number of certificates of one listener.
const CERTIFICATES_MAX: usize = 64;
/// The maximum number of options of one listener.
pub(super) const OPTIONS_MAX: usize = 16;

/// Text values by key.
pub type Options = BTreeMap<Arc<str>, Arc<str>>;

/// One listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// The field, such as `spec.listeners[1]`.
    pub field: Arc<str>,
    /// Its name, unique within the object.
    pub name: Arc<str>,
    /// Its specification. If a part of it that selects requests cannot be read, it takes no requests.
    pub spec: Result<ListenerSpec, Unreadable>,
}

/// The specification of a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerSpec {
    /// The hosts that it takes.
    pub host: HostPattern,
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: ListenerProtocol,
    /// `tls`, if present.
    pub tls: Option<ListenerTls>,
    /// The routes that may attach.
    pub routes: AllowedRoutes,
}

/// The protocol of a listener.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ListenerProtocol {
    /// Plain-text HTTP.
    Http,
    /// HTTP over TLS, which ends here.
    Https,
    /// TLS, which ends here or is passed on.
    Tls,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Another protocol, which Tidegate does not support.
    Other(Arc<str>),
}

impl fmt::Display for ListenerProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "HTTP",
            Self::Https => "HTTPS",
            Self::Tls => "TLS",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Other(text) => text,
        })
    }
}

/// `tls` of a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerTls {
    /// The end of TLS.
    pub mode: TlsMode,
    /// The Secrets, or other objects, with its certificates. A reference that cannot be read counts as one to a missing
    /// object.
    pub certificates: Box<[Result<ObjectReference, Unreadable>]>,
    /// `options`. None are defined.
    pub options: Options,
}

/// The end of TLS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TlsMode {
    /// At the edge.
    Terminate,
    /// At the endpoint.
    Passthrough,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct NameJson {
    name: Option<Arc<str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct ListenerJson<'a> {
    hostname: Option<String>,
    port: Option<i64>,
    protocol: Option<Arc<str>>,
    #[serde(borrow)]
    tls: Option<&'a RawValue>,
    #[serde(borrow)]
    allowed_routes: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct TlsJson<'a> {
    mode: Option<String>,
    #[serde(borrow)]
    certificate_refs: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    options: Option<&'a RawValue>,
}

/// The listeners with a valid name, by which status and routes refer to them. The first of two with the same name is
/// kept.
pub(super) fn listeners(list: Option<Vec<&RawValue>>, own: &ObjectName, findings: &mut FindingList) -> Box<[Listener]> {
    let mut listeners: Vec<Listener> = Vec::new();
    for (field, raw) in findings.entries(list, LISTENERS_MAX, "spec.listeners") {
        let Some(json) = findings.entry::<NameJson>(raw, &field) else { continue };
        let name = match checked(json.name, &field, "name", section) {
            Ok(name) => name,
            Err(invalid) => {
                findings.invalid(&invalid);
                continue;
            }
        };
        if listeners.iter().any(|listener| listener.name == name) {
            findings.dropped(&format!("{field}.name"), &name, "is the name of an earlier listener");
            continue;
        }
        let spec = listener(raw, &field, own, findings).map_err(|invalid| findings.invalid(&invalid));
        listeners.push(Listener { field: field.into(), name, spec });
    }
    listeners.into()
}

fn listener(
    raw: &RawValue,
    field: &str,
    own: &ObjectName,
    findings: &mut FindingList,
) -> Result<ListenerSpec, InvalidValue> {
    let json: ListenerJson<'_> = read(raw, field)?;
    let host = match json.hostname.filter(|text| !text.is_empty()) {
        None => HostPattern::Any,
        Some(text) => hostname(&text).map_err(|why| InvalidValue {
            field: format!("{field}.hostname"),
            value: text,
            why: why.to_owned(),
        })?,
    };
    let port = port(json.port.unwrap_or_default(), &format!("{field}.port"))?;
    let protocol = checked(json.protocol, field, "protocol", |text| {
        if (1..=255).contains(&text.len()) { Ok(()) } else { Err("is not between 1 and 255 characters long") }
    })?;
    let protocol = match &*protocol {
        "HTTP" => ListenerProtocol::Http,
        "HTTPS" => ListenerProtocol::Https,
        "TLS" => ListenerProtocol::Tls,
        "TCP" => ListenerProtocol::Tcp,
        "UDP" => ListenerProtocol::Udp,
        _ => ListenerProtocol::Other(protocol),
    };
    let tls = json.tls.map(|raw| tls(raw, &format!("{field}.tls"), own, findings)).transpose()?;
    let routes = AllowedRoutes::read(json.allowed_routes, &format!("{field}.allowedRoutes"), findings);
    Ok(ListenerSpec { host, port, protocol, tls, routes })
}

fn tls(raw: &RawValue, field: &str, own: &ObjectName, findings: &mut FindingList) -> Result<ListenerTls, InvalidValue> {
    let json: TlsJson<'_> = read(raw, field)?;
    let mode = match json.mode.as_deref() {
        None | Some("Terminate") => TlsMode::Terminate,
        Some("Passthrough") => TlsMode::Passthrough,
        Some(text) => {
            let why = "is neither Terminate nor Passthrough".to_owned();
            return Err(InvalidValue { field: format!("{field}.mode"), value: text.to_owned(), why });
        }
    };
    let entries = findings.entries(json.certificate_refs, CERTIFICATES_MAX, &format!("{field}.certificateRefs"));
    let certificates = entries
        .map(|(field, raw)| {
            reference(raw, &field, own, Form::of(Kind::Secret)).map_err(|invalid| findings.invalid(&invalid))
        })
        .collect();
    let options = options(json.options, &format!("{field}.options"), findings);
    Ok(ListenerTls { mode, certificates, options })
}

/// Reads texts by key; the first ones in the order of keys if there are too many.
pub(super) fn options(raw: Option<&RawValue>, field: &str, findings: &mut FindingList) -> Options {
    texts(raw, field, OPTIONS_MAX, findings)
}

/// Like [`options`], with a given limit.
pub(super) fn texts(raw: Option<&RawValue>, field: &str, limit: usize, findings: &mut FindingList) -> Options {
    let Some(raw) = raw else { return Options::new() };
    let mut texts: Options = match read(raw, field) {
        Ok(texts) => texts,
        Err(invalid) => {
            findings.ignored(&invalid.field, &invalid.value, &invalid.why);
            return Options::new();
        }
    };
    if let Some(more @ 1..) = texts.len().checked_sub(limit) {
        findings.dropped(field, &format!("{more} more entries"), format_args!("exceed the limit of {limit}"));
        texts = texts.into_iter().take(limit).collect();
    }
    texts
}
