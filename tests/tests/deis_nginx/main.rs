//! What the Deis router answered, and what Tidegate answers: the same requests to Debian's nginx, with a configuration made
//! of the same objects as the router made it, and to the binary with `--source deis`. Status, headers, body, and what the
//! endpoint saw have to be alike; where they differ on purpose, a row names the place of the migration guide that says so, and all that
//! differs.
//!
//! Expressions in domains (`regexDomain`) and the default service have tests of their own (`deis_hosts.rs`).
//!
//! It is left out by name where the machine has no nginx, and fails there where the environment has `CI`.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

mod answer;
mod ask;
mod compression;
mod endpoint;
mod failures;
mod headers;
mod hosts;
mod locations;
mod order;
mod pair;
mod proxy_protocol;
mod requests;
mod router;
mod row;
mod tls;
mod whitelists;
mod world;
