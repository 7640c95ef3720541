//! Metrics of calls to authorisation services.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, Registry};

use super::connection_metrics::counters;
use super::in_flight::InFlight;

/// The upper bounds of the duration histogram in seconds: most services answer within a few milliseconds, and the
/// timeout is short.
const SECONDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// The reason why a service gave no valid answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallFailure {
    /// It has no endpoint.
    NoEndpoint,
    /// Its Service port has as many requests and calls as it may have.
    Overloaded,
    /// The edge, or the client's share of it, has no room for the call.
    NoRoom,
    /// No endpoint took a connection.
    ConnectFailed,
    /// There was no answer in time.
    Timeout,
    /// The connection broke, or the answer is invalid.
    Broken,
    /// The client disconnected before the answer.
    ClientGone,
}

/// The outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The request is allowed.
    Allowed,
    /// The request is denied.
    Denied,
    /// There was no valid answer, so the request is refused.
    Failed(CallFailure),
}

impl Outcome {
    /// Its name in metrics, and the reason of a failure.
    const fn labels(self) -> [&'static str; 2] {
        match self {
            Self::Allowed => ["allowed", ""],
            Self::Denied => ["denied", ""],
            Self::Failed(CallFailure::NoEndpoint) => ["failed", "no-endpoint"],
            Self::Failed(CallFailure::Overloaded) => ["failed", "service-overloaded"],
            Self::Failed(CallFailure::NoRoom) => ["failed", "no-room"],
            Self::Failed(CallFailure::ConnectFailed) => ["failed", "connect-failed"],
            Self::Failed(CallFailure::Timeout) => ["failed", "timeout"],
            Self::Failed(CallFailure::Broken) => ["failed", "broken"],
            Self::Failed(CallFailure::ClientGone) => ["failed", "client-gone"],
        }
    }
}

/// The metrics of calls.
#[derive(Debug)]
pub(crate) struct ExternalAuthMetrics {
    questions: IntCounterVec,
    duration: Histogram,
    in_flight: IntGauge,
}

impl ExternalAuthMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// If the registry has one of the names already.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let in_flight =
            IntGauge::new("tidegate_external_auth_in_flight", "Calls to authorisation services in flight.")?;
        registry.register(Box::new(in_flight.clone()))?;
        let help = "Time to the answer of an authorisation service, or to the end of the wait for it.";
        let duration = HistogramOpts::new("tidegate_external_auth_duration_seconds", help).buckets(SECONDS.to_vec());
        let duration = Histogram::with_opts(duration)?;
        registry.register(Box::new(duration.clone()))?;
        let (name, help) = ("tidegate_external_auth_total", "Calls to authorisation services by outcome.");
        Ok(Self { questions: counters(registry, name, help, &["outcome", "reason"])?, duration, in_flight })
    }

    /// Counts a call with its outcome.
    pub(crate) fn count(&self, outcome: Outcome) {
        self.questions.with_label_values(&outcome.labels()).inc();
    }

    /// Records the duration of a call.
    pub(crate) fn waited(&self, duration: Duration) {
        self.duration.observe(duration.as_secs_f64());
    }

    /// Counts a call as in flight.
    pub(crate) fn enter(&self) -> InFlight {
        InFlight::enter(&self.in_flight)
    }
}
