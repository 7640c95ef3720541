//! An in-memory Kubernetes API server, good enough for kubectl and kube-rs: the kinds that an edge reads, with true
//! resourceVersions, list and watch, patches, and optimistic concurrency.
//!
//! It is neither a cluster nor a cache of one: it runs no Deployments and fills no EndpointSlices. The embedding
//! program does that through a client like any other.
//!
//! [`Lite`] has two doors: [`Lite::service`] within the process, for `kube::Client::new`, and [`Door`] for the network.
//! It must be used within a tokio runtime with time and, for the door, I/O enabled.

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
mod replica;
mod door;

pub use crds::GATEWAY_API;
pub use disk::DataDirError;
pub use door::{Door, DoorSocket, SharedDoor, WRITE_TIMEOUT};
pub use kind::ReplicaKind;
pub use lite::Lite;
pub use logs::{ContainerLog, LogWriter};
pub use replica::{Feed, Figures, ReplicaLimits};
pub use serve::{LiteBody, LiteService, NotPassed, PassOn};
