//! Answers to requests that are refused.

use std::sync::Arc;

use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue};
use serde::{Serialize, Serializer};

use super::super::super::condition::Head;
use super::super::super::filter::DirectResponse;
use super::super::Attributes;
use super::evaluate::text_of;
use super::{AuthRuleName, AuthValue, Authentication, AuthenticationMethod, Credentials, HttpCall};

/// The header with the message of a denial, as Authorino names it.
static REASON: HeaderName = HeaderName::from_static("x-ext-auth-reason");

/// The answer of `response.unauthenticated` or `response.unauthorized`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Denial {
    /// `code`, from 300 to 599; `None` for 401 or 403.
    pub status: Option<u16>,
    /// `message`, which is sent as `X-Ext-Auth-Reason`.
    pub message: Option<AuthValue>,
    /// `headers`, none of which frames the response or belongs to the connection.
    #[serde(serialize_with = "names")]
    pub headers: Box<[(HeaderName, AuthValue)]>,
    /// `body`.
    pub body: Option<AuthValue>,
}

/// The refusal of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthDenial {
    /// Why.
    pub refusal: AuthRefusal,
    /// The rule that refuses it.
    pub by: AuthRuleName,
    /// The answer that a policy gives; `None` for that of the edge.
    pub response: Option<Arc<DirectResponse>>,
    /// The values of `WWW-Authenticate` (RFC 9110 section 11.6.1) for an answer of the edge.
    pub challenges: Box<[HeaderValue]>,
    /// The requests to make now, whose answers do not matter.
    pub callbacks: Box<[HttpCall]>,
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthRefusal {
    /// It has no valid credentials.
    Unauthenticated,
    /// A rule refuses it, or cannot be evaluated or used.
    Unauthorized,
}

impl AuthRefusal {
    /// The status of the edge's answer.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Unauthenticated => 401,
            Self::Unauthorized => 403,
        }
    }
}

impl AuthDenial {
    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.response.as_ref().map_or_else(|| self.refusal.status(), |response| response.status)
    }

    /// For a request without valid credentials. `denial` is the answer of a policy.
    pub(super) fn unauthenticated<H: Head + ?Sized>(
        by: AuthRuleName,
        denial: Option<&Denial>,
        challenges: Box<[HeaderValue]>,
        attributes: &Attributes<'_, H>,
    ) -> Self {
        let refusal = AuthRefusal::Unauthenticated;
        let response = denial.map(|denial| Arc::new(denial.response(refusal, &challenges, attributes)));
        Self { refusal, by, response, challenges, callbacks: Box::default() }
    }

    /// For a request that a rule refuses. `denial` is the answer of a policy.
    pub(super) fn unauthorized<H: Head + ?Sized>(
        by: AuthRuleName,
        denial: Option<&Denial>,
        attributes: &Attributes<'_, H>,
    ) -> Self {
        let refusal = AuthRefusal::Unauthorized;
        let response = denial.map(|denial| Arc::new(denial.response(refusal, &[], attributes)));
        Self { refusal, by, response, challenges: Box::default(), callbacks: Box::default() }
    }
}

impl Denial {
    /// The answer to a request. What has no value, or none that can be sent, is left out.
    fn response<H: Head + ?Sized>(
        &self,
        refusal: AuthRefusal,
        challenges: &[HeaderValue],
        attributes: &Attributes<'_, H>,
    ) -> DirectResponse {
        let text = |value: &AuthValue| value.json(attributes).map(|value| text_of(&value));
        let header = |value: &AuthValue| HeaderValue::try_from(text(value)?).ok();
        let given = self.headers.iter().filter_map(|(name, value)| Some((name.clone(), header(value)?)));
        let (types, given): (Vec<_>, Vec<_>) = given.partition(|(name, _)| *name == CONTENT_TYPE);
        let challenges = challenges.iter().filter(|_| self.headers.is_empty());
        let challenges = challenges.map(|challenge| (WWW_AUTHENTICATE, challenge.clone()));
        let message = self.message.as_ref().and_then(header).map(|message| (REASON.clone(), message));
        let body = self.body.as_ref().and_then(text).unwrap_or_default();
        let default_type = (!body.is_empty()).then(|| HeaderValue::from_static("text/plain; charset=utf-8"));
        DirectResponse {
            status: self.status.unwrap_or(refusal.status()),
            headers: given.into_iter().chain(challenges).chain(message).collect(),
            content_type: types.into_iter().next().map(|(_, value)| value).or(default_type),
            body: body.into_bytes().into(),
        }
    }
}

impl Authentication {
    /// The challenge for a client without valid credentials: the scheme, or the name of the place of the credentials,
    /// and the name of the rule. `None` for a method without credentials.
    pub(super) fn challenge(&self, rule: &str) -> Option<HeaderValue> {
        let scheme: &str = match (&self.method, &self.credentials) {
            (AuthenticationMethod::Anonymous | AuthenticationMethod::Plain(_), _) => return None,
            (_, Credentials::Authorization(scheme)) if scheme.is_empty() => "Authorization",
            (_, Credentials::Authorization(scheme)) => scheme,
            (_, Credentials::Header(name)) => name.as_str(),
            (_, Credentials::Query(name) | Credentials::Cookie(name)) => name,
        };
        let quoted = rule.replace('\\', r"\\").replace('"', "\\\"");
        HeaderValue::try_from(format!("{scheme} realm=\"{quoted}\"")).ok()
    }
}

/// Names only: values may be secrets.
fn names<S: Serializer>(headers: &[(HeaderName, AuthValue)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(headers.iter().map(|(name, _)| name.as_str()))
}
