//! What a driver is told of the endpoint to try.

use std::time::Duration;

use tidegate_config::model::{Effective, Endpoint, Target};

/// The endpoint to try now, and what holds for the try.
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
    /// What is left of the time until the response's head; `None` for no limit.
    pub(crate) remaining: Option<Duration>,
    /// What is left of the time until the response's end; `None` for no limit.
    pub(crate) response: Option<Duration>,
}
