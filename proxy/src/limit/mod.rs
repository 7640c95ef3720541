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
mod place;
mod room;
pub(crate) mod store;
mod sync;
mod values;

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use papaya::{Equivalent, ResizeMode};
use smallvec::SmallVec;
use tidegate_config::model::{Limit, LimitId, Rate};

use self::counter::Window;
use self::group::{Group, Pinned, ValueCounters};
pub(crate) use self::notice::{LimitName, LimitNotice};
use self::place::{NotCharged, Place, View};
pub(crate) use self::store::LeaseWait;
use self::store::{Lease, Leases, LimitStoreTask, Store};
use self::values::ValueKeys;
pub(crate) use self::values::{Values, ValuesBuilder};
use crate::observe::limit_metrics::{FailedExpression, LimitEffect, LimitMetrics};
use crate::observe::limit_store_metrics::{Alone, LimitStoreMetrics};
use crate::options::{CounterLimits, LimitStore};
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
    /// The store that all replicas share, if there is one.
    store: Option<Arc<Store>>,
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
    /// Whether it is refused because the store is away and it cannot be counted.
    pub(crate) is_uncounted: bool,
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
            is_uncounted: self.is_uncounted || other.is_uncounted,
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
    limit: LimitId,
    window: Duration,
}

/// A [`GroupId`] that is only looked up. It has the same hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct GroupIdRef<'l> {
    limit: &'l LimitId,
    window: Duration,
}

impl GroupId {
    fn as_ref(&self) -> GroupIdRef<'_> {
        GroupIdRef { limit: &self.limit, window: self.window }
    }
}

impl Equivalent<GroupId> for GroupIdRef<'_> {
    fn equivalent(&self, key: &GroupId) -> bool {
        *self == key.as_ref()
    }
}

impl<'l> GroupIdRef<'l> {
    fn new(limit: &'l Limit, rate: &Rate) -> Self {
        Self { limit: &limit.id, window: rate.window }
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
            value_keys: ValueKeys::Own(std::hash::RandomState::new()),
            store: None,
            values: Arc::new(ValueCounters::new(limits)),
            // An incremental resize goes on with the next write only: until then, each request searches two tables.
            groups: papaya::HashMap::builder().hasher(RandomState::default()).resize_mode(ResizeMode::Blocking).build(),
            sweep_trigger,
        }
    }

    /// The same with a store that all replicas share.
    pub(crate) fn shared_in(self, options: LimitStore, metrics: LimitStoreMetrics) -> Self {
        let store = Arc::new(Store::new(options, self.start, metrics));
        Self { value_keys: ValueKeys::Shared(store.hash().clone()), store: Some(store), ..self }
    }

    /// The task of the store, if there is one.
    pub(crate) fn store_task(&self) -> Option<LimitStoreTask> {
        self.store.clone().map(LimitStoreTask::new)
    }

    /// The values of a request for one limit, to be added in the order of the limit's counter expressions.
    pub(crate) fn values(&self) -> ValuesBuilder {
        self.value_keys.builder()
    }

    /// Decides about a request by all limits that apply to it, and counts it in all of them if none refuses it. Limits
    /// in shadow mode count what they would have admitted and refuse nothing. `until` is the end of the wait, if the
    /// request has waited for the store before.
    ///
    /// All requests must name the limits that they share in the same order: two requests that charge two limits in
    /// opposite orders could refuse each other.
    ///
    /// # Errors
    /// The leases that the request has to wait for. It is not counted then, and the decision has to be made again.
    pub(crate) fn decide<'l>(
        &self,
        charges: &[LimitCharge<'l>],
        now: Instant,
        until: Option<Instant>,
    ) -> Result<LimitDecision<'l>, LeaseWait> {
        let asking = (self.millis(now), until.is_none_or(|until| now < until));
        let (groups, pinned) = (self.groups.pin(), self.values.pin());
        // Whenever the last request of a lease was taken by another request, that one goes on.
        let attempt = loop {
            if let Some(attempt) = self.attempt(charges, (&groups, &pinned), asking) {
                break attempt;
            }
        };
        let Attempt { mut decision, exceeded_shadows, leases, is_alone } = attempt;
        if decision.refused_by.is_none() && !decision.is_uncounted && !leases.is_empty() {
            self.store.as_ref().inspect(|store| store.metrics.waited.inc());
            return Err(LeaseWait::new(leases, now, until));
        }
        for limit in exceeded_shadows {
            self.metrics.series(&limit.id).count(LimitEffect::ShadowLimited);
        }
        if let Some(by) = decision.refused_by {
            self.metrics.series(&by.limit.id).count(LimitEffect::Limited);
            decision.tightest = Some(by);
        }
        if let Some(store) = self.store.as_ref().filter(|_| is_alone) {
            store.metrics.alone(match decision {
                LimitDecision { refused_by: Some(_), .. } => Alone::Limited,
                LimitDecision { is_uncounted: true, .. } => Alone::Refused,
                LimitDecision { .. } => Alone::Allowed,
            });
        }
        Ok(decision)
    }

    /// Looks at all places and, if none refuses and none waits, charges them. `None` if a lease was empty when it was
    /// to be charged; then nothing is counted.
    fn attempt<'l>(
        &self,
        charges: &[LimitCharge<'l>],
        (groups, pinned): (&Groups<'_>, &Pinned<'_>),
        (now_ms, may_wait): (u64, bool),
    ) -> Option<Attempt<'l>> {
        let mut places: SmallVec<[Place<'_, 'l>; RATES]> = SmallVec::new();
        let (mut attempt, mut is_unasked) = (Attempt::default(), false);
        for charge in charges {
            let first = places.len();
            let mut exceeded = None;
            for rate in &charge.limit.rates {
                let group = self.group(groups, charge.limit, rate);
                let (place, view) = Place::new(charge, rate, group, pinned, now_ms);
                match view {
                    View::Left(left) if left.requests == 0 => exceeded = later(exceeded, place.state(left)),
                    View::Unasked => is_unasked = true,
                    View::Left(_) | View::Asks(_) | View::Uncounted => {}
                }
                places.push(place);
            }
            if let Some(state) = exceeded {
                places.truncate(first);
                attempt.exceeded(state);
            }
        }
        if is_unasked && attempt.decision.refused_by.is_none() {
            attempt.ask_first(&mut places, pinned, may_wait);
        }
        let is_decided = attempt.decision.refused_by.is_some() || attempt.decision.is_uncounted;
        (is_decided || !attempt.leases.is_empty() || attempt.charge_all(&places, pinned)).then_some(attempt)
    }

    fn group<'g>(&self, groups: &'g Groups<'_>, limit: &Limit, rate: &Rate) -> &'g Group {
        let id = GroupIdRef::new(limit, rate);
        groups.get(&id).unwrap_or_else(|| {
            let create = || {
                let (window, series) = (Window::new(id.window), self.metrics.series(&limit.id));
                let leases = self.store.as_ref().map(|store| Leases::new(store, limit, id.window));
                Group::new(window, series, Arc::clone(&self.values), &limit.id.policy().name.namespace, leases)
            };
            let owned = GroupId { limit: limit.id.clone(), window: id.window };
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
        let (mut limits, mut ids) = (HashSet::new(), HashSet::new());
        for limit in named {
            limits.insert(&limit.id);
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
            limits.insert(&id.limit);
        }
        self.metrics.sweep(&limits);
    }

    /// Counts an expression of a limit that has no value for a request.
    pub(crate) fn failed(&self, limit: &Limit, expression: FailedExpression) {
        self.metrics.failed(&limit.id, expression);
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

/// A decision that is being made.
#[derive(Default)]
struct Attempt<'l> {
    decision: LimitDecision<'l>,
    /// The limits in shadow mode that would have refused the request.
    exceeded_shadows: SmallVec<[&'l Limit; 4]>,
    /// The leases that are empty, while the store is being asked.
    leases: SmallVec<[Arc<Lease>; 2]>,
    /// Whether this process decides for want of the store.
    is_alone: bool,
}

impl<'l> Attempt<'l> {
    fn exceeded(&mut self, state: RateState<'l>) {
        if state.limit.shadow {
            self.exceeded_shadows.push(state.limit);
            self.decision.shadow = later(self.decision.shadow, state);
        } else {
            self.decision.refused_by = later(self.decision.refused_by, state);
        }
    }

    /// Asks the store for the places whose leases are empty, or looks at what this process may admit by itself. All
    /// places of a limit in shadow mode that has nothing left are removed.
    fn ask_first<'g>(&mut self, places: &mut SmallVec<[Place<'g, 'l>; RATES]>, pinned: &'g Pinned<'_>, may_wait: bool) {
        let mut exceeded: SmallVec<[RateState<'l>; 4]> = SmallVec::new();
        for place in &mut *places {
            let view = place.ask_first(pinned, may_wait);
            self.is_alone |= matches!(view, Some(View::Left(_) | View::Uncounted));
            match view {
                Some(View::Left(left)) if left.requests == 0 => {
                    let state = place.state(left);
                    match exceeded.iter_mut().find(|other| std::ptr::eq(other.limit, state.limit)) {
                        Some(other) if other.resets_in < state.resets_in => *other = state,
                        Some(_) => {}
                        None => exceeded.push(state),
                    }
                }
                Some(View::Asks(lease)) => self.leases.push(Arc::clone(lease)),
                Some(View::Uncounted) => self.decision.is_uncounted = true,
                Some(View::Left(_) | View::Unasked) | None => {}
            }
        }
        for state in exceeded {
            places.retain(|place| !std::ptr::eq(place.limit, state.limit));
            self.exceeded(state);
        }
    }

    /// Counts the request in all limits, or in none of those that are enforced if one of them has no room any more.
    /// Returns `false` if a lease was empty; then it is counted nowhere.
    fn charge_all<'g>(&mut self, places: &[Place<'g, 'l>], pinned: &'g Pinned<'_>) -> bool {
        let limits = || places.chunk_by(|one, other| std::ptr::eq(one.limit, other.limit));
        for of_limit in limits() {
            for place in of_limit {
                match place.charge(pinned) {
                    Ok(_) if place.limit.shadow => {}
                    Ok(state) => self.decision.tightest = tighter(self.decision.tightest, state),
                    Err(NotCharged::Exceeded(state)) => {
                        let taken_back = if place.limit.shadow { of_limit } else { places };
                        taken_back.iter().for_each(Place::take_back);
                        self.exceeded(state);
                        break;
                    }
                    Err(NotCharged::Lost) => {
                        places.iter().for_each(Place::take_back);
                        return false;
                    }
                }
            }
            if self.decision.refused_by.is_some() {
                return true;
            }
        }
        for of_limit in limits() {
            if let Some(place) = of_limit.first().filter(|place| place.is_charged()) {
                place.group.series.count(LimitEffect::Allowed);
            }
        }
        true
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
