//! The view of a request that policies decide by.

use std::net::IpAddr;

use super::super::backend::WeightedTarget;
use super::super::listener::ListenerName;
use super::super::route::Route;
use super::super::settings::Effective;

/// The facts about a request, its client and its route.
#[derive(Debug)]
pub struct Attributes<'a, H: ?Sized> {
    /// The head.
    pub head: &'a H,
    /// The client's address; `None` for one that every route allows.
    pub address: Option<IpAddr>,
    /// Whether the request came over TLS, here or to a trusted proxy.
    pub secure: bool,
    /// The listener that the request came to.
    pub listener: &'a ListenerName,
    /// The length of its body in bytes, if it announces one.
    pub body_bytes: Option<u64>,
    /// The route.
    pub route: &'a Route,
    /// The share of the route that it goes to; `None` if none gets requests.
    pub share: Option<&'a WeightedTarget>,
    /// The settings that apply.
    pub effective: &'a Effective,
}
