//! CustomResourceDefinitions: the kinds they add, and what becomes of their objects.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod applied;
mod calls;
mod definitions;
mod noise;
mod recorded;
mod server;
