//! The check of a token: JWS in its compact serialisation (RFC 7515 section 5.2), then the claims (RFC 7519 section
//! 7.2).

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::algorithm::Algorithm;
use super::{KeySet, TokenFault, VerifiedToken};

/// The limit of a token, in bytes. It is applied before anything is decoded.
const BYTES_MAX: usize = 16 << 10;
/// How much the clocks of the issuer and of this machine may differ, in seconds.
const LEEWAY_S: f64 = 30.0;

/// The header parameters that are read. A key or the URL of a key in the header is never used.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Whether there is a list of extensions that must be understood. None is, and an empty list is not allowed (RFC
    /// 7515 section 4.1.11).
    #[serde(default, rename = "crit", deserialize_with = "is_present")]
    is_extended: bool,
}

/// Checks a token with one of these keys.
pub(super) fn verify(
    keys: &KeySet,
    token: &str,
    issuer: Option<&str>,
    now: SystemTime,
) -> Result<VerifiedToken, TokenFault> {
    let claims = signed_payload(keys, token)?;
    let claims: Value = serde_json::from_slice(&claims).map_err(|_malformed| TokenFault::Malformed)?;
    let claims = Some(claims).filter(Value::is_object).ok_or(TokenFault::Malformed)?;
    let now_s = match now.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    };
    let expires_s = time(&claims, "exp")?.ok_or(TokenFault::Malformed)?;
    if now_s >= expires_s + LEEWAY_S {
        return Err(TokenFault::Expired);
    }
    if time(&claims, "nbf")?.is_some_and(|begins_s| now_s < begins_s - LEEWAY_S) {
        return Err(TokenFault::NotYet);
    }
    if issuer.is_some_and(|issuer| claims.get("iss").and_then(Value::as_str) != Some(issuer)) {
        return Err(TokenFault::Issuer);
    }
    let since = Duration::try_from_secs_f64(expires_s.max(0.0)).ok();
    let expires = since.and_then(|since| UNIX_EPOCH.checked_add(since));
    Ok(VerifiedToken { claims: Arc::new(claims), expires })
}

/// The payload of a token whose signature is that of one of these keys.
fn signed_payload(keys: &KeySet, token: &str) -> Result<Vec<u8>, TokenFault> {
    let malformed = TokenFault::Malformed;
    if token.len() > BYTES_MAX {
        return Err(malformed);
    }
    let (message, signature) = token.rsplit_once('.').ok_or(malformed)?;
    let (header, payload) = message.split_once('.').ok_or(malformed)?;
    let (header, signature) = (decode(header)?, decode(signature)?);
    let header: Header = serde_json::from_slice(&header).map_err(|_malformed| malformed)?;
    let algorithm = Algorithm::named(&header.alg).filter(|_| !header.is_extended).ok_or(malformed)?;
    let mut any = false;
    for key in keys.candidates(header.kid.as_deref(), algorithm) {
        if key.verifies(algorithm, message.as_bytes(), &signature) {
            return decode(payload);
        }
        any = true;
    }
    Err(if any && header.kid.is_some() { TokenFault::Signature } else { TokenFault::UnknownKey })
}

/// The text in base64url. Padding, and bits after the last byte, are refused: each token has one spelling.
fn decode(text: &str) -> Result<Vec<u8>, TokenFault> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_malformed| TokenFault::Malformed)
}

fn is_present<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(value).map(|IgnoredAny| true)
}

/// A claim with a time, in seconds since the epoch, which may have a fraction (RFC 7519 section 2).
fn time(claims: &Value, name: &str) -> Result<Option<f64>, TokenFault> {
    match claims.get(name) {
        None => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or(TokenFault::Malformed),
    }
}
