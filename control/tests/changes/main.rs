//! Routes after changes of objects, and the order of events before the first model, event by event.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

mod api_server;
mod auth_calls;
mod auth_policies;
mod bench;
mod beside;
mod deis;
mod deis_many;
mod denied;
mod follow;
mod gateways;
mod growth;
mod hold;
mod hostile;
mod lives;
mod manifests;
mod named_policies;
mod order;
mod policies;
mod settle;
mod settle_gateway;
mod takeover;
mod texts;
