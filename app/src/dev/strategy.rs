//! The strategy by which a Deployment replaces the replicas of an older template: `spec.strategy` (Kubernetes
//! documentation, "Deployments").

use k8s_openapi::api::apps::v1::DeploymentSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The strategy for replacing replicas of older templates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Strategy {
    /// Every older replica has ended before a new one starts.
    Recreate,
    /// More replicas than desired may run, and fewer may be ready.
    Rolling { surge: Amount, unavailable: Amount },
}

/// A number of replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Amount {
    Count(usize),
    /// A percentage of the desired replicas.
    Percent(usize),
}

/// The bounds that a strategy gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bounds {
    /// The maximum number of running replicas.
    pub(super) most: usize,
    /// The minimum number of ready replicas, once that many have been ready.
    pub(super) ready: usize,
}

impl Strategy {
    /// Reads the strategy; by default a quarter may be unavailable or in surplus.
    pub(super) fn of(spec: &DeploymentSpec) -> Self {
        let strategy = spec.strategy.as_ref();
        if strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("Recreate")) {
            return Self::Recreate;
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let amount = |value: Option<&IntOrString>| value.map_or(Amount::Percent(25), Amount::of);
        Self::Rolling {
            surge: amount(rolling.and_then(|rolling| rolling.max_surge.as_ref())),
            unavailable: amount(rolling.and_then(|rolling| rolling.max_unavailable.as_ref())),
        }
    }

    /// The bounds for this number of replicas. The percentage of a surge is rounded up and that of the unavailable
    /// down; if both are 0, one may be unavailable, so that there is progress.
    pub(super) fn bounds(self, replicas: usize) -> Bounds {
        let Self::Rolling { surge, unavailable } = self else { return Bounds { most: replicas, ready: replicas } };
        let surge = surge.up(replicas);
        let unavailable = unavailable.down(replicas).max(usize::from(surge == 0));
        Bounds { most: replicas.saturating_add(surge), ready: replicas.saturating_sub(unavailable) }
    }
}

impl Amount {
    fn of(value: &IntOrString) -> Self {
        match value {
            IntOrString::Int(count) => Self::Count(usize::try_from(*count).unwrap_or_default()),
            // The server refuses any other text.
            IntOrString::String(text) => {
                Self::Percent(text.strip_suffix('%').and_then(|number| number.parse().ok()).unwrap_or_default())
            }
        }
    }

    fn up(self, replicas: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => replicas.saturating_mul(percent).div_ceil(100),
        }
    }

    fn down(self, replicas: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => replicas.saturating_mul(percent) / 100,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Checks the bounds of a Deployment's strategy for this number of replicas.
    #[track_caller]
    fn check(strategy: &Value, replicas: usize, most: usize, ready: usize) {
        let spec = json!({"selector": {}, "template": {}, "strategy": strategy});
        let strategy = Strategy::of(&serde_json::from_value(spec).unwrap());
        assert_eq!(strategy.bounds(replicas), Bounds { most, ready });
    }

    #[test]
    fn percentages_are_of_the_replicas_that_are_desired() {
        check(&Value::Null, 4, 5, 3);
        check(&Value::Null, 2, 3, 2);
        check(&Value::Null, 1, 2, 1);
        check(&Value::Null, 0, 0, 0);
        check(&json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 3}}), 5, 5, 2);
        check(&json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 9}}), 5, 5, 0);
        check(&json!({"rollingUpdate": {"maxSurge": "200%", "maxUnavailable": 0}}), 3, 9, 3);
        check(&json!({"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "10%"}}), 5, 5, 4);
        check(&json!({"type": "Recreate"}), 5, 5, 5);
    }
}
