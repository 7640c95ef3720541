//! What Tidegate claims about its speed, measured: the cost of one change and one look-up by counts that no noise
//! touches, and whole proxies side by side under load.
//!
//! Each command is one module; `docs/benchmarks.md` says what it measures and shows a run.

#![allow(dead_code, reason = "peers can do what the commands steady, memory and start need, which come next")]

pub mod churn;
pub mod propagate;
pub mod swaps;

mod cores;
mod identity;
mod load;
mod metrics;
mod nginx;
mod peer;
mod place;
mod poll;
mod process;
mod progress;
mod sampler;
mod spread;
mod upstream;
mod websocket;

pub mod allocation;
pub mod clock;
