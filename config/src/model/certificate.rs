//! Certificates with their keys, checked when their Secret is read. Key material never shows in `Debug`.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::{CertifiedKey, SigningKey};
use serde::Serialize;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
use x509_parser::public_key::PublicKey;

use super::host::{HostPattern, WildcardDepth, parent, parents};
use crate::object::ObjectName;

/// The maximum size of one chain or one key in PEM, against memory bombs.
const PEM_BYTES_MAX: usize = 256 * 1024;

/// A certificate chain and its key, ready for handshakes.
#[derive(Clone)]
pub struct Certificate {
    /// The Secret it came from.
    pub secret: ObjectName,
    /// The chain and the key, as rustls takes them.
    pub key: Arc<CertifiedKey>,
    /// Its names (subject alternative names, or the common name if there are none), in ascending order: there may be
    /// thousands, and each host that uses the Secret looks itself up among them.
    pub names: Box<[HostPattern]>,
    /// The end of its validity in seconds since the Unix epoch.
    pub not_after_s: i64,
    /// The digest of the PEM text: two certificates with equal digests are the same.
    digest: [u8; 32],
}

/// The certificates of one host by server name: the host itself, or names below it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ServerCertificates(Arc<[Named]>);

/// A server name and its certificates, the preferred ones first.
type Named = (HostPattern, Box<[Arc<Certificate>]>);

impl ServerCertificates {
    /// The certificates by server name, the preferred ones first. Names without certificates are left out.
    #[must_use]
    pub fn new(by_name: BTreeMap<HostPattern, Vec<Arc<Certificate>>>) -> Self {
        let mut all: Vec<Named> = by_name.into_iter().map(|(name, all)| (name, all.into_boxed_slice())).collect();
        all.retain(|(_, certificates)| !certificates.is_empty());
        all.sort_unstable_by(|(a, _), (b, _)| sort_key(a).cmp(&sort_key(b)));
        // Most hosts have none, and the default takes no memory.
        Self(if all.is_empty() { Arc::default() } else { all.into() })
    }

    /// The certificates for a server name in lower case: those of its most specific pattern that has any.
    #[must_use]
    pub fn of(&self, name: &str) -> &[Arc<Certificate>] {
        let at = |text: &str, kind: u8| {
            let found = self.0.binary_search_by(|(pattern, _)| sort_key(pattern).cmp(&(text, kind))).ok();
            found.and_then(|number| self.0.get(number)).map(|(_, certificates)| &**certificates)
        };
        let one = || at(parent(name)?, 1);
        let first = || at(name.split_once('.')?.0, 3);
        let expression = || {
            let mut all = self.0.iter().take_while(|(pattern, _)| matches!(pattern, HostPattern::Expression(_)));
            all.find(|(pattern, _)| pattern.matches(name)).map(|(_, certificates)| &**certificates)
        };
        let suffixes = || parents(name).find_map(|suffix| at(suffix, 2));
        at(name, 0).or_else(one).or_else(suffixes).or_else(first).or_else(expression).unwrap_or_default()
    }

    /// Every server name with its certificates.
    pub fn iter(&self) -> impl Iterator<Item = (&HostPattern, &[Arc<Certificate>])> {
        self.0.iter().map(|(name, certificates)| (name, &**certificates))
    }
}

/// The sort key of a pattern.
fn sort_key(pattern: &HostPattern) -> (&str, u8) {
    match pattern {
        HostPattern::Exact(name) => (name, 0),
        HostPattern::Wildcard(suffix, WildcardDepth::One) => (suffix, 1),
        HostPattern::Wildcard(suffix, WildcardDepth::Any) => (suffix, 2),
        HostPattern::FirstLabel(label) => (&**label, 3),
        // Expressions are searched linearly: they are at the beginning.
        HostPattern::Expression(_) => ("", 4),
        HostPattern::Any => ("", 5),
    }
}

/// Why a chain and key cannot be used. Never holds key material.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CertificateFault(pub String);

impl fmt::Display for CertificateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn fault<T>(why: impl fmt::Display) -> Result<T, CertificateFault> {
    Err(CertificateFault(why.to_string()))
}

impl Certificate {
    /// Reads a chain (leaf first) and its key from PEM and checks that they belong together.
    ///
    /// # Errors
    /// If one of them cannot be read or they do not match; the message says which.
    pub fn from_pem(secret: ObjectName, chain: &[u8], key: &[u8]) -> Result<Self, CertificateFault> {
        if chain.len() > PEM_BYTES_MAX || key.len() > PEM_BYTES_MAX {
            return fault(format_args!("tls.crt or tls.key is larger than {PEM_BYTES_MAX} bytes"));
        }
        let digest = digest(chain, key);
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            // The parser's messages quote lines, and the text may be a key by mistake.
            .or_else(|_| fault("tls.crt is not PEM"))?;
        let Some(leaf) = chain.first() else { return fault("tls.crt holds no certificate") };
        let (_, parsed) = X509Certificate::from_der(leaf)
            .or_else(|error| fault(format_args!("tls.crt cannot be parsed: {error}")))?;
        let (names, not_after_s) = (names(&parsed), parsed.validity().not_after.timestamp());
        let key = PrivateKeyDer::from_pem_slice(key).or_else(|_| fault("tls.key holds no private key in PEM"))?;
        let key = signing_key(key, &parsed)?;
        // rustls would parse the certificate for this comparison, and refuse those of X.509 version 1. Clients decide
        // which ones they accept.
        let is_of_certificate = |public: SubjectPublicKeyInfoDer<'_>| public.as_ref() == parsed.public_key().raw;
        if !key.public_key().is_none_or(is_of_certificate) {
            return fault("tls.key is not the key of the certificate in tls.crt");
        }
        Ok(Self { secret, key: Arc::new(CertifiedKey::new(chain, key)), names, not_after_s, digest })
    }

    /// Returns `true` if its names cover every name of a pattern. A star in a certificate stands for one label (RFC
    /// 9525, section 6.3).
    #[must_use]
    pub fn covers(&self, host: &HostPattern) -> bool {
        match host {
            HostPattern::Exact(name) => self.is_for(name),
            HostPattern::Wildcard(suffix, WildcardDepth::One | WildcardDepth::Any) => self.covers_below(suffix),
            HostPattern::FirstLabel(_) | HostPattern::Expression(_) | HostPattern::Any => false,
        }
    }

    /// Returns `true` if it is valid for a server name in lower case.
    #[must_use]
    pub fn is_for(&self, name: &str) -> bool {
        let sort_key = |own: &HostPattern| match own {
            HostPattern::Exact(own) => (**own).cmp(name),
            HostPattern::Wildcard(..) | HostPattern::FirstLabel(_) | HostPattern::Expression(_) | HostPattern::Any => {
                Ordering::Greater
            }
        };
        self.names.binary_search_by(sort_key).is_ok() || parent(name).is_some_and(|suffix| self.covers_below(suffix))
    }

    /// Returns `true` if the wildcard with this suffix is among its names.
    fn covers_below(&self, suffix: &str) -> bool {
        let sort_key = |name: &HostPattern| match name {
            HostPattern::Exact(_) => Ordering::Less,
            HostPattern::Wildcard(own, _) => (**own).cmp(suffix),
            HostPattern::FirstLabel(_) | HostPattern::Expression(_) | HostPattern::Any => Ordering::Greater,
        };
        self.names.binary_search_by(sort_key).is_ok()
    }
}

/// SHA-256 of both texts.
fn digest(chain: &[u8], key: &[u8]) -> [u8; 32] {
    let mut all = ring::digest::Context::new(&ring::digest::SHA256);
    for text in [chain, key] {
        all.update(&(text.len() as u64).to_be_bytes());
        all.update(text);
    }
    let mut own = [0; 32];
    own.copy_from_slice(all.finish().as_ref());
    own
}

/// The key, if the crypto provider can sign with it.
fn signing_key(
    key: PrivateKeyDer<'static>,
    certificate: &X509Certificate<'_>,
) -> Result<Arc<dyn SigningKey>, CertificateFault> {
    const USABLE: &str = "RSA with 2048 to 4096 bits, ECDSA on P-256 or P-384, and Ed25519 are";
    rustls::crypto::ring::sign::any_supported_type(&key).or_else(|_| {
        // What the key itself is, the provider does not say.
        let kind = match certificate.public_key().parsed() {
            Ok(PublicKey::RSA(key)) => format!("RSA with {} bits", key.key_size()),
            Ok(PublicKey::EC(_)) => format!("ECDSA on {}", curve(certificate)),
            Ok(_) | Err(_) => "of another kind".to_owned(),
        };
        fault(format_args!("tls.key is not of a supported kind: {USABLE}; the key of the certificate is {kind}"))
    })
}

/// The name of the curve of a certificate's key, or its object identifier.
fn curve(certificate: &X509Certificate<'_>) -> String {
    let parameters = certificate.public_key().algorithm.parameters.as_ref();
    let id = parameters.and_then(|any| any.as_oid().ok()).map(|id| id.to_id_string());
    // RFC 5480 section 2.1.1.1.
    id.map_or_else(|| "an unnamed curve".to_owned(), |id| if id == "1.3.132.0.35" { "P-521".to_owned() } else { id })
}

/// The subject alternative names of a certificate, or its common name if there are none, in ascending order.
fn names(certificate: &X509Certificate<'_>) -> Box<[HostPattern]> {
    let mut names: Vec<HostPattern> = Vec::new();
    if let Ok(Some(alternatives)) = certificate.subject_alternative_name() {
        for name in &alternatives.value.general_names {
            if let GeneralName::DNSName(name) = name {
                names.extend(HostPattern::parse(name));
            }
        }
    }
    if names.is_empty() {
        let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        names.extend(common.filter_map(|name| HostPattern::parse(name).ok()));
    }
    names.sort_unstable();
    names.dedup();
    names.into()
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest && self.secret == other.secret
    }
}

impl Eq for Certificate {}

impl PartialOrd for Certificate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Certificate {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.digest, &self.secret).cmp(&(&other.digest, &other.secret))
    }
}

impl Hash for Certificate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({} for {:?})", self.secret, self.names)
    }
}

impl Serialize for Certificate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("Certificate", 3)?;
        fields.serialize_field("secret", &self.secret)?;
        fields.serialize_field("names", &self.names)?;
        fields.serialize_field("not_after_s", &self.not_after_s)?;
        fields.end()
    }
}
