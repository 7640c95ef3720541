//! Policies of Kuadrant (`kuadrant.io`), which attach to Gateways and routes of the Gateway API.

mod auth_policy;
mod block;
mod expressions;
mod fields;
mod policy;
mod rate_limit_policy;
mod token_rate_limit_policy;

pub use auth_policy::{AuthPolicy, RuleSecret};
pub use policy::{MergeStrategy, PolicyBlock, PolicyScope, PolicyTargetRef};
pub use rate_limit_policy::RateLimitPolicy;
pub use token_rate_limit_policy::TokenRateLimitPolicy;
