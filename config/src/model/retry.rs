//! When a request is tried again although an endpoint has answered it.

use std::time::Duration;

use serde::Serialize;

/// What a route says of trying again. Without one, a request is tried again only where no endpoint has begun to answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RetryPolicy {
    /// The statuses of endpoints after which another attempt is made, in ascending order. With 504 among them, also an attempt
    /// that takes too long is followed by another one.
    pub statuses: Box<[u16]>,
    /// Attempts after the first; 0 for none at all. It holds in place of [`Settings::tries_max`](super::Settings::tries_max), and
    /// connections that are refused at once are not counted.
    pub attempts: u32,
    /// Least time between an attempt that an endpoint took and the next one; zero for none.
    pub backoff: Duration,
}

impl RetryPolicy {
    /// The time between two attempts where nothing is said.
    pub const BACKOFF: Duration = Duration::from_millis(25);
}
