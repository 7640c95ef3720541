//! JSON Web Tokens (RFC 7519), which are signed with a key of their issuer.

mod algorithm;
mod key;
mod key_set;
mod token;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::Value;

pub use key_set::{KeySet, KeySetFault};

/// How a token is checked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Jwt {
    /// Where the keys come from.
    pub source: KeySource,
    /// The value that the claim `iss` must have; `None` if any will do.
    pub issuer: Option<Arc<str>>,
    /// The keys; `None` if they have never been fetched, and no token is accepted.
    pub keys: Option<Arc<KeySet>>,
}

/// Where the keys of an issuer come from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub enum KeySource {
    /// `jwksUrl`: the key set (RFC 7517 section 5) at this URL.
    Jwks(Arc<str>),
    /// `issuerUrl`: the key set that the discovery document of this issuer names (OpenID Connect Discovery 1.0 section
    /// 4).
    Issuer(Arc<str>),
}

/// A token that was accepted.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifiedToken {
    /// Its claims, an object, which are the identity.
    pub claims: Arc<Value>,
    /// When it expires (`exp`); `None` if it is beyond the times that the system can represent.
    pub expires: Option<SystemTime>,
}

/// Why a token is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenFault {
    /// It is no signed token, has a part that is not understood, or lacks `exp`.
    Malformed,
    /// No key of the set fits it. A token without `kid` may be signed with a key that is not known, too.
    UnknownKey,
    /// There are no keys.
    NoKeys,
    /// Its signature is wrong.
    Signature,
    /// It has expired.
    Expired,
    /// It is not valid yet.
    NotYet,
    /// Another issuer made it.
    Issuer,
}

impl Jwt {
    /// Checks a token. The key decides which algorithms are possible, and the token chooses among them. `exp` is
    /// required; the clocks of the issuer and of this machine may differ by 30 s. Other claims are not looked at.
    ///
    /// This takes the time of one signature, or of up to four if the token does not say which key it is signed with.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub fn verify(&self, token: &str, now: SystemTime) -> Result<VerifiedToken, TokenFault> {
        let keys = self.keys.as_ref().ok_or(TokenFault::NoKeys)?;
        token::verify(keys, token, self.issuer.as_deref(), now)
    }
}

impl KeySource {
    /// The URL in the policy.
    #[must_use]
    pub const fn url(&self) -> &Arc<str> {
        match self {
            Self::Jwks(url) | Self::Issuer(url) => url,
        }
    }
}

/// Without claims.
impl fmt::Debug for VerifiedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedToken").field("expires", &self.expires).finish_non_exhaustive()
    }
}
