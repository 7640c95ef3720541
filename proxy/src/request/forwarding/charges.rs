//! The resources of a request at its endpoint: one of the places of its Service, and a part of the process's files and
//! memory, which is charged to its client too.

use tidegate_config::model::Backend;

use crate::budget::Cost;
use crate::observe::metrics::DriverUsed;
use crate::reason::Reason;
use crate::request::exchange::Exchange;
use crate::upstream::service_state::{RequestAtService, Retrying};

/// The charges of a request, until [`Charges::release`].
#[derive(Debug)]
pub(in crate::request) struct Charges {
    /// Counts the request at its Service, and has its cost.
    at_service: RequestAtService,
    /// Counts the retry that is under way.
    retrying: Option<Retrying>,
}

impl Charges {
    /// Charges a request, with the bytes of its body that are held in the native driver; in the Pingora driver they are
    /// in a buffer that every request has.
    ///
    /// # Errors
    /// The exceeded limit: that of the Service, of the client or of the process.
    pub(in crate::request) fn new(exchange: &Exchange, backend: &Backend, held_bytes: usize) -> Result<Self, Reason> {
        let cost = match exchange.arrived.driver {
            DriverUsed::Native => {
                let held_kib = u32::try_from(held_bytes.div_ceil(1024)).unwrap_or(u32::MAX);
                Cost::NATIVE_REQUEST.and(Cost::new(0, held_kib))
            }
            DriverUsed::Pingora => Cost::PINGORA_REQUEST,
        };
        let (shared, client) = (exchange.shared(), exchange.facts.client.as_ref());
        let at_service = shared.enter_service(backend, cost).ok_or(Reason::ServiceOverloaded)?;
        if client.is_some_and(|client| !client.charge(cost)) {
            return Err(Reason::ClientOverShare);
        }
        if !shared.charge(cost) {
            client.inspect(|client| client.release(cost));
            return Err(Reason::OutOfResources);
        }
        Ok(Self { at_service, retrying: None })
    }

    /// Counts a retry, until [`Charges::end_retry`]. Returns `false` if the Service's retry budget is used up.
    pub(super) fn begin_retry(&mut self, exchange: &Exchange) -> bool {
        self.retrying = self.at_service.begin_retry();
        let has_room = self.retrying.is_some();
        exchange.shared().metrics.retries_over_budget.inc_by((!has_room).into());
        has_room
    }

    /// The retry was answered, or failed.
    pub(super) fn end_retry(&mut self) {
        self.retrying = None;
    }

    /// Replaces the charge of a request by that of a tunnel.
    pub(super) fn becomes_tunnel(&mut self, exchange: &Exchange) {
        let less = self.at_service.shrink(Cost::TUNNEL);
        exchange.shared().budget.release(less);
        exchange.facts.client.as_ref().inspect(|client| client.release_part(less));
    }

    /// Charges an encoder until the end of the request, unless the spare budget, the client's share or that of the
    /// Service is used up. Returns `true` if it was charged.
    pub(super) fn charge_compression(&mut self, exchange: &Exchange) -> bool {
        let (budget, client) = (&exchange.shared().budget, exchange.facts.client.as_ref());
        let before = self.at_service.cost();
        if !self.at_service.grow(Cost::COMPRESSION, budget.service_max()) {
            return false;
        }
        if client.is_some_and(|client| !client.charge_spare(Cost::COMPRESSION)) {
            self.at_service.shrink(before);
            return false;
        }
        if !budget.charge_spare(Cost::COMPRESSION) {
            client.inspect(|client| client.release_part(Cost::COMPRESSION));
            self.at_service.shrink(before);
            return false;
        }
        true
    }

    /// Returns the charge to the Service, the process and the client. Only the first call counts.
    pub(super) fn release(&mut self, exchange: &Exchange) {
        self.retrying = None;
        let cost = self.at_service.shrink(Cost::default());
        if cost != Cost::default() {
            exchange.shared().budget.release(cost);
            exchange.facts.client.as_ref().inspect(|client| client.release(cost));
        }
    }
}
