//! The policies on the path of a request: the limits that count it, the rules, and what they override.

use std::fmt;

use serde::Serialize;
use tidegate_config::model::{Applies, Attributes, Head, Limit, Overridden, PathPolicies};
use tidegate_config::object::ObjectRef;
use tidegate_config::project::kuadrant::TokenRateLimitPolicy;

use super::RuleView;

/// The policies on the path of a request.
#[derive(Debug, Default, Serialize)]
pub struct PathView {
    /// Whether every request is refused, because an object of the path names a policy that cannot be used, or is the
    /// target of an invalid AuthPolicy.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    /// The rules in effect, in the order in which they are evaluated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleView>,
    /// The limits in effect.
    pub limits: Vec<LimitView>,
    /// The entries of policies of the path that are not in effect.
    pub overridden: Vec<Overridden>,
    /// Policies of the path that have no effect, because their kind is not served.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_served: Vec<ObjectRef>,
}

/// A limit in effect.
#[derive(Debug, Serialize)]
pub struct LimitView {
    /// The limit.
    #[serde(flatten)]
    pub limit: Limit,
    /// Whether it counts the request.
    pub counts: Counts,
}

/// Whether a limit counts a request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Counts {
    /// It does, in the counter of these values; none if all requests share one.
    Yes(Vec<String>),
    /// A condition is false.
    No,
    /// It does, with the requests for which a counter expression fails, because the request is too large for a
    /// condition; for this reason.
    TooLarge(String),
    /// It does not, because a condition cannot be evaluated, for this reason.
    Failed(String),
    /// It counts by the identity of the client, after authorisation.
    ByIdentity,
    /// It depends on the identity of the client, which no policy of the path determines.
    NoIdentity,
}

impl PathView {
    /// The policies of a path, for a request. Nothing is charged.
    pub(super) fn of<H: Head + ?Sized>(policies: &PathPolicies, attributes: &Attributes<'_, H>) -> Self {
        let in_effect = policies.limits.iter().map(|limit| LimitView {
            limit: Limit::clone(limit),
            counts: match limit.applies(attributes) {
                Applies::Yes => {
                    Counts::Yes(limit.counters.iter().map(|counter| value(counter.value(attributes))).collect())
                }
                Applies::No => Counts::No,
                Applies::ToTooLarge(why) => Counts::TooLarge(why.to_string()),
                Applies::Failed(why) => Counts::Failed(why.to_string()),
            },
        });
        let by_identity = policies.identity_limits.iter();
        let by_identity = by_identity.map(|limit| LimitView { limit: Limit::clone(limit), counts: Counts::ByIdentity });
        let without = policies.without_identity.iter();
        let without = without.map(|limit| LimitView { limit: Limit::clone(limit), counts: Counts::NoIdentity });
        let limits = in_effect.chain(by_identity).chain(without).collect();
        let rules = policies.auth.as_ref().map(|auth| RuleView::all(auth)).unwrap_or_default();
        let (overridden, not_served) = (policies.overridden.to_vec(), policies.not_served.to_vec());
        Self { closed: policies.closed, rules, limits, overridden, not_served }
    }
}

fn value<V: fmt::Display, E: fmt::Display>(value: Result<V, E>) -> String {
    match value {
        Ok(value) => format!("{:?}", value.to_string()),
        Err(why) => format!("no value ({why})"),
    }
}

impl fmt::Display for PathView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.closed {
            writeln!(f, "  policy   403 for all clients: a policy that the route needs cannot be used")?;
        }
        for rule in &self.rules {
            writeln!(f, "  auth     {rule}")?;
        }
        for LimitView { limit, counts } in &self.limits {
            let rate = |rate: &tidegate_config::model::Rate| format!("{} requests in {:?}", rate.max, rate.window);
            let rates: Vec<String> = limit.rates.iter().map(rate).collect();
            let rates = if rates.is_empty() { "no rate".to_owned() } else { rates.join(" and ") };
            let shadow = if limit.shadow { ", shadow" } else { "" };
            writeln!(f, "  limit    {}: {rates}{shadow} ({})", limit.id.name(), limit.id.policy())?;
            match counts {
                Counts::Yes(values) if values.is_empty() => writeln!(f, "           counts this request")?,
                Counts::Yes(values) => writeln!(f, "           counts this request by {}", values.join(", "))?,
                Counts::No => writeln!(f, "           does not count this request")?,
                Counts::TooLarge(why) => writeln!(f, "           counts this request without values: {why}")?,
                Counts::Failed(why) => writeln!(f, "           does not count this request: {why}")?,
                Counts::ByIdentity => writeln!(f, "           counts by the identity of the client")?,
                Counts::NoIdentity => {
                    writeln!(f, "           not in effect: it depends on auth, and no policy identifies clients")?
                }
            }
        }
        for Overridden { policy, name, winner } in &self.overridden {
            writeln!(f, "  policy   {name} of {policy} is overridden by {winner}")?;
        }
        for policy in &self.not_served {
            writeln!(f, "  policy   {policy} has no effect: {}", TokenRateLimitPolicy::NOT_SERVED)?;
        }
        Ok(())
    }
}
