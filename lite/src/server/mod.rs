//! The servers on the network: a standalone one, with TLS, a token, and no answer to foreign names; and one for a
//! watch cache, on a given socket.

mod accept;
mod certificate;
mod access;
mod head;
mod write_timeout;
mod kubeconfig;
mod listen;
mod shared;

pub use self::head::head_bytes;
pub use self::listen::Server;
pub use self::shared::{ServerSocket, SharedServer};
pub use self::write_timeout::WRITE_TIMEOUT;
