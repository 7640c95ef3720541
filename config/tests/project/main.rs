//! Projections of manifests: golden files, changes without effect, and invalid input.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod bounds;
mod expressions;
mod gateway_bounds;
mod golden;
mod manifest;
mod mutation;
mod auth_policy_bounds;
mod policy_bounds;
mod render;
mod render_gateway;
mod render_policy;
mod render_route;
mod route_bounds;
mod secret;
mod unrelated;
