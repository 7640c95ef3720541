//! Types shared between threads. The model checker of `proxy/tests/loom.rs` replaces them with its own.

pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
