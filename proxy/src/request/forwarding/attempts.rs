//! The attempts of a forwarded request: the data of one for drivers, and whether a failed one is followed by another
//! with another endpoint, and when.

use std::time::{Duration, Instant};

use tidegate_config::model::{Effective, Endpoint, RetryPolicy, Target};

use super::Forwarding;
use crate::observe::metrics::Connect;
use crate::reason::Reason;
use crate::upstream::attempt::AttemptOutcome;
use crate::upstream::retry::{self, Failed, FailureStage};

/// The endpoint of an attempt, with its settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpstreamAttempt<'a> {
    /// The settings that apply.
    pub(crate) effective: &'a Effective,
    /// The target.
    pub(crate) target: &'a Target,
    /// The endpoint.
    pub(crate) endpoint: &'a Endpoint,
    /// Whether the request asks for an upgrade and may have it.
    pub(crate) upgrade: bool,
    /// Whether it needs an HTTP/2 connection without other requests.
    pub(crate) alone: bool,
    /// The time left until the deadline of the response's head; `None` for no limit.
    pub(crate) remaining: Option<Duration>,
    /// The time left until the deadline of the response's end; `None` for no limit.
    pub(crate) response: Option<Duration>,
}

impl UpstreamAttempt<'_> {
    /// The maximum time for opening a connection.
    pub(crate) fn connect_timeout(&self) -> Duration {
        let limit = self.effective.connect_timeout;
        self.remaining.map_or(limit, |left| left.min(limit))
    }
}

impl Forwarding {
    /// No connection could be opened, for this reason. Returns `true` to try another endpoint.
    pub(crate) fn connect_failed(&mut self, reason: Reason, now: Instant) -> bool {
        self.shared().metrics.connect(if reason == Reason::ConnectTimeout {
            Connect::TimedOut
        } else {
            Connect::Failed
        });
        // A lack of resources of the edge says nothing about an endpoint, and neither does a timeout of which it did
        // not have the whole.
        let is_hurried = reason == Reason::ConnectTimeout && self.cuts_connecting();
        let excused = is_hurried || reason == Reason::OutOfResources;
        let moment = (!excused).then(|| self.shared().endpoints.moment(now));
        self.attempts.refused(now, moment);
        let others = self.attempts.leaves(&self.backend, self.exchange.own_addresses());
        self.again(FailureStage::Connecting { others })
    }

    /// An attempt failed after its connection was open. Returns `true` to retry.
    pub(crate) fn broke(&mut self, reason: Reason, stage: FailureStage, now: Instant) -> bool {
        let excused = stage.is_unprocessed() || matches!(stage, FailureStage::Unanswered { reused: true, .. });
        let at_fault = reason == Reason::UpstreamBroken || self.is_endpoint_timeout(reason, now);
        if !excused && at_fault {
            self.judge(AttemptOutcome::Broken, now);
        }
        if excused {
            self.attempts.excuse();
        }
        if stage.is_unprocessed() {
            self.attempts.unprocessed(matches!(stage, FailureStage::Excluded { .. }));
        }
        // After its deadline a request is not retried, unless only the attempt has timed out.
        let is_over = reason == Reason::UpstreamTimeout && !matches!(stage, FailureStage::Responded { .. });
        !is_over && self.end().is_none_or(|end| now < end) && self.again(stage)
    }

    /// Returns `true` if a response with a status is discarded for another attempt; `replayable` if all bytes that were
    /// read of the request can be sent again.
    pub(crate) fn passes_over(&mut self, status: u16, replayable: bool, now: Instant) -> bool {
        let listed = |policy: &RetryPolicy| policy.statuses.binary_search(&status).is_ok();
        if status < 400 || !self.retry_policy().is_some_and(listed) {
            return false;
        }
        self.judge(self.outcome_of(status), now);
        self.end().is_none_or(|end| now < end) && self.again(FailureStage::Responded { status, replayable })
    }

    /// The pause before the next attempt; `None` for no pause.
    pub(crate) fn pause(&mut self, now: Instant, draw: u64) -> Option<Duration> {
        let backoff = self.backoff.take()?;
        let pause = retry::pause(backoff, self.attempts.count(), draw);
        Some(self.end().map_or(pause, |end| pause.min(end.saturating_duration_since(now))))
    }

    fn retry_policy(&self) -> Option<&RetryPolicy> {
        self.exchange.arrived.snapshot.retry(self.admitted.route()).map(|policy| &**policy)
    }

    fn again(&mut self, stage: FailureStage) -> bool {
        self.charges.end_retry();
        let policy = self.retry_policy();
        let tries_max = policy.map_or(usize::from(self.effective.tries_max), |policy| {
            usize::try_from(policy.attempts).unwrap_or(usize::MAX).saturating_add(1)
        });
        let statuses = policy.map_or(&[][..], |policy| &policy.statuses);
        // A refused connection does not count as an attempt, but a policy may allow no second one. A request that was
        // not processed may be sent again whatever the policy says.
        let may = (stage.is_unprocessed() || policy.is_none_or(|policy| policy.attempts > 0))
            && self.attempts.count() < self.shared().options.upstream.tries_max;
        let failed = Failed { tries: self.attempts.waited_for(), tries_max, stage, statuses };
        let may = may && retry::again(&failed);
        // An endpoint that ends breaks all of its connections at once, and no client is to notice. Only answers speak
        // of a Service under load.
        let responded = matches!(stage, FailureStage::Responded { .. });
        let was_sent = !matches!(stage, FailureStage::Connecting { .. } | FailureStage::Excluded { .. });
        let again = may && (!responded || self.charges.begin_retry(&self.exchange));
        let backoff = self.retry_policy().map(|policy| policy.backoff).filter(|backoff| !backoff.is_zero());
        self.backoff = backoff.filter(|_| again && was_sent);
        if again {
            // The endpoint is not in use during the pause.
            self.attempts.leave();
        }
        self.shared().metrics.retries.inc_by(again.into());
        again
    }
}
