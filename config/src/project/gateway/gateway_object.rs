//! Gateway (`gateway.networking.k8s.io/v1`): listeners, addresses, and infrastructure.

use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::allowed::AllowedNamespaces;
use super::gateway_tls::{GatewayTls, gateway_tls};
use super::hostname::precise_hostname;
use super::listener::{Listener, Options, listeners, texts};
use super::reference::{Form, ObjectReference, Unreadable, reference};
use super::status::assigned;
use crate::object::{Age, ObjectName};
use crate::project::field::{FindingList, InvalidValue, read, read_or_default};
use crate::project::raw_object::{RawObject, created_s};
use crate::project::{Projection, Sharing};

/// The maximum number of addresses read of one Gateway.
const ADDRESSES_MAX: usize = 16;
/// The maximum number of labels in `infrastructure`.
const LABELS_MAX: usize = 8;
/// The maximum number of annotations in `infrastructure`.
const ANNOTATIONS_MAX: usize = 16;

/// The parts of a Gateway that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gateway {
    /// Its name and age.
    pub age: Age,
    /// `spec.gatewayClassName`: the GatewayClass. No class has an empty name.
    pub class: ObjectName,
    /// `spec.listeners`.
    pub listeners: Box<[Listener]>,
    /// `spec.addresses`: the requested addresses; empty leaves the choice to the edge.
    pub addresses: Box<[GatewayAddress]>,
    /// `spec.infrastructure`.
    pub infrastructure: Infrastructure,
    /// `spec.allowedListeners.namespaces`: the namespaces whose ListenerSets may attach.
    pub allowed_listeners: AllowedNamespaces,
    /// `spec.tls`.
    pub tls: GatewayTls,
    /// The IP addresses in `status.addresses`: those assigned before, which it keeps if possible.
    pub assigned: Box<[IpAddr]>,
}

/// A requested address of a Gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GatewayAddress {
    /// An IP address; `None` for any.
    Ip(Option<IpAddr>),
    /// A DNS name; `None` for any.
    Hostname(Option<Arc<str>>),
    /// An address of another type, or an invalid one.
    Unsupported {
        /// The type.
        kind: Arc<str>,
        /// The value as written.
        value: Arc<str>,
    },
}

/// `spec.infrastructure`: settings of the objects that are created for a Gateway.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Infrastructure {
    /// Labels for them.
    pub labels: Options,
    /// Annotations for them.
    pub annotations: Options,
    /// A reference to parameters. One that cannot be read counts as one to a missing object.
    pub parameters: Option<Result<ObjectReference, Unreadable>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct SpecJson<'a> {
    gateway_class_name: Option<Arc<str>>,
    #[serde(borrow)]
    listeners: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    addresses: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    infrastructure: Option<&'a RawValue>,
    #[serde(borrow)]
    allowed_listeners: Option<&'a RawValue>,
    #[serde(borrow)]
    tls: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct AddressJson {
    #[serde(rename = "type")]
    kind: Option<Arc<str>>,
    value: Option<Arc<str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct InfrastructureJson<'a> {
    #[serde(borrow)]
    labels: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
    #[serde(borrow)]
    parameters_ref: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct AllowedListenersJson<'a> {
    #[serde(borrow)]
    namespaces: Option<&'a RawValue>,
}

impl Sharing for Gateway {}

impl Projection for Gateway {
    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let spec: SpecJson<'_> = read_or_default(source.spec, "spec")?;
        let name = source.name();
        Ok(Self {
            age: Age { created_s: created_s(source.created, findings), name: name.clone() },
            class: ObjectName::new("", spec.gateway_class_name.unwrap_or_default()),
            listeners: listeners(spec.listeners, name, findings),
            addresses: addresses(spec.addresses, findings),
            infrastructure: infrastructure(spec.infrastructure, name, findings),
            allowed_listeners: allowed_listeners(spec.allowed_listeners, findings),
            tls: gateway_tls(spec.tls, name, findings),
            assigned: assigned(source.status),
        })
    }
}

fn addresses(list: Option<Vec<&RawValue>>, findings: &mut FindingList) -> Box<[GatewayAddress]> {
    let entries = findings.entries(list, ADDRESSES_MAX, "spec.addresses");
    entries.filter_map(|(field, raw)| Some(address(findings.entry(raw, &field)?, &field, findings))).collect()
}

fn address(json: AddressJson, field: &str, findings: &mut FindingList) -> GatewayAddress {
    let value = json.value.unwrap_or_default();
    let kind = json.kind.unwrap_or_else(|| "IPAddress".into());
    let why = match (&*kind, &*value) {
        ("IPAddress", "") => return GatewayAddress::Ip(None),
        ("Hostname", "") => return GatewayAddress::Hostname(None),
        ("IPAddress", text) => match text.parse() {
            Ok(address) => return GatewayAddress::Ip(Some(address)),
            Err(_) => "is not an IP address",
        },
        ("Hostname", text) => match precise_hostname(text) {
            Ok(name) => return GatewayAddress::Hostname(Some(name)),
            Err(why) => why,
        },
        // This is not an error: the type belongs to another implementation.
        _ => return GatewayAddress::Unsupported { kind, value },
    };
    findings.dropped(&format!("{field}.value"), &value, why);
    GatewayAddress::Unsupported { kind, value }
}

fn infrastructure(raw: Option<&RawValue>, own: &ObjectName, findings: &mut FindingList) -> Infrastructure {
    const FIELD: &str = "spec.infrastructure";
    let Some(raw) = raw else { return Infrastructure::default() };
    let json: InfrastructureJson<'_> = match read(raw, FIELD) {
        Ok(json) => json,
        Err(invalid) => {
            findings.invalid(&invalid);
            return Infrastructure { parameters: Some(Err(Unreadable)), ..Infrastructure::default() };
        }
    };
    let parameters = json.parameters_ref.map(|raw| {
        let read = reference(raw, &format!("{FIELD}.parametersRef"), own, Form::LOCAL);
        read.map_err(|invalid| findings.invalid(&invalid))
    });
    Infrastructure {
        labels: texts(json.labels, &format!("{FIELD}.labels"), LABELS_MAX, findings),
        annotations: texts(json.annotations, &format!("{FIELD}.annotations"), ANNOTATIONS_MAX, findings),
        parameters,
    }
}

fn allowed_listeners(raw: Option<&RawValue>, findings: &mut FindingList) -> AllowedNamespaces {
    const FIELD: &str = "spec.allowedListeners";
    let Some(raw) = raw else { return AllowedNamespaces::None };
    match read::<AllowedListenersJson<'_>>(raw, FIELD) {
        Ok(json) => {
            AllowedNamespaces::read(json.namespaces, &format!("{FIELD}.namespaces"), AllowedNamespaces::None, findings)
        }
        Err(invalid) => {
            findings.attachment_refused(&invalid.field, &invalid.value, &invalid.why);
            AllowedNamespaces::None
        }
    }
}
