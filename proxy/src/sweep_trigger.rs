//! Whether there is anything to forget. What outlives snapshots is made by requests, and the last request of an object can
//! end long after the object: a sweep that looked only at snapshots would miss what came back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tidegate_config::model::Generation;

/// What the last sweep saw, and whether anything was made since.
#[derive(Debug, Default)]
pub(crate) struct SweepTrigger {
    made: AtomicBool,
    swept: AtomicU64,
}

impl SweepTrigger {
    /// Notes that there is something new that a sweep may have to forget; to be called when it is there to be found.
    pub(crate) fn mark(&self) {
        self.made.store(true, Relaxed);
    }

    /// Whether a sweep by this generation is due; it counts as done.
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
