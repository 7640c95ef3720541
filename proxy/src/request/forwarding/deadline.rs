//! The deadlines of a forwarded request.

use std::time::{Duration, Instant};

use tidegate_config::model::Effective;

use super::Forwarding;
use crate::reason::Reason;

/// The earlier of two times, as far as there are any.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The deadline of a response head, over all attempts, of a request that began at a time.
pub(in crate::request) fn head_deadline(began: Instant, effective: &Effective) -> Option<Instant> {
    let end = |limit: Option<Duration>| limit.map(|limit| began + limit);
    earlier(end(effective.request_timeout), end(effective.total_timeout))
}

impl Forwarding {
    /// The deadline of the next part of the response: its head, then its end, if the route limits that; `None` for no
    /// deadline.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The edge waits for the endpoint from now on. For drivers whose own timeout is not that of the route.
    pub(crate) fn awaited(&mut self, now: Instant) {
        if self.is_unanswered() {
            self.due = earlier(self.head_end(), Some(now + self.effective.read_timeout));
        }
    }

    /// The endpoint need not answer yet, because more of the request follows.
    pub(crate) fn not_awaited(&mut self) {
        if self.is_unanswered() {
            self.due = self.head_end();
        }
    }

    /// Returns `true` if the endpoint of the last attempt has not sent a response head.
    fn is_unanswered(&self) -> bool {
        self.attempts.last().is_none_or(|attempt| attempt.first_byte.is_none())
    }

    /// The deadline of a response head, over all attempts.
    pub(super) fn end(&self) -> Option<Instant> {
        head_deadline(self.began(), &self.effective)
    }

    /// The deadline of a response head in the current attempt.
    pub(super) fn head_end(&self) -> Option<Instant> {
        earlier(self.end(), self.attempt_end)
    }

    /// The deadline of the response's end.
    pub(super) fn response_end(&self) -> Option<Instant> {
        let total = self.effective.total_timeout.map(|limit| self.began() + limit);
        earlier(total, self.attempt_end)
    }

    /// Returns `true` if the last attempt had less than half of the time to connect that the first attempt of a request
    /// has, because the request had used up the rest before.
    pub(super) fn cuts_connecting(&self) -> bool {
        let Effective { connect_timeout, attempt_timeout, request_timeout, total_timeout, .. } = self.effective;
        let limits = [attempt_timeout, request_timeout, total_timeout];
        let whole = limits.into_iter().flatten().fold(connect_timeout, Duration::min);
        let half = self.attempts.last().map(|attempt| attempt.began() + whole / 2);
        half.zip(self.head_end()).is_some_and(|(half, end)| end < half)
    }

    /// Returns `true` if a failure for this reason is a timeout of the endpoint. A deadline that has passed while the
    /// client was still sending its body is not: the client may be slow.
    pub(super) fn is_endpoint_timeout(&self, reason: Reason, now: Instant) -> bool {
        let is_upload_late = || !self.is_whole && self.head_end().is_some_and(|end| end <= now);
        reason == Reason::UpstreamTimeout && !is_upload_late()
    }

    /// The reason of a failure: after the response's deadline it is the timeout, whatever broke.
    pub(crate) fn in_time(&self, seen: Reason, now: Instant) -> Reason {
        if self.due.is_some_and(|at| at <= now) { Reason::UpstreamTimeout } else { seen }
    }
}
