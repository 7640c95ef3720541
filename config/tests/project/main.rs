//! What projections make of manifests: goldens, what must not matter to them, and input that nobody would write.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod bounds;
mod gateway_bounds;
mod golden;
mod manifest;
mod mutation;
mod render;
mod render_gateway;
mod render_route;
mod route_bounds;
mod secret;
mod unrelated;
