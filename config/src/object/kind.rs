//! The kinds that Tidegate reads: one row each.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Calls a macro with the row of every kind: its projection (a type of `project`), its name in manifests and its
/// collections in the API, and how the control loop treats its objects. `Kind` and `Object` are made of the rows.
///
/// Objects of different kinds are listed in the order of the rows; no rule of precedence depends on it.
macro_rules! kinds {
    ($call:ident) => {
        $call! {
            Ingress = ingress::Ingress {
                name: "Ingress", group: NETWORKING, plural: "ingresses", versions: ["v1"],
                scope: Namespaced, definition: BuiltIn, status: Addresses, layer: Routes, access: Neutral,
            },
            IngressClass = ingress_class::IngressClass {
                name: "IngressClass", group: NETWORKING, plural: "ingressclasses", versions: ["v1"],
                scope: Cluster, definition: BuiltIn, status: Unwritten, layer: Routes, access: Neutral,
            },
            Service = service::Service {
                name: "Service", group: CORE, plural: "services", versions: ["v1"],
                scope: Namespaced, definition: BuiltIn, status: Unwritten, layer: Routes, access: Neutral,
            },
            EndpointSlice = endpoint_slice::EndpointSlice {
                name: "EndpointSlice", group: "discovery.k8s.io", plural: "endpointslices", versions: ["v1"],
                scope: Namespaced, definition: BuiltIn, status: Unwritten, layer: Routes, access: Neutral,
            },
            Secret = secret::Secret {
                name: "Secret", group: CORE, plural: "secrets", versions: ["v1"],
                scope: Namespaced, definition: BuiltIn, status: Unwritten, layer: Routes, access: Neutral,
            },
            Deployment = deployment::Deployment {
                name: "Deployment", group: "apps", plural: "deployments", versions: ["v1"],
                scope: Namespaced, definition: BuiltIn, status: Unwritten, layer: Routes, access: Neutral,
            },
            Namespace = namespace::Namespace {
                name: "Namespace", group: CORE, plural: "namespaces", versions: ["v1"],
                scope: Cluster, definition: BuiltIn, status: Unwritten, layer: Routes, access: Neutral,
            },
            ConfigMap = config_map::ConfigMap {
                name: "ConfigMap", group: CORE, plural: "configmaps", versions: ["v1"],
                scope: Namespaced, definition: BuiltIn, status: Unwritten, layer: Routes, access: Neutral,
            },
            GatewayClass = gateway_class::GatewayClass {
                name: "GatewayClass", group: GATEWAY_API, plural: "gatewayclasses", versions: ["v1", "v1beta1"],
                scope: Cluster, definition: Custom, status: Conditions, layer: Routes, access: Neutral,
            },
            ReferenceGrant = reference_grant::ReferenceGrant {
                name: "ReferenceGrant", group: GATEWAY_API, plural: "referencegrants", versions: ["v1", "v1beta1"],
                scope: Namespaced, definition: Custom, status: Unwritten, layer: Routes, access: Neutral,
            },
            Gateway = gateway_object::Gateway {
                name: "Gateway", group: GATEWAY_API, plural: "gateways", versions: ["v1", "v1beta1"],
                scope: Namespaced, definition: Custom, status: Conditions, layer: Listeners, access: Neutral,
            },
            HttpRoute = http_route::HttpRoute {
                name: "HTTPRoute", group: GATEWAY_API, plural: "httproutes", versions: ["v1", "v1beta1"],
                scope: Namespaced, definition: Custom, status: ConditionsByParent, layer: Routes, access: Neutral,
            },
            ListenerSet = listener_set::ListenerSet {
                name: "ListenerSet", group: GATEWAY_API, plural: "listenersets", versions: ["v1"],
                scope: Namespaced, definition: Custom, status: Conditions, layer: Routes, access: Neutral,
            },
            GrpcRoute = grpc_route::GrpcRoute {
                name: "GRPCRoute", group: GATEWAY_API, plural: "grpcroutes", versions: ["v1", "v1alpha2"],
                scope: Namespaced, definition: Custom, status: ConditionsByParent, layer: Routes, access: Neutral,
            },
            TlsRoute = tls_route::TlsRoute {
                name: "TLSRoute", group: GATEWAY_API, plural: "tlsroutes", versions: ["v1", "v1alpha3", "v1alpha2"],
                scope: Namespaced, definition: Custom, status: ConditionsByParent, layer: Routes, access: Neutral,
            },
            TcpRoute = layer4_route::Layer4Route {
                name: "TCPRoute", group: GATEWAY_API, plural: "tcproutes", versions: ["v1", "v1alpha2"],
                scope: Namespaced, definition: Custom, status: ConditionsByParent, layer: Routes, access: Neutral,
            },
            UdpRoute = layer4_route::Layer4Route {
                name: "UDPRoute", group: GATEWAY_API, plural: "udproutes", versions: ["v1", "v1alpha2"],
                scope: Namespaced, definition: Custom, status: ConditionsByParent, layer: Routes, access: Neutral,
            },
            BackendTlsPolicy = backend_tls_policy::BackendTlsPolicy {
                name: "BackendTLSPolicy", group: GATEWAY_API, plural: "backendtlspolicies", versions: ["v1", "v1alpha3"],
                scope: Namespaced, definition: Custom, status: ConditionsByParent, layer: Policies, access: Neutral,
            },
            RateLimitPolicy = rate_limit_policy::RateLimitPolicy {
                name: "RateLimitPolicy", group: KUADRANT, plural: "ratelimitpolicies", versions: ["v1"],
                scope: Namespaced, definition: Custom, status: Conditions, layer: Policies, access: Neutral,
            },
            TokenRateLimitPolicy = token_rate_limit_policy::TokenRateLimitPolicy {
                name: "TokenRateLimitPolicy", group: KUADRANT, plural: "tokenratelimitpolicies", versions: ["v1alpha1"],
                scope: Namespaced, definition: Custom, status: Conditions, layer: Policies, access: Neutral,
            },
            AuthPolicy = auth_policy::AuthPolicy {
                name: "AuthPolicy", group: KUADRANT, plural: "authpolicies", versions: ["v1"],
                scope: Namespaced, definition: Custom, status: Conditions, layer: Policies, access: Restricts,
            },
        }
    };
}
pub(crate) use kinds;

/// The group of Services, Secrets and other kinds of the first API.
const CORE: &str = "";
/// The group of Ingresses.
const NETWORKING: &str = "networking.k8s.io";
/// The group of all kinds of the Gateway API.
const GATEWAY_API: &str = "gateway.networking.k8s.io";
/// The group of Kuadrant's policies.
const KUADRANT: &str = "kuadrant.io";

/// Whether the objects of a kind are in namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    Cluster,
    Namespaced,
}

/// Where the schema of a kind comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Definition {
    /// Every API server has it.
    BuiltIn,
    /// A CustomResourceDefinition, which a cluster may lack.
    Custom,
}

/// The part of an object's status that the edge writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    Unwritten,
    /// Public addresses.
    Addresses,
    /// Conditions of the object.
    Conditions,
    /// Conditions in an entry for each parent or ancestor.
    ConditionsByParent,
}

/// Whether the objects of a kind can refuse requests that would pass without them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    Neutral,
    Restricts,
}

/// The layer of a kind. The attachment of an object reads those of earlier layers and none of its own, except that
/// routes of the Gateway API read those of older routes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Layer {
    /// Objects with listeners, to which others attach.
    Listeners,
    /// Routes, and what they are made of.
    Routes,
    /// Policies, which attach to what routes have used.
    Policies,
}

impl Layer {
    /// Every layer, the earliest first.
    pub const ALL: [Self; 3] = [Self::Listeners, Self::Routes, Self::Policies];
}

/// What is known of a kind without its objects.
struct Row {
    name: &'static str,
    group: &'static str,
    plural: &'static str,
    versions: &'static [&'static str],
    scope: Scope,
    definition: Definition,
    status: Status,
    layer: Layer,
    access: Access,
}

/// Defines [`Kind`] by the rows.
macro_rules! define {
    ($($kind:ident = $module:ident::$projection:ident {
        name: $name:literal, group: $group:expr, plural: $plural:literal, versions: $versions:expr,
        scope: $scope:ident, definition: $definition:ident, status: $status:ident, layer: $layer:ident,
        access: $access:ident,
    },)*) => {
        /// A kind of cluster object that Tidegate reads.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        pub enum Kind {
            $(
                #[doc = concat!("`", $name, "`.")]
                #[serde(rename = $name)]
                $kind,
            )*
        }

        impl Kind {
            /// Every kind, in the order of the rows.
            pub const ALL: [Self; [$(stringify!($kind)),*].len()] = [$(Self::$kind),*];

            const fn row(self) -> &'static Row {
                match self {
                    $(Self::$kind => &Row {
                        name: $name,
                        group: $group,
                        plural: $plural,
                        versions: &$versions,
                        scope: Scope::$scope,
                        definition: Definition::$definition,
                        status: Status::$status,
                        layer: Layer::$layer,
                        access: Access::$access,
                    },)*
                }
            }
        }
    };
}
kinds!(define);

impl Kind {
    /// The least kind in order.
    pub const FIRST: Self = Self::ALL[0];

    /// The kind with this API group and name; `None` if Tidegate does not read it.
    #[must_use]
    pub fn of(group: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == kind && known.group() == group)
    }

    /// The name of the kind in manifests, for example `EndpointSlice`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }

    /// The API group, empty for the core group.
    #[must_use]
    pub const fn group(self) -> &'static str {
        self.row().group
    }

    /// The plural in API paths, for example `endpointslices`.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        self.row().plural
    }

    /// The API versions that can be read, the preferred one first. All have the same schema.
    #[must_use]
    pub const fn versions(self) -> &'static [&'static str] {
        self.row().versions
    }

    /// The preferred API version.
    #[must_use]
    pub const fn version(self) -> &'static str {
        match self.versions() {
            [preferred, ..] => preferred,
            [] => "",
        }
    }

    /// Returns `true` if objects of this kind are in a namespace.
    #[must_use]
    pub const fn namespaced(self) -> bool {
        matches!(self.row().scope, Scope::Namespaced)
    }

    /// Returns `true` if a CustomResourceDefinition defines the kind, so that a cluster may lack it.
    #[must_use]
    pub const fn is_custom(self) -> bool {
        matches!(self.row().definition, Definition::Custom)
    }

    /// Returns `true` for kinds of the Gateway API.
    #[must_use]
    pub fn is_of_gateway_api(self) -> bool {
        self.group() == GATEWAY_API
    }

    /// Returns `true` for policies of Kuadrant, which are inherited along a path.
    #[must_use]
    pub const fn is_inherited_policy(self) -> bool {
        matches!(self, Self::RateLimitPolicy | Self::TokenRateLimitPolicy | Self::AuthPolicy)
    }

    /// Returns `true` if objects of this kind restrict access: requests that they would refuse pass while it is not
    /// known that they exist.
    #[must_use]
    pub const fn restricts_access(self) -> bool {
        matches!(self.row().access, Access::Restricts)
    }

    /// Returns `true` if a Gateway controller writes conditions into the status of objects.
    #[must_use]
    pub const fn has_conditions(self) -> bool {
        matches!(self.row().status, Status::Conditions | Status::ConditionsByParent)
    }

    /// Returns `true` if an Ingress controller writes its public addresses into the status of objects.
    #[must_use]
    pub const fn has_addresses(self) -> bool {
        matches!(self.row().status, Status::Addresses)
    }

    /// Returns `true` if the status has an entry for each parent or ancestor.
    #[must_use]
    pub const fn has_parents(self) -> bool {
        matches!(self.row().status, Status::ConditionsByParent)
    }

    /// The layer in which objects of this kind are attached.
    #[must_use]
    pub const fn layer(self) -> Layer {
        self.row().layer
    }

    /// Returns `true` for routes of the Gateway API whose rules are for requests of HTTP.
    #[must_use]
    pub const fn has_rules_of_http(self) -> bool {
        matches!(self, Self::HttpRoute | Self::GrpcRoute)
    }

    /// Returns `true` for routes of the Gateway API.
    #[must_use]
    pub const fn is_route(self) -> bool {
        matches!(self, Self::HttpRoute | Self::GrpcRoute | Self::TlsRoute | Self::TcpRoute | Self::UdpRoute)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
