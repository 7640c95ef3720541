//! Measurements of Tidegate's claims about its speed: the cost of one change and one look-up by counts, which are free
//! of noise, and whole proxies side by side under load.
//!
//! Each command is one module; `docs/benchmarks.md` explains its figures and shows a run.

pub mod attach;
pub mod cache;
pub mod churn;
pub mod memory;
pub mod model;
pub mod propagate;
pub mod queue;
pub mod served;
pub mod start;
pub mod steady;
pub mod subject;
pub mod swaps;

mod callgrind;
mod core_loop;
mod cores;
mod files;
mod get;
mod grpc;
mod identity;
mod limits;
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
