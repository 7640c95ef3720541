//! Metrics of rate limits, by the policy that declares a limit and its name there.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::RandomState;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
use tidegate_config::model::LimitId;

use super::connection_metrics::counters;
use crate::sweep_trigger::SweepTrigger;

/// The maximum number of limits with series of their own; further ones are counted as `other`.
const LIMITS_MAX: usize = 10_000;

const LABELS: [&str; 4] = ["kind", "namespace", "name", "limit"];

/// What a limit did to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LimitEffect {
    /// It counted the request, which goes on.
    Allowed,
    /// It refused the request.
    Limited,
    /// It is in shadow mode and would have refused the request.
    ShadowLimited,
}

impl LimitEffect {
    const ALL: [Self; 3] = [Self::Allowed, Self::Limited, Self::ShadowLimited];

    /// Its name in metrics.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Limited => "limited",
            Self::ShadowLimited => "shadow-limited",
        }
    }
}

/// The expression of a limit that has no value for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FailedExpression {
    /// One of its conditions: the limit does not apply to the request, unless that is too large.
    When,
    /// One of its counter expressions: the request is counted with all others for which one of them fails.
    Counter,
}

impl FailedExpression {
    const ALL: [Self; 2] = [Self::When, Self::Counter];

    /// Its name in metrics.
    const fn as_str(self) -> &'static str {
        match self {
            Self::When => "when",
            Self::Counter => "counter",
        }
    }
}

/// The metrics of all limits.
#[derive(Debug)]
pub(crate) struct LimitMetrics {
    requests: IntCounterVec,
    in_use: IntGaugeVec,
    evicted: IntCounterVec,
    overflowed: IntCounterVec,
    failures: IntCounterVec,
    limits: papaya::HashMap<LimitId, Arc<LimitSeries>, RandomState>,
    other: Arc<LimitSeries>,
    /// Notified of every limit that gets series.
    sweep_trigger: Arc<SweepTrigger>,
}

/// The handles of one limit.
#[derive(Debug)]
pub(crate) struct LimitSeries {
    effects: [IntCounter; 3],
    failures: [IntCounter; 2],
    /// Counters of values in memory.
    pub(crate) in_use: IntGauge,
    /// Counters removed in favour of others before their windows had ended.
    pub(crate) evicted: IntCounter,
    /// Requests counted together with those of other values, for want of room.
    pub(crate) overflowed: IntCounter,
}

impl LimitMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// If the registry has one of the names already.
    pub(crate) fn register(registry: &Registry, sweep_trigger: Arc<SweepTrigger>) -> Result<Self, prometheus::Error> {
        let with = |last: &'static str| [&LABELS[..], &[last]].concat();
        let (name, help) = ("tidegate_limited_requests_total", "Requests to which a limit applied, by its effect.");
        let requests = counters(registry, name, help, &with("outcome"))?;
        let (name, help) = ("tidegate_limit_counters", "Counters of limits by values.");
        let in_use = IntGaugeVec::new(Opts::new(name, help), &LABELS)?;
        registry.register(Box::new(in_use.clone()))?;
        let help = "Counters of limits removed for others before their windows had ended.";
        let evicted = counters(registry, "tidegate_limit_counters_evicted_total", help, &LABELS)?;
        let help = "Requests counted with those of other values, because no counter could be removed for a new one.";
        let overflowed = counters(registry, "tidegate_limit_overflowed_total", help, &LABELS)?;
        let help = "Expressions of limits without a value for a request, by the kind of expression.";
        let failures = counters(registry, "tidegate_limit_expression_failures_total", help, &with("expression"))?;
        let limits = papaya::HashMap::with_hasher(RandomState::default());
        let other = Arc::new(series([&requests, &failures], &in_use, [&evicted, &overflowed], ["", "", "", "other"]));
        Ok(Self { requests, in_use, evicted, overflowed, failures, limits, other, sweep_trigger })
    }

    /// The handles of a limit.
    pub(crate) fn series(&self, id: &LimitId) -> Arc<LimitSeries> {
        let limits = self.limits.pin();
        if let Some(series) = limits.get(id) {
            return Arc::clone(series);
        }
        if limits.len() >= LIMITS_MAX {
            return Arc::clone(&self.other);
        }
        let create = || {
            let (single, of_room) = ([&self.requests, &self.failures], [&self.evicted, &self.overflowed]);
            Arc::new(series(single, &self.in_use, of_room, labels(id)))
        };
        let series = Arc::clone(limits.get_or_insert_with(id.clone(), create));
        self.sweep_trigger.mark();
        series
    }

    /// Counts an expression without a value.
    pub(crate) fn failed(&self, id: &LimitId, expression: FailedExpression) {
        self.series(id).failures[expression as usize].inc();
    }

    /// Removes the series of all limits but these.
    pub(crate) fn sweep(&self, named: &HashSet<&LimitId>) {
        let limits = self.limits.pin();
        for id in limits.keys().filter(|id| !named.contains(id)) {
            let own = labels(id);
            let with = |last: &'static str| [&own[..], &[last]].concat();
            // An error means that the series does not exist.
            for effect in LimitEffect::ALL {
                drop(self.requests.remove_label_values(&with(effect.as_str())));
            }
            for expression in FailedExpression::ALL {
                drop(self.failures.remove_label_values(&with(expression.as_str())));
            }
            drop(self.in_use.remove_label_values(&own));
            drop(self.evicted.remove_label_values(&own));
            drop(self.overflowed.remove_label_values(&own));
            limits.remove(id);
        }
    }
}

impl LimitSeries {
    /// Counts a request by what the limit did to it.
    pub(crate) fn count(&self, effect: LimitEffect) {
        self.effects[effect as usize].inc();
    }
}

/// The labels of a limit: kind, namespace and name of its policy, and its name.
fn labels(id: &LimitId) -> [&str; 4] {
    let policy = id.policy();
    [policy.kind.as_str(), &policy.name.namespace, &policy.name.name, id.name()]
}

fn series(
    [requests, failures]: [&IntCounterVec; 2],
    in_use: &IntGaugeVec,
    [evicted, overflowed]: [&IntCounterVec; 2],
    labels: [&str; 4],
) -> LimitSeries {
    let with = |last: &'static str| [&labels[..], &[last]].concat();
    LimitSeries {
        effects: LimitEffect::ALL.map(|effect| requests.with_label_values(&with(effect.as_str()))),
        failures: FailedExpression::ALL.map(|it| failures.with_label_values(&with(it.as_str()))),
        in_use: in_use.with_label_values(&labels),
        evicted: evicted.with_label_values(&labels),
        overflowed: overflowed.with_label_values(&labels),
    }
}
