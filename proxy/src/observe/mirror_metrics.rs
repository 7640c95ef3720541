//! What is counted of copies of requests.

use prometheus::{IntCounterVec, IntGauge, Registry};

use super::connection_metrics::counters;
use super::in_flight::InFlight;

/// Copies that may be on their way at once.
const IN_FLIGHT_MAX: i64 = 1024;

/// What became of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// An endpoint took it.
    Sent,
    /// None did, or not in time.
    Failed,
    /// There was no endpoint.
    NoEndpoint,
    /// The body was too large to be kept.
    TooLarge,
    /// Too many were on their way, or the memory is for requests.
    NoRoom,
    /// The request itself did not come to its end, or no endpoint took it.
    Abandoned,
    /// The target is not spoken to in plain HTTP/1.1.
    Unsupported,
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
            Self::Abandoned => "abandoned",
            Self::Unsupported => "unsupported",
        }
    }
}

/// The counters of copies.
#[derive(Debug)]
pub(crate) struct MirrorMetrics {
    copies: IntCounterVec,
    in_flight: IntGauge,
}

impl MirrorMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has one of the names already.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let in_flight = IntGauge::new("tidegate_mirrored_requests_in_flight", "Copies of requests on their way.")?;
        registry.register(Box::new(in_flight.clone()))?;
        let (name, help) = ("tidegate_mirrored_requests_total", "Copies of requests by what became of them");
        Ok(Self { copies: counters(registry, name, help, &["outcome"])?, in_flight })
    }

    /// Counts what became of a copy.
    pub(crate) fn count(&self, outcome: Outcome) {
        self.copies.with_label_values(&[outcome.as_str()]).inc();
    }

    /// Counts a copy as on its way; `None` where too many are.
    pub(crate) fn enter(&self) -> Option<InFlight> {
        let entered = InFlight::enter(&self.in_flight);
        (self.in_flight.get() <= IN_FLIGHT_MAX).then_some(entered)
    }
}
