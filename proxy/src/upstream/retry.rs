//! Whether a request that failed may be tried once more. Nothing is ever sent twice that an endpoint could have
//! begun to work on, unless HTTP says that doing it twice is harmless.

/// What is known when a try has failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    /// Tries so far that the request has waited for, this one included.
    pub(crate) tries: usize,
    /// How many of them it may have.
    pub(crate) tries_max: usize,
    /// How far it came.
    pub(crate) stage: Stage,
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
    /// Anything later, and anything else.
    Later,
}

/// Whether to try again.
pub(crate) const fn again(failed: &Failed) -> bool {
    let harmless = match failed.stage {
        Stage::Connecting { others } => others,
        Stage::Unprocessed { replayable } => replayable,
        Stage::Unanswered { idempotent, replayable, .. } => idempotent && replayable,
        Stage::Later => false,
    };
    harmless && failed.tries < failed.tries_max
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tries: usize, stage: Stage, want: bool) {
        assert_eq!(again(&Failed { tries, tries_max: 2, stage }), want, "{tries} {stage:?}");
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
    }
}
