//! Servers that policies name by URL, and the secrets that they are shown.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use zeroize::Zeroizing;

use super::super::super::super::backend::Target;

/// The server of a URL. The control loop looks its host up, so that no request waits for DNS and no URL leads to an
/// address that policies may not name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CallServer {
    /// Whether the scheme is https.
    pub tls: bool,
    /// The host in lower case, without brackets and a trailing dot.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// The server with its addresses; `None` before its host is looked up, and no call can be made.
    #[serde(skip)]
    pub target: Option<Arc<Target>>,
}

impl CallServer {
    /// The scheme.
    #[must_use]
    pub const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// The value of `Host` (RFC 9110 section 7.2): without the port if it is that of the scheme.
    #[must_use]
    pub fn authority(&self) -> String {
        let default = if self.tls { 443 } else { 80 };
        let host = match self.host.parse() {
            Ok(IpAddr::V6(address)) => format!("[{address}]"),
            _ => self.host.to_string(),
        };
        if self.port == default { host } else { format!("{host}:{}", self.port) }
    }
}

/// For example `https://idp.test:8443`.
impl fmt::Display for CallServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.authority())
    }
}

/// A text from a Secret. It is in no output, and wiped from memory with its last clone.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Arc<Zeroizing<Box<str>>>);

impl SecretText {
    /// A copy of a text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(Arc::new(Zeroizing::new(text.into())))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText")
    }
}

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str("SecretText")
    }
}
