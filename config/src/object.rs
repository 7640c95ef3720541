//! Names of cluster objects: the kinds that Tidegate reads, and references to objects.

mod uid;

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};
pub use uid::Uid;

/// A kind of cluster object that Tidegate reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// `networking.k8s.io/v1` Ingress.
    Ingress,
    /// `networking.k8s.io/v1` IngressClass (cluster scoped).
    IngressClass,
    /// `v1` Service.
    Service,
    /// `discovery.k8s.io/v1` EndpointSlice.
    EndpointSlice,
    /// `v1` Secret.
    Secret,
    /// `apps/v1` Deployment.
    Deployment,
    /// `v1` Namespace (cluster scoped).
    Namespace,
    /// `v1` ConfigMap.
    ConfigMap,
    /// `gateway.networking.k8s.io/v1` GatewayClass (cluster scoped).
    GatewayClass,
    /// `gateway.networking.k8s.io/v1beta1` ReferenceGrant, and `v1` where it is served.
    ReferenceGrant,
    /// `gateway.networking.k8s.io/v1` Gateway.
    Gateway,
    /// `gateway.networking.k8s.io/v1` HTTPRoute.
    #[serde(rename = "HTTPRoute")]
    HttpRoute,
    /// `gateway.networking.k8s.io/v1` ListenerSet.
    ListenerSet,
    /// `gateway.networking.k8s.io/v1` GRPCRoute.
    #[serde(rename = "GRPCRoute")]
    GrpcRoute,
    /// `gateway.networking.k8s.io/v1` TLSRoute.
    #[serde(rename = "TLSRoute")]
    TlsRoute,
    /// `gateway.networking.k8s.io/v1` TCPRoute.
    #[serde(rename = "TCPRoute")]
    TcpRoute,
    /// `gateway.networking.k8s.io/v1` UDPRoute.
    #[serde(rename = "UDPRoute")]
    UdpRoute,
    /// `gateway.networking.k8s.io/v1` BackendTLSPolicy.
    #[serde(rename = "BackendTLSPolicy")]
    BackendTlsPolicy,
}

/// The group of all kinds of the Gateway API.
const GATEWAY_API: &str = "gateway.networking.k8s.io";

impl Kind {
    /// Every kind, in the order in which watches are started: classes, Namespaces and Gateways come before the objects
    /// that attach to them.
    pub const ALL: [Self; 18] = [
        Self::IngressClass,
        Self::Deployment,
        Self::Namespace,
        Self::GatewayClass,
        Self::ReferenceGrant,
        Self::Gateway,
        Self::ListenerSet,
        Self::BackendTlsPolicy,
        Self::Ingress,
        Self::HttpRoute,
        Self::GrpcRoute,
        Self::TlsRoute,
        Self::TcpRoute,
        Self::UdpRoute,
        Self::Service,
        Self::EndpointSlice,
        Self::Secret,
        Self::ConfigMap,
    ];

    /// The kind with this API group and name; `None` if Tidegate does not read it.
    #[must_use]
    pub fn of(group: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == kind && known.group() == group)
    }

    /// The least kind in order.
    pub const FIRST: Self = Self::Ingress;

    /// The name of the kind in manifests, for example `EndpointSlice`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ingress => "Ingress",
            Self::IngressClass => "IngressClass",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Secret => "Secret",
            Self::Deployment => "Deployment",
            Self::Namespace => "Namespace",
            Self::ConfigMap => "ConfigMap",
            Self::GatewayClass => "GatewayClass",
            Self::ReferenceGrant => "ReferenceGrant",
            Self::HttpRoute => "HTTPRoute",
            Self::Gateway => "Gateway",
            Self::ListenerSet => "ListenerSet",
            Self::GrpcRoute => "GRPCRoute",
            Self::TlsRoute => "TLSRoute",
            Self::TcpRoute => "TCPRoute",
            Self::UdpRoute => "UDPRoute",
            Self::BackendTlsPolicy => "BackendTLSPolicy",
        }
    }

    /// The API group, empty for the core group.
    #[must_use]
    pub const fn group(self) -> &'static str {
        match self {
            Self::Ingress | Self::IngressClass => "networking.k8s.io",
            Self::EndpointSlice => "discovery.k8s.io",
            Self::Service | Self::Secret | Self::Namespace | Self::ConfigMap => "",
            Self::Deployment => "apps",
            Self::GatewayClass
            | Self::Gateway
            | Self::HttpRoute
            | Self::ReferenceGrant
            | Self::ListenerSet
            | Self::GrpcRoute
            | Self::TlsRoute
            | Self::TcpRoute
            | Self::UdpRoute
            | Self::BackendTlsPolicy => GATEWAY_API,
        }
    }

    /// The plural in API paths, for example `endpointslices`.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Ingress => "ingresses",
            Self::IngressClass => "ingressclasses",
            Self::Service => "services",
            Self::EndpointSlice => "endpointslices",
            Self::Secret => "secrets",
            Self::Deployment => "deployments",
            Self::Namespace => "namespaces",
            Self::ConfigMap => "configmaps",
            Self::GatewayClass => "gatewayclasses",
            Self::ReferenceGrant => "referencegrants",
            Self::HttpRoute => "httproutes",
            Self::Gateway => "gateways",
            Self::ListenerSet => "listenersets",
            Self::GrpcRoute => "grpcroutes",
            Self::TlsRoute => "tlsroutes",
            Self::TcpRoute => "tcproutes",
            Self::UdpRoute => "udproutes",
            Self::BackendTlsPolicy => "backendtlspolicies",
        }
    }

    /// The API versions that can be read, the preferred one first. All have the same schema.
    #[must_use]
    pub const fn versions(self) -> &'static [&'static str] {
        match self {
            Self::GatewayClass | Self::Gateway | Self::HttpRoute | Self::ReferenceGrant => &["v1", "v1beta1"],
            Self::GrpcRoute | Self::TcpRoute | Self::UdpRoute => &["v1", "v1alpha2"],
            Self::TlsRoute => &["v1", "v1alpha3", "v1alpha2"],
            Self::BackendTlsPolicy => &["v1", "v1alpha3"],
            Self::Ingress
            | Self::IngressClass
            | Self::Service
            | Self::EndpointSlice
            | Self::Secret
            | Self::Deployment
            | Self::Namespace
            | Self::ConfigMap
            | Self::ListenerSet => &["v1"],
        }
    }

    /// Returns `true` for kinds of the Gateway API, which a cluster may not have.
    #[must_use]
    pub fn is_of_gateway_api(self) -> bool {
        self.group() == GATEWAY_API
    }

    /// Returns `true` if a Gateway controller writes conditions into the status of objects.
    #[must_use]
    pub fn has_conditions(self) -> bool {
        self.is_of_gateway_api() && self != Self::ReferenceGrant
    }

    /// Returns `true` if an Ingress controller writes its public addresses into the status of objects.
    #[must_use]
    pub fn has_addresses(self) -> bool {
        self == Self::Ingress
    }

    /// Returns `true` if the status has an entry for each parent or ancestor.
    #[must_use]
    pub fn has_parents(self) -> bool {
        self.is_route() || self == Self::BackendTlsPolicy
    }

    /// Returns `true` for routes of the Gateway API.
    #[must_use]
    pub const fn is_route(self) -> bool {
        matches!(self, Self::HttpRoute | Self::GrpcRoute | Self::TlsRoute | Self::TcpRoute | Self::UdpRoute)
    }

    /// Returns `true` if objects of this kind are in a namespace.
    #[must_use]
    pub const fn namespaced(self) -> bool {
        !matches!(self, Self::IngressClass | Self::Namespace | Self::GatewayClass)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Namespace and name of an object; the namespace is empty for cluster-scoped kinds.
///
/// The order is that of the namespace, then the name: the last criterion of every precedence rule. Names are the keys
/// of many maps, so a name is one pointer, and its clones share the contents.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectName(Arc<NameParts>);

impl PartialOrd for ObjectName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Clones are compared by their pointers, and so are the namespaces that names share.
impl Ord for ObjectName {
    fn cmp(&self, other: &Self) -> Ordering {
        let (one, other) = (&self.0, &other.0);
        if Arc::ptr_eq(one, other) {
            return Ordering::Equal;
        }
        if !Arc::ptr_eq(&one.namespace, &other.namespace) {
            let order = one.namespace.cmp(&other.namespace);
            if order.is_ne() {
                return order;
            }
        }
        one.name.cmp(&other.name)
    }
}

/// The contents of an [`ObjectName`].
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NameParts {
    /// The namespace, or the empty string.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectName {
    /// The name of an object in a namespace.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(NameParts { namespace: namespace.into(), name: name.into() }))
    }

    /// The name of an object in the same namespace.
    #[must_use]
    pub fn beside(&self, name: impl Into<Arc<str>>) -> Self {
        Self::new(Arc::clone(&self.namespace), name)
    }
}

/// An empty name, which no object has and which is less than all others.
impl Default for ObjectName {
    fn default() -> Self {
        static NOBODY: LazyLock<ObjectName> = LazyLock::new(|| ObjectName::new("", ""));
        NOBODY.clone()
    }
}

impl Deref for ObjectName {
    type Target = NameParts;

    fn deref(&self) -> &NameParts {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            f.write_str(&self.namespace)?;
            f.write_str("/")?;
        }
        f.write_str(&self.name)
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ObjectName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One object of the cluster: its kind, namespace and name. Printed as `Ingress shop/web`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// The kind.
    pub kind: Kind,
    /// Namespace and name.
    pub name: ObjectName,
}

impl ObjectRef {
    /// A reference to an object.
    #[must_use]
    pub const fn new(kind: Kind, name: ObjectName) -> Self {
        Self { kind, name }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str())?;
        f.write_str(" ")?;
        fmt::Display::fmt(&self.name, f)
    }
}

impl fmt::Debug for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ObjectRef {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The age of an object: the older wins a conflict, and of two equally old ones the one whose `namespace/name` sorts
/// first. The derived order is that rule: the winner is the lesser.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Age {
    /// `metadata.creationTimestamp` in seconds since the Unix epoch.
    pub created_s: i64,
    /// Namespace and name of the object.
    pub name: ObjectName,
}
