//! What the edge answers itself.

use http::HeaderValue;

use crate::reason::Reason;

/// An answer that the edge makes itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// Why.
    pub(crate) reason: Reason,
    /// The status: the reason's own, or that of a redirect.
    pub(crate) status: u16,
    /// Where a redirect leads.
    pub(crate) location: Option<HeaderValue>,
}

impl Answer {
    /// Sends the client elsewhere.
    pub(crate) const fn redirect(status: u16, location: HeaderValue) -> Self {
        Self { reason: Reason::Redirect, status, location: Some(location) }
    }
}

impl From<Reason> for Answer {
    fn from(reason: Reason) -> Self {
        Self { reason, status: reason.status(), location: None }
    }
}
