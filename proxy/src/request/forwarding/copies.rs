//! The mirrored copies of a forwarded request.

use std::sync::Arc;

use tidegate_config::model::Mirror;

use super::Forwarding;
use crate::observe::mirror_metrics::Outcome;
use crate::request::exchange::Exchange;
use crate::request::mirror::{self, Copies};
use crate::request::phase::RequestFacts;
use crate::upstream::balance::Random;

/// Selects the mirrors of the route and the share at random, and begins a copy for each selected one. Upgrades are not
/// mirrored, nor is a request that has passed the edge before: a mirror that leads back to the edge would get a copy of
/// each copy.
pub(super) fn begin_copies(exchange: &Exchange, request: &RequestFacts, seed: u64) -> Option<Box<Copies>> {
    let mut draw = Random::new(seed);
    let mirrors = mirror::drawn(exchange.filters().iter(), &mut draw);
    if mirrors.is_empty() || request.upgrade.is_some() {
        return None;
    }
    if request.has_passed {
        mirrors.iter().for_each(|_| exchange.shared().mirrors.count(Outcome::PassedBefore));
        return None;
    }
    let backend_of = |mirror: &Mirror| exchange.arrived.snapshot.backend_of(&mirror.to).map(Arc::clone);
    Copies::begin(&mirrors, exchange.shared(), draw, backend_of).map(Box::new)
}

impl Forwarding {
    /// The client has sent the whole request: its copies are sent.
    pub(crate) fn request_is_whole(&mut self) {
        self.is_whole = true;
        let Some(copies) = self.copies.take_if(|copies| copies.has_head()) else { return };
        copies.send(self.shared(), self.exchange.own_addresses());
    }
}
