//! The resources of a request at its endpoint: one of the places of its Service, and a part of the process's files and
//! memory, which is charged to its client too.

use std::sync::Arc;

use super::Exchange;
use crate::budget::Cost;
use crate::connection::ConnectionFacts;
use crate::connection::clients::ClientPlace;
use crate::observe::connection_metrics::Refused;
use crate::observe::metrics::Driver;
use crate::reason::Reason;
use crate::request::phase::Aimed;
use crate::shared::Room;
use crate::upstream::service_state::{AtService, Retrying};

/// Returned by [`Exchange::release`].
#[derive(Debug)]
pub(super) struct Load {
    /// Counts the request until it is dropped, and has its cost.
    at_service: AtService,
    /// Counts the retry that is under way.
    retrying: Option<Retrying>,
}

impl Exchange {
    /// Charges the request, once.
    ///
    /// # Errors
    /// The exceeded limit: that of the Service, of the client or of the process.
    pub(super) fn charge(&mut self, aimed: &Aimed) -> Result<(), Reason> {
        if self.load.is_some() {
            return Ok(());
        }
        let cost = match self.driver {
            Driver::Native => {
                let held_kib = u32::try_from(self.held_bytes.div_ceil(1024)).unwrap_or(u32::MAX);
                Cost::NATIVE_REQUEST.and(Cost::new(0, held_kib))
            }
            Driver::Full => Cost::FULL_REQUEST,
        };
        let at_service = self.shared.enter_service(&aimed.backend, cost).ok_or(Reason::ServiceOverloaded)?;
        let client = aimed.facts.client.as_ref();
        if client.is_some_and(|client| !client.charge(cost)) {
            return Err(Reason::ClientOverShare);
        }
        if !self.shared.charge(cost) {
            client.inspect(|client| client.release(cost));
            return Err(Reason::OutOfResources);
        }
        self.load = Some(Load { at_service, retrying: None });
        Ok(())
    }

    /// Charges an answer of the edge's own that the client does not take at once, until the returned value is dropped;
    /// `None` for a request that is charged itself.
    ///
    /// # Errors
    /// The process or the client has no room.
    pub(crate) fn hold_answer(&self) -> Result<Option<Room>, Refused> {
        if self.load.is_some() {
            return Ok(None);
        }
        let client = client(self.facts.as_ref());
        self.shared.room_for(client, Cost::ANSWER).map(Some)
    }

    /// Sets the number of held bytes of the body, which are charged in the native driver; in the full one they are in a
    /// buffer that every request has.
    pub(crate) const fn holds(&mut self, bytes: usize) {
        self.held_bytes = bytes;
    }

    /// Counts a retry, until [`Exchange::end_retry`]. Returns `false` if the Service's retry budget is used up.
    pub(super) fn begin_retry(&mut self) -> bool {
        let Some(load) = &mut self.load else { return true };
        load.retrying = load.at_service.begin_retry();
        let has_room = load.retrying.is_some();
        self.shared.metrics.retries_over_budget.inc_by((!has_room).into());
        has_room
    }

    /// The retry was answered, or failed.
    pub(super) fn end_retry(&mut self) {
        if let Some(load) = &mut self.load {
            load.retrying = None;
        }
    }

    /// Replaces the charge of a request by that of a tunnel.
    pub(super) fn becomes_tunnel(&mut self) {
        let client = client(self.facts.as_ref());
        if let Some(load) = &mut self.load {
            let less = load.at_service.shrink(Cost::TUNNEL);
            self.shared.budget.release(less);
            client.inspect(|client| client.release_part(less));
        }
    }

    /// Charges an encoder until the end of the request, unless the spare budget, the client's share or that of the Service is
    /// used up.
    /// Returns `true` if it was charged.
    pub(super) fn charge_compression(&mut self) -> bool {
        let Some(load) = &mut self.load else { return false };
        let before = load.at_service.cost();
        if !load.at_service.grow(Cost::COMPRESSION, self.shared.budget.service_max()) {
            return false;
        }
        let client = client(self.facts.as_ref());
        if client.is_some_and(|client| !client.charge_spare(Cost::COMPRESSION)) {
            load.at_service.shrink(before);
            return false;
        }
        if !self.shared.budget.charge_spare(Cost::COMPRESSION) {
            client.inspect(|client| client.release_part(Cost::COMPRESSION));
            load.at_service.shrink(before);
            return false;
        }
        true
    }

    /// Returns the charge.
    pub(super) fn release(&mut self) {
        if let Some(load) = self.load.take() {
            let cost = load.at_service.cost();
            self.shared.budget.release(cost);
            let client = client(self.facts.as_ref());
            client.inspect(|client| client.release(cost));
        }
    }
}

/// The place of a request's client; `None` for a trusted proxy.
fn client(facts: Option<&Arc<ConnectionFacts>>) -> Option<&ClientPlace> {
    facts.and_then(|facts| facts.client.as_ref())
}
