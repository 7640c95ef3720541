//! CustomResourceDefinitions: the kinds they add, and the lifecycle of their objects.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod applied;
mod calls;
mod definitions;
mod noise;
mod policies;
mod recorded;
mod server;
