//! The immutable routing model: the request path reads it, and only the control loop builds it.
//!
//! A [`Snapshot`] holds [`HostRoutes`] by host (their routes and their certificates), [`Backend`]s by key and the
//! [`Bind`]s to listen on. It is immutable, and shares its unchanged parts with the previous snapshot.

mod authority;
mod backend;
mod bind;
mod certificate;
mod compression;
mod condition;
mod edge;
mod expression;
mod filter;
mod find;
mod host;
mod host_expression;
mod host_map;
mod host_routes;
mod listener;
mod log_format;
mod networks;
mod path;
mod path_index;
mod path_shard;
mod policy;
mod preflight;
mod retry;
mod route;
mod route_list;
mod route_table;
#[cfg(test)]
mod sample;
mod session;
mod settings;
mod snapshot;
mod stream;
mod upstream_tls;
mod web_origin;

pub use authority::CaBundle;
pub use backend::{
    AppProtocol, Backend, BackendKey, BackendMap, Destination, Endpoint, EndpointId, Target, Transport, WeightedTarget,
};
pub use bind::{Bind, BindKey, BindProtocol, Binds};
pub use certificate::{Certificate, CertificateFault, ServerCertificates};
pub use compression::{Compression, DisabledAgents, MediaTypes, Proxied};
pub use condition::{Conditions, Head, TextMatch, Unmet, ValueMatch, ValueSource};
pub use edge::{ConnectionsMax, EdgeSettings, RequestHeadLimits, TlsSettings, TlsVersions};
pub use expression::{
    Comparison, Expression, ExpressionFault, Extent, REQUEST_STEPS_MAX, ROUTES_STEPS_MAX, Steps, Subject,
};
pub use filter::{
    CONNECTION_HEADERS, DirectResponse, Filter, HeaderEdits, Mirror, PathRewrite, Redirect, ResponseEdits,
    ResponseScope,
};
pub use find::Found;
pub use host::{HostPattern, WildcardDepth, parents, request_host};
pub use host_expression::HostExpression;
pub use host_map::HostMap;
pub use host_routes::HostRoutes;
pub use listener::{
    ClientVerification, Listener, ListenerName, ListenerOrigin, ListenerTls, TlsListener, TlsMode, VerificationMode,
};
pub use log_format::{LogFormat, LogPiece, LogVariable};
pub use networks::Networks;
pub use path::{Normalized, PathMatch, RegexCase, normalize};
pub use policy::auth;
pub use policy::{
    Answer, AnyOr, Applies, Attributes, AuthDocument, AuthProtocol, Charged, ConnectionAttributes, Cors, Decision,
    EvaluationError, Exceeded, ExternalAuth, Guard, Limit, LimitId, ListenerPolicies, Overridden, PathPolicies,
    PolicyMap, PolicyProgress, PolicyState, Predicate, Question, Rate, Refusal, RuleKey, Selector, TargetPolicies,
    ValueExpression, run_policies,
};

pub use retry::RetryPolicy;
pub use route::{Action, Later, Origin, Precedence, Route};
pub use route_table::{RouteTables, TableName, VirtualHost};
pub use session::{
    SameSite, SessionCarrier, SessionCookie, SessionKey, SessionPersistence, SessionToken, TOKEN_CHARACTERS,
};
pub use settings::{Balance, Effective, ForwardedFor, RequestIds, ScopeId, Settings};
pub use snapshot::{Generation, Snapshot, SnapshotParts};
pub use stream::{ProxyHeader, StreamRoute, StreamTarget, WeightedBackend};
pub use upstream_tls::{SubjectName, UpstreamTls, UpstreamVerification};
pub use web_origin::{OriginPattern, RequestOrigin, Scheme};
