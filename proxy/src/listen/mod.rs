//! Sockets: as the snapshot wants them, what is really open, and accepting.

pub(crate) mod accept;
pub(crate) mod binder;
pub(crate) mod sockets;
