//! The control loop: watches the cluster, keeps a projection of every object it needs, and turns each change
//! into a new routing snapshot.
//!
//! The modules stand in the order in which an event meets them. It knows nothing of the proxy.

mod clock;

mod backoff;
pub mod client;
mod informer;
mod resolve;

mod compile;
mod event;
pub mod options;
mod queue;
mod reconcile;
mod topology;
mod world;

pub use compile::{Compiled, Dirty, HostUnit, Membership, Touched, Unit, Verdict, compile, membership};
pub use event::{Event, Source};
pub use queue::{Lane, Queue, Share};
pub use reconcile::{Reconciler, Step};
pub use topology::{Key, Topology, references};
pub use world::{Resolution, Version, World};
