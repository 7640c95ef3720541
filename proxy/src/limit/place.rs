//! One rate of a limit in a decision: what it counts the request with.

use std::cell::Cell;
use std::sync::Arc;

use tidegate_config::model::{Limit, Rate};

use super::counter::{Counter, Left, Receipt, Tick};
use super::group::{Group, Pinned, Tally};
use super::store::{Lease, LeaseReceipt, LeaseState, Leases, Store};
use super::values::Values;
use super::{LimitCharge, RateState};
use crate::options::StoreAway;

/// One rate of a limit in a decision.
pub(super) struct Place<'g, 'l> {
    pub(super) group: &'g Group,
    pub(super) limit: &'l Limit,
    rate: &'l Rate,
    values: Values,
    now: Tick,
    source: Source<'g>,
    charged: Cell<Option<Charged<'g>>>,
}

/// What a place counts the request with.
#[derive(Clone, Copy)]
enum Source<'g> {
    /// The counter of this process, up to a maximum.
    Counter(u32),
    /// The same, because the store does not answer.
    Alone(u32),
    /// A lease of the store.
    Lease(&'g Tally, &'g Arc<Lease>),
}

/// Where the request was counted, and what takes it back.
#[derive(Clone, Copy)]
enum Charged<'g> {
    Counter(&'g Counter, Receipt),
    Lease(&'g Lease, LeaseReceipt),
}

/// What a place says about the request before it is charged.
pub(super) enum View<'g> {
    /// So much is left.
    Left(Left),
    /// The store is being asked.
    Asks(&'g Arc<Lease>),
    /// The request cannot be counted.
    Uncounted,
}

/// Why a place was not charged.
pub(super) enum NotCharged<'l> {
    /// No request is left.
    Exceeded(RateState<'l>),
    /// Another request has taken the last one of the lease, which has to be looked at again.
    Lost,
}

impl<'g, 'l> Place<'g, 'l> {
    /// The place of a rate, and what it says. With `may_wait` the store is asked if the lease is empty.
    pub(super) fn new(
        charge: &LimitCharge<'l>,
        rate: &'l Rate,
        group: &'g Group,
        pinned: &'g Pinned<'_>,
        (now_ms, may_wait): (u64, bool),
    ) -> (Self, View<'g>) {
        let now = group.window.tick(now_ms);
        let (limit, values, source) = (charge.limit, charge.values, Source::Counter(rate.max));
        let mut place = Self { group, limit, rate, values, now, source, charged: Cell::new(None) };
        let view = match &group.leases {
            None => View::Left(group.left(values, pinned, now, rate.max)),
            Some(leases) => place.view_leased(leases, pinned, may_wait),
        };
        (place, view)
    }

    fn view_leased(&mut self, leases: &'g Leases, pinned: &'g Pinned<'_>, may_wait: bool) -> View<'g> {
        let (store, max) = (&*leases.store, self.rate.max);
        let tally = self.group.tally(self.values, pinned, self.now, max);
        let Some(lease) = tally.lease.as_ref().filter(|_| max > 0) else {
            self.source = Source::Counter(store.part(max));
            return View::Left(tally.counter.left(self.group.window, self.now, store.part(max)));
        };
        match lease.state(self.now) {
            LeaseState::Held(left) => {
                self.source = Source::Lease(tally, lease);
                View::Left(left)
            }
            LeaseState::Exhausted(left) => View::Left(left),
            LeaseState::Empty if may_wait && self.ask(tally, lease, store) => View::Asks(lease),
            // A limit in shadow mode refuses nothing in any case.
            LeaseState::Empty if store.away() == StoreAway::Refuse && !self.limit.shadow => View::Uncounted,
            LeaseState::Empty => {
                let part = store.part(max).saturating_sub(lease.used(self.now));
                self.source = Source::Alone(part);
                View::Left(tally.counter.left(self.group.window, self.now, part))
            }
        }
    }

    fn ask(&self, tally: &Tally, lease: &Arc<Lease>, store: &Store) -> bool {
        store.ask(lease, self.rate.max, tally.counter.running(self.group.window, self.now))
    }

    /// Counts the request.
    pub(super) fn charge(&self, pinned: &'g Pinned<'_>) -> Result<RateState<'l>, NotCharged<'l>> {
        match self.source {
            Source::Counter(max) | Source::Alone(max) => match self.group.charge(self.values, pinned, self.now, max) {
                Ok((counter, receipt, left)) => {
                    self.charged.set(Some(Charged::Counter(counter, receipt)));
                    Ok(self.state(left))
                }
                Err(left) => Err(NotCharged::Exceeded(self.state(left))),
            },
            Source::Lease(tally, lease) => {
                let (receipt, left) = lease.charge(self.now).ok_or(NotCharged::Lost)?;
                self.charged.set(Some(Charged::Lease(lease, receipt)));
                if let Some(leases) = self.group.leases.as_ref().filter(|_| lease.wants_more(self.now)) {
                    // If the store cannot be asked now, the next request asks.
                    self.ask(tally, lease, &leases.store);
                }
                Ok(self.state(left))
            }
        }
    }

    /// Takes the request back, if it was counted.
    pub(super) fn take_back(&self) {
        match self.charged.take() {
            Some(Charged::Counter(counter, receipt)) => counter.take_back(receipt),
            Some(Charged::Lease(lease, receipt)) => lease.take_back(receipt),
            None => {}
        }
    }

    /// Returns `true` if the request was counted.
    pub(super) fn is_charged(&self) -> bool {
        self.charged.get().is_some()
    }

    /// Returns `true` if this process decides because the store does not answer.
    pub(super) const fn is_alone(&self) -> bool {
        matches!(self.source, Source::Alone(_))
    }

    /// The state of the rate with so much left.
    pub(super) fn state(&self, left: Left) -> RateState<'l> {
        RateState { limit: self.limit, rate: *self.rate, remaining: left.requests, resets_in: left.time }
    }
}
