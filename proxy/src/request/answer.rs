//! What the edge answers itself.

use std::sync::Arc;

use http::HeaderValue;
use tidegate_config::model::DirectResponse;

use crate::reason::Reason;

/// An answer that the edge makes itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// Why.
    pub(crate) reason: Reason,
    /// The status: the reason's own, or that of a redirect or of a response that the route has.
    pub(crate) status: u16,
    /// Where a redirect leads.
    pub(crate) location: Option<HeaderValue>,
    /// The response that the route has ready.
    pub(crate) response: Option<Arc<DirectResponse>>,
}

impl Answer {
    /// Sends the client elsewhere.
    pub(crate) const fn redirect(status: u16, location: HeaderValue) -> Self {
        Self { reason: Reason::Redirect, status, location: Some(location), response: None }
    }

    /// Gives the response that a route has ready.
    pub(crate) fn direct(response: &Arc<DirectResponse>) -> Self {
        let (status, response) = (response.status, Some(Arc::clone(response)));
        Self { reason: Reason::DirectResponse, status, location: None, response }
    }

    /// Gives the response of an authorisation service that says no.
    pub(crate) fn denied(response: Arc<DirectResponse>) -> Self {
        let status = response.status;
        Self { reason: Reason::ExternalAuthDenied, status, location: None, response: Some(response) }
    }

    /// Gives the status of a share of requests that goes to no target.
    pub(crate) const fn status(status: u16) -> Self {
        Self { reason: Reason::DirectResponse, status, location: None, response: None }
    }
}

impl From<Reason> for Answer {
    fn from(reason: Reason) -> Self {
        Self { reason, status: reason.status(), location: None, response: None }
    }
}
