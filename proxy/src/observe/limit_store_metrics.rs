//! Metrics of the store that shares the counts of limits.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Registry};

use super::connection_metrics::counters;

/// The upper bounds of the duration histogram in seconds. A request waits for at most 5 ms.
const SECONDS: [f64; 10] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25];

/// A call of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StoreCall {
    /// Asks for requests of a counter.
    Grant,
    /// Gives requests of a counter back.
    GiveBack,
    /// Says that this replica is there.
    Present,
}

impl StoreCall {
    const ALL: [Self; 3] = [Self::Grant, Self::GiveBack, Self::Present];

    /// Its name in metrics.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::GiveBack => "give-back",
            Self::Present => "present",
        }
    }
}

/// What became of a request that the store did not decide in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Alone {
    /// Counted by this replica alone, it passed.
    Allowed,
    /// Counted by this replica alone, it was refused.
    Limited,
    /// It was refused because it cannot be counted.
    Refused,
}

impl Alone {
    const ALL: [Self; 3] = [Self::Allowed, Self::Limited, Self::Refused];

    /// Its name in metrics.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Limited => "limited",
            Self::Refused => "refused",
        }
    }
}

/// The metrics of the store.
#[derive(Debug)]
pub(crate) struct LimitStoreMetrics {
    /// 1 while the store answers.
    pub(crate) up: IntGauge,
    /// The last known number of replicas.
    pub(crate) replicas: IntGauge,
    /// The requests granted to this replica.
    pub(crate) granted: IntCounter,
    /// The requests that it has given back.
    pub(crate) returned: IntCounter,
    /// The requests that have waited for the store.
    pub(crate) waited: IntCounter,
    calls: [[IntCounter; 2]; 3],
    alone: [IntCounter; 3],
    duration: Histogram,
}

impl LimitStoreMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// If the registry has one of the names already.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |name, help| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let counter = |name, help| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let help = "Time to the answer of the store of limits.";
        let duration = HistogramOpts::new("tidegate_limit_store_duration_seconds", help).buckets(SECONDS.to_vec());
        let duration = Histogram::with_opts(duration)?;
        registry.register(Box::new(duration.clone()))?;
        let (name, help) = ("tidegate_limit_store_calls_total", "Calls of the store of limits by outcome.");
        let calls: IntCounterVec = counters(registry, name, help, &["call", "outcome"])?;
        let help = "Requests that the store of limits did not decide in time, by what became of them.";
        let alone: IntCounterVec = counters(registry, "tidegate_limit_store_alone_total", help, &["outcome"])?;
        Ok(Self {
            up: gauge("tidegate_limit_store_up", "1 while the store of limits answers.")?,
            replicas: gauge(
                "tidegate_limit_store_replicas",
                "Replicas that share the store of limits, as last known.",
            )?,
            granted: counter("tidegate_limit_store_granted_total", "Requests of limits granted to this replica.")?,
            returned: counter("tidegate_limit_store_returned_total", "Granted requests that were given back unused.")?,
            waited: counter("tidegate_limit_store_waits_total", "Requests that waited for the store of limits.")?,
            calls: StoreCall::ALL.map(|call| ["ok", "failed"].map(|is| calls.with_label_values(&[call.as_str(), is]))),
            alone: Alone::ALL.map(|outcome| alone.with_label_values(&[outcome.as_str()])),
            duration,
        })
    }

    /// Counts a call, and the time to its answer if there was one.
    pub(crate) fn called(&self, call: StoreCall, answered: Option<Duration>) {
        self.calls[call as usize][usize::from(answered.is_none())].inc();
        if let Some(time) = answered {
            self.duration.observe(time.as_secs_f64());
        }
    }

    /// Counts a request that the store did not decide.
    pub(crate) fn alone(&self, outcome: Alone) {
        self.alone[outcome as usize].inc();
    }
}
