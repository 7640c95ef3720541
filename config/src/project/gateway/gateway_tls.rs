//! `spec.tls` of a Gateway: the verification of client certificates, and its own certificate as a client.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::reference::{Form, ObjectReference, Unreadable, port, reference};
use crate::object::{Kind, ObjectName};
use crate::project::field::{FindingList, InvalidValue, read};

/// The maximum number of ports in `perPort`.
const PORTS_MAX: usize = 64;
/// The maximum number of references to authorities in one validation.
const AUTHORITIES_MAX: usize = 16;

/// `spec.tls`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GatewayTls {
    /// The verification of client certificates, unless a port overrides it; `None` requests no certificate.
    pub frontend: Option<ClientValidation>,
    /// The ports with a verification of their own, in ascending order. It replaces `frontend`.
    pub by_port: Box<[(u16, Option<ClientValidation>)]>,
    /// `backend.clientCertificateRef`: the edge's certificate for endpoints. A reference that cannot be read counts as
    /// one to a missing object.
    pub backend: Option<Result<ObjectReference, Unreadable>>,
}

impl GatewayTls {
    /// The verification of client certificates on a port.
    #[must_use]
    pub fn validation(&self, port: u16) -> Option<&ClientValidation> {
        match self.by_port.binary_search_by_key(&port, |(port, _)| *port).ok().and_then(|index| self.by_port.get(index))
        {
            Some((_, own)) => own.as_ref(),
            None => self.frontend.as_ref(),
        }
    }
}

/// The verification of client certificates. Without a usable authority no certificate is valid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientValidation {
    /// The treatment of clients without a valid certificate.
    pub mode: ValidationMode,
    /// The objects with the authorities. A reference that cannot be read counts as one to a missing object.
    pub authorities: Arc<[Result<ObjectReference, Unreadable>]>,
}

/// The treatment of clients without a valid certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ValidationMode {
    /// They are refused. Also the value for a mode that cannot be read.
    AllowValidOnly,
    /// They are accepted.
    AllowInsecureFallback,
}

impl ClientValidation {
    /// Refuses all clients: the value for a validation that cannot be read.
    fn closed() -> Self {
        Self { mode: ValidationMode::AllowValidOnly, authorities: Arc::default() }
    }
}

#[derive(Deserialize, Default)]
#[serde(expecting = "an object")]
struct TlsJson<'a> {
    #[serde(borrow)]
    frontend: Option<&'a RawValue>,
    #[serde(borrow)]
    backend: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct FrontendJson<'a> {
    #[serde(borrow)]
    default: Option<&'a RawValue>,
    #[serde(borrow)]
    per_port: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct PortJson<'a> {
    port: Option<i64>,
    #[serde(borrow)]
    tls: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(expecting = "an object")]
struct ConfigJson<'a> {
    #[serde(borrow)]
    validation: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct ValidationJson<'a> {
    mode: Option<String>,
    #[serde(borrow)]
    ca_certificate_refs: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct BackendJson<'a> {
    #[serde(borrow)]
    client_certificate_ref: Option<&'a RawValue>,
}

/// Reads `spec.tls`.
pub(super) fn gateway_tls(raw: Option<&RawValue>, own: &ObjectName, findings: &mut FindingList) -> GatewayTls {
    let mut reader = Reader { own, findings };
    let Some(raw) = raw else { return GatewayTls::default() };
    let mut tls = GatewayTls::default();
    match read::<TlsJson<'_>>(raw, "spec.tls") {
        Ok(json) => {
            if let Some(raw) = json.frontend {
                (tls.frontend, tls.by_port) = reader.frontend(raw);
            }
            tls.backend = json.backend.and_then(|raw| reader.backend(raw));
        }
        Err(invalid) => {
            reader.closed(&invalid);
            tls.frontend = Some(ClientValidation::closed());
        }
    }
    tls
}

type Frontend = (Option<ClientValidation>, Box<[(u16, Option<ClientValidation>)]>);

struct Reader<'r> {
    own: &'r ObjectName,
    findings: &'r mut FindingList,
}

impl Reader<'_> {
    fn closed(&mut self, invalid: &InvalidValue) {
        self.findings.closed(&invalid.field, &invalid.value, &invalid.why);
    }

    /// An entry whose port cannot be read could be for any port, so every port is closed.
    fn frontend(&mut self, raw: &RawValue) -> Frontend {
        self.try_frontend(raw).unwrap_or_else(|invalid| {
            self.closed(&invalid);
            (Some(ClientValidation::closed()), Box::default())
        })
    }

    fn try_frontend(&mut self, raw: &RawValue) -> Result<Frontend, InvalidValue> {
        const FIELD: &str = "spec.tls.frontend";
        let json: FrontendJson<'_> = read(raw, FIELD)?;
        let default = json.default.and_then(|raw| self.config(raw, &format!("{FIELD}.default")));
        let list = json.per_port.unwrap_or_default();
        if list.len() > PORTS_MAX {
            return Err(InvalidValue {
                field: format!("{FIELD}.perPort"),
                value: format!("{} entries", list.len()),
                why: format!("exceed the limit of {PORTS_MAX}"),
            });
        }
        let mut by_port: Vec<(u16, Option<ClientValidation>)> = Vec::new();
        for (number, raw) in list.into_iter().enumerate() {
            let field = format!("{FIELD}.perPort[{number}]");
            let json: PortJson<'_> = read(raw, &field)?;
            let port = port(json.port.unwrap_or_default(), &format!("{field}.port"))?;
            let own = json.tls.and_then(|raw| self.config(raw, &format!("{field}.tls")));
            match by_port.binary_search_by_key(&port, |(port, _)| *port) {
                Ok(_) => {
                    let why = "is also the port of an earlier entry".to_owned();
                    return Err(InvalidValue { field: format!("{field}.port"), value: port.to_string(), why });
                }
                Err(index) => by_port.insert(index, (port, own)),
            }
        }
        Ok((default, by_port.into()))
    }

    fn config(&mut self, raw: &RawValue, field: &str) -> Option<ClientValidation> {
        match read::<ConfigJson<'_>>(raw, field) {
            Ok(json) => json.validation.map(|raw| self.validation(raw, &format!("{field}.validation"))),
            Err(invalid) => {
                self.closed(&invalid);
                Some(ClientValidation::closed())
            }
        }
    }

    fn validation(&mut self, raw: &RawValue, field: &str) -> ClientValidation {
        let json: ValidationJson<'_> = match read(raw, field) {
            Ok(json) => json,
            Err(invalid) => {
                self.closed(&invalid);
                return ClientValidation::closed();
            }
        };
        let mode = match json.mode.as_deref() {
            None | Some("AllowValidOnly") => ValidationMode::AllowValidOnly,
            Some("AllowInsecureFallback") => ValidationMode::AllowInsecureFallback,
            Some(text) => {
                let why = "is neither AllowValidOnly nor AllowInsecureFallback";
                self.findings.ignored(&format!("{field}.mode"), text, why);
                ValidationMode::AllowValidOnly
            }
        };
        let refs = json.ca_certificate_refs;
        let entries = self.findings.entries(refs, AUTHORITIES_MAX, &format!("{field}.caCertificateRefs"));
        let authorities = entries.map(|(field, raw)| {
            reference(raw, &field, self.own, Form::ANY).map_err(|invalid| self.findings.invalid(&invalid))
        });
        ClientValidation { mode, authorities: authorities.collect() }
    }

    fn backend(&mut self, raw: &RawValue) -> Option<Result<ObjectReference, Unreadable>> {
        const FIELD: &str = "spec.tls.backend";
        match read::<BackendJson<'_>>(raw, FIELD) {
            Ok(json) => json.client_certificate_ref.map(|raw| {
                let field = format!("{FIELD}.clientCertificateRef");
                let read = reference(raw, &field, self.own, Form::of(Kind::Secret));
                read.map_err(|invalid| self.findings.invalid(&invalid))
            }),
            Err(invalid) => Some(Err(self.findings.invalid(&invalid))),
        }
    }
}
