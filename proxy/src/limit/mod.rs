//! The counters of rate limits. They outlive snapshots: a counter belongs to the policy that declares its limit, the
//! limit's name, the window and the values of the limit's counter expressions. So all routes that inherit a limit share
//! its counters, and a new maximum keeps the count.
//!
//! Windows are fixed: one begins with the first request after the end of the last one. [`Counters::decide`] first asks
//! all limits of a request, and only if none refuses it charges them; a charge that another request was faster with
//! takes back all others. So a limit admits exactly its maximum in a window, whatever the number of threads, and a
//! refused request is charged nowhere. While a charge is being taken back, another request may be refused that would
//! have passed a moment later.

mod counter;
mod group;
mod notice;
mod room;
mod sync;
mod values;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use papaya::Equivalent;
use smallvec::SmallVec;
use tidegate_config::model::{Limit, Rate};
use tidegate_config::object::ObjectRef;

use self::counter::{Counter, Left, Receipt, Tick, Window};
use self::group::{Group, Pinned, ValueCounters};
pub(crate) use self::notice::{LimitName, LimitNotice};
use self::values::ValueKeys;
pub(crate) use self::values::{Values, ValuesBuilder};
use crate::observe::limit_metrics::{FailedExpression, LimitEffect, LimitIdRef, LimitMetrics};
use crate::options::CounterLimits;
use crate::sweep_trigger::SweepTrigger;

/// The number of rates of one request beyond which a decision allocates.
const RATES: usize = 64;

/// The counters of all limits.
#[derive(Debug)]
pub(crate) struct Counters {
    start: Instant,
    metrics: Arc<LimitMetrics>,
    value_keys: ValueKeys,
    values: Arc<ValueCounters>,
    groups: papaya::HashMap<GroupId, Group, RandomState>,
    /// Notified of every new group.
    sweep_trigger: Arc<SweepTrigger>,
}

/// A limit that applies to a request, whose conditions are true.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitCharge<'l> {
    /// The limit. Each limit is in the charges of a request once.
    pub(crate) limit: &'l Limit,
    /// The values of its counter expressions.
    pub(crate) values: Values,
}

/// The decision of all limits about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LimitDecision<'l> {
    /// The rate that refuses the request: if there are several, the one whose window ends last.
    pub(crate) refused_by: Option<RateState<'l>>,
    /// The rate with the fewest requests left, of those whose limits are enforced. If the request is refused it is the
    /// one that refuses it.
    pub(crate) tightest: Option<RateState<'l>>,
    /// The rate in shadow mode that would have refused the request; of several the one whose window ends last.
    pub(crate) shadow: Option<RateState<'l>>,
}

impl LimitDecision<'_> {
    /// This decision, and another one about the same request by other limits.
    pub(crate) fn and(self, other: Self) -> Self {
        let refused_by = other.refused_by.or(self.refused_by);
        Self {
            refused_by,
            tightest: refused_by.or_else(|| match (self.tightest, other.tightest) {
                (one, Some(other)) => tighter(one, other),
                (one, None) => one,
            }),
            shadow: match (self.shadow, other.shadow) {
                (one, Some(other)) => later(one, other),
                (one, None) => one,
            },
        }
    }
}

/// The state of one rate of a limit, after the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RateState<'l> {
    /// The limit.
    pub(crate) limit: &'l Limit,
    /// The rate.
    pub(crate) rate: Rate,
    /// The requests that still pass in the window.
    pub(crate) remaining: u32,
    /// The time until the window ends.
    pub(crate) resets_in: Duration,
}

/// The identity of a group: counters that differ only by values.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct GroupId {
    policy: ObjectRef,
    limit: Arc<str>,
    window: Duration,
}

/// A [`GroupId`] that is only looked up. It has the same hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct GroupIdRef<'l> {
    policy: &'l ObjectRef,
    limit: &'l str,
    window: Duration,
}

impl GroupId {
    fn as_ref(&self) -> GroupIdRef<'_> {
        GroupIdRef { policy: &self.policy, limit: &self.limit, window: self.window }
    }
}

impl Equivalent<GroupId> for GroupIdRef<'_> {
    fn equivalent(&self, key: &GroupId) -> bool {
        *self == key.as_ref()
    }
}

impl<'l> GroupIdRef<'l> {
    fn new(limit: &'l Limit, rate: &Rate) -> Self {
        Self { policy: &limit.policy, limit: &limit.name, window: rate.window }
    }
}

impl Counters {
    /// No counters.
    pub(crate) fn new(
        limits: CounterLimits,
        start: Instant,
        metrics: Arc<LimitMetrics>,
        sweep_trigger: Arc<SweepTrigger>,
    ) -> Self {
        Self {
            start,
            metrics,
            value_keys: ValueKeys::default(),
            values: Arc::new(ValueCounters::new(limits)),
            groups: papaya::HashMap::with_hasher(RandomState::default()),
            sweep_trigger,
        }
    }

    /// The values of a request for one limit, to be added in the order of the limit's counter expressions.
    pub(crate) fn values(&self) -> ValuesBuilder {
        self.value_keys.builder()
    }

    /// Decides about a request by all limits that apply to it, and counts it in all of them if none refuses it. Limits
    /// in shadow mode count what they would have admitted and refuse nothing.
    ///
    /// All requests must name the limits that they share in the same order: two requests that charge two limits in
    /// opposite orders could refuse each other.
    pub(crate) fn decide<'l>(&self, charges: &[LimitCharge<'l>], now: Instant) -> LimitDecision<'l> {
        let now_ms = self.millis(now);
        let (groups, pinned) = (self.groups.pin(), self.values.pin());
        let mut places: SmallVec<[Place<'_, 'l>; RATES]> = SmallVec::new();
        let mut decision = LimitDecision::default();
        for charge in charges {
            let first = places.len();
            let mut exceeded = None;
            for rate in &charge.limit.rates {
                let group = self.group(&groups, charge.limit, rate);
                let place = Place::new(charge, rate, group, now_ms);
                let left = group.left(charge.values, &pinned, place.now, rate.max);
                if left.requests == 0 {
                    exceeded = later(exceeded, place.state(left));
                }
                places.push(place);
            }
            if let Some(state) = exceeded {
                places.truncate(first);
                self.exceeded(&mut decision, state);
            }
        }
        if decision.refused_by.is_none() {
            self.charge_all(&places, &pinned, &mut decision);
        }
        if let Some(by) = decision.refused_by {
            self.metrics.series(by.limit).count(LimitEffect::Limited);
            decision.tightest = Some(by);
        }
        decision
    }

    /// Counts the request in all limits, or in none of those that are enforced if one of them has no room any more.
    fn charge_all<'g, 'l>(&self, places: &[Place<'g, 'l>], pinned: &'g Pinned<'_>, decision: &mut LimitDecision<'l>) {
        let limits = || places.chunk_by(|one, other| std::ptr::eq(one.limit, other.limit));
        for of_limit in limits() {
            for place in of_limit {
                match place.charge(pinned) {
                    Ok(_) if place.limit.shadow => {}
                    Ok(state) => decision.tightest = tighter(decision.tightest, state),
                    Err(state) => {
                        let taken_back = if place.limit.shadow { of_limit } else { places };
                        taken_back.iter().for_each(Place::take_back);
                        self.exceeded(decision, state);
                        break;
                    }
                }
            }
            if decision.refused_by.is_some() {
                return;
            }
        }
        for of_limit in limits() {
            if let Some(place) = of_limit.first().filter(|place| place.charged.get().is_some()) {
                place.group.series.count(LimitEffect::Allowed);
            }
        }
    }

    fn exceeded<'l>(&self, decision: &mut LimitDecision<'l>, state: RateState<'l>) {
        if state.limit.shadow {
            self.metrics.series(state.limit).count(LimitEffect::ShadowLimited);
            decision.shadow = later(decision.shadow, state);
        } else {
            decision.refused_by = later(decision.refused_by, state);
        }
    }

    fn group<'g>(&self, groups: &'g Groups<'_>, limit: &Limit, rate: &Rate) -> &'g Group {
        let id = GroupIdRef::new(limit, rate);
        groups.get(&id).unwrap_or_else(|| {
            let create = || {
                let (window, series) = (Window::new(id.window), self.metrics.series(limit));
                Group::new(window, series, Arc::clone(&self.values), &limit.policy.name.namespace)
            };
            let owned = GroupId { policy: limit.policy.clone(), limit: Arc::clone(&limit.name), window: id.window };
            let group = groups.get_or_insert_with(owned, create);
            self.sweep_trigger.mark();
            group
        })
    }

    /// Removes the counters whose windows have ended. The cost grows with the number of counters: call it periodically,
    /// from a thread without traffic, at least once in a week, because times wrap.
    pub(crate) fn sweep_expired(&self, now: Instant) {
        let now_ms = self.millis(now);
        for group in self.groups.pin().values() {
            group.sweep(group.window.tick(now_ms));
        }
    }

    /// Removes the counters and series of limits that no snapshot names: not this one, and not the one of the last
    /// call. So a policy that is deleted and created again in between keeps its counters.
    pub(crate) fn sweep_unnamed<'l>(&self, named: impl Iterator<Item = &'l Limit>) {
        let (mut limits, mut ids) = (BTreeSet::new(), BTreeSet::new());
        for limit in named {
            limits.insert(LimitIdRef::from(limit));
            ids.extend(limit.rates.iter().map(|rate| GroupIdRef::new(limit, rate)));
        }
        let groups = self.groups.pin();
        for (id, group) in &groups {
            let is_named = ids.contains(&id.as_ref());
            if group.is_abandoned(is_named) {
                groups.remove(id);
                group.retire();
                continue;
            }
            if !is_named {
                // It is removed the next time.
                self.sweep_trigger.mark();
            }
            limits.insert(LimitIdRef { policy: &id.policy, limit: &id.limit });
        }
        self.metrics.sweep(&limits);
    }

    /// Counts an expression of a limit that has no value for a request.
    pub(crate) fn failed(&self, limit: &Limit, expression: FailedExpression) {
        self.metrics.failed(limit, expression);
    }

    /// What each rate of a limit has left.
    #[cfg(test)]
    fn left(&self, limit: &Limit, values: Values, now: Instant) -> Vec<u32> {
        let (groups, pinned, now_ms) = (self.groups.pin(), self.values.pin(), self.millis(now));
        let left = |rate: &Rate| {
            let group = self.group(&groups, limit, rate);
            group.left(values, &pinned, group.window.tick(now_ms), rate.max).requests
        };
        limit.rates.iter().map(left).collect()
    }

    fn millis(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.start).as_millis()).unwrap_or(u64::MAX)
    }
}

type Groups<'g> = papaya::HashMapRef<'g, GroupId, Group, RandomState, papaya::LocalGuard<'g>>;

/// One rate of a limit in a decision.
struct Place<'g, 'l> {
    group: &'g Group,
    limit: &'l Limit,
    rate: &'l Rate,
    values: Values,
    now: Tick,
    /// The counter in which the request was counted, and the receipt.
    charged: Cell<Option<(&'g Counter, Receipt)>>,
}

impl<'g, 'l> Place<'g, 'l> {
    fn new(charge: &LimitCharge<'l>, rate: &'l Rate, group: &'g Group, now_ms: u64) -> Self {
        let now = group.window.tick(now_ms);
        Self { group, limit: charge.limit, rate, values: charge.values, now, charged: Cell::new(None) }
    }

    /// Counts the request.
    ///
    /// # Errors
    /// The state of the rate, if it has no request left.
    fn charge(&self, pinned: &'g Pinned<'_>) -> Result<RateState<'l>, RateState<'l>> {
        match self.group.charge(self.values, pinned, self.now, self.rate.max) {
            Ok((counter, receipt, left)) => {
                self.charged.set(Some((counter, receipt)));
                Ok(self.state(left))
            }
            Err(left) => Err(self.state(left)),
        }
    }

    fn take_back(&self) {
        if let Some((counter, receipt)) = self.charged.take() {
            counter.take_back(receipt);
        }
    }

    fn state(&self, left: Left) -> RateState<'l> {
        RateState { limit: self.limit, rate: *self.rate, remaining: left.requests, resets_in: left.time }
    }
}

/// The state whose window ends later.
fn later<'l>(one: Option<RateState<'l>>, other: RateState<'l>) -> Option<RateState<'l>> {
    Some(one.filter(|one| one.resets_in >= other.resets_in).unwrap_or(other))
}

/// The state with fewer requests left, or if they are equal, with the later end.
fn tighter<'l>(one: Option<RateState<'l>>, other: RateState<'l>) -> Option<RateState<'l>> {
    let by = |state: &RateState<'_>| (state.remaining, Reverse(state.resets_in));
    Some(one.filter(|one| by(one) <= by(&other)).unwrap_or(other))
}
