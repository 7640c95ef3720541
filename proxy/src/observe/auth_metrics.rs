//! Metrics of authentication and authorisation, by the policy that declares a rule and its name there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, Registry};
use tidegate_config::model::auth::{AuthRefusal, AuthRuleName, CallAnswer, CallFault};

use super::connection_metrics::counters;
use crate::sweep_trigger::SweepTrigger;

/// The maximum number of rules with series of their own; further ones are counted as `other`.
const RULES_MAX: usize = 10_000;

/// The effect of a rule on a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AuthEffect {
    /// It identified the client of an allowed request.
    Allowed,
    /// It refused a request without valid credentials.
    Unauthenticated,
    /// It refused a request in another way.
    Forbidden,
    /// It is in shadow mode and would have refused the request.
    ShadowRefused,
}

impl AuthEffect {
    const ALL: [Self; 4] = [Self::Allowed, Self::Unauthenticated, Self::Forbidden, Self::ShadowRefused];

    /// Its name in metrics.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::ShadowRefused => "shadow-refused",
        }
    }
}

impl From<AuthRefusal> for AuthEffect {
    fn from(refusal: AuthRefusal) -> Self {
        match refusal {
            AuthRefusal::Unauthenticated => Self::Unauthenticated,
            AuthRefusal::Unauthorized => Self::Forbidden,
        }
    }
}

/// The outcome of a call of a rule to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallOutcome {
    /// The server gave a value.
    Answered,
    /// The server says no.
    Denied,
    /// There is no valid answer.
    Failed(CallFault),
    /// The client disconnected before the answer.
    ClientGone,
}

impl CallOutcome {
    /// That of an answer.
    pub(crate) const fn of(answer: &CallAnswer) -> Self {
        match answer {
            Ok(Some(_)) => Self::Answered,
            Ok(None) => Self::Denied,
            Err(fault) => Self::Failed(*fault),
        }
    }

    /// All of them.
    fn all() -> impl Iterator<Item = Self> {
        [Self::Answered, Self::Denied, Self::ClientGone].into_iter().chain(CallFault::ALL.map(Self::Failed))
    }

    /// Its name in metrics.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Denied => "denied",
            Self::Failed(fault) => fault.as_str(),
            Self::ClientGone => "client-gone",
        }
    }
}

/// The upper bounds of the duration of calls in seconds.
const SECONDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// The counters of one rule, by effect.
type Series = [IntCounter; AuthEffect::ALL.len()];

/// The metrics of all rules.
#[derive(Debug)]
pub(crate) struct AuthMetrics {
    requests: IntCounterVec,
    /// Calls are few compared with requests, and are counted by their labels.
    calls: IntCounterVec,
    call_duration: Histogram,
    rules: papaya::HashMap<AuthRuleName, Series, RandomState>,
    other: Series,
    /// Notified of every rule that gets series.
    sweep_trigger: Arc<SweepTrigger>,
}

impl AuthMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// If the registry has the name already.
    pub(crate) fn register(registry: &Registry, sweep_trigger: Arc<SweepTrigger>) -> Result<Self, prometheus::Error> {
        let help = "Requests about which a rule of authentication or authorisation decided, by its effect.";
        let labels = ["kind", "namespace", "name", "rule", "outcome"];
        let requests = counters(registry, "tidegate_auth_requests_total", help, &labels)?;
        let help = "Calls of rules of authentication and authorisation to servers, by outcome.";
        let calls = counters(registry, "tidegate_auth_calls_total", help, &labels)?;
        let help = "Time to the answer to a call of a rule of authentication or authorisation.";
        let opts = HistogramOpts::new("tidegate_auth_call_duration_seconds", help).buckets(SECONDS.to_vec());
        let call_duration = Histogram::with_opts(opts)?;
        registry.register(Box::new(call_duration.clone()))?;
        let other = series(&requests, ["", "", "", "other"]);
        let rules = papaya::HashMap::with_hasher(RandomState::default());
        Ok(Self { requests, calls, call_duration, rules, other, sweep_trigger })
    }

    /// Counts a call of a rule, and the time until its outcome was known, if it was made.
    pub(crate) fn called(&self, rule: &AuthRuleName, outcome: CallOutcome, waited: Option<Duration>) {
        let is_known = self.has_series(rule);
        let [kind, namespace, name, rule] = if is_known { labels(rule) } else { ["", "", "", "other"] };
        self.calls.with_label_values(&[kind, namespace, name, rule, outcome.as_str()]).inc();
        waited.inspect(|waited| self.call_duration.observe(waited.as_secs_f64()));
    }

    /// Gives a rule series of its own, unless there are too many.
    fn has_series(&self, rule: &AuthRuleName) -> bool {
        let rules = self.rules.pin();
        if rules.get(rule).is_some() {
            return true;
        }
        let has_room = rules.len() < RULES_MAX;
        if has_room {
            rules.get_or_insert_with(rule.clone(), || series(&self.requests, labels(rule)));
            self.sweep_trigger.mark();
        }
        has_room
    }

    /// Counts a request by what a rule did to it.
    pub(crate) fn count(&self, rule: &AuthRuleName, effect: AuthEffect) {
        let rules = self.rules.pin();
        match rules.get(rule) {
            Some(series) => series[effect as usize].inc(),
            None if self.has_series(rule) => rules.get(rule).unwrap_or(&self.other)[effect as usize].inc(),
            None => self.other[effect as usize].inc(),
        }
    }

    /// Removes the series of all rules but these.
    pub(crate) fn sweep(&self, named: &BTreeSet<AuthRuleName>) {
        let rules = self.rules.pin();
        for rule in rules.keys().filter(|rule| !named.contains(rule)) {
            for effect in AuthEffect::ALL {
                let [kind, namespace, name, rule] = labels(rule);
                // An error means that the series does not exist.
                drop(self.requests.remove_label_values(&[kind, namespace, name, rule, effect.as_str()]));
            }
            for outcome in CallOutcome::all() {
                let [kind, namespace, name, rule] = labels(rule);
                drop(self.calls.remove_label_values(&[kind, namespace, name, rule, outcome.as_str()]));
            }
            rules.remove(rule);
        }
    }
}

fn labels(AuthRuleName { policy, rule }: &AuthRuleName) -> [&str; 4] {
    [policy.kind.as_str(), &policy.name.namespace, &policy.name.name, rule]
}

fn series(requests: &IntCounterVec, [kind, namespace, name, rule]: [&str; 4]) -> Series {
    AuthEffect::ALL.map(|effect| requests.with_label_values(&[kind, namespace, name, rule, effect.as_str()]))
}
