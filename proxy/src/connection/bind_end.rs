//! The end of a bind, for those who serve its connections and datagrams.

use std::future::pending;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The deadline of a bind's connections: `None` while it is open. The last value counts.
pub(crate) type Ending = watch::Receiver<Option<Instant>>;

/// Waits until a time; for ever with `None`.
pub(crate) async fn wait(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => pending().await,
    }
}
