//! The network door: TLS, a token, and no answer to foreign names.

mod certificate;
mod guard;
mod kubeconfig;
mod listen;

pub use self::listen::Door;
