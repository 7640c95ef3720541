//! What Tidegate claims about its speed, measured: the cost of one change and one look-up by counts that no noise
//! touches, and whole proxies side by side under load.
//!
//! Each command is one module; `docs/benchmarks.md` says what it measures and shows a run.

pub mod churn;
pub mod propagate;
pub mod swaps;

mod load;
mod nginx;
mod peer;
mod place;
mod poll;
mod progress;
mod spread;
mod upstream;
mod websocket;

pub mod allocation;
pub mod clock;
