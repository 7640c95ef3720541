//! Shared code of whole-process tests: the real binary as `tidegate dev`, or on a real control plane, kubectl, and
//! plain clients that are independent of the code under test.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test may fail loudly")]

mod cache_server;
mod clock;
mod client;
pub mod cluster;
mod deis;
mod dev;
mod free;
mod informers;
mod issuer;
mod kubectl;
mod kubectl_watch;
mod link;
mod program;
mod reader;
mod redis;
mod run;
mod secret;
mod skip;
mod wait;

pub use cache_server::CacheServer;
pub use client::{
    Answer, certificate_of, connect_by, connect_tls, get, h2c, h2c_request, https, request, tls_client, tls_over,
};
pub use clock::unix_s;
pub use deis::{annotate_router, answered, deis};
pub use dev::{Dev, Launch};
pub use free::free_addresses;
pub use informers::{Held, Informers, plain};
pub use issuer::Issuer;
pub use kubectl::Kubectl;
pub use kubectl_watch::{KubectlWait, KubectlWatch};
pub use link::Link;
pub use program::binary;
pub use reader::{Reader, items, same, same_but_for_managers};
pub use redis::Redis;
pub use run::{Run, upstream};
pub use secret::secret;
pub use skip::skipped;
pub use wait::{eventually, moment};
