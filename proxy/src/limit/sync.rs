//! Types shared between threads. The model checker of `proxy/tests/loom.rs` replaces them with its own.

pub(super) use std::sync::atomic::{AtomicU64, Ordering};
