//! Observability: the access log, and the metrics of requests, connections and flows.

pub(crate) mod access_log;
pub(crate) mod connection_metrics;
pub(crate) mod datagram_metrics;
pub(crate) mod external_auth_metrics;
pub(crate) mod in_flight;
pub(crate) mod auth_metrics;
pub(crate) mod limit_metrics;
pub(crate) mod limit_store_metrics;
pub(crate) mod metrics;
pub(crate) mod mirror_metrics;
mod route_series;
pub(crate) mod stream_metrics;
