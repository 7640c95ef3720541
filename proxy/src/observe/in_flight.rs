//! A gauge of operations in flight.

use prometheus::IntGauge;

/// One operation, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct InFlight(IntGauge);

impl InFlight {
    /// Counts one more.
    pub(super) fn enter(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_guard_counts_until_it_is_dropped() {
        let gauge = IntGauge::new("gauge", "help").unwrap();
        let (first, second) = (InFlight::enter(&gauge), InFlight::enter(&gauge));
        assert_eq!(gauge.get(), 2);
        drop(first);
        assert_eq!(gauge.get(), 1);
        drop(second);
        assert_eq!(gauge.get(), 0);
    }
}
