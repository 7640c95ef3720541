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
mod rival;
mod rule;
mod stream_route;

pub(super) use backend_tls::{attach as attach_policy, routes_of};
pub(super) use class::attach as attach_class;
pub(super) use gateway_object::attach as attach_gateway;
pub(crate) use gateway_object::parent_of;
pub(super) use http_route::{attach_grpc, attach_http};
pub(super) use listener_set::attach as attach_listener_set;
pub(super) use rival::{contested, disturbed, winner};
pub(super) use stream_route::{attach_layer4, attach_tls};
