//! The streams of an HTTP/2 connection: the number of open ones, and the detection of rapid resets.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::time::Duration;

use tokio::sync::Notify;

use super::ConnectionFacts;

/// A stream that is reset sooner than this after its start counts as abuse: the edge and the endpoint have most of the
/// cost.
const EARLY: Duration = Duration::from_secs(1);

/// The number of streams from which the early resets of a connection are judged.
const STREAMS_MIN: u32 = 500;

/// The maximum number of requests on one connection that Pingora refuses as malformed before the edge sees them.
/// Pingora has the same limit in its own loop.
const MALFORMED_MAX: u32 = 32;

/// The reason why a connection is closed for abuse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Abuse {
    /// More than half of its streams were reset early.
    TooManyResets,
    /// Too many of its requests were malformed.
    MalformedRequests,
}

impl Abuse {
    /// All reasons, for the metrics.
    pub(crate) const ALL: [Self; 2] = [Self::TooManyResets, Self::MalformedRequests];

    /// Its name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::TooManyResets => "too-many-resets",
            Self::MalformedRequests => "malformed-requests",
        }
    }
}

/// The counts of the streams of a connection.
#[derive(Debug, Default)]
pub(crate) struct StreamCounts {
    open: AtomicUsize,
    /// Notified when the last open stream has ended.
    idle: Notify,
    started: AtomicU32,
    reset_early: AtomicU32,
    malformed: AtomicU32,
}

impl StreamCounts {
    /// Counts a stream that begins. All counts are halved from time to time, so that a long well-behaved past does not
    /// excuse later resets.
    pub(crate) fn started(&self) {
        let started = self.started.fetch_add(1, Relaxed) + 1;
        if started >= 2 * STREAMS_MIN {
            self.started.store(started / 2, Relaxed);
            self.reset_early.store(self.reset_early.load(Relaxed) / 2, Relaxed);
        }
    }

    /// Counts a stream whose client left before its response was complete, with its age.
    pub(crate) fn abandoned(&self, age: Duration) {
        if age < EARLY {
            self.reset_early.fetch_add(1, Relaxed);
        }
    }

    /// Counts a request that was refused as malformed.
    pub(crate) fn malformed(&self) {
        self.malformed.fetch_add(1, Relaxed);
    }

    /// The reason why the connection must be closed, if there is one.
    pub(crate) fn abuse(&self) -> Option<Abuse> {
        let (started, reset) = (self.started.load(Relaxed), self.reset_early.load(Relaxed));
        if started >= STREAMS_MIN && reset * 2 > started {
            return Some(Abuse::TooManyResets);
        }
        (self.malformed.load(Relaxed) >= MALFORMED_MAX).then_some(Abuse::MalformedRequests)
    }

    /// Returns `true` if the connection must be closed for abuse.
    pub(crate) fn are_abused(&self) -> bool {
        self.abuse().is_some()
    }

    /// Waits until no stream is open.
    pub(crate) async fn all_ended(&self) {
        while self.open.load(Relaxed) > 0 {
            self.idle.notified().await;
        }
    }
}

/// An open stream, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenStream(Arc<ConnectionFacts>);

impl OpenStream {
    /// Counts one more stream of a connection.
    pub(crate) fn of(facts: &Arc<ConnectionFacts>) -> Self {
        facts.streams.open.fetch_add(1, Relaxed);
        Self(Arc::clone(facts))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if self.0.streams.open.fetch_sub(1, Relaxed) == 1 {
            self.0.streams.idle.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::from_millis(12);

    /// A client opens `streams` streams and resets `left_of_ten` of each ten at this age; `ended_after` is the number
    /// of streams after which its connection is closed.
    #[track_caller]
    fn check(streams: u32, left_of_ten: u32, age: Duration, ended_after: Option<u32>) {
        let counts = StreamCounts::default();
        let ended = (1..=streams).find(|stream| {
            counts.started();
            if stream % 10 + left_of_ten > 10 || (stream % 10 == 0 && left_of_ten > 0) {
                counts.abandoned(age);
            }
            counts.are_abused()
        });
        assert_eq!(ended, ended_after, "{left_of_ten} of ten at {age:?}");
    }

    #[test]
    fn a_connection_ends_when_more_than_half_of_at_least_500_streams_are_reset_early() {
        check(499, 10, AT_ONCE, None);
        check(100_000, 10, AT_ONCE, Some(500));
        check(100_000, 6, AT_ONCE, Some(500));
        check(100_000, 5, AT_ONCE, None);
        check(100_000, 4, AT_ONCE, None);
        check(100_000, 10, EARLY, None);
    }

    #[test]
    fn a_long_history_excuses_only_some_hundred_resets() {
        let counts = StreamCounts::default();
        for _ in 0..1_000_000 {
            counts.started();
        }
        let resets = (1..).find(|_| {
            counts.started();
            counts.abandoned(AT_ONCE);
            counts.are_abused()
        });
        assert!(resets.unwrap() <= 2 * STREAMS_MIN, "{resets:?}");
    }

    #[test]
    fn the_number_of_malformed_requests_is_limited() {
        let counts = StreamCounts::default();
        for _ in 1..MALFORMED_MAX {
            counts.malformed();
        }
        assert_eq!(counts.abuse(), None);
        counts.malformed();
        assert_eq!(counts.abuse(), Some(Abuse::MalformedRequests));
    }
}
