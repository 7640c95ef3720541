//! JSON Web Tokens (RFC 7519), which are signed with a key of their issuer.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::Value;

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

/// Public keys.
#[derive(Clone, PartialEq, Eq, Default, Serialize)]
pub struct KeySet;

/// A token that was accepted.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifiedToken {
    /// Its claims, which are the identity.
    pub claims: Arc<Value>,
    /// When it expires (`exp`); `None` if it has no such claim.
    pub expires: Option<SystemTime>,
}

/// Why a token is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenFault {
    /// It is no signed token, or has a part that is not understood.
    Malformed,
    /// No key of the set fits it.
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

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySet")
    }
}

/// Without claims.
impl fmt::Debug for VerifiedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedToken").field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl KeySet {
    fn verify(&self, _token: &str, _issuer: Option<&str>, _now: SystemTime) -> Result<VerifiedToken, TokenFault> {
        Err(TokenFault::UnknownKey)
    }
}

impl Jwt {
    /// Checks a token.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub fn verify(&self, token: &str, now: SystemTime) -> Result<VerifiedToken, TokenFault> {
        let keys = self.keys.as_ref().ok_or(TokenFault::NoKeys)?;
        keys.verify(token, self.issuer.as_deref(), now)
    }
}
