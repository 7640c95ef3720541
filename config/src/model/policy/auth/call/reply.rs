//! Answers of servers.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::{CallAnswer, CallFault};

/// The maximum number of values in an answer: each takes up to about 650 bytes of memory, however short it is.
const VALUES_MAX: usize = 2048;

/// The form of an answer over HTTP.
#[derive(Clone, PartialEq, Eq)]
pub enum ReplyForm {
    /// The facts about a token (RFC 7662 section 2.2).
    Introspection,
    /// The claims about a user (OpenID Connect Core 1.0 section 5.3.2).
    UserInfo {
        /// The subject of the token, whom they must be about.
        subject: Option<Box<str>>,
    },
    /// A token for the edge itself (RFC 6749 section 5.1).
    AccessToken,
    /// A JSON document, or a text of another type.
    Document,
    /// Any, which is not read.
    Ignored,
}

impl ReplyForm {
    /// Reads an answer.
    ///
    /// # Errors
    /// [`CallFault::InvalidAnswer`] if it does not have this form.
    pub(super) fn read(&self, status: u16, headers: &HeaderMap, body: &[u8], now: SystemTime) -> CallAnswer {
        let invalid = CallFault::InvalidAnswer;
        let is_expected = match self {
            Self::Introspection | Self::UserInfo { .. } | Self::AccessToken => status == 200,
            Self::Document => (200..300).contains(&status),
            Self::Ignored => return Ok(None),
        };
        if !is_expected {
            return Err(invalid);
        }
        if values(body) > VALUES_MAX {
            return Err(invalid);
        }
        let object = || serde_json::from_slice(body).ok().filter(Value::is_object).ok_or(invalid);
        let value = match self {
            Self::Introspection => return active(object()?, now),
            Self::UserInfo { subject } => {
                let claims: Value = object()?;
                let is_of = |subject: &str| claims.get("sub").and_then(Value::as_str) == Some(subject);
                if !subject.as_deref().is_none_or(is_of) {
                    return Err(invalid);
                }
                claims
            }
            Self::AccessToken => {
                let answer: Value = object()?;
                // RFC 6749 section 7.1: a type that is not understood must not be used.
                let kind = answer.get("token_type").and_then(Value::as_str);
                let has_token = answer.get("access_token").is_some_and(Value::is_string);
                if !has_token || !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
                    return Err(invalid);
                }
                answer
            }
            Self::Document => document(headers, body)?,
            Self::Ignored => return Ok(None),
        };
        Ok(Some(Arc::new(value)))
    }

    /// The answer that an explanation assumes.
    pub(super) fn in_favour(&self) -> CallAnswer {
        match self {
            Self::Introspection => Ok(Some(Arc::new(serde_json::json!({ "active": true })))),
            Self::UserInfo { .. } | Self::AccessToken | Self::Document | Self::Ignored => Err(CallFault::Incomplete),
        }
    }
}

/// The facts about a token that is active, and has not expired since they were written.
fn active(facts: Value, now: SystemTime) -> CallAnswer {
    let active = facts.get("active").and_then(Value::as_bool).ok_or(CallFault::InvalidAnswer)?;
    if !active {
        return Ok(None);
    }
    let has_expired = match facts.get("exp") {
        None | Some(Value::Null) => false,
        Some(expires) => {
            let seconds = expires.as_u64().ok_or(CallFault::InvalidAnswer)?;
            let expires = UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
            expires.is_some_and(|expires| expires <= now)
        }
    };
    Ok((!has_expired).then(|| Arc::new(facts)))
}

/// An upper limit of the number of values in a JSON document.
fn values(json: &[u8]) -> usize {
    json.iter().filter(|byte| matches!(byte, b'{' | b'[' | b',')).count()
}

fn document(headers: &HeaderMap, body: &[u8]) -> Result<Value, CallFault> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/json" || kind.ends_with("+json") {
        return serde_json::from_slice(body).map_err(|_malformed| CallFault::InvalidAnswer);
    }
    let text = std::str::from_utf8(body).map_err(|_binary| CallFault::InvalidAnswer)?;
    Ok(Value::String(text.to_owned()))
}

/// Without the subject.
impl std::fmt::Debug for ReplyForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Introspection => "Introspection",
            Self::UserInfo { .. } => "UserInfo",
            Self::AccessToken => "AccessToken",
            Self::Document => "Document",
            Self::Ignored => "Ignored",
        })
    }
}
