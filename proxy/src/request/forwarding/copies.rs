//! The mirrored copies of a forwarded request.

use std::sync::Arc;

use tidegate_config::model::Mirror;

use super::{Forwarding, here};
use crate::request::mirror::{self, Copies};
use crate::upstream::balance::Draw;

impl Forwarding {
    /// Selects the route's mirrors at random, and begins a copy for each selected one. Upgrades are not mirrored.
    pub(super) fn begin_copies(&mut self, seed: u64) {
        let mut draw = Draw::new(seed);
        let mirrors = mirror::drawn(self.exchange.filters().iter(), &mut draw);
        if mirrors.is_empty() || self.asks_upgrade() {
            return;
        }
        let backend_of = |mirror: &Mirror| self.exchange.arrived.snapshot.backend_of(&mirror.to).map(Arc::clone);
        self.copies = Copies::begin(&mirrors, self.shared(), draw, backend_of).map(Box::new);
    }

    /// The request is complete: its copies are sent.
    pub(crate) fn request_is_whole(&mut self) {
        let Some(copies) = self.copies.take_if(|copies| copies.has_head()) else { return };
        copies.send(self.shared(), here(&self.exchange));
    }
}
