//! The metrics of the cache.

use prometheus::{Gauge, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// The series, registered once.
#[derive(Clone, Debug)]
pub struct CacheMetrics {
    pub(super) usable: IntGauge,
    pub(super) written: IntCounter,
    pub(super) batches: IntCounterVec,
    pub(super) values: IntCounter,
    pub(super) unchanged: IntCounter,
    pub(super) pending: IntGauge,
    pub(super) losses: IntCounter,
    pub(super) damaged: IntCounter,
    pub(super) last_written: Gauge,
}

impl CacheMetrics {
    /// Registers the series.
    ///
    /// # Errors
    /// If one of these names is already registered.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let metrics = Self {
            usable: IntGauge::new("tidegate_cache_usable", "1 while the cache on disk is writable.")?,
            written: IntCounter::new("tidegate_cache_written_bytes_total", "Bytes written to the file of the cache.")?,
            batches: IntCounterVec::new(
                Opts::new("tidegate_cache_batches_total", "Batches written to the cache, by result."),
                &["result"],
            )?,
            values: IntCounter::new("tidegate_cache_values_total", "Values written to the cache or removed from it.")?,
            unchanged: IntCounter::new(
                "tidegate_cache_unchanged_total",
                "Events that did not change the kept state and were not written.",
            )?,
            pending: IntGauge::new("tidegate_cache_pending_values", "Values that wait to be written to the cache.")?,
            losses: IntCounter::new(
                "tidegate_cache_losses_total",
                "Times that the cache could not keep up; the next list restores the missed changes.",
            )?,
            damaged: IntCounter::new(
                "tidegate_cache_damaged_total",
                "Times that the cache was damaged, empty or truncated, and was set aside.",
            )?,
            last_written: Gauge::new(
                "tidegate_cache_last_write_timestamp_seconds",
                "Time of the last write to the cache, in seconds since the epoch.",
            )?,
        };
        for result in ["ok", "failed"] {
            metrics.batches.with_label_values(&[result]);
        }
        registry.register(Box::new(metrics.usable.clone()))?;
        registry.register(Box::new(metrics.written.clone()))?;
        registry.register(Box::new(metrics.batches.clone()))?;
        registry.register(Box::new(metrics.values.clone()))?;
        registry.register(Box::new(metrics.unchanged.clone()))?;
        registry.register(Box::new(metrics.pending.clone()))?;
        registry.register(Box::new(metrics.losses.clone()))?;
        registry.register(Box::new(metrics.damaged.clone()))?;
        registry.register(Box::new(metrics.last_written.clone()))?;
        Ok(metrics)
    }
}
