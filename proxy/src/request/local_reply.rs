//! Local replies.

use std::sync::Arc;

use http::HeaderValue;
use tidegate_config::model::DirectResponse;
use tidegate_config::model::auth::AuthDenial;

use crate::limit::LimitNotice;
use crate::reason::Reason;

/// A local reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LocalReply {
    /// The reason.
    pub(crate) reason: Reason,
    /// The status: that of the reason, of a redirect, or of the given response.
    pub(crate) status: u16,
    /// Its headers and its body.
    pub(crate) content: Content,
}

/// The headers and the body of a local reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// The reason and the id of the request, in the form that the client asks for.
    Explained,
    /// The same with `Location`.
    Redirect(HeaderValue),
    /// The same with `Retry-After`, after which the limit admits requests again.
    Limited(Box<LimitNotice>),
    /// The same with these values of `WWW-Authenticate`.
    Challenged(Box<[HeaderValue]>),
    /// Those of a route, of a policy, or of an authorisation service.
    Given(Arc<DirectResponse>),
}

impl LocalReply {
    /// A redirect.
    pub(crate) const fn redirect(status: u16, location: HeaderValue) -> Self {
        Self { reason: Reason::Redirect, status, content: Content::Redirect(location) }
    }

    /// The direct response of a route.
    pub(crate) fn direct(response: &Arc<DirectResponse>) -> Self {
        Self { reason: Reason::DirectResponse, status: response.status, content: Content::Given(Arc::clone(response)) }
    }

    /// The response of an authorisation service that denies the request.
    pub(crate) fn denied(response: Arc<DirectResponse>) -> Self {
        Self { reason: Reason::ExternalAuthDenied, status: response.status, content: Content::Given(response) }
    }

    /// The reply to a request that a rate limit refuses.
    pub(crate) fn limited(by: LimitNotice) -> Self {
        Self { content: Content::Limited(Box::new(by)), ..Reason::RateLimited.into() }
    }

    /// The reply to a request that authentication or authorisation refuses.
    pub(crate) fn unauthorized(denial: AuthDenial) -> Self {
        let status = denial.status();
        let content = denial.response.map_or(Content::Challenged(denial.challenges), Content::Given);
        Self { reason: denial.refusal.into(), status, content }
    }

    /// The reply to a request whose route, or share of it, has no usable backend, or a filter that cannot be applied.
    pub(crate) const fn invalid_backend(status: u16) -> Self {
        Self { reason: Reason::InvalidBackend, status, content: Content::Explained }
    }

    /// The target, if it is a redirect.
    pub(crate) const fn location(&self) -> Option<&HeaderValue> {
        match &self.content {
            Content::Redirect(location) => Some(location),
            Content::Explained | Content::Limited(_) | Content::Challenged(_) | Content::Given(_) => None,
        }
    }

    /// The limit, if one refuses the request.
    pub(crate) fn limit(&self) -> Option<&LimitNotice> {
        match &self.content {
            Content::Limited(limit) => Some(limit),
            Content::Explained | Content::Redirect(_) | Content::Challenged(_) | Content::Given(_) => None,
        }
    }
}

impl Content {
    /// The values of `WWW-Authenticate` of an answer of the edge.
    pub(crate) fn challenges(&self) -> &[HeaderValue] {
        match self {
            Self::Challenged(challenges) => challenges,
            Self::Explained | Self::Redirect(_) | Self::Limited(_) | Self::Given(_) => &[],
        }
    }
}

impl From<Reason> for LocalReply {
    fn from(reason: Reason) -> Self {
        Self { reason, status: reason.status(), content: Content::Explained }
    }
}
