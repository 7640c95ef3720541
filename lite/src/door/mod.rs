//! The network doors: that of a standalone server, with TLS, a token, and no answer to foreign names; and that of a
//! replica, on a given socket.

mod accept;
mod certificate;
mod guard;
mod guarded;
mod kubeconfig;
mod listen;
mod shared;

pub use self::guarded::WRITE_TIMEOUT;
pub use self::listen::Door;
pub use self::shared::{DoorSocket, SharedDoor};
