//! Access checks of a route: a compiled, ordered list that is evaluated before a request is forwarded.

use std::sync::Arc;

use serde::Serialize;

use super::super::listener::ListenerName;
use super::super::networks::Networks;
use super::{Answer, Attributes, ExternalAuth, Question, Refusal, StepResult};

/// One check, in the order of the list. The first that answers ends the request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Guard {
    /// Answers 403 to clients outside these networks.
    AllowSources(Networks),
    /// Redirects plain-text requests to https.
    RequireTls {
        /// The status of the redirect.
        status: u16,
    },
    /// Answers 404 to requests of all other listeners: the host is not served there, also not by another route.
    Listeners(Arc<[ListenerName]>),
    /// Answers 503 if no share of the route has an endpoint; the guards after it are not evaluated.
    RequireEndpoints,
    /// Calls an authorisation service. The guards after it are evaluated if the service allows the request.
    ExternalAuth(Arc<ExternalAuth>),
    /// Answers 403 to every request: it replaces a guard that cannot be read.
    DenyAll,
}

impl Guard {
    /// Evaluates it for a request. `has_endpoint` returns `true` if a share of the route has an endpoint.
    pub fn step<H: ?Sized>(
        &self,
        attributes: &Attributes<'_, H>,
        has_endpoint: impl FnOnce() -> bool,
    ) -> StepResult<'_> {
        let refusal = match self {
            Self::ExternalAuth(service) => return StepResult::Waits(Question::ExternalAuth(service)),
            Self::AllowSources(networks) if attributes.address.is_none_or(|address| networks.contains(address)) => None,
            Self::AllowSources(_) | Self::DenyAll => Some(Refusal::Denied),
            Self::Listeners(names) if names.contains(attributes.listener) => None,
            Self::Listeners(_) => Some(Refusal::NotHere),
            Self::RequireEndpoints if has_endpoint() => None,
            Self::RequireEndpoints => Some(Refusal::NoEndpoints),
            Self::RequireTls { .. } if attributes.secure => None,
            Self::RequireTls { status } => return StepResult::Answers(Answer::ToTls(*status)),
        };
        refusal.map_or(StepResult::Passes, |refusal| StepResult::Answers(Answer::Refused(refusal)))
    }

    /// The service that it calls.
    #[must_use]
    pub const fn external_auth(&self) -> Option<&Arc<ExternalAuth>> {
        match self {
            Self::ExternalAuth(service) => Some(service),
            Self::AllowSources(_)
            | Self::RequireTls { .. }
            | Self::Listeners(_)
            | Self::RequireEndpoints
            | Self::DenyAll => None,
        }
    }
}
