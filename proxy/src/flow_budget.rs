//! The budget of datagram flows. They are charged like connections, but only up to a part of the whole budget: a sender
//! of forged addresses can fill that part alone, and causes no pressure on connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::budget::{Budget, Cost};

/// The divisor of the files and of the memory for flows.
const PART: u64 = 4;

/// The flows of the process.
#[derive(Debug)]
pub(crate) struct FlowBudget {
    budget: Arc<Budget>,
    flows: AtomicU64,
}

impl FlowBudget {
    /// No flows.
    pub(crate) const fn new(budget: Arc<Budget>) -> Self {
        Self { budget, flows: AtomicU64::new(0) }
    }

    /// The maximum number of flows.
    fn max(&self) -> u64 {
        let (max, flow) = (self.budget.max(), Cost::FLOW);
        (max.files() / PART / flow.files()).min(max.memory_kib() / PART / flow.memory_kib()).max(1)
    }

    /// Charges a flow, unless the maximum is reached or the process has no room. Returns `true` if it was charged.
    pub(crate) fn charge(&self) -> bool {
        let max = self.max();
        let more = |flows: u64| (flows < max).then_some(flows + 1);
        if self.flows.fetch_update(Relaxed, Relaxed, more).is_err() {
            return false;
        }
        let fits = self.budget.charge(Cost::FLOW);
        if !fits {
            self.flows.fetch_sub(1, Relaxed);
        }
        fits
    }

    /// Returns the charge of a flow.
    pub(crate) fn release(&self) {
        self.flows.fetch_sub(1, Relaxed);
        self.budget.release(Cost::FLOW);
    }

    /// Returns `true` if a client may have this number of flows: once half of the maximum is reached, only its share.
    pub(crate) fn is_fair(&self, held: u32) -> bool {
        let max = self.max();
        self.flows.load(Relaxed) * 2 < max || self.budget.is_part(held.into(), max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::BudgetLimits;

    fn flows(files: u32, memory_kib: u64) -> (FlowBudget, Arc<Budget>) {
        let budget = Arc::new(Budget::new(&BudgetLimits { files, memory_kib, ..BudgetLimits::default() }));
        (FlowBudget::new(Arc::clone(&budget)), budget)
    }

    #[track_caller]
    fn check(files: u32, memory_kib: u64, want: usize) {
        let (flows, budget) = flows(files, memory_kib);
        assert_eq!(std::iter::repeat_with(|| flows.charge()).take_while(|did| *did).count(), want);
        assert!(want == 1 || !budget.is_pressed());
        for _ in 0..want {
            flows.release();
        }
        assert_eq!(budget.taken(), Cost::default());
    }

    #[test]
    fn flows_use_at_most_a_quarter_and_cause_no_pressure() {
        check(100, 1_000_000, 25);
        check(1_000_000, 320, 10);
        check(1, 1_000_000, 1);
    }

    #[test]
    fn a_full_process_accepts_no_flow() {
        let (flows, budget) = flows(8, 1000);
        assert!(budget.charge(Cost::new(8, 0)) && !flows.charge());
        budget.release(Cost::new(8, 0));
        assert!(flows.charge() && flows.charge() && !flows.charge());
    }

    #[test]
    fn a_client_may_have_all_flows_until_half_of_them_are_used() {
        let (flows, _) = flows(64, 1000);
        assert!(flows.is_fair(8));
        for _ in 0..8 {
            assert!(flows.charge());
        }
        assert!(!flows.is_fair(5) && flows.is_fair(4));
    }
}
