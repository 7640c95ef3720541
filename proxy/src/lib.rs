//! The data plane: accepts connections on the binds of the snapshot and carries requests to endpoints.
//!
//! The modules stand in the order in which a connection and then a request meet them. Every step from
//! `route` on is a plain function over a read-only view of the head that returns its decision as data; `edge` is
//! the only place that knows Pingora's phases. The request path reads one snapshot and per-endpoint atomics.

mod options;
mod start;
mod runtime;

mod listen;
mod bound;
mod listening;
mod accept;
mod idle;
mod connection;
mod connection_metrics;
mod tls;

mod http;
mod body_rates;
mod due;
mod edge;
mod lean;
mod exchange;
mod head;
mod edit;
mod refuse;
mod forwarded;
mod passes;
mod route;
mod admit;
mod balance;
mod endpoint_state;
mod grown;
mod attempt;
mod upstream;
mod target;
mod rewrite;
mod respond;
mod retry;
mod fault;
mod answer;
mod outcome;

mod access_log;
mod budget;
mod buffers;
mod clients;
mod clock;
mod date;
mod metrics;
mod rate;
mod shared;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod sample_model;

pub use access_log::AccessLogSink;
pub use bound::{Bound, BoundBind};
pub use budget::BudgetLimits;
pub use options::{
    ClientLimits, DrainLimits, Driver, Enforce, Http2Limits, Options, RateLimits, TlsLimits, UpstreamLimits,
};
pub use passes::{LoopToken, NoToken};
pub use start::{Memory, Proxy, StartError, Sweeper};
pub use tls::TlsSetupError;

/// Reads bytes by both parsers of requests, and panics when they disagree about what the lean driver takes.
#[cfg(feature = "fuzzing")]
pub fn requests_agree(bytes: &[u8]) {
    lean::agreement::check(bytes);
}
