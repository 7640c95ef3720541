//! What Tidegate claims about its speed, measured: the cost of one change and one look-up by counts that no noise
//! touches, and whole proxies side by side under load.
//!
//! Each command is one module; `docs/benchmarks.md` says what it measures and shows a run.

pub mod attach;
pub mod cache;
pub mod churn;
pub mod memory;
pub mod propagate;
pub mod queue;
pub mod served;
pub mod start;
pub mod steady;
pub mod subject;
pub mod swaps;

mod callgrind;
mod cores;
mod files;
mod get;
mod grpc;
mod identity;
mod load;
mod metrics;
mod nginx;
mod operations;
mod peer;
mod place;
mod poll;
mod process;
mod progress;
mod sampler;
mod size;
mod spread;
mod steal;
mod strace;
mod table;
mod tls;
mod upstream;
mod websocket;

pub mod allocation;
pub mod clock;
