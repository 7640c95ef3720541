//! Metrics of authentication and authorisation, by the policy that declares a rule and its name there.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::fast::RandomState;
use prometheus::{IntCounter, IntCounterVec, Registry};
use tidegate_config::model::auth::{AuthRefusal, AuthRuleName};

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

/// The counters of one rule, by effect.
type Series = [IntCounter; AuthEffect::ALL.len()];

/// The metrics of all rules.
#[derive(Debug)]
pub(crate) struct AuthMetrics {
    requests: IntCounterVec,
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
        let other = series(&requests, ["", "", "", "other"]);
        Ok(Self { requests, rules: papaya::HashMap::with_hasher(RandomState::default()), other, sweep_trigger })
    }

    /// Counts a request by what a rule did to it.
    pub(crate) fn count(&self, rule: &AuthRuleName, effect: AuthEffect) {
        let rules = self.rules.pin();
        if let Some(series) = rules.get(rule) {
            return series[effect as usize].inc();
        }
        if rules.len() >= RULES_MAX {
            return self.other[effect as usize].inc();
        }
        let made = rules.get_or_insert_with(rule.clone(), || series(&self.requests, labels(rule)));
        made[effect as usize].inc();
        self.sweep_trigger.mark();
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
