//! Policies of Kuadrant (`kuadrant.io`), which attach to Gateways and routes of the Gateway API.

mod policy;
mod rate_limit_policy;

pub use policy::{MergeStrategy, PolicyBlock, PolicyScope, PolicyTargetRef};
pub use rate_limit_policy::RateLimitPolicy;
