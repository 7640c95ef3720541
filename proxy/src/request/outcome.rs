//! What is written down of a request, once, when it is over.

use std::time::Duration;

use tidegate_config::model::{LogFormat, Origin};

use crate::observe::access_log::Entry;
use crate::observe::metrics::Driver;
use crate::reason::Reason;
use crate::shared::Shared;

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome<'a> {
    /// Which driver carried it.
    pub(crate) driver: Driver,
    /// The rule that took it.
    pub(crate) origin: Option<&'a Origin>,
    /// The status that the client got, or 499 when it was gone.
    pub(crate) status: u16,
    /// From its head to its end.
    pub(crate) duration: Duration,
    /// Why no endpoint answered.
    pub(crate) reason: Option<Reason>,
}

/// Counts the request and leaves its line in the access log.
pub(crate) fn record(shared: &Shared, outcome: &Outcome<'_>, entry: &Entry<'_>, format: Option<&LogFormat>) {
    let object = outcome.origin.map(|origin| &origin.object);
    shared.metrics.carried(outcome.driver);
    shared.metrics.finished(object, outcome.status, outcome.duration);
    if let Some(reason) = outcome.reason {
        shared.metrics.answered(reason);
    }
    shared.access_log.put(|out| entry.write(format, out));
}
