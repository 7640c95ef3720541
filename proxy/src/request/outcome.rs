//! The record of a request at its end.

use std::time::Duration;

use tidegate_config::model::{LogFormat, Origin};

use crate::observe::access_log::Entry;
use crate::observe::metrics::DriverUsed;
use crate::reason::Reason;
use crate::shared::Shared;

/// The outcome of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome<'a> {
    /// The driver of the request.
    pub(crate) driver: DriverUsed,
    /// The rule that matched.
    pub(crate) origin: Option<&'a Origin>,
    /// The status sent to the client, or 499 if it had disconnected.
    pub(crate) status: u16,
    /// The time from its head to its end.
    pub(crate) duration: Duration,
    /// The reason why no endpoint answered.
    pub(crate) reason: Option<Reason>,
}

/// Counts the request and writes its line to the access log.
pub(crate) fn record(shared: &Shared, outcome: &Outcome<'_>, entry: &Entry<'_>, format: Option<&LogFormat>) {
    let object = outcome.origin.map(|origin| &origin.object);
    shared.metrics.carried(outcome.driver);
    shared.metrics.finished(object, outcome.status, outcome.duration);
    if let Some(reason) = outcome.reason {
        shared.metrics.answered(reason);
    }
    shared.access_log.put(|out| entry.write(format, out));
}
