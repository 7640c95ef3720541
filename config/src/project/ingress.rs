//! Ingress (`networking.k8s.io/v1`): the reader of hosts, paths and backends. The rules are in `ingress_rules.rs`, the
//! certificates in `ingress_tls.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Projection;
use super::annotations;
use super::field::{FindingList, InvalidValue, read, read_or_default, written};
use super::ingress_rules::{Rule, RulePath, Rules};
use super::ingress_tls::{self, Tls};
use super::public_address::{self, PublicAddress};
use super::raw_object::{Annotations, RawObject, annotation_field, created_s};
use super::service::port_number;
use crate::finding::field_name;
use crate::model::{AppProtocol, Filter, Guard, HostPattern, PathMatch, Settings};
use crate::object::{Age, ObjectName};

/// The maximum number of rules of one Ingress.
const RULES_MAX: usize = 4096;
/// The maximum number of paths of one rule.
const PATHS_MAX: usize = 16_384;
/// The maximum length of one path in bytes.
const PATH_BYTES_MAX: usize = 4096;
/// The reason for a path that is too long.
const PATH_TOO_LONG: &str = "is longer than 4096 bytes";

/// The annotation for the class that predates IngressClasses.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// The parts of an Ingress that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ingress {
    /// Its name and age.
    pub age: Age,
    /// The requested class.
    pub class: ClassRef,
    /// `spec.defaultBackend`.
    pub default_backend: Option<DefaultBackend>,
    /// The valid rules of `spec.rules`.
    pub rules: Rules,
    /// The valid entries of `spec.tls`.
    pub tls: Tls,
    /// The access checks of all its routes, from annotations.
    pub guards: Arc<[Guard]>,
    /// The filters of all its routes, from annotations.
    pub filters: Arc<[Filter]>,
    /// Settings of all of its routes, from annotations.
    pub settings: Arc<Settings>,
    /// The protocol of its endpoints, from an annotation; without it that of their Service port.
    pub protocol: Option<AppProtocol>,
    /// The name of the policies of all its routes, in its namespace, from an annotation.
    pub policy: Option<Arc<str>>,
}

/// The requested class of an Ingress. The annotation is read only if the field is absent.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ClassRef {
    /// `spec.ingressClassName`: an IngressClass object.
    Field(ObjectName),
    /// The annotation `kubernetes.io/ingress.class`, which is compared with the class's name and needs no IngressClass.
    Annotation(Arc<str>),
    /// Neither: the default class.
    Default,
}

/// `spec.defaultBackend`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DefaultBackend {
    /// The backend; `None` if it cannot be used (a finding says why), and the route answers 503.
    pub backend: Option<BackendRef>,
    /// Whether the object was written without rules. Invalid rules count: dropping them must not widen the hosts that
    /// the object takes.
    pub alone: bool,
}

/// A Service and its port, as in a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BackendRef {
    /// The Service, in the Ingress's namespace.
    pub service: ObjectName,
    /// Its port.
    pub port: PortRef,
}

/// A Service port by name or number.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PortRef {
    /// `port.name`.
    Name(Arc<str>),
    /// `port.number`, 1 to 65535.
    Number(u16),
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct SpecJson<'a> {
    ingress_class_name: Option<Arc<str>>,
    #[serde(borrow)]
    default_backend: Option<&'a RawValue>,
    #[serde(borrow)]
    rules: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    tls: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct RuleJson<'a> {
    host: Option<String>,
    #[serde(borrow)]
    http: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct HttpJson<'a> {
    #[serde(borrow)]
    paths: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct PathJson<'a> {
    path: Option<String>,
    path_type: Option<String>,
    #[serde(borrow)]
    backend: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct BackendJson<'a> {
    service: Option<ServiceJson>,
    #[serde(borrow)]
    resource: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct ServiceJson {
    name: Option<Arc<str>>,
    port: Option<PortJson>,
}

#[derive(Deserialize, Default)]
#[serde(expecting = "an object")]
struct PortJson {
    name: Option<Arc<str>>,
    number: Option<i64>,
}

impl Projection for Ingress {
    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let mut spec: SpecJson<'_> = read_or_default(source.spec, "spec")?;
        let annotations = source.annotations()?;
        let class = match spec.ingress_class_name.take() {
            Some(class) => ClassRef::Field(ObjectName::new("", class)),
            None => class_annotation(&annotations)?,
        };
        let has_tls = spec.tls.as_ref().is_some_and(|entries| !entries.is_empty());
        let effects = annotations::of_ingress(&annotations, source.meta.uid, has_tls, findings);
        if effects.is_canary {
            // In ingress-nginx, too, a canary claims no host and brings no certificate.
            spec = SpecJson::default();
        }
        let mut reader = Reader { object: source.name(), services: BTreeSet::new(), findings };
        let alone = spec.rules.as_ref().is_none_or(Vec::is_empty);
        let mut ingress = Ingress {
            age: Age { created_s: created_s(source.created, reader.findings), name: source.name().clone() },
            class,
            default_backend: spec.default_backend.map(|raw| reader.default_backend(raw, alone)),
            rules: reader.rules(spec.rules),
            tls: Tls::default(),
            guards: effects.guards,
            filters: effects.filters,
            settings: effects.settings,
            protocol: effects.protocol,
            policy: effects.policy,
        };
        ingress.tls = ingress_tls::read(source.name(), spec.tls, ingress.hosts(), findings);
        Ok(ingress)
    }

    fn addresses(source: &RawObject<'_>) -> Vec<PublicAddress> {
        public_address::of_status(source.status).collect()
    }
}

impl Ingress {
    /// The hosts whose requests it takes, each once: those of its rules, and [`HostPattern::Any`] if it has only a
    /// default backend.
    pub fn hosts(&self) -> impl Iterator<Item = &HostPattern> {
        static NO_HOST: HostPattern = HostPattern::Any;
        self.rules.iter().map(|rule| &rule.host).chain(self.catch_all().map(|_| &NO_HOST))
    }

    /// Its default backend, if it has no rules and so takes every host that no other object claims.
    #[must_use]
    pub fn catch_all(&self) -> Option<&DefaultBackend> {
        self.default_backend.as_ref().filter(|default| default.alone)
    }

    /// All backends of requests for one of its hosts, with duplicates.
    pub fn backends_of(&self, host: &HostPattern) -> impl Iterator<Item = &BackendRef> {
        let of_rule = self.rules.of(host).into_iter().flat_map(|rule| &rule.paths);
        let of_rule = of_rule.filter_map(|path| path.backend.as_ref());
        of_rule.chain(self.default_backend.as_ref().and_then(|default| default.backend.as_ref()))
    }

    /// All its backends, with duplicates.
    pub fn backends(&self) -> impl Iterator<Item = &BackendRef> {
        let of_rules = self.rules.iter().flat_map(|rule| &rule.paths).filter_map(|path| path.backend.as_ref());
        of_rules.chain(self.default_backend.as_ref().and_then(|default| default.backend.as_ref()))
    }
}

fn class_annotation(annotations: &Annotations<'_>) -> Result<ClassRef, InvalidValue> {
    let Some(raw) = annotations.get(CLASS_ANNOTATION) else { return Ok(ClassRef::Default) };
    read(raw, &annotation_field(CLASS_ANNOTATION)).map(ClassRef::Annotation)
}

/// Returns `true` for a path with the syntax of a regular expression, a wildcard or a parameter, none of which the
/// Ingress API has. Other controllers take such paths for patterns, so their author may expect more requests.
fn is_like_a_pattern(path: &str) -> bool {
    path.contains(['(', '[', '{', '|', '^', '*', '?', '\\']) || path.contains(".+") || path.ends_with('$')
}

/// Reads one Ingress. Paths that lead to the same Service share its name.
struct Reader<'f> {
    object: &'f ObjectName,
    services: BTreeSet<ObjectName>,
    findings: &'f mut FindingList,
}

impl Reader<'_> {
    fn default_backend(&mut self, raw: &RawValue, alone: bool) -> DefaultBackend {
        DefaultBackend { backend: self.backend(raw, "spec.defaultBackend"), alone }
    }

    fn rules(&mut self, list: Option<Vec<&RawValue>>) -> Rules {
        let entries = self.findings.entries(list, RULES_MAX, "spec.rules");
        entries.filter_map(|(field, raw)| self.rule(raw, &field)).collect()
    }

    /// A rule with a valid host stays even if all of its paths are invalid: the host is claimed, so that its requests
    /// do not go to a broader one.
    fn rule(&mut self, raw: &RawValue, field: &str) -> Option<Rule> {
        let json: RuleJson<'_> = self.findings.entry(raw, field)?;
        let host = match json.host.as_deref() {
            None | Some("") => HostPattern::Any,
            Some(text) => HostPattern::parse(text)
                .map_err(|why| self.findings.dropped(&format!("{field}.host"), text, why))
                .ok()?,
        };
        let http = json.http.and_then(|raw| self.findings.entry(raw, &format!("{field}.http")));
        let list = http.and_then(|http: HttpJson<'_>| http.paths);
        let entries = self.findings.entries(list, PATHS_MAX, &format!("{field}.http.paths"));
        let paths = entries.filter_map(|(field, raw)| self.path(raw, field)).collect();
        Some(Rule { host, paths })
    }

    fn path(&mut self, raw: &RawValue, field: String) -> Option<RulePath> {
        let json: PathJson<'_> = self.findings.entry(raw, &field)?;
        let text = json.path.as_deref().filter(|text| !text.is_empty()).unwrap_or("/");
        let kind = json.path_type.as_deref().unwrap_or_default();
        let path = match kind {
            _ if text.len() > PATH_BYTES_MAX => Err(PATH_TOO_LONG),
            "Exact" => PathMatch::exact(text),
            "Prefix" | "ImplementationSpecific" => PathMatch::prefix(text),
            "" => {
                self.findings.dropped(&format!("{field}.pathType"), text, "has no path type, which the API requires");
                return None;
            }
            _ => {
                let why = "is not Exact, Prefix or ImplementationSpecific";
                self.findings.dropped(&format!("{field}.pathType"), kind, why);
                return None;
            }
        };
        let path = path.map_err(|why| self.findings.dropped(&format!("{field}.path"), text, why)).ok()?;
        if kind != "Exact" && is_like_a_pattern(text) {
            self.findings.literal_path(&format!("{field}.path"), text);
        }
        let backend = match json.backend {
            Some(raw) => self.backend(raw, &format!("{field}.backend")),
            None => {
                self.findings.unusable(&format!("{field}.backend"), "the path", "names no backend");
                None
            }
        };
        Some(RulePath { field: field_name(&field), path, backend })
    }

    fn backend(&mut self, raw: &RawValue, field: &str) -> Option<BackendRef> {
        self.service_port(raw, field)
            .map_err(|fault| self.findings.unusable(&fault.field, &fault.value, &fault.why))
            .ok()
    }

    fn service_port(&mut self, raw: &RawValue, field: &str) -> Result<BackendRef, InvalidValue> {
        let fault = |below: &str, value: String, why: &str| InvalidValue {
            field: format!("{field}.{below}"),
            value,
            why: why.to_owned(),
        };
        let json: BackendJson<'_> =
            read(raw, field).map_err(|invalid| InvalidValue { value: format!("{:?}", invalid.value), ..invalid })?;
        if let Some(resource) = json.resource {
            return Err(fault("resource", written(resource), "is a resource, and only Services can be backends"));
        }
        let missing = || fault("service", "the backend".to_owned(), "names no Service");
        let service = json.service.ok_or_else(missing)?;
        let name = service.name.filter(|name| !name.is_empty()).ok_or_else(missing)?;
        let port = service.port.unwrap_or_default();
        // The zero values of the API stand for absent fields.
        let port_name = port.name.filter(|name| !name.is_empty());
        let port =
            match (port_name, port.number.filter(|number| *number != 0)) {
                (Some(name), None) => PortRef::Name(name),
                (None, Some(number)) => PortRef::Number(port_number(number).ok_or_else(|| {
                    fault("service.port.number", format!("port {number}"), "is not between 1 and 65535")
                })?),
                (None, None) => {
                    return Err(fault("service.port", format!("Service {name}"), "is named without a port"));
                }
                (Some(port), Some(number)) => {
                    let both = format!("port {port} or {number}");
                    return Err(fault("service.port", both, "is ambiguous: a port has a name or a number"));
                }
            };
        Ok(BackendRef { service: self.shared(name), port })
    }

    fn shared(&mut self, name: Arc<str>) -> ObjectName {
        let name = self.object.beside(name);
        if let Some(known) = self.services.get(&name) {
            return known.clone();
        }
        self.services.insert(name.clone());
        name
    }
}
