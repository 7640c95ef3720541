//! When an exchange is overdue.

use std::time::Instant;

use super::Exchange;
use crate::reason::Reason;

/// The earlier of two times, as far as there are any.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl Exchange {
    /// When whatever comes next of the response is due: its head, and behind it the end, where the route limits that; `None` while
    /// nothing is.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Notes that the endpoint is waited for from now on, where the clock of the driver is another one than the route's.
    pub(crate) fn awaited(&mut self, now: Instant) {
        if self.is_unanswered() {
            self.due = earlier(self.head_end(), Some(now + self.effective.read_timeout));
        }
    }

    /// Notes that the endpoint need not answer yet, for more of the request comes.
    pub(crate) fn not_awaited(&mut self) {
        if self.is_unanswered() {
            self.due = self.head_end();
        }
    }

    /// Whether no head of a response has come from the endpoint that was tried last.
    fn is_unanswered(&self) -> bool {
        self.attempts.last().is_none_or(|attempt| attempt.first_byte.is_none())
    }

    /// When no head of a response is worth waiting for any more, from whichever endpoint.
    pub(super) fn end(&self) -> Option<Instant> {
        let head = self.effective.request_timeout.map(|limit| self.began + limit);
        earlier(head, self.total_end())
    }

    /// The same of the present try.
    pub(super) fn head_end(&self) -> Option<Instant> {
        earlier(self.end(), self.attempt_end)
    }

    /// When the response has to be over.
    pub(super) fn response_end(&self) -> Option<Instant> {
        earlier(self.total_end(), self.attempt_end)
    }

    fn total_end(&self) -> Option<Instant> {
        self.effective.total_timeout.map(|limit| self.began + limit)
    }

    /// Why it failed: whatever broke past the time of its response, that is why.
    pub(crate) fn in_time(&self, seen: Reason, now: Instant) -> Reason {
        if self.due.is_some_and(|at| at <= now) { Reason::UpstreamTimeout } else { seen }
    }
}
