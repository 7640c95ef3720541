//! The responses of the Deis router compared with Tidegate's: the same requests go to Debian's nginx, with a
//! configuration generated from the same objects in the router's way, and to the binary with `--source deis`. Status,
//! headers, body, and the endpoint's view have to be the same; if they differ on purpose, a row names the entry of the
//! migration guide for it, and all differences.
//!
//! Expressions in domains (`regexDomain`) and the default service have tests of their own (`deis_hosts.rs`).
//!
//! It is skipped by name if the machine has no nginx, and fails in that case if the environment has `CI`.

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
