//! The folder of limits as a lease sees it, with loom's atomics.

#[path = "store.rs"]
mod store;

use super::{counter, sync};
