//! Endpoints: which one is tried, and what is known of each.

pub(crate) mod attempt;
pub(crate) mod balance;
pub(crate) mod connect;
pub(crate) mod connection;
pub(crate) mod endpoint_state;
pub(crate) mod own_addresses;
pub(crate) mod pool;
pub(crate) mod retry;
pub(crate) mod tls;
