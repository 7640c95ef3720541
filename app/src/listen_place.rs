//! Where a server of this process listens.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An address with the real port, or a socket in the file system.
#[derive(Clone, Debug)]
pub(crate) enum ListenPlace {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for ListenPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
