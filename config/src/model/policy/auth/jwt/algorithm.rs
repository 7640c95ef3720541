//! The signature algorithms of tokens (RFC 7518 section 3.1, RFC 8037, RFC 9864). All are asymmetric: a token that
//! names `none`, an HMAC, or anything else that is not in this list is refused. Algorithms on the curve P-384 are left
//! out: one check takes more than a millisecond of a thread that serves requests.

/// A signature algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Ed25519,
}

/// The type of the keys of an algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyType {
    Rsa,
    P256,
    Ed25519,
}

impl Algorithm {
    /// The algorithm with this name, which is compared with case.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            "ES256" => Self::Es256,
            // The only curve of EdDSA here; RFC 9864 gives it a name of its own.
            "EdDSA" | "Ed25519" => Self::Ed25519,
            _ => return None,
        })
    }

    pub(super) const fn key_type(self) -> KeyType {
        match self {
            Self::Rs256 | Self::Rs384 | Self::Rs512 | Self::Ps256 | Self::Ps384 | Self::Ps512 => KeyType::Rsa,
            Self::Es256 => KeyType::P256,
            Self::Ed25519 => KeyType::Ed25519,
        }
    }
}
