//! The connection to the cluster: the client of the API server, lists and watches, the look-up of DNS names, the keys
//! of issuers of tokens, and the last known state on disk.

mod access;
pub(crate) mod api_server;
pub(crate) mod cache;
pub(crate) mod cached;
pub mod client;
pub(crate) mod copies;
mod fetch_schedule;
pub(crate) mod informer;
pub(crate) mod key_sets;
mod renew;
pub(crate) mod reviews;
pub(crate) mod resolve;
pub(crate) mod selection;
pub(crate) mod collection_metrics;
