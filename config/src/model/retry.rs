//! Retries after an answer of an endpoint.

use std::time::Duration;

use serde::Serialize;

/// The retry policy of a route. Without one, a request is retried only if no endpoint has begun to answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RetryPolicy {
    /// The statuses that are retried, in ascending order. With 504 among them, an attempt that times out is retried as
    /// well.
    pub statuses: Box<[u16]>,
    /// Attempts after the first; 0 for none. It replaces [`Settings::tries_max`](super::Settings::tries_max). Attempts
    /// whose connection is refused at once are not counted, nor a few that an HTTP/2 endpoint did not process because
    /// it ended their connection before.
    pub attempts: u32,
    /// The least time between the end of an attempt that reached an endpoint and the next one; zero for none.
    pub backoff: Duration,
}

impl RetryPolicy {
    /// The default backoff.
    pub const BACKOFF: Duration = Duration::from_millis(25);
}
