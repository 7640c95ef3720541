//! What restricts access to a route: a compiled, ordered list that is walked before anything is forwarded.

use std::sync::Arc;

use ipnet::IpNet;
use serde::Serialize;

use super::external_auth::ExternalAuth;
use super::listener::ListenerName;

/// One check, in the order of the list. The first that answers ends the request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Guard {
    /// Answers 403 to clients outside these networks.
    AllowSources(Box<[IpNet]>),
    /// Sends plain-text requests to https with this status (301, 302, 307 or 308).
    RequireTls {
        /// The status of the redirect.
        status: u16,
    },
    /// Answers 404 to requests that came to another listener than these: the host is not served there, and not by anybody else.
    Listeners(Arc<[ListenerName]>),
    /// Answers 503 where no endpoint is there for any share of the route: what stands behind it in the list is not asked.
    RequireEndpoints,
    /// Asks a service, whose answer has to be waited for. The guards behind it are asked when the answer is yes.
    ExternalAuth(Arc<ExternalAuth>),
    /// Answers 403 to everybody: what stands for a guard that could not be read.
    DenyAll,
}

impl Guard {
    /// The service that it asks.
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
