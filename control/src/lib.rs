//! The control loop: watches the cluster, keeps a projection of every object it needs, and turns each change
//! into a new routing snapshot.
//!
//! The modules stand in the order in which an event meets them. It knows nothing of the proxy.

mod clock;

pub mod client;
mod backoff;
mod informer;
mod resolve;
mod event;

pub use event::{Event, Source};
