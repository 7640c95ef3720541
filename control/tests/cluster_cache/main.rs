//! The cluster cache: the content of a store after crashes and damage, and the control loop with restored state.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

mod killed;
mod life;
mod model;
mod reopened;
mod restored;
mod store;
