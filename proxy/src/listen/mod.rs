//! Sockets: their reconciliation with the snapshot, their actual state, and accepting.

pub(crate) mod accept;
pub(crate) mod binder;
pub(crate) mod sockets;
