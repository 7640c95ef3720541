//! Listeners, as Gateways and ListenerSets write them.

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
use crate::project::field::{Found, Misread, read};

/// Listeners that are read of one object.
pub(super) const LISTENERS_MAX: usize = 64;
/// Certificates that are read of one listener.
const CERTIFICATES_MAX: usize = 64;
/// Options that are read of one listener.
pub(super) const OPTIONS_MAX: usize = 16;

/// Text values by key.
pub type Options = BTreeMap<Arc<str>, Arc<str>>;

/// One listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// The field, such as `spec.listeners[1]`.
    pub field: Arc<str>,
    /// Its name, which no other listener of the object has.
    pub name: Arc<str>,
    /// What it asks for. Where a part of it cannot be read that says which requests it takes, it takes none.
    pub spec: Result<ListenerSpec, Unreadable>,
}

/// What a listener asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerSpec {
    /// The hosts that it takes.
    pub host: HostPattern,
    /// The port.
    pub port: u16,
    /// What is spoken.
    pub protocol: ListenerProtocol,
    /// `tls`, where it is written.
    pub tls: Option<ListenerTls>,
    /// Who may attach.
    pub routes: AllowedRoutes,
}

/// What a listener speaks.
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
    /// Another one, which is nothing that Tidegate speaks.
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
    /// Where TLS ends.
    pub mode: TlsMode,
    /// The Secrets, or other objects, with its certificates. One that cannot be read is one that does not exist.
    pub certificates: Box<[Result<ObjectReference, Unreadable>]>,
    /// `options`, which nothing says the meaning of.
    pub options: Options,
}

/// Where TLS ends.
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

/// The listeners that have a name, which is what status and routes know them by. Of two with one name the first stays.
pub(super) fn listeners(list: Option<Vec<&RawValue>>, own: &ObjectName, found: &mut Found) -> Box<[Listener]> {
    let mut listeners: Vec<Listener> = Vec::new();
    for (field, raw) in found.entries(list, LISTENERS_MAX, "spec.listeners") {
        let Some(json) = found.entry::<NameJson>(raw, &field) else { continue };
        let name = match checked(json.name, &field, "name", section) {
            Ok(name) => name,
            Err(misread) => {
                found.misread(&misread);
                continue;
            }
        };
        if listeners.iter().any(|listener| listener.name == name) {
            found.dropped(&format!("{field}.name"), &name, "is the name of an earlier listener");
            continue;
        }
        let spec = listener(raw, &field, own, found).map_err(|misread| found.misread(&misread));
        listeners.push(Listener { field: field.into(), name, spec });
    }
    listeners.into()
}

fn listener(raw: &RawValue, field: &str, own: &ObjectName, found: &mut Found) -> Result<ListenerSpec, Misread> {
    let json: ListenerJson<'_> = read(raw, field)?;
    let host = match json.hostname.filter(|text| !text.is_empty()) {
        None => HostPattern::Any,
        Some(text) => hostname(&text).map_err(|why| Misread {
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
    let tls = json.tls.map(|raw| tls(raw, &format!("{field}.tls"), own, found)).transpose()?;
    let routes = AllowedRoutes::read(json.allowed_routes, &format!("{field}.allowedRoutes"), found);
    Ok(ListenerSpec { host, port, protocol, tls, routes })
}

fn tls(raw: &RawValue, field: &str, own: &ObjectName, found: &mut Found) -> Result<ListenerTls, Misread> {
    let json: TlsJson<'_> = read(raw, field)?;
    let mode = match json.mode.as_deref() {
        None | Some("Terminate") => TlsMode::Terminate,
        Some("Passthrough") => TlsMode::Passthrough,
        Some(text) => {
            let why = "is neither Terminate nor Passthrough".to_owned();
            return Err(Misread { field: format!("{field}.mode"), value: text.to_owned(), why });
        }
    };
    let entries = found.entries(json.certificate_refs, CERTIFICATES_MAX, &format!("{field}.certificateRefs"));
    let certificates = entries
        .map(|(field, raw)| {
            reference(raw, &field, own, Form::of(Kind::Secret)).map_err(|misread| found.misread(&misread))
        })
        .collect();
    let options = options(json.options, &format!("{field}.options"), found);
    Ok(ListenerTls { mode, certificates, options })
}

/// Reads texts by key, the first ones in the order of keys where there are too many.
pub(super) fn options(raw: Option<&RawValue>, field: &str, found: &mut Found) -> Options {
    texts(raw, field, OPTIONS_MAX, found)
}

/// As above, with a limit.
pub(super) fn texts(raw: Option<&RawValue>, field: &str, limit: usize, found: &mut Found) -> Options {
    let Some(raw) = raw else { return Options::new() };
    let mut texts: Options = match read(raw, field) {
        Ok(texts) => texts,
        Err(misread) => {
            found.ignored(&misread.field, &misread.value, &misread.why);
            return Options::new();
        }
    };
    if let Some(more @ 1..) = texts.len().checked_sub(limit) {
        found.dropped(field, &format!("{more} more entries"), format_args!("go beyond the limit of {limit}"));
        texts = texts.into_iter().take(limit).collect();
    }
    texts
}
