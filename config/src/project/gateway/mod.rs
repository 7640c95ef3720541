//! The kinds of the Gateway API (v1.7, `gateway.networking.k8s.io`), and the labels of Namespaces. All served versions
//! of a kind have the same schema, so there is one reader for them.
//!
//! The API server rejects most invalid objects, but objects stored by an older release of the API may be invalid here.
//! So every field is checked. A match that cannot be read drops its rule; a filter or backend that cannot be read
//! answers 500 for its rule or share; access restrictions, and restrictions of attachment, fail closed. The limits of
//! lists are those of the schema; entries beyond them are left out, with a finding.

mod allowed;
mod backend;
pub(super) mod backend_tls_policy;
mod cors;
pub(super) mod duration;
mod external_auth;
pub(super) mod gateway_class;
pub(super) mod gateway_object;
pub(super) mod gateway_service;
mod gateway_tls;
pub(super) mod grpc_route;
pub(super) mod header_edits;
mod hostname;
mod http_filter;
mod http_match;
pub(super) mod http_route;
mod label_selector;
pub(super) mod layer4_route;
mod listener;
pub(super) mod listener_set;
mod mirror;
pub(super) mod namespace;
mod parent;
mod path_edit;
pub(super) mod reference;
pub(super) mod reference_grant;
mod retry;
mod rules;
mod session;
pub(super) mod status;
mod stream_rule;
pub(super) mod tls_route;
mod transitions;

pub use allowed::{AllowedNamespaces, AllowedRoutes};
pub use backend::{BackendRef, WeightedBackend};
pub use backend_tls_policy::{BackendTlsPolicy, BackendValidation, CaBundle, PolicyTarget, SubjectAltName};
pub use cors::{AnyOr, Cors, OriginPattern};
pub use external_auth::ExternalAuth;
pub use gateway_class::GatewayClass;
pub use gateway_object::{Gateway, GatewayAddress, Infrastructure};
pub use gateway_service::{APPLIED_ANNOTATION, CONTROLLER_ANNOTATION, GatewayService};
pub use gateway_tls::{ClientValidation, GatewayTls, ValidationMode};
pub use grpc_route::{GrpcMatch, GrpcRoute, GrpcRule};
pub use http_filter::{FilterFault, HttpFilter, HttpFilters};
pub use http_match::HttpMatch;
pub use http_route::{HttpBackend, HttpRoute, HttpRule, RuleSettings};
pub use label_selector::{LabelSelector, LabelTerm, Labels};
pub use layer4_route::Layer4Route;
pub use listener::{Listener, ListenerProtocol, ListenerSpec, ListenerTls, Options, TlsMode};
pub use listener_set::ListenerSet;
pub use mirror::RequestMirror;
pub use namespace::Namespace;
pub use parent::{Hostnames, ParentRef};
pub use path_edit::{RequestRedirect, Scheme};
pub use reference::{GroupKind, ObjectReference, Unreadable};
pub use reference_grant::{GrantFrom, GrantTo, ReferenceGrant};
pub use retry::{Retry, Timeouts};
pub use session::{RuleSession, SessionRefused};
pub use status::{
    AUTHORISED_CONDITION, CLASS_FINALIZER, Condition, Feature, ListenerStatus, OWN_CONDITIONS, OWN_LISTENER_CONDITIONS,
    OwnStatus, ParentStatus, RATE_LIMITED_CONDITION, RouteKind, StatusAddress, StatusDigests, StatusReading, Text,
    WrittenRef,
};
pub use stream_rule::StreamRule;
pub use tls_route::TlsRoute;
pub use transitions::{ConditionList, Transitions};
