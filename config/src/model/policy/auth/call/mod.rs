//! Calls of rules to servers outside of the edge. A call is data: the rules of a path say which ones a request needs,
//! and the caller makes them and decides again with the answers.

mod http_call;
mod http_rule;
mod reply;
mod review;
mod server;
mod url;

use std::sync::Arc;
use std::time::Duration;

use ring::digest::{Context, SHA256};
use serde::Serialize;
use serde_json::Value;

pub use http_call::{ClientCredentials, ClientSecret, HttpCall, Introspection, TokenFor, UserInfo};
pub use http_rule::{CallBody, CallCredential, CallCredentialSource, CallPath, HttpRule, PathPiece};
pub use reply::ReplyForm;
pub use review::{AccessAttributes, AccessReview, AccessReviewRule, TokenReview};
pub use server::{CallServer, SecretText};

use super::{AuthRuleName, AuthValue};

/// The default limit of the time for a call (`timeout`).
pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// A call that a rule needs for a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthCall {
    /// A request over HTTP.
    Http(Box<HttpCall>),
    /// A TokenReview by the API server (`authentication.k8s.io/v1`).
    TokenReview(Box<TokenReview>),
    /// A SubjectAccessReview by the API server (`authorization.k8s.io/v1`).
    AccessReview(Box<AccessReview>),
}

/// The answer to a call: a value, or nothing from a server that says no. A call without a valid answer has a fault.
pub type CallAnswer = Result<Option<Arc<Value>>, CallFault>;

/// Why a call has no valid answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CallFault {
    /// The addresses of the server are not known, or it takes no connection.
    Unreachable,
    /// There is no complete answer in time.
    Timeout,
    /// The edge has no room for it, or the server has as many calls as it may have.
    NoRoom,
    /// The answer has another status, type, size or form than the protocol has.
    InvalidAnswer,
    /// The rule has no value for a part of the call, such as its URL.
    Incomplete,
}

impl CallFault {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Unreachable, Self::Timeout, Self::NoRoom, Self::InvalidAnswer, Self::Incomplete];

    /// The name in metrics and in the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::NoRoom => "no-room",
            Self::InvalidAnswer => "invalid-answer",
            Self::Incomplete => "incomplete",
        }
    }
}

/// How the result of a rule is kept (`cache`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AuthCache {
    /// `key`: requests with the same value share the result. One without a value has none.
    pub key: AuthValue,
    /// `ttl`: how long a result is kept.
    pub ttl: Duration,
    /// Identifies the rule as it is written: a changed one has no kept results.
    #[serde(skip)]
    pub digest: [u8; 16],
}

/// A phase whose rules make calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CallPhase {
    /// `rules.authentication`.
    Authentication,
    /// `rules.metadata`.
    Metadata,
    /// `rules.authorization`.
    Authorization,
}

/// The place of a rule with a call among the rules of a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallPlace {
    /// The phase.
    pub phase: CallPhase,
    /// The place among the rules of the phase.
    pub index: usize,
}

/// The key of a result that is kept.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// Identifies the rule.
    pub rule: [u8; 16],
    /// The value of `key`.
    pub key: Box<str>,
    /// Identifies the call: an answer is never that to another one.
    pub call: [u8; 16],
}

/// A call with the place of its rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedCall {
    /// The place of the rule.
    pub place: CallPlace,
    /// The rule.
    pub rule: AuthRuleName,
    /// The key under which the answer may be kept, and for how long.
    pub kept: Option<KeptAnswer>,
    /// Whether its rule refuses no request, so that nobody should wait for it for long.
    pub shadow: bool,
    /// The call.
    pub call: AuthCall,
}

/// Adds a part with its length, so that no two lists of parts have one digest.
fn put(digest: &mut Context, part: &[u8]) {
    digest.update(&(part.len() as u64).to_le_bytes());
    digest.update(part);
}

/// Where and how long an answer is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptAnswer {
    /// The key.
    pub key: CacheKey,
    /// How long.
    pub ttl: Duration,
}

/// Without the key, which may be personal.
impl std::fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CacheKey")
    }
}

impl From<HttpCall> for AuthCall {
    fn from(call: HttpCall) -> Self {
        Self::Http(Box::new(call))
    }
}

impl AuthCall {
    /// A digest of all that is sent, and to which server.
    #[must_use]
    pub fn digest(&self) -> [u8; 16] {
        let mut digest = Context::new(&SHA256);
        match self {
            Self::Http(call) => call.put_into(&mut digest),
            Self::TokenReview(review) => put(&mut digest, review.object().to_string().as_bytes()),
            Self::AccessReview(review) => put(&mut digest, review.object().to_string().as_bytes()),
        }
        digest.finish().as_ref().first_chunk().copied().unwrap_or_default()
    }

    /// The answer that an explanation assumes, for a client with valid credentials. That of metadata is not known.
    ///
    /// # Errors
    /// For metadata.
    pub fn in_favour(&self) -> CallAnswer {
        match self {
            Self::Http(call) => call.reply.in_favour(),
            Self::TokenReview(_) => Ok(Some(Arc::new(Value::Object(serde_json::Map::new())))),
            Self::AccessReview(_) => Ok(Some(Arc::new(Value::Bool(true)))),
        }
    }
}
