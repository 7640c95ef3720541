//! Answers of the edge itself.

use std::sync::Arc;

use http::HeaderValue;
use tidegate_config::model::DirectResponse;

use crate::reason::Reason;

/// An answer of the edge itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// The reason.
    pub(crate) reason: Reason,
    /// The status: that of the reason, of a redirect, or of the route's direct response.
    pub(crate) status: u16,
    /// The target of a redirect.
    pub(crate) location: Option<HeaderValue>,
    /// The direct response of the route.
    pub(crate) response: Option<Arc<DirectResponse>>,
}

impl Answer {
    /// A redirect.
    pub(crate) const fn redirect(status: u16, location: HeaderValue) -> Self {
        Self { reason: Reason::Redirect, status, location: Some(location), response: None }
    }

    /// The direct response of a route.
    pub(crate) fn direct(response: &Arc<DirectResponse>) -> Self {
        let (status, response) = (response.status, Some(Arc::clone(response)));
        Self { reason: Reason::DirectResponse, status, location: None, response }
    }

    /// The response of an authorisation service that denies the request.
    pub(crate) fn denied(response: Arc<DirectResponse>) -> Self {
        let status = response.status;
        Self { reason: Reason::ExternalAuthDenied, status, location: None, response: Some(response) }
    }

    /// The status of a share of requests without a target.
    pub(crate) const fn status(status: u16) -> Self {
        Self { reason: Reason::DirectResponse, status, location: None, response: None }
    }
}

impl From<Reason> for Answer {
    fn from(reason: Reason) -> Self {
        Self { reason, status: reason.status(), location: None, response: None }
    }
}
