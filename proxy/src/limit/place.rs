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
    /// A lease that the store has to be asked for first.
    Unasked(&'g Leases),
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
    /// The store has to be asked, by [`Place::ask_first`].
    Unasked,
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
    /// The place of a rate, and what it says.
    pub(super) fn new(
        charge: &LimitCharge<'l>,
        rate: &'l Rate,
        group: &'g Group,
        pinned: &'g Pinned<'_>,
        now_ms: u64,
    ) -> (Self, View<'g>) {
        let now = group.window.tick(now_ms);
        let (limit, values, source) = (charge.limit, charge.values, Source::Counter(rate.max));
        let mut place = Self { group, limit, rate, values, now, source, charged: Cell::new(None) };
        let view = match &group.leases {
            None => View::Left(group.left(values, pinned, now, rate.max)),
            Some(leases) => place.view_leased(leases, pinned),
        };
        (place, view)
    }

    /// What is known without the store. Nothing is made or asked: another limit may refuse the request.
    fn view_leased(&mut self, leases: &'g Leases, pinned: &'g Pinned<'_>) -> View<'g> {
        let max = self.rate.max;
        if max == 0 || !leases.are_shared() {
            let part = leases.store.part(max);
            self.source = Source::Counter(part);
            return View::Left(self.group.left(self.values, pinned, self.now, part));
        }
        let known = self.group.known(self.values, pinned).and_then(|tally| Some((tally, tally.lease.as_ref()?)));
        let state = known.map_or(LeaseState::Empty, |(_, lease)| lease.state(self.now));
        match (state, known) {
            (LeaseState::Held(left), Some((tally, lease))) => {
                self.source = Source::Lease(tally, lease);
                View::Left(left)
            }
            (LeaseState::Exhausted(left), _) => View::Left(left),
            (LeaseState::Held(_) | LeaseState::Empty, _) => {
                self.source = Source::Unasked(leases);
                View::Unasked
            }
        }
    }

    /// Asks the store if that has to be done and `may_wait` is true, or else counts without it.
    pub(super) fn ask_first(&mut self, pinned: &'g Pinned<'_>, may_wait: bool) -> Option<View<'g>> {
        let Source::Unasked(leases) = self.source else { return None };
        let (store, max) = (&*leases.store, self.rate.max);
        let tally = self.group.tally(self.values, pinned, self.now, max);
        let lease = tally.lease.as_ref();
        if let Some(lease) = lease.filter(|lease| may_wait && self.ask(tally, lease, store)) {
            return Some(View::Asks(lease));
        }
        // A limit in shadow mode refuses nothing in any case.
        if store.away() == StoreAway::Refuse && !self.limit.shadow {
            return Some(View::Uncounted);
        }
        let part = store.part(max).saturating_sub(lease.map_or(0, |lease| lease.used(self.now)));
        self.source = Source::Alone(part);
        Some(View::Left(tally.counter.left(self.group.window, self.now, part)))
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
            Source::Unasked(_) => Err(NotCharged::Lost),
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

    /// The state of the rate with so much left.
    pub(super) fn state(&self, left: Left) -> RateState<'l> {
        RateState { limit: self.limit, rate: *self.rate, remaining: left.requests, resets_in: left.time }
    }
}
