//! Endpoints: load balancing, retries, connections, and the state of each endpoint.

pub(crate) mod attempt;
pub(crate) mod balance;
pub(crate) mod client;
pub(crate) mod connect;
pub(crate) mod connection;
pub(crate) mod endpoint_state;
pub(crate) mod http2;
mod idle_order;
pub(crate) mod own_addresses;
pub(crate) mod probe;
pub(crate) mod pool;
pub(crate) mod retry;
pub(crate) mod service_state;
pub(crate) mod tls;
