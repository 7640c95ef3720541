//! Bundles of trusted certificate authorities, which verify a peer's certificate.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Serialize, Serializer};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::certificate::CertificateFault;

/// The maximum size of one bundle in PEM, against memory bombs: about 600 certificates.
const PEM_BYTES_MAX: usize = 1024 * 1024;

/// The certificates of authorities, at least one. Two bundles with the same certificates in the same order are equal.
#[derive(Clone)]
pub struct CaBundle {
    certificates: Arc<[CertificateDer<'static>]>,
    roots: Arc<RootCertStore>,
    /// SHA-256 of all certificates: the identity of the bundle.
    digest: [u8; 32],
}

impl CaBundle {
    /// Reads certificates from texts in PEM, such as the `ca.crt` of several ConfigMaps. Other PEM sections are
    /// ignored.
    ///
    /// # Errors
    /// If a text has no certificate, or one that cannot be read: a bundle is used whole or not at all.
    pub fn from_pem(texts: &[&[u8]]) -> Result<Self, CertificateFault> {
        let mut certificates = Vec::new();
        for text in texts {
            if text.len() > PEM_BYTES_MAX {
                return Err(CertificateFault(format!("ca.crt is larger than {PEM_BYTES_MAX} bytes")));
            }
            let before = certificates.len();
            for certificate in CertificateDer::pem_slice_iter(text) {
                // The parser's messages quote lines, and the text may be a key by mistake.
                certificates.push(certificate.map_err(|_| CertificateFault("ca.crt is not PEM".to_owned()))?);
            }
            if certificates.len() == before {
                return Err(CertificateFault("ca.crt holds no certificate".to_owned()));
            }
        }
        Self::of(certificates)
    }

    /// The certificates of several bundles, in their order.
    ///
    /// # Errors
    /// If there is no bundle.
    pub fn joined(bundles: &[&Self]) -> Result<Self, CertificateFault> {
        // A single bundle was checked when it was read.
        if let [alone] = bundles {
            return Ok((*alone).clone());
        }
        Self::of(bundles.iter().flat_map(|bundle| bundle.certificates.iter().cloned()).collect())
    }

    fn of(certificates: Vec<CertificateDer<'static>>) -> Result<Self, CertificateFault> {
        if certificates.is_empty() {
            return Err(CertificateFault("no certificate of an authority is named".to_owned()));
        }
        let mut roots = RootCertStore::empty();
        let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
        for certificate in &certificates {
            // Pingora parses the certificates again, with this parser, and cannot handle an error.
            let parsed = X509Certificate::from_der(certificate).map(drop).map_err(|error| error.to_string());
            let read = parsed.and_then(|()| roots.add(certificate.clone()).map_err(|error| error.to_string()));
            let fault = |error| CertificateFault(format!("ca.crt holds a certificate that cannot be read: {error}"));
            read.map_err(fault)?;
            digest.update(&(certificate.len() as u64).to_be_bytes());
            digest.update(certificate);
        }
        let mut own = [0; 32];
        own.copy_from_slice(digest.finish().as_ref());
        Ok(Self { certificates: certificates.into(), roots: Arc::new(roots), digest: own })
    }

    /// The certificates.
    #[must_use]
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// The certificates as rustls takes them.
    #[must_use]
    pub const fn roots(&self) -> &Arc<RootCertStore> {
        &self.roots
    }

    /// SHA-256 of all certificates.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

impl PartialEq for CaBundle {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for CaBundle {}

impl PartialOrd for CaBundle {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CaBundle {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.digest.cmp(&other.digest)
    }
}

impl Hash for CaBundle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl fmt::Debug for CaBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaBundle({} certificates)", self.certificates.len())
    }
}

impl Serialize for CaBundle {
    /// The number of certificates, and the beginning of the digest, which identifies the bundle.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digest: String = self.digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        serializer.collect_str(&format_args!("{} certificates, {digest}", self.certificates.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> String {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn bundles_are_identified_by_their_certificates() {
        let (a, b) = (authority(), authority());
        let read =
            |texts: &[&str]| CaBundle::from_pem(&texts.iter().map(|text| text.as_bytes()).collect::<Vec<_>>()).unwrap();
        let both = read(&[&a, &b]);
        assert_eq!(both.certificates().len(), 2);
        assert_eq!(both.roots().len(), 2);
        assert_eq!(read(&[&format!("a remark\n{a}\n{b}")]), both);
        assert_ne!(read(&[&a]), both);
        assert_ne!(read(&[&a]), read(&[&b]));
        assert_eq!(CaBundle::joined(&[&read(&[&a]), &read(&[&b])]).unwrap(), both);
        assert!(CaBundle::joined(&[]).is_err());
    }

    #[track_caller]
    fn check_fault(texts: &[&[u8]], want: &str) {
        assert!(CaBundle::from_pem(texts).unwrap_err().0.contains(want));
    }

    #[test]
    fn a_bundle_with_any_invalid_part_is_refused() {
        let good = authority();
        check_fault(&[], "no certificate of an authority");
        check_fault(&[b""], "holds no certificate");
        check_fault(&[good.as_bytes(), b"nothing"], "holds no certificate");
        check_fault(&[b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"], "cannot be read");
        check_fault(&[b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"], "not PEM");
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        check_fault(&[key.as_bytes()], "holds no certificate");
        check_fault(&[&vec![b' '; PEM_BYTES_MAX + 1]], "larger than");
    }
}
