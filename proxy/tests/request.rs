//! Requests from end to end: real clients, the data plane, and upstreams with scripted behaviour.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
#![allow(unreachable_pub, missing_docs, missing_debug_implementations, reason = "nothing outside uses a test bed")]

mod request {
    pub mod bed;
    pub mod frames;
    pub mod strict;
    pub mod strict_clients;
    pub mod upstream;

    mod answers;
    mod auth;
    mod auth_calls;
    mod bodies;
    mod compressed;
    mod connects;
    mod cross_origin;
    mod dates;
    mod direct;
    pub mod external_auth;
    mod external_auth_grpc;
    mod external_auth_overload;
    mod external_auth_reuse;
    mod forwarding;
    mod goaway;
    mod http2;
    mod http2_endpoints;
    mod http2_heads;
    mod http2_limits;
    mod validate;
    mod limits;
    mod loops;
    mod message_ends;
    mod message_programs;
    mod mirrors;
    mod mirrors_http2_tls;
    mod naming;
    mod outcomes;
    mod overload;
    mod resets;
    mod retries;
    mod retry_policies;
    mod secure_upstreams;
    mod sessions;
    mod shares;
    mod slow_clients;
    mod stalled_answers;
    mod streams;
    pub mod timeouts;
    pub mod upgrades;
    mod uploads;
    mod whole_time;
    mod windows;
}
