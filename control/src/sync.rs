//! Types shared between threads. The model checker of `control/tests/loom.rs` replaces them with its own.

#![allow(clippy::disallowed_types, reason = "the one lock of this crate: a queue that several workers share")]

pub(crate) use std::sync::{Arc, Mutex};
