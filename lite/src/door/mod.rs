//! The network doors: that of a server of its own, with TLS, a token, and no answer to foreign names; and that of a replica, on a socket
//! that is given.

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
