//! The certificate that proxies present over TLS: generated in every run.

use std::path::Path;

use crate::peer::{H2C, HTTPS, SECURE, STREAMED};

/// A certificate and its key.
#[derive(Clone)]
pub(crate) struct Identity {
    /// The certificate, as PEM.
    pub(crate) certificate: String,
    /// Its key, as PEM.
    pub(crate) key: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Identity {
    /// Generates a new one, with an ECDSA key.
    ///
    /// # Errors
    /// When no key can be generated.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let made = rcgen::generate_simple_self_signed([SECURE, STREAMED, H2C, HTTPS].map(str::to_owned))?;
        Ok(Self { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() })
    }

    /// Writes both into a folder, as `tls.crt` and `tls.key`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn write(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::write(folder.join("tls.crt"), &self.certificate)?;
        std::fs::write(folder.join("tls.key"), &self.key)
    }
}
