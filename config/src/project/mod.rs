//! Projections: the checked, small, internal form of one cluster object, read from the bytes of its JSON.
//!
//! Invalid input is normal here, so a projection has findings instead of an error: a match that cannot be read drops
//! its rule, a setting that cannot be read takes its default, access restrictions fail closed for their own routes, and
//! an object that cannot be read at all has no routes. Only this module knows the schemas of cluster objects.
//!
//! Unknown fields are ignored, and null equals absent, as in the API. Two projections are equal if no field that
//! routing reads differs, whatever else of the object changed.
//!
//! The limits per object: 4096 rules, 16,384 paths a rule, 4096 bytes a path, 4096 TLS entries and hosts an entry,
//! 16,384 hosts of all entries, 16 Secrets a host, 4096 allowed networks, 1024 ports of a Service or slice, and 10,000
//! endpoints of a slice. Entries beyond a limit are left out (networks: all are refused), with a finding, and an object
//! has at most 256 findings.

mod annotation_value;
pub mod annotations;
mod config_map;
mod cookie;
mod deployment;
mod endpoint_slice;
mod field;
pub mod gateway;
mod ingress;
mod ingress_class;
mod ingress_rules;
mod ingress_tls;
mod public_address;
mod secret;
mod service;
mod sharing;
mod raw_object;

use std::sync::Arc;

pub use annotations::deis::{DeisApp, DeisBuilder, DeisDomain, DeisExpression, DeisLocations, DeisRouter, Whitelist};
pub use config_map::ConfigMap;
pub use deployment::Deployment;
pub use endpoint_slice::{EndpointSlice, SliceEndpoint, SlicePort};
pub use ingress::{BackendRef, ClassRef, DefaultBackend, Ingress, PortRef};
pub use ingress_class::IngressClass;
pub use ingress_rules::{Rule, RulePath, Rules};
pub use ingress_tls::{Tls, TlsSecret};
pub use public_address::PublicAddress;
pub use raw_object::Unidentified;
pub use secret::Secret;
pub use service::{Service, ServiceKind, ServicePort};
pub use sharing::{Kept, Sharing};

use crate::caught::{caught, for_owner};
use crate::finding::{Finding, Problem};
use crate::object::{Kind, ObjectName, ObjectRef, Uid};
use field::{FindingList, InvalidValue};
use gateway::status::digests;
use gateway::{
    BackendTlsPolicy, Gateway, GatewayClass, GrpcRoute, HttpRoute, Layer4Route, ListenerSet, Namespace, ReferenceGrant,
    StatusDigests, TlsRoute, backend_tls_policy, gateway_class, gateway_object, grpc_route, http_route, layer4_route,
    listener_set, namespace, reference_grant, tls_route,
};
use raw_object::RawObject;

/// Projects one object from the bytes of its JSON, an element of a list's `items` or a watch event's `object`.
///
/// # Errors
/// If the bytes do not identify an object. Every other fault is a finding of the projection.
pub fn project(kind: Kind, bytes: &[u8]) -> Result<Projected, Unidentified> {
    let source = RawObject::identify(kind, bytes)?;
    Ok(projected(&source, |findings| match kind {
        Kind::Ingress => ingress::project(&source, findings).map(|it| Object::Ingress(Arc::new(it))),
        Kind::IngressClass => ingress_class::project(&source).map(|it| Object::IngressClass(Arc::new(it))),
        Kind::Service => service::project(&source, findings).map(|it| Object::Service(Arc::new(it))),
        Kind::EndpointSlice => endpoint_slice::project(&source, findings).map(|it| Object::EndpointSlice(Arc::new(it))),
        Kind::Secret => Ok(Object::Secret(Arc::new(secret::project(&source)))),
        Kind::Deployment => deployment::project(&source, findings).map(|it| Object::Deployment(Arc::new(it))),
        Kind::ConfigMap => Ok(Object::ConfigMap(Arc::new(config_map::project(&source)))),
        Kind::Namespace => namespace::project(&source).map(|it| Object::Namespace(Arc::new(it))),
        Kind::GatewayClass => gateway_class::project(&source, findings).map(|it| Object::GatewayClass(Arc::new(it))),
        Kind::Gateway => gateway_object::project(&source, findings).map(|it| Object::Gateway(Arc::new(it))),
        Kind::HttpRoute => http_route::project(&source, findings).map(|it| Object::HttpRoute(Arc::new(it))),
        Kind::ListenerSet => listener_set::project(&source, findings).map(|it| Object::ListenerSet(Arc::new(it))),
        Kind::GrpcRoute => grpc_route::project(&source, findings).map(|it| Object::GrpcRoute(Arc::new(it))),
        Kind::TlsRoute => tls_route::project(&source, findings).map(|it| Object::TlsRoute(Arc::new(it))),
        Kind::TcpRoute => layer4_route::project(&source, findings).map(|it| Object::TcpRoute(Arc::new(it))),
        Kind::UdpRoute => layer4_route::project(&source, findings).map(|it| Object::UdpRoute(Arc::new(it))),
        Kind::BackendTlsPolicy => {
            backend_tls_policy::project(&source, findings).map(|it| Object::BackendTlsPolicy(Arc::new(it)))
        }
        Kind::ReferenceGrant => {
            reference_grant::project(&source, findings).map(|it| Object::ReferenceGrant(Arc::new(it)))
        }
    }))
}

/// Reads an identified object. If the reader panics, the object is skipped like one that cannot be read: the other
/// objects of its kind must not be affected.
fn projected(source: &RawObject<'_>, read: impl FnOnce(&mut FindingList) -> Result<Object, InvalidValue>) -> Projected {
    let meta = source.meta.clone();
    let reading = caught(|| {
        let mut findings = FindingList::new(meta.object.clone());
        let object = read(&mut findings).map_err(|invalid| findings.unreadable(&invalid)).ok();
        (object, findings.into_findings())
    });
    let (object, findings) = reading.unwrap_or_else(|panic| {
        let why = for_owner(meta.object.kind, &panic);
        let problem = Problem::Unreadable { why: format!("internal error: {why}") };
        (None, vec![Finding::new(meta.object.clone(), "", problem)])
    });
    let statuses = digests(meta.object.kind, source);
    Projected { meta, object, findings, addresses: public_address::read(source), statuses }
}

/// The metadata that every object has, whether the rest can be read or not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meta {
    /// Kind, namespace and name.
    pub object: ObjectRef,
    /// `metadata.uid`, if it is a valid UUID. Routing does not read it.
    pub uid: Option<Uid>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
    /// `metadata.generation`, for kinds that have one.
    pub generation: Option<i64>,
}

/// A projected object.
#[derive(Clone, Debug)]
pub struct Projected {
    /// Its identity and versions.
    pub meta: Meta,
    /// The parts that routing reads; `None` if it cannot be read.
    pub object: Option<Object>,
    /// The findings about it.
    pub findings: Vec<Finding>,
    /// Its addresses according to its status, each once and in order. Routing does not read them.
    pub addresses: Vec<PublicAddress>,
    /// The digests of the controllers' parts of its status, for kinds of the Gateway API. Routing does not read them.
    pub statuses: StatusDigests,
}

/// A projection of any kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Object {
    /// An Ingress.
    Ingress(Arc<Ingress>),
    /// An IngressClass.
    IngressClass(Arc<IngressClass>),
    /// A Service.
    Service(Arc<Service>),
    /// An EndpointSlice.
    EndpointSlice(Arc<EndpointSlice>),
    /// A Secret.
    Secret(Arc<Secret>),
    /// A Deployment.
    Deployment(Arc<Deployment>),
    /// A ConfigMap.
    ConfigMap(Arc<ConfigMap>),
    /// A Namespace.
    Namespace(Arc<Namespace>),
    /// A GatewayClass.
    GatewayClass(Arc<GatewayClass>),
    /// A Gateway.
    Gateway(Arc<Gateway>),
    /// An HTTPRoute.
    HttpRoute(Arc<HttpRoute>),
    /// A ListenerSet.
    ListenerSet(Arc<ListenerSet>),
    /// A GRPCRoute.
    GrpcRoute(Arc<GrpcRoute>),
    /// A TLSRoute.
    TlsRoute(Arc<TlsRoute>),
    /// A TCPRoute.
    TcpRoute(Arc<Layer4Route>),
    /// A UDPRoute.
    UdpRoute(Arc<Layer4Route>),
    /// A BackendTLSPolicy.
    BackendTlsPolicy(Arc<BackendTlsPolicy>),
    /// A ReferenceGrant.
    ReferenceGrant(Arc<ReferenceGrant>),
}

impl Object {
    /// Its namespace and name.
    #[must_use]
    pub fn name(&self) -> &ObjectName {
        match self {
            Self::Ingress(object) => &object.age.name,
            Self::IngressClass(object) => &object.name,
            Self::Service(object) => &object.name,
            Self::EndpointSlice(object) => &object.name,
            Self::Secret(object) => &object.name,
            Self::Deployment(object) => &object.name,
            Self::ConfigMap(object) => &object.name,
            Self::Namespace(object) => &object.name,
            Self::GatewayClass(object) => &object.name,
            Self::Gateway(object) => &object.age.name,
            Self::HttpRoute(object) => &object.age.name,
            Self::ListenerSet(object) => &object.age.name,
            Self::GrpcRoute(object) => &object.age.name,
            Self::TlsRoute(object) => &object.age.name,
            Self::TcpRoute(object) => &object.age.name,
            Self::UdpRoute(object) => &object.age.name,
            Self::BackendTlsPolicy(object) => &object.age.name,
            Self::ReferenceGrant(object) => &object.name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the finding about an object whose reader panics.
    #[track_caller]
    fn check(kind: Kind, why: &str) {
        let bytes = br#"{"metadata":{"name":"a","namespace":"shop","resourceVersion":"7"}}"#;
        let source = RawObject::identify(kind, bytes).unwrap();
        let projected = projected(&source, |findings| {
            findings.ignored("spec", "x", "was read before");
            panic!("at {:?}", "key")
        });
        assert_eq!((projected.meta, projected.object), (source.meta.clone(), None));
        let problem = Problem::Unreadable { why: format!("internal error: {why}") };
        assert_eq!(projected.findings, [Finding::new(source.meta.object, "", problem)]);
    }

    #[test]
    fn a_panicking_projection_affects_only_its_object() {
        check(Kind::Ingress, "at \"key\"");
        check(Kind::Secret, "its reader panicked");
    }
}
