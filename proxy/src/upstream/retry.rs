//! The decision whether a failed request is retried. A request that an endpoint may have begun to process is not sent
//! again, unless its method is idempotent, or the route's retry policy allows it.

use std::time::Duration;

/// The maximum pause as a multiple of the route's backoff.
const PAUSE_FACTOR_MAX: u32 = 10;

/// The facts about a failed attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed<'a> {
    /// The number of attempts that count, including this one.
    pub(crate) tries: usize,
    /// The maximum number of attempts.
    pub(crate) tries_max: usize,
    /// The stage of the failure.
    pub(crate) stage: FailureStage,
    /// The statuses that the route retries, in ascending order.
    pub(crate) statuses: &'a [u16],
}

/// The stage at which an attempt failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FailureStage {
    /// No connection was opened, so nothing was sent.
    Connecting {
        /// Whether there is another endpoint to try.
        others: bool,
    },
    /// The endpoint has not processed the request, as it says (HTTP/2: REFUSED_STREAM).
    Unprocessed {
        /// Whether all bytes that were read of the body can be sent again.
        replayable: bool,
    },
    /// The endpoint has ended its connection before it processed the request (HTTP/2: a GOAWAY whose last stream is an
    /// earlier one, RFC 9113 section 6.8).
    Excluded {
        /// Whether all bytes that were read of the body can be sent again.
        replayable: bool,
    },
    /// The connection ended before a complete response head: for example when an endpoint terminates after its kernel
    /// accepted the connection.
    Unanswered {
        /// Whether it came from the pool. Then the endpoint most likely closed it before it saw the request (RFC 9112
        /// section 9.3.1).
        reused: bool,
        /// Whether the method is idempotent (RFC 9110 section 9.2.2).
        idempotent: bool,
        /// Whether all bytes that were read of the body can be sent again.
        replayable: bool,
    },
    /// The endpoint answered with a status that was not sent to the client yet; 504 for a timeout of the attempt.
    Responded {
        /// The status.
        status: u16,
        /// Whether all bytes that were read of the body can be sent again.
        replayable: bool,
    },
    /// Any later stage, and any other failure.
    Later,
}

impl FailureStage {
    /// Whether the endpoint has not processed the request, as it says (RFC 9113 section 8.7).
    pub(crate) const fn is_unprocessed(self) -> bool {
        matches!(self, Self::Unprocessed { .. } | Self::Excluded { .. })
    }
}

/// Returns `true` if the request may be retried.
pub(crate) fn again(failed: &Failed<'_>) -> bool {
    let harmless = match failed.stage {
        FailureStage::Connecting { others } => others,
        FailureStage::Unprocessed { replayable } | FailureStage::Excluded { replayable } => replayable,
        FailureStage::Unanswered { idempotent, replayable, .. } => idempotent && replayable,
        FailureStage::Responded { status, replayable } => replayable && failed.statuses.binary_search(&status).is_ok(),
        FailureStage::Later => false,
    };
    harmless && failed.tries < failed.tries_max
}

/// The pause before the next attempt: `backoff`, plus a random part of an interval that doubles with every attempt, up
/// to ten times the backoff in all. The random part spreads requests that failed together.
pub(crate) fn pause(backoff: Duration, tries: usize, draw: u64) -> Duration {
    let doublings = u32::try_from(tries).unwrap_or(u32::MAX);
    let factor = 2_u32.checked_pow(doublings).unwrap_or(u32::MAX).min(PAUSE_FACTOR_MAX);
    let span = backoff.saturating_mul(factor - 1).as_nanos();
    let part = (span >> 32) * u128::from(draw >> 32) + (((span & 0xFFFF_FFFF) * u128::from(draw >> 32)) >> 32);
    backoff.saturating_add(Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tries: usize, stage: FailureStage, want: bool) {
        let failed = Failed { tries, tries_max: 2, stage, statuses: &[500, 503] };
        assert_eq!(again(&failed), want, "{tries} {stage:?}");
    }

    #[test]
    fn only_safe_requests_are_tried_again() {
        check(1, FailureStage::Connecting { others: true }, true);
        check(1, FailureStage::Connecting { others: false }, false);
        check(2, FailureStage::Connecting { others: true }, false);
        check(1, FailureStage::Unprocessed { replayable: true }, true);
        check(1, FailureStage::Unprocessed { replayable: false }, false);
        check(1, FailureStage::Excluded { replayable: true }, true);
        check(2, FailureStage::Excluded { replayable: true }, false);
        check(1, FailureStage::Excluded { replayable: false }, false);
        for reused in [false, true] {
            check(1, FailureStage::Unanswered { reused, idempotent: true, replayable: true }, true);
            check(2, FailureStage::Unanswered { reused, idempotent: true, replayable: true }, false);
            check(1, FailureStage::Unanswered { reused, idempotent: true, replayable: false }, false);
            check(1, FailureStage::Unanswered { reused, idempotent: false, replayable: true }, false);
        }
        check(1, FailureStage::Later, false);
        check(1, FailureStage::Responded { status: 503, replayable: true }, true);
        check(2, FailureStage::Responded { status: 503, replayable: true }, false);
        check(1, FailureStage::Responded { status: 503, replayable: false }, false);
        check(1, FailureStage::Responded { status: 502, replayable: true }, false);
    }

    #[test]
    fn a_pause_is_never_shorter_than_the_backoff_and_never_ten_times_as_long() {
        let ms = Duration::from_millis;
        for (tries, longest) in [(1, 200), (2, 400), (3, 800), (4, 1000), (5, 1000), (usize::MAX, 1000)] {
            assert_eq!(pause(ms(100), tries, 0), ms(100), "{tries}");
            let most = pause(ms(100), tries, u64::MAX);
            assert!(most <= ms(longest) && most > ms(longest) - ms(1), "{tries}: {most:?}");
        }
        assert_eq!(pause(ms(100), 1, 1 << 63), ms(150));
        assert_eq!(pause(Duration::ZERO, 3, u64::MAX), Duration::ZERO);
        assert!(pause(Duration::MAX, 3, u64::MAX) == Duration::MAX);
    }
}
