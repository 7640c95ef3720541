//! What becomes of a host as objects change around it, and what the changes are said to be.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

mod bench;
mod hold;
mod settle;
