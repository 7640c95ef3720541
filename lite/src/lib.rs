//! A Kubernetes API server for kubectl, client-go and kube-rs, with true resourceVersions, lists and watches, patches,
//! and optimistic concurrency. It has two modes:
//!
//! - [`Lite::new`] and [`Lite::open`] are a server of their own, in memory or with a folder on disk. It runs no
//!   Deployments and fills no EndpointSlices: the embedding program does that through a client like any other.
//! - [`Lite::watch_cache`] serves copies of the objects of another API server, which the embedding program feeds to it.
//!
//! Clients reach it by [`Lite::service`] within the process, for `kube::Client::new`, or over the network by [`Server`]
//! and [`SharedServer`]. It must be used within a tokio runtime with time and, for the network, I/O enabled.

mod clock;
mod crds;
mod causes;
mod failure;
mod json;
mod quantity;
mod names;
mod fields;
mod custom;
mod kind;
mod definition;
mod selector;
mod patch;
mod apply;
mod scale;
mod store;
mod disk;
mod rules;
mod write;
mod serve;
mod lite;
mod logs;
mod watch_cache;
mod server;

pub use crds::{GATEWAY_API, KUADRANT};
pub use disk::DataDirError;
pub use kind::{ExpectedKind, WatchCacheKind};
pub use lite::Lite;
pub use logs::{ContainerLog, LogWriter};
pub use serve::{ForwardError, LiteBody, LiteService, WriteForwarder};
pub use server::{Server, ServerSocket, SharedServer, WRITE_TIMEOUT, head_bytes};
pub use watch_cache::{Feed, Figures, WatchCacheLimits};
