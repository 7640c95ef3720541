//! The two drivers do the same: whatever the native one takes, the full one would have sent to the endpoint as the same
//! bytes, and answered with the same, up to the differences that `drivers/compare.rs` lists.

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
