//! Authentication rules: where the credentials are, and how they are checked.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::{AuthValue, Introspection, Jwt};

/// A rule of `rules.authentication`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Authentication {
    /// `credentials`.
    pub credentials: Credentials,
    /// How they are checked.
    pub method: AuthenticationMethod,
    /// `defaults`: fields that the identity gets if it lacks them.
    pub defaults: Box<[(Arc<str>, AuthValue)]>,
    /// `overrides`: fields that the identity gets in place of its own.
    pub overrides: Box<[(Arc<str>, AuthValue)]>,
}

/// Where a client puts its credentials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Credentials {
    /// `authorizationHeader`: in `Authorization`, after this scheme (compared without case) and spaces. An empty scheme
    /// means the whole value.
    Authorization(Box<str>),
    /// `customHeader`: the whole value of this header.
    Header(HeaderName),
    /// `queryString`: the parameter of this name.
    Query(Box<str>),
    /// `cookie`: the cookie of this name.
    Cookie(Box<str>),
}

/// How credentials are checked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum AuthenticationMethod {
    /// `anonymous`: every client is accepted, without credentials.
    Anonymous,
    /// `plain`: the identity is this value of the request, unless it is absent or null.
    Plain(AuthValue),
    /// `apiKey`: the credential is one of these keys.
    ApiKey(Arc<ApiKeys>),
    /// `jwt`: the credential is a token signed with a known key.
    Jwt(Jwt),
    /// `oauth2Introspection`: the credential is a token that an authorization server knows.
    Introspection(Introspection),
    /// `kubernetesTokenReview`: the credential is a token that the API server knows.
    TokenReview {
        /// `audiences`; if empty, the host of the request.
        audiences: Box<[Arc<str>]>,
    },
}

/// The SHA-256 hash of an API key. Keys are kept and compared as hashes only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ApiKeyHash(pub [u8; 32]);

/// The API keys that a rule accepts, with the identity of each: an object with the `metadata` of its Secret.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ApiKeys(pub HashMap<ApiKeyHash, Arc<Value>>);

impl ApiKeyHash {
    /// The hash of a key.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, key);
        Self(digest.as_ref().try_into().unwrap_or_default())
    }
}

impl ApiKeys {
    /// The identity of a key.
    #[must_use]
    pub fn identity(&self, key: &str) -> Option<&Value> {
        self.0.get(&ApiKeyHash::of(key.as_bytes())).map(|identity| &**identity)
    }
}

/// Without the hash.
impl fmt::Debug for ApiKeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKeyHash")
    }
}

/// The number of the keys.
impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

/// The number of the keys.
impl Serialize for ApiKeys {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self:?}"))
    }
}

impl Default for Credentials {
    fn default() -> Self {
        Self::Authorization("Bearer".into())
    }
}

/// For example `the header x-api-key`.
impl fmt::Display for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authorization(scheme) if scheme.is_empty() => f.write_str("the header authorization"),
            Self::Authorization(scheme) => write!(f, "the header authorization with {scheme}"),
            Self::Header(name) => write!(f, "the header {name}"),
            Self::Query(name) => write!(f, "the query parameter {name}"),
            Self::Cookie(name) => write!(f, "the cookie {name}"),
        }
    }
}

impl Serialize for Credentials {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
