//! The equivalence of the two drivers: for every request that the native driver takes, the Pingora driver would have
//! sent the same bytes to the endpoint and returned the same response, except for the differences that
//! `drivers/compare.rs` lists.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
#![allow(unreachable_pub, missing_docs, missing_debug_implementations, reason = "nothing outside uses a test bed")]

mod anyone;
#[path = "request/bed.rs"]
#[allow(dead_code, reason = "the requests of other tests use the rest")]
mod bed;

mod drivers {
    pub mod bodies;
    pub mod case;
    pub mod combinations;
    pub mod compare;
    pub mod compressed;
    pub mod corpus;
    pub mod fields;
    pub mod heads;
    pub mod http2;
    mod log;
    pub mod message;
    pub mod mutations;
    pub mod recorder;
    pub mod responses;
    pub mod routes;
    pub mod run;
    pub mod secure;
    pub mod side;
}
