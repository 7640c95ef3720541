//! The data plane: accepts connections on the binds of the snapshot and carries requests to endpoints.
//!
//! The folders are in the order in which a connection and then a request pass through them. Every step in `request` is
//! a plain function over a read-only view of the head that returns its decision as data; only `driver::pingora` uses
//! Pingora's phases. The request path reads one snapshot, and atomics for each endpoint and for the counters of limits.
//!
//! Folders depend on each other in one direction: `listen` → `driver` → `request` → `limit`, `observe`, `upstream`,
//! `connection`, `http`.

mod options;
mod start;
mod stream;
mod datagram;
mod runtime;

mod listen;
mod connection;
mod driver;
mod http;
mod request;
mod limit;
mod upstream;
mod observe;

mod budget;
mod buffers;
mod clock;
mod flow_budget;
mod kept_answers;
mod reason;
mod shared;
mod sweep_trigger;
mod verified_tokens;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod sample_model;

pub use budget::BudgetLimits;
pub use connection::tls::TlsSetupError;
pub use http::cdn_loop::{LoopToken, NoToken};
pub use limit::store::LimitStoreTask;
pub use listen::binder::{Bound, BoundBind};
pub use options::{
    AccessLogSink, ClientLimits, CounterLimits, CreateReview, DrainLimits, Driver, Enforce, Http2Limits, LimitHeaders,
    LimitStore, Options, RateLimits, ReadSecrets, ReviewError, Reviews, Secret, StoreAway, StoreNode, StoreSecrets,
    TlsLimits, UpstreamLimits,
};
pub use start::{Memory, Proxy, StartError, Sweeper};

/// Parses bytes with both request parsers, and panics if they disagree about a request that the native driver takes.
#[cfg(feature = "fuzzing")]
pub fn requests_agree(bytes: &[u8]) {
    driver::native::agreement::check(bytes);
}
