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
    /// A connection that had been idle died before the first byte of an answer: most likely the endpoint closed it
    /// before it saw the request (RFC 9112 section 9.3.1).
    IdleConnectionDied {
        /// Whether the method is idempotent (RFC 9110 section 9.2.2).
        idempotent: bool,
        /// Whether there is no body.
        bodiless: bool,
    },
    /// Anything later.
    Later,
}

/// Whether to try again.
pub(crate) const fn again(failed: &Failed) -> bool {
    let harmless = match failed.stage {
        Stage::Connecting { others } => others,
        Stage::Unprocessed { replayable } => replayable,
        Stage::IdleConnectionDied { idempotent, bodiless } => idempotent && bodiless,
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
        check(1, Stage::IdleConnectionDied { idempotent: true, bodiless: true }, true);
        check(1, Stage::IdleConnectionDied { idempotent: true, bodiless: false }, false);
        check(1, Stage::IdleConnectionDied { idempotent: false, bodiless: true }, false);
        check(1, Stage::Later, false);
    }
}
