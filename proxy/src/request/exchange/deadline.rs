//! When an exchange is overdue.

use std::time::Instant;

use super::Exchange;
use crate::reason::Reason;

impl Exchange {
    /// When the head of the response is due; `None` while nothing is.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Notes that the endpoint is waited for from now on, where the clock of the driver is another one than the route's.
    pub(crate) fn awaited(&mut self, now: Instant) {
        if self.is_unanswered() {
            let silence = now + self.effective.read_timeout;
            self.due = Some(self.end().map_or(silence, |end| end.min(silence)));
        }
    }

    /// Notes that the endpoint need not answer yet, for more of the request comes.
    pub(crate) fn not_awaited(&mut self) {
        if self.is_unanswered() {
            self.due = self.end();
        }
    }

    /// Whether no head of a response has come from the endpoint that was tried last.
    fn is_unanswered(&self) -> bool {
        self.attempts.last().is_none_or(|attempt| attempt.first_byte.is_none())
    }

    /// When the head of the response is due at the latest.
    pub(super) fn end(&self) -> Option<Instant> {
        self.effective.request_timeout.map(|limit| self.began + limit)
    }

    /// Why it failed: whatever broke past the time of its response, that is why.
    pub(crate) fn in_time(&self, seen: Reason, now: Instant) -> Reason {
        if self.due.is_some_and(|at| at <= now) { Reason::UpstreamTimeout } else { seen }
    }
}
