//! Connections from outside: real clients against the data plane, from the first byte to the drain.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
#![allow(unreachable_pub, missing_docs, missing_debug_implementations, reason = "nothing outside uses a test bed")]

mod anyone;
#[path = "../../tests/src/skip.rs"]
mod skip;

mod transport {
    pub mod bed;
    pub mod clients;

    mod binds;
    mod datagrams;
    mod drain;
    mod http;
    mod limits;
    mod listeners;
    mod proxy_header;
    mod streams;
    mod tls;
    mod tls_streams;
    mod upstream_tls;
}
