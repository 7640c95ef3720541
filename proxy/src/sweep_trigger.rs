//! Whether a sweep has anything to remove. Requests create state that outlives snapshots, and the last request of an
//! object can end long after the object: a sweep that only follows snapshots would miss state that was created again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tidegate_config::model::Generation;

/// The state of the last sweep, and whether anything was created since.
#[derive(Debug, Default)]
pub(crate) struct SweepTrigger {
    made: AtomicBool,
    swept: AtomicU64,
}

impl SweepTrigger {
    /// State was created that a sweep may have to remove; call it after the state is visible.
    pub(crate) fn mark(&self) {
        self.made.store(true, Relaxed);
    }

    /// Returns `true` if a sweep for this generation is due, and marks it as done.
    pub(crate) fn take_if_due(&self, generation: Generation) -> bool {
        let made = self.made.swap(false, Relaxed);
        self.swept.swap(generation.0, Relaxed) != generation.0 || made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_due_after_a_publication_and_after_growth() {
        let sweep_trigger = SweepTrigger::default();
        assert!(!sweep_trigger.take_if_due(Generation(0)));
        assert!(sweep_trigger.take_if_due(Generation(1)));
        assert!(!sweep_trigger.take_if_due(Generation(1)));
        sweep_trigger.mark();
        assert!(sweep_trigger.take_if_due(Generation(1)));
        assert!(!sweep_trigger.take_if_due(Generation(1)));
    }
}
