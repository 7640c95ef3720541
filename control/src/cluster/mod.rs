//! The connection to the cluster: the client of the API server, lists and watches, the look-up of DNS names, and the
//! last known state on disk.

mod access;
pub(crate) mod api_server;
pub(crate) mod cache;
pub(crate) mod cached;
pub mod client;
pub(crate) mod copies;
pub(crate) mod informer;
mod renew;
pub(crate) mod resolve;
pub(crate) mod selection;
pub(crate) mod collection_metrics;
