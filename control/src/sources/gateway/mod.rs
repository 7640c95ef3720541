//! Gateway API (`gateway.networking.k8s.io`): a Gateway of one of our classes offers its listeners, and those of the
//! ListenerSets that it allows; a route claims hosts of the listeners that it is attached to. Every listener has its
//! own route table.
//!
//! The results are reported as conditions, which are data: [`OwnStatus`](tidegate_config::project::gateway::OwnStatus).

mod address;
mod backend_tls;
mod class;
mod client_certificate;
mod gateway_object;
mod http_route;
mod infrastructure;
mod listener;
mod listener_set;
mod overlap;
mod parent;
mod reader;
mod conflict;
mod rule;
mod stream_route;

pub(super) use backend_tls::{attach as attach_policy, routes_of};
pub(super) use class::attach as attach_class;
pub(super) use conflict::{all_conflicting, conflicting, winner};
pub(super) use gateway_object::attach as attach_gateway;
pub(crate) use gateway_object::parent_of;
pub(super) use http_route::{attach_grpc, attach_http};
pub(super) use listener_set::attach as attach_listener_set;
pub(super) use parent::is_ours;
pub(crate) use parent::not_attached;
pub(super) use stream_route::{attach_layer4, attach_tls};
use tidegate_config::object::Kind;

use super::spec::SourceSpec;

/// Gateways, their routes, and the objects that these refer to. A cluster may lack their definitions, so none is
/// required. Routes to Services whose policies are not known are closed meanwhile.
pub(super) const SPEC: SourceSpec = SourceSpec {
    enabled: |options| options.sources.gateway.is_some(),
    kinds: &[
        Kind::Namespace,
        Kind::ConfigMap,
        Kind::GatewayClass,
        Kind::Gateway,
        Kind::ReferenceGrant,
        Kind::HttpRoute,
        Kind::ListenerSet,
        Kind::GrpcRoute,
        Kind::TlsRoute,
        Kind::TcpRoute,
        Kind::UdpRoute,
        Kind::BackendTlsPolicy,
    ],
    required: &[],
    beside: Some(Kind::GatewayClass),
    by_name: &[],
    class: None,
    // The endpoints for the Services of Gateways.
    anywhere: |kind, options| {
        let gateway = options.sources.gateway.as_ref().filter(|_| kind == Kind::EndpointSlice);
        let edge = gateway.and_then(|gateway| gateway.services.to_pods()).map(|to_pods| to_pods.edge.clone());
        edge.into_iter().collect()
    },
    attached_if_missing: |_| None,
    service_label: None,
};
