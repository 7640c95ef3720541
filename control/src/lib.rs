//! The control loop: watches the cluster, keeps a projection of every object it needs, and turns each change into a new
//! routing snapshot.
//!
//! The modules are in the order in which an event passes through them. The crate does not depend on the proxy.

mod cluster;
mod followed;
pub mod regular_file;
mod interest;

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
mod report_queue;
mod report;

mod not_serving;
mod explain;
mod tree;
mod view;
mod metrics;

pub mod options;
mod addresses;
mod url_hosts;
mod backoff;
mod clock;
mod sample;
mod sync;

pub use attachment::{
    Attachment, BindClaim, Claim, ClaimTerms, ConditionReason, Endpoints, GatewayInfrastructure, GatewayListeners,
    GlobalClaim, Key, ListenerRef, MergedListener, OtherClaims, Report, RouteStatus, Verdict,
};
pub use cluster::api_server::ApiServer;
pub use cluster::cache::{
    Batch, Cache, CacheMetrics, CacheOptions, DecryptionError, FORMAT, PartitionChange, Position, Restored,
    RestoredCached, RestoredCollection, Seal, Sink, Store, StoredCollection, UnusableStore,
};
pub use cluster::cached::{CachedCondition, CachedKind, CachedState, CachedStates, ServedKind, awaited};
pub use cluster::client;
pub use cluster::collection_metrics::CollectionMetrics;
pub use cluster::copies::{Copies, CopyEvent, CopyState, CopySubscriber, served_kinds};
pub use cluster::informer::{
    Identity, Informer, Interest, Limits, Recovery, Relist, Resource, SecretPoller, SecretPollerMetrics, WhileServed,
};
pub use cluster::key_sets::{KeyClient, KeySetFollower, KeySetLimits, KeySetMetrics, KnownKeys};
pub use cluster::resolve::{ResolveLimits, Resolver, Upstream, Wanted};
pub use cluster::reviews::{ApiReviews, ReviewFault};
pub use command::{Command, CommandRefusal, Commanded};
pub use compile::{ChangedUnits, Compiled, Findings, HostUnit, Inputs, Touched, Unit};
pub use event::{BindFailures, Collection, Event};
pub use explain::{
    Candidate, ExplainRequest, Explanation, Ignored, PathView, Presented, Refused, RuleView, Served, TargetView,
    explain,
};
pub use followed::{CHECK_INTERVAL, Followed, Following, Reads, single_value};
pub use history::{Cause, Changes, Coalesced, History, Publication};
pub use interest::{KeySources, Names, SecretInterest};
pub use not_serving::{ByCommand, NotServing, Wait};
pub use order::Order;
pub use queue::{Get, Lane, LaneShares, Meter, Queue, Retries, WorkItem, Workqueue};
pub use reconcile::{
    Addresses, Audit, ChangedFindings, Desired, DesiredInfrastructure, DesiredReports, KnownStatus, Listing, Model,
    ObjectFindings, PendingReports, PendingStatusUpdates, Reconciler, Step,
};
pub use reference::compile;
pub use report::{ElectionTiming, Reporter};
pub use run::{CachedControl, Control, start, start_cached};
pub use sample::Sample;
pub use sources::{attach, attach_all};
pub use topology::Topology;
pub use tree::{
    BackendNode, ClassNode, GatewayNode, HostNode, ListenerNode, MatchNode, RouteNode, RuleNode, Tree, TreeQuery,
};
pub use view::{CollectionReadiness, Readiness, RecentPublications, View};
pub use world::{Resolution, World};
