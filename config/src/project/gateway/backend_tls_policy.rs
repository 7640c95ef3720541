//! BackendTLSPolicy (`gateway.networking.k8s.io/v1`): TLS of the edge with Services.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::header_edits::within;
use super::hostname::{hostname, precise_hostname};
use super::listener::{Options, options};
use super::reference::{Form, ObjectReference, Unreadable, checked, reference};
use crate::finding::printable;
use crate::model::HostPattern;
use crate::object::{Age, ObjectName};
use crate::project::field::{FindingList, InvalidValue, read, read_or_default};
use crate::project::raw_object::{RawObject, created_s};
use crate::project::{Projection, Sharing};

/// The maximum number of targets read of one policy.
const TARGETS_MAX: usize = 16;
/// The maximum number of references to authorities.
const AUTHORITIES_MAX: usize = 8;
/// The maximum number of subject alternative names.
const NAMES_MAX: usize = 5;
/// The maximum length of a URI in bytes.
const URI_BYTES_MAX: usize = 253;

/// The parts of a BackendTLSPolicy that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackendTlsPolicy {
    /// Its name and age.
    pub age: Age,
    /// `spec.targetRefs`.
    pub targets: Box<[PolicyTarget]>,
    /// `spec.validation`. If it cannot be read, the targets get no requests, neither in plain text nor unverified.
    pub validation: Result<BackendValidation, Unreadable>,
    /// `spec.options`. None are defined.
    pub options: Options,
}

/// A target of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyTarget {
    /// A Service, or another object, of the same namespace.
    pub object: ObjectReference,
    /// The name of one of its ports; `None` for all ports, also if the name cannot be read.
    pub section: Option<Arc<str>>,
}

/// The verification of endpoint certificates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackendValidation {
    /// The trusted authorities.
    pub authorities: CaBundle,
    /// The server name of handshakes; verified if `names` is empty.
    pub hostname: Arc<str>,
    /// The names of which a certificate must have one instead.
    pub names: Box<[SubjectAltName]>,
}

/// The trusted authorities.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CaBundle {
    /// Those of the system.
    System,
    /// Those in these objects. A reference that cannot be read counts as one to a missing object.
    These(Box<[Result<ObjectReference, Unreadable>]>),
}

/// A subject alternative name of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SubjectAltName {
    /// A DNS name.
    Hostname(HostPattern),
    /// A URI.
    Uri(Arc<str>),
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct SpecJson<'a> {
    #[serde(borrow)]
    target_refs: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    validation: Option<&'a RawValue>,
    #[serde(borrow)]
    options: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct TargetJson<'a> {
    #[serde(borrow)]
    section_name: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct ValidationJson<'a> {
    #[serde(borrow)]
    ca_certificate_refs: Option<Vec<&'a RawValue>>,
    #[serde(rename = "wellKnownCACertificates")]
    well_known: Option<String>,
    hostname: Option<String>,
    subject_alt_names: Option<Vec<NameJson>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct NameJson {
    #[serde(rename = "type")]
    kind: Option<String>,
    hostname: Option<String>,
    uri: Option<Arc<str>>,
}

impl Sharing for BackendTlsPolicy {}

impl Projection for BackendTlsPolicy {
    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
        const FIELD: &str = "spec.validation";
        let spec: SpecJson<'_> = read_or_default(source.spec, "spec")?;
        let own = source.name();
        let age = Age { created_s: created_s(source.created, findings), name: own.clone() };
        let targets = findings.entries(spec.target_refs, TARGETS_MAX, "spec.targetRefs");
        let targets = targets.filter_map(|(field, raw)| target(raw, &field, own, findings)).collect();
        let missing = || fault(FIELD.to_owned(), "", "is required but missing");
        let validation = spec.validation.ok_or_else(missing).and_then(|raw| validation(raw, FIELD, own, findings));
        let validation = validation.map_err(|invalid| {
            findings.closed(&invalid.field, &invalid.value, &invalid.why);
            Unreadable
        });
        Ok(Self { age, targets, validation, options: options(spec.options, "spec.options", findings) })
    }
}

fn fault(field: String, value: &str, why: &str) -> InvalidValue {
    InvalidValue { field, value: printable(value), why: why.to_owned() }
}

/// A section name that cannot be read selects every port, so that no port is left without TLS.
fn target(raw: &RawValue, field: &str, own: &ObjectName, findings: &mut FindingList) -> Option<PolicyTarget> {
    let object = reference(raw, field, own, Form::LOCAL).map_err(|invalid| findings.invalid(&invalid)).ok()?;
    let json: TargetJson<'_> = findings.entry(raw, field)?;
    let section = json.section_name.and_then(|raw| {
        let field = format!("{field}.sectionName");
        match read(raw, &field) {
            Ok(name) => Some(name),
            Err(invalid) => {
                findings.ignored(&invalid.field, &invalid.value, &invalid.why);
                None
            }
        }
    });
    Some(PolicyTarget { object, section: section.filter(|name: &Arc<str>| !name.is_empty()) })
}

/// Reads the validation whole or not at all: without one of the names, another would be verified.
fn validation(
    raw: &RawValue,
    field: &str,
    own: &ObjectName,
    findings: &mut FindingList,
) -> Result<BackendValidation, InvalidValue> {
    let json: ValidationJson<'_> = read(raw, field)?;
    let hostname = checked(json.hostname, field, "hostname", |text| precise_hostname(text).map(|_| ()))?;
    let field_of_names = format!("{field}.subjectAltNames");
    let names = within(json.subject_alt_names, NAMES_MAX, &field_of_names)?;
    let names = names.into_iter().enumerate().map(|(number, json)| name(json, &format!("{field_of_names}[{number}]")));
    let names = names.collect::<Result<_, _>>()?;
    let refs = json.ca_certificate_refs.unwrap_or_default();
    let authorities = match (json.well_known.as_deref().filter(|text| !text.is_empty()), refs.is_empty()) {
        (Some("System"), true) => CaBundle::System,
        (Some(text), true) => return Err(fault(format!("{field}.wellKnownCACertificates"), text, "is not System")),
        (Some(text), false) => {
            let why = "cannot be combined with caCertificateRefs";
            return Err(fault(format!("{field}.wellKnownCACertificates"), text, why));
        }
        (None, true) => {
            let why = "is missing, and so is wellKnownCACertificates";
            return Err(fault(format!("{field}.caCertificateRefs"), "", why));
        }
        (None, false) => {
            let entries = findings.entries(Some(refs), AUTHORITIES_MAX, &format!("{field}.caCertificateRefs"));
            let read = entries.map(|(field, raw)| {
                reference(raw, &field, own, Form::LOCAL).map_err(|invalid| findings.invalid(&invalid))
            });
            CaBundle::These(read.collect())
        }
    };
    Ok(BackendValidation { authorities, hostname: hostname.to_ascii_lowercase().into(), names })
}

fn name(json: NameJson, field: &str) -> Result<SubjectAltName, InvalidValue> {
    match (json.kind.as_deref().unwrap_or_default(), json.hostname, json.uri) {
        ("Hostname", Some(text), _) => match hostname(&text) {
            Ok(host) => Ok(SubjectAltName::Hostname(host)),
            Err(why) => Err(fault(format!("{field}.hostname"), &text, why)),
        },
        ("URI", _, Some(text)) => {
            let plain = text.len() <= URI_BYTES_MAX && text.bytes().all(|b| b.is_ascii_graphic());
            let scheme = text.split_once(':').is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty());
            if plain && scheme {
                Ok(SubjectAltName::Uri(text))
            } else {
                Err(fault(format!("{field}.uri"), &text, "is not an absolute URI"))
            }
        }
        ("Hostname", None, _) => Err(fault(format!("{field}.hostname"), "", "is missing, and its type requires it")),
        ("URI", _, None) => Err(fault(format!("{field}.uri"), "", "is missing, and its type requires it")),
        (text, _, _) => Err(fault(format!("{field}.type"), text, "is neither Hostname nor URI")),
    }
}
