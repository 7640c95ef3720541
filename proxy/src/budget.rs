//! What traffic may take of the process's files and memory at once, over all threads. Everything is charged before it is
//! taken, at the most it can come to, so that no client and no endpoint decides how much that is.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bits of [`Cost`] that count memory, in KiB; the bits above them count files.
const MEMORY_BITS: u32 = 40;

/// Files and memory as one number, so that both are charged by one atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cost(u64);

impl Cost {
    /// So many files and so many KiB of memory.
    pub(crate) const fn new(files: u32, memory_kib: u32) -> Self {
        Self(((files as u64) << MEMORY_BITS) + memory_kib as u64)
    }

    /// Files.
    pub(crate) const fn files(self) -> u64 {
        self.0 >> MEMORY_BITS
    }

    /// Memory in KiB.
    pub(crate) const fn memory_kib(self) -> u64 {
        self.0 & ((1 << MEMORY_BITS) - 1)
    }
}

/// The most that traffic may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetLimits {
    /// Sockets of clients and to endpoints that may be open at the same time, idle ones to endpoints left out; from 1 to
    /// 8,388,607.
    pub files: u32,
    /// Memory that connections and requests may take at the same time, in KiB; from 1 to 274,877,906,943 (256 TiB).
    pub memory_kib: u64,
}

impl Default for BudgetLimits {
    /// As much as can be counted.
    fn default() -> Self {
        Self { files: (1 << 23) - 1, memory_kib: (1 << (MEMORY_BITS - 2)) - 1 }
    }
}

/// What is taken, and how much may be.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: BudgetLimits,
    taken: AtomicU64,
}

impl Budget {
    /// Nothing is taken yet.
    pub(crate) fn new(limits: BudgetLimits) -> Self {
        let most = BudgetLimits::default();
        let limits = BudgetLimits {
            files: limits.files.clamp(1, most.files),
            memory_kib: limits.memory_kib.clamp(1, most.memory_kib),
        };
        Self { limits, taken: AtomicU64::new(0) }
    }

    /// Charges a cost unless that would be more than there may be; whether it did. What was charged is to be given back by
    /// [`Self::release`].
    pub(crate) fn charge(&self, cost: Cost) -> bool {
        let after = Cost(self.taken.fetch_add(cost.0, Relaxed) + cost.0);
        let fits = after.files() <= u64::from(self.limits.files) && after.memory_kib() <= self.limits.memory_kib;
        if !fits {
            self.release(cost);
        }
        fits
    }

    /// Gives back what was charged.
    pub(crate) fn release(&self, cost: Cost) {
        self.taken.fetch_sub(cost.0, Relaxed);
    }

    /// What is taken now.
    pub(crate) fn taken(&self) -> Cost {
        Cost(self.taken.load(Relaxed))
    }

    /// Whether half of the files or of the memory is taken: from here on slow clients and those that hold much give way.
    pub(crate) fn is_pressed(&self) -> bool {
        let taken = self.taken();
        taken.files() * 2 >= u64::from(self.limits.files) || taken.memory_kib() * 2 >= self.limits.memory_kib
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_charged_beyond_either_limit() {
        let budget = Budget::new(BudgetLimits { files: 4, memory_kib: 100 });
        let (file, memory) = (Cost::new(1, 10), Cost::new(0, 61));
        assert!(budget.charge(file) && !budget.is_pressed());
        assert!(budget.charge(file) && budget.is_pressed(), "half of the files");
        assert!(budget.charge(file));
        assert!(!budget.charge(Cost::new(0, 71)) && !budget.charge(Cost::new(2, 0)));
        assert_eq!(budget.taken(), Cost::new(3, 30));
        budget.release(file);
        budget.release(file);
        assert!(!budget.is_pressed());
        assert!(budget.charge(memory) && budget.is_pressed(), "half of the memory");
        budget.release(memory);
        budget.release(file);
        assert_eq!(budget.taken(), Cost::default());
    }

    #[test]
    fn limits_are_brought_into_what_can_be_counted() {
        let budget = Budget::new(BudgetLimits { files: u32::MAX, memory_kib: u64::MAX });
        assert_eq!(budget.limits, BudgetLimits::default());
        assert!(Budget::new(BudgetLimits { files: 0, memory_kib: 0 }).charge(Cost::new(1, 1)));
    }
}
