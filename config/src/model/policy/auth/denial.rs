//! Answers to requests that are refused.

use http::HeaderName;
use serde::Serialize;

use super::AuthValue;

/// The answer of `response.unauthenticated` or `response.unauthorized`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Denial {
    /// `code`, from 300 to 599; `None` for 401 or 403.
    pub status: Option<u16>,
    /// `message`, which is sent as `X-Ext-Auth-Reason`.
    pub message: Option<AuthValue>,
    /// `headers`.
    #[serde(serialize_with = "super::denial::names")]
    pub headers: Box<[(HeaderName, AuthValue)]>,
    /// `body`.
    pub body: Option<AuthValue>,
}

/// Names only: values may be secrets.
pub(super) fn names<S: serde::Serializer>(
    headers: &[(HeaderName, AuthValue)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(headers.iter().map(|(name, _)| name.as_str()))
}
