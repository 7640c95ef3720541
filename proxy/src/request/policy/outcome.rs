//! What the policies of a request have added to it so far.

use std::sync::Arc;

use tidegate_config::model::HeaderEdits;
use tidegate_config::model::auth::{AuthGrant, AuthRuleName};

use super::external_auth::Grants;
use crate::limit::{LimitDecision, LimitName, LimitNotice};

/// The edits of a request and of its response, the identity of the client, and the fields of the log line that follow
/// from policies.
#[derive(Debug)]
pub(crate) struct PolicyOutcome {
    /// The CORS headers of responses, if the route has a policy.
    pub(in crate::request) cors: Option<Box<HeaderEdits>>,
    /// The result of authentication and authorisation. Its edits of the request apply before all others.
    pub(in crate::request) auth: Option<Arc<AuthGrant>>,
    /// The rule of authentication or authorisation that refuses it.
    pub(in crate::request) refused_by: Option<Box<AuthRuleName>>,
    /// The grants of authorisation services. Their edits of the request apply before the filters of the route, those of
    /// the response after them.
    pub(in crate::request) grants: Vec<Arc<Grants>>,
    /// The part of the decision of limits that outlives it.
    pub(in crate::request) limits: LimitOutcome,
}

/// The part of a decision of limits for the response and the log line.
#[derive(Debug)]
pub(crate) struct LimitOutcome {
    /// The limit with the fewest requests left, if clients are told.
    pub(in crate::request) tightest: Option<Box<LimitNotice>>,
    /// The limit in shadow mode that would have refused the request.
    pub(in crate::request) shadow: Option<Box<LimitName>>,
}

impl PolicyOutcome {
    /// Nothing.
    pub(crate) const NOTHING: Self =
        Self { cors: None, auth: None, refused_by: None, grants: Vec::new(), limits: LimitOutcome::NOTHING };

    /// The client, as its credentials name it, else as the first authorisation service that says so knows it.
    pub(in crate::request) fn user(&self) -> Option<&str> {
        let by_credentials = self.auth.as_ref().and_then(|auth| auth.user.as_deref());
        by_credentials.or_else(|| self.user_of_service())
    }

    fn user_of_service(&self) -> Option<&str> {
        self.grants.iter().find_map(|granted| granted.identity.as_deref())
    }
}

impl LimitOutcome {
    /// That of a request that no limit has counted.
    pub(in crate::request) const NOTHING: Self = Self { tightest: None, shadow: None };

    /// The outcome of limits before a wait and after it.
    pub(in crate::request) fn and(self, other: Self) -> Self {
        let is_tighter = |one: &LimitNotice| other.tightest.as_ref().is_none_or(|other| one.is_tighter_than(other));
        match self.tightest.filter(|one| is_tighter(one)) {
            Some(one) => Self { tightest: Some(one), shadow: other.shadow.or(self.shadow) },
            None => Self { tightest: other.tightest, shadow: other.shadow.or(self.shadow) },
        }
    }

    /// Of a decision; with `are_told`, clients learn of their limits.
    pub(in crate::request) fn of(decision: &LimitDecision<'_>, are_told: bool) -> Self {
        Self {
            tightest: decision.tightest.filter(|_| are_told).map(|state| Box::new(state.into())),
            shadow: decision.shadow.map(|state| Box::new(state.limit.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_config::model::{Limit, LimitId, Rate};
    use tidegate_config::object::{Kind, ObjectName, ObjectRef};

    use super::*;
    use crate::limit::RateState;

    /// The outcome of one decision: the limit with the fewest requests left with their number, and the one in shadow
    /// mode that would have refused the request.
    type Decided = (Option<(&'static str, u32)>, Option<&'static str>);

    fn outcome((tightest, shadow): Decided) -> LimitOutcome {
        let policy = || ObjectRef::new(Kind::RateLimitPolicy, ObjectName::new("web", "shop"));
        let limit = |name: &str| Limit {
            id: LimitId::new(policy(), name.into()),
            when: Box::default(),
            counters: Box::default(),
            rates: Box::default(),
            shadow: false,
        };
        let (tightest, shadow) = (tightest.map(|(name, left)| (limit(name), left)), shadow.map(limit));
        let rate = Rate { max: 9, window: Duration::from_secs(1) };
        let state = |limit, remaining| RateState { limit, rate, remaining, resets_in: Duration::from_secs(1) };
        let decision = LimitDecision {
            tightest: tightest.as_ref().map(|(limit, left)| state(limit, *left)),
            shadow: shadow.as_ref().map(|limit| state(limit, 0)),
            ..LimitDecision::default()
        };
        LimitOutcome::of(&decision, true)
    }

    #[track_caller]
    fn check(before: Decided, after: Decided, want: &[&str]) {
        let both = outcome(before).and(outcome(after));
        let names = [both.tightest.map(|notice| notice.name.to_string()), both.shadow.map(|name| name.to_string())];
        let names: Vec<String> = names.into_iter().map(|name| name.unwrap_or_default()).collect();
        assert_eq!(names, want);
    }

    /// Limits by identity come in a run of the chain of their own, and after a wait for the store.
    #[test]
    fn limits_before_a_wait_and_after_it_are_told_together() {
        check(
            (Some(("address", 1)), Some("trial")),
            (Some(("user", 5)), None),
            &["web/shop/address", "web/shop/trial"],
        );
        check((Some(("address", 5)), None), (Some(("user", 1)), Some("trial")), &["web/shop/user", "web/shop/trial"]);
        check((Some(("address", 5)), Some("trial")), (None, None), &["web/shop/address", "web/shop/trial"]);
        check((None, None), (Some(("user", 5)), None), &["web/shop/user", ""]);
        // The one that refuses the request has nothing left.
        check((Some(("address", 0)), None), (Some(("user", 0)), None), &["web/shop/user", ""]);
    }
}
