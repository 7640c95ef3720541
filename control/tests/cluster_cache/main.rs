//! The cluster cache: what a store holds after whatever happened to it, and what the control loop does with what was restored.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

mod killed;
mod life;
mod model;
mod reopened;
mod restored;
mod store;
