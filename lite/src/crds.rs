//! CustomResourceDefinitions of kinds that the edge reads, one YAML document each (`lite/crds/`).

/// Gateway API v1.7.0, standard channel, as published.
pub const GATEWAY_API: &[&str] = &[
    include_str!("../crds/gateway-api-v1.7.0/gateway.networking.k8s.io_backendtlspolicies.yaml"),
    include_str!("../crds/gateway-api-v1.7.0/gateway.networking.k8s.io_gatewayclasses.yaml"),
    include_str!("../crds/gateway-api-v1.7.0/gateway.networking.k8s.io_gateways.yaml"),
    include_str!("../crds/gateway-api-v1.7.0/gateway.networking.k8s.io_grpcroutes.yaml"),
    include_str!("../crds/gateway-api-v1.7.0/gateway.networking.k8s.io_httproutes.yaml"),
    include_str!("../crds/gateway-api-v1.7.0/gateway.networking.k8s.io_listenersets.yaml"),
    include_str!("../crds/gateway-api-v1.7.0/gateway.networking.k8s.io_referencegrants.yaml"),
    include_str!("../crds/gateway-api-v1.7.0/gateway.networking.k8s.io_tcproutes.yaml"),
    include_str!("../crds/gateway-api-v1.7.0/gateway.networking.k8s.io_tlsroutes.yaml"),
    include_str!("../crds/gateway-api-v1.7.0/gateway.networking.k8s.io_udproutes.yaml"),
];

/// Policies of Kuadrant that the edge reads, in definitions of our own.
pub const KUADRANT: &[&str] = &[
    include_str!("../crds/kuadrant-v1/kuadrant.io_authpolicies.yaml"),
    include_str!("../crds/kuadrant-v1/kuadrant.io_ratelimitpolicies.yaml"),
    include_str!("../crds/kuadrant-v1/kuadrant.io_tokenratelimitpolicies.yaml"),
];
