//! Whether a request that failed may be tried once more. Nothing is ever sent twice that an endpoint could have
//! begun to work on, unless HTTP says that doing it twice is harmless, or the route says that it is to be.

use std::time::Duration;

/// How many times as long as the backoff of a route a pause is at most.
const PAUSE_FACTOR_MAX: u32 = 10;

/// What is known when a try has failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed<'a> {
    /// Tries so far that the request has waited for, this one included.
    pub(crate) tries: usize,
    /// How many of them it may have.
    pub(crate) tries_max: usize,
    /// How far it came.
    pub(crate) stage: Stage,
    /// The statuses after which the route wants another try, in ascending order.
    pub(crate) statuses: &'a [u16],
}

/// How far a try came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// No connection was made, so nothing was sent.
    Connecting {
        /// Whether there is another endpoint to try.
        others: bool,
    },
    /// The endpoint said that it has not looked at the request (HTTP/2: refused stream, going away).
    Unprocessed {
        /// Whether all that was read of the body can be sent again.
        replayable: bool,
    },
    /// The connection died before the head of any response was whole: as it does when an endpoint's kernel took it and the
    /// endpoint, about to end, never did.
    Unanswered {
        /// Whether it had been idle before. Then, most likely, the endpoint closed it before it saw the request (RFC 9112
        /// section 9.3.1).
        reused: bool,
        /// Whether the method is idempotent (RFC 9110 section 9.2.2).
        idempotent: bool,
        /// Whether all that was read of the body can be sent again.
        replayable: bool,
    },
    /// The endpoint answered with a status, and nobody has been sent it yet; 504 where it took longer than a try may.
    Answered {
        /// The status.
        status: u16,
        /// Whether all that was read of the body can be sent again.
        replayable: bool,
    },
    /// Anything later, and anything else.
    Later,
}

/// Whether to try again.
pub(crate) fn again(failed: &Failed<'_>) -> bool {
    let harmless = match failed.stage {
        Stage::Connecting { others } => others,
        Stage::Unprocessed { replayable } => replayable,
        Stage::Unanswered { idempotent, replayable, .. } => idempotent && replayable,
        Stage::Answered { status, replayable } => replayable && failed.statuses.binary_search(&status).is_ok(),
        Stage::Later => false,
    };
    harmless && failed.tries < failed.tries_max
}

/// How long to wait before the next try: `backoff`, and a part of as much again that doubles with every try, up to ten times as
/// much in all. Chance decides the part, so that requests which failed together do not come back together.
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
    fn check(tries: usize, stage: Stage, want: bool) {
        let failed = Failed { tries, tries_max: 2, stage, statuses: &[500, 503] };
        assert_eq!(again(&failed), want, "{tries} {stage:?}");
    }

    #[test]
    fn only_what_is_harmless_is_tried_again() {
        check(1, Stage::Connecting { others: true }, true);
        check(1, Stage::Connecting { others: false }, false);
        check(2, Stage::Connecting { others: true }, false);
        check(1, Stage::Unprocessed { replayable: true }, true);
        check(1, Stage::Unprocessed { replayable: false }, false);
        for reused in [false, true] {
            check(1, Stage::Unanswered { reused, idempotent: true, replayable: true }, true);
            check(2, Stage::Unanswered { reused, idempotent: true, replayable: true }, false);
            check(1, Stage::Unanswered { reused, idempotent: true, replayable: false }, false);
            check(1, Stage::Unanswered { reused, idempotent: false, replayable: true }, false);
        }
        check(1, Stage::Later, false);
        check(1, Stage::Answered { status: 503, replayable: true }, true);
        check(2, Stage::Answered { status: 503, replayable: true }, false);
        check(1, Stage::Answered { status: 503, replayable: false }, false);
        check(1, Stage::Answered { status: 502, replayable: true }, false);
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
