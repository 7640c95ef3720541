//! Ingress (`networking.k8s.io/v1`): hosts, paths and backends.

use std::sync::Arc;

use crate::model::{Filter, Guard, HostPattern, PathMatch, Settings};
use crate::object::Age;

/// What routing reads of an Ingress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ingress {
    /// Its name and age.
    pub age: Age,
    /// The class it asks for.
    pub class: ClassRef,
    /// `spec.defaultBackend`.
    pub default_backend: Option<RulePath>,
    /// `spec.rules` that can be read.
    pub rules: Box<[Rule]>,
    /// `spec.tls` that can be read.
    pub tls: Box<[TlsEntry]>,
    /// What restricts access to all of its routes, from annotations.
    pub guards: Arc<[Guard]>,
    /// What all of its routes change, from annotations.
    pub filters: Arc<[Filter]>,
    /// Settings of all of its routes, from annotations.
    pub settings: Arc<Settings>,
}

/// The class an Ingress asks for. The annotation is only read where the field is absent.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ClassRef {
    /// `spec.ingressClassName`: an IngressClass object.
    Field(Arc<str>),
    /// The annotation `kubernetes.io/ingress.class`: compared with the class's name; needs no object.
    Annotation(Arc<str>),
    /// Neither: the default class.
    Default,
}

/// One of `spec.rules`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// `host`, or no host.
    pub host: HostPattern,
    /// Its paths; none means that everything goes to the default backend.
    pub paths: Box<[RulePath]>,
}

/// One path of a rule, or the default backend (as the prefix of everything).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RulePath {
    /// The field, such as `spec.rules[0].http.paths[1]`.
    pub field: Arc<str>,
    /// What it matches.
    pub path: PathMatch,
    /// Where it leads; `None` when that cannot be used (a finding says why), and the route answers 503.
    pub backend: Option<BackendRef>,
}

/// A Service and its port, as a rule names them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BackendRef {
    /// The Service's name, in the Ingress's namespace.
    pub service: Arc<str>,
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

/// One of `spec.tls`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsEntry {
    /// The field, such as `spec.tls[0]`.
    pub field: Arc<str>,
    /// Its hosts; none means the hosts of the rules.
    pub hosts: Box<[HostPattern]>,
    /// The Secret's name, in the Ingress's namespace; `None` asks for the default certificate.
    pub secret: Option<Arc<str>>,
}
