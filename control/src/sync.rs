//! What threads share here. The model checker of `control/tests/loom.rs` puts its own in the place of these.

#![allow(clippy::disallowed_types, reason = "the one lock of this crate: a queue that several workers share")]

pub(crate) use std::sync::{Arc, Mutex};
