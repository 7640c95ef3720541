//! Metrics of mirrored requests.

use prometheus::{IntCounterVec, IntGauge, Registry};

use super::connection_metrics::counters;
use super::in_flight::InFlight;

/// The number of places for mirrored requests in flight.
const PLACES: i64 = 1024;

/// The outcome of a mirrored request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// An endpoint took it: it is written, or over HTTP/2 or TLS an answer has begun.
    Sent,
    /// No endpoint took it in time.
    Failed,
    /// There was no endpoint.
    NoEndpoint,
    /// The body was too large to be buffered.
    TooLarge,
    /// Too many were in flight, or the memory is reserved for requests.
    NoRoom,
    /// Its Service has as many in flight as places are free.
    ServiceShare,
    /// The request has passed the edge before.
    PassedBefore,
    /// The original request did not complete, or no endpoint took it.
    Aborted,
}

impl Outcome {
    /// Its name in metrics.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::NoEndpoint => "no-endpoint",
            Self::TooLarge => "too-large",
            Self::NoRoom => "no-room",
            Self::ServiceShare => "service-share",
            Self::PassedBefore => "passed-before",
            Self::Aborted => "aborted",
        }
    }
}

/// The metrics of mirrored requests.
#[derive(Debug)]
pub(crate) struct MirrorMetrics {
    copies: IntCounterVec,
    in_flight: IntGauge,
}

impl MirrorMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// If the registry has one of the names already.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let in_flight = IntGauge::new("tidegate_mirrored_requests_in_flight", "Mirrored requests in flight.")?;
        registry.register(Box::new(in_flight.clone()))?;
        let (name, help) = ("tidegate_mirrored_requests_total", "Mirrored requests by outcome");
        Ok(Self { copies: counters(registry, name, help, &["outcome"])?, in_flight })
    }

    /// Counts a mirrored request with its outcome.
    pub(crate) fn count(&self, outcome: Outcome) {
        self.copies.with_label_values(&[outcome.as_str()]).inc();
    }

    /// Counts a mirrored request as in flight; `None` if there are too many.
    pub(crate) fn enter(&self) -> Option<InFlight> {
        let entered = InFlight::enter(&self.in_flight);
        (self.in_flight.get() <= PLACES).then_some(entered)
    }

    /// The number of places that are free.
    pub(crate) fn free(&self) -> u32 {
        u32::try_from(PLACES - self.in_flight.get()).unwrap_or_default()
    }
}
