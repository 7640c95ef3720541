//! What Tidegate claims about its speed, measured: the cost of one change and one look-up by counts that no noise
//! touches, and whole proxies side by side under load.
//!
//! Each command is one module; `docs/benchmarks.md` says what it measures and shows a run.

pub mod allocation;
pub mod clock;
pub mod swaps;
