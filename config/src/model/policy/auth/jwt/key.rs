//! A public key of an issuer, as read from a JWK (RFC 7517 section 4, RFC 7518 section 6, RFC 8037 section 2).

use std::ops::RangeInclusive;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;
use serde_json::Value;

use super::algorithm::{Algorithm, KeyType};

/// The lengths of the moduli of RSA keys, in bits. Shorter keys are weak. A signature of a longer one takes the time of
/// several: it is checked on a thread that serves requests.
const RSA_BITS: RangeInclusive<usize> = 2048..=4096;
/// The limit of the exponent of an RSA key, in bytes. Nearly all keys have 65537; the time grows with it.
const RSA_EXPONENT_BYTES_MAX: usize = 4;

/// A public key with which signatures can be checked.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key {
    /// `kid`.
    pub(super) id: Option<Box<str>>,
    /// `alg`: the only algorithm it may be used with; `None` if any of its type.
    algorithm: Option<Algorithm>,
    material: Material,
}

#[derive(Clone, PartialEq, Eq)]
enum Material {
    Rsa {
        modulus: Box<[u8]>,
        exponent: Box<[u8]>,
    },
    /// An uncompressed point (SEC 1 section 2.3.3).
    P256(Box<[u8]>),
    Ed25519(Box<[u8]>),
}

/// The parameters of a JWK that are read. Others, such as certificates and private parts, are ignored.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// The maximum length of `kid` in bytes.
const ID_BYTES_MAX: usize = 256;

impl Key {
    /// The key in a JWK; `None` if it is not for signatures, or of a type, a size or a form that is not supported,
    /// or has a longer id than [`ID_BYTES_MAX`].
    pub(super) fn read(jwk: &Value) -> Option<Self> {
        let jwk = Jwk::deserialize(jwk).ok()?;
        if jwk.kid.as_ref().is_some_and(|id| id.len() > ID_BYTES_MAX) {
            return None;
        }
        let is_for_signatures = jwk.usage.as_deref().is_none_or(|usage| usage == "sig")
            && jwk.key_ops.as_ref().is_none_or(|operations| operations.iter().any(|one| one == "verify"));
        let material = Material::read(&jwk).filter(|_| is_for_signatures)?;
        let algorithm = match jwk.alg.as_deref().map(Algorithm::named) {
            Some(None) => return None,
            Some(Some(other)) if other.key_type() != material.key_type() => return None,
            Some(algorithm) => algorithm,
            None => None,
        };
        Some(Self { id: jwk.kid.map(Into::into), algorithm, material })
    }

    /// Whether signatures of this algorithm can be made with the key.
    pub(super) fn fits(&self, algorithm: Algorithm) -> bool {
        self.algorithm.is_none_or(|only| only == algorithm) && self.material.key_type() == algorithm.key_type()
    }

    /// Whether a signature is that of a message. Never for an algorithm that does not fit.
    pub(super) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.fits(algorithm) {
            return false;
        }
        let rsa = match algorithm {
            Algorithm::Es256 => return self.material.verifies(&ECDSA_P256_SHA256_FIXED, message, signature),
            Algorithm::Ed25519 => return self.material.verifies(&ED25519, message, signature),
            Algorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
            Algorithm::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
            Algorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Algorithm::Ps384 => &RSA_PSS_2048_8192_SHA384,
            Algorithm::Ps512 => &RSA_PSS_2048_8192_SHA512,
        };
        match &self.material {
            Material::Rsa { modulus: n, exponent: e } => {
                RsaPublicKeyComponents { n, e }.verify(rsa, message, signature).is_ok()
            }
            Material::P256(_) | Material::Ed25519(_) => false,
        }
    }
}

impl Material {
    fn read(jwk: &Jwk) -> Option<Self> {
        match (&*jwk.kty, jwk.crv.as_deref()) {
            ("RSA", None) => {
                let (modulus, exponent) = (number(jwk.n.as_deref()?)?, number(jwk.e.as_deref()?)?);
                let bits = modulus.len() * 8 - usize::try_from(modulus.first()?.leading_zeros()).ok()?;
                let fits = RSA_BITS.contains(&bits) && exponent.len() <= RSA_EXPONENT_BYTES_MAX;
                fits.then_some(Self::Rsa { modulus, exponent })
            }
            ("EC", Some("P-256")) => point(jwk).map(Self::P256),
            ("OKP", Some("Ed25519")) => {
                Some(Self::Ed25519(bytes(jwk.x.as_deref()?)?)).filter(|key| key.bytes().len() == 32)
            }
            _ => None,
        }
    }

    const fn key_type(&self) -> KeyType {
        match self {
            Self::Rsa { .. } => KeyType::Rsa,
            Self::P256(_) => KeyType::P256,
            Self::Ed25519(_) => KeyType::Ed25519,
        }
    }

    /// The key, or the modulus of one of RSA.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Rsa { modulus: bytes, .. } | Self::P256(bytes) | Self::Ed25519(bytes) => bytes,
        }
    }

    fn verifies(&self, algorithm: &'static dyn VerificationAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(algorithm, self.bytes()).verify(message, signature).is_ok()
    }
}

/// An uncompressed point on the curve P-256. Its coordinates are not shortened (RFC 7518 section 6.2.1.2).
fn point(jwk: &Jwk) -> Option<Box<[u8]>> {
    let (x, y) = (bytes(jwk.x.as_deref()?)?, bytes(jwk.y.as_deref()?)?);
    (x.len() == 32 && y.len() == 32).then(|| [&[4], &*x, &*y].concat().into())
}

/// A number without leading zeros, which some issuers add although RFC 7518 section 2 says that they must not.
fn number(text: &str) -> Option<Box<[u8]>> {
    let bytes = bytes(text)?;
    let start = bytes.iter().position(|byte| *byte != 0)?;
    bytes.get(start..).map(Into::into)
}

fn bytes(text: &str) -> Option<Box<[u8]>> {
    URL_SAFE_NO_PAD.decode(text).ok().map(Into::into)
}
