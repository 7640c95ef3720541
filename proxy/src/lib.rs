//! The data plane: accepts connections on the binds of the snapshot and carries requests to endpoints.
//!
//! The modules stand in the order in which a connection and then a request meet them. Every step from
//! [`route`] on is a plain function over a read-only view of the head that returns its decision as data; [`edge`] is
//! the only place that knows Pingora's phases. The request path reads one snapshot and per-endpoint atomics.

mod options;
mod runtime;

mod listen;
mod connection;
mod tls;

mod edge;
mod head;
mod route;
mod admit;
mod balance;
mod endpoint_state;
mod upstream;
mod rewrite;
mod respond;
mod retry;
mod refuse;
mod outcome;

mod access_log;
mod clock;
mod metrics;
mod shared;
