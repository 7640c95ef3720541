//! The data of an attempt for drivers.

use std::time::Duration;

use tidegate_config::model::{Effective, Endpoint, Target};

/// The endpoint of an attempt, with its settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpstreamAttempt<'a> {
    /// The settings that apply.
    pub(crate) effective: &'a Effective,
    /// The target.
    pub(crate) target: &'a Target,
    /// The endpoint.
    pub(crate) endpoint: &'a Endpoint,
    /// Whether the request asks for an upgrade and may have it.
    pub(crate) upgrade: bool,
    /// Whether it needs an HTTP/2 connection without other requests.
    pub(crate) alone: bool,
    /// The time left until the deadline of the response's head; `None` for no limit.
    pub(crate) remaining: Option<Duration>,
    /// The time left until the deadline of the response's end; `None` for no limit.
    pub(crate) response: Option<Duration>,
}

impl UpstreamAttempt<'_> {
    /// The maximum time for opening a connection.
    pub(crate) fn connect_timeout(&self) -> Duration {
        let limit = self.effective.connect_timeout;
        self.remaining.map_or(limit, |left| left.min(limit))
    }
}
