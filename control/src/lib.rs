//! The control loop: watches the cluster, keeps a projection of every object it needs, and turns each change into a new
//! routing snapshot.
//!
//! The modules are in the order in which an event passes through them. The crate does not depend on the proxy.

mod api_server;
pub mod client;
mod renew;
mod backoff;
mod cached;
mod cluster_cache;
mod copies;
mod informer;
mod resolve;
mod selection;
mod source_metrics;

mod event;
mod world;
mod queue;
mod order;
mod recent;
mod reconcile;
mod command;
mod sources;
mod attachment;
mod topology;
mod compile;
mod reference;
mod history;
mod drive;
mod run;
mod reports;
mod status;

mod not_serving;
mod explain;
mod tree;
mod view;
mod metrics;

pub mod options;
mod addresses;
mod clock;
mod sample;
mod sync;

pub use api_server::ApiServer;
pub use attachment::{
    Attachment, Besides, BindClaim, Claim, ClaimTerms, Endpoints, Fault, GatewayInfrastructure, GlobalClaim, Key,
    ListenerRef, Offer, Offered, Report, RouteStatus, Verdict,
};
pub use cached::{CachedKind, CachedStanding, CachedState, CachedStates, ServedKind, awaited};
pub use cluster_cache::{
    Batch, Cache, CacheMetrics, CacheOptions, Change, FORMAT, KeptSource, Position, Restored, RestoredCached,
    RestoredSource, Seal, Sink, Store, SweepLimit, Unopened, Unusable,
};
pub use command::{Command, Refusal};
pub use compile::{ChangedUnits, Compiled, Findings, HostUnit, Inputs, Touched, Unit};
pub use copies::{Copied, Copies, Taken, Taker, served_kinds};
pub use event::{ClosedSockets, Event, Source};
pub use explain::{Asked, Candidate, Explanation, Refused, Served, TargetView, explain};
pub use history::{Cause, Changes, Coalesced, History, Publication};
pub use informer::{
    Identity, Informer, Interest, Limits, Recovery, Relist, Resource, SecretInterest, SecretPoller,
    SecretPollerMetrics, WhileServed,
};
pub use not_serving::{ByCommand, NotServing, Wait};
pub use order::Order;
pub use queue::{Get, Held, Lane, Meter, Queue, Retries, Share, Workqueue};
pub use reconcile::{
    Addresses, Audit, ChangedFindings, Desired, DesiredReports, Listing, Made, Model, Names, ObjectFindings,
    PendingReports, PendingStatusUpdates, Reconciler, Step,
};
pub use reference::compile;
pub use resolve::{ResolveLimits, Resolver, Upstream, Wanted};
pub use run::{CachedControl, Control, start, start_cached};
pub use sample::Sample;
pub use source_metrics::SourceMetrics;
pub use sources::{attach, attach_all};
pub use status::{Reporter, Terms};
pub use topology::Topology;
pub use tree::{
    BackendNode, ClassNode, GatewayNode, HostNode, ListenerNode, MatchNode, RouteNode, RuleNode, Tree, TreeQuery,
};
pub use view::{Past, Readiness, SourceState, View};
pub use world::{Resolution, World};
