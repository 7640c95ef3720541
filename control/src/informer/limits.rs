//! Every bound of one informer, in one place.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::backoff::share;

/// Bounds of one informer. The default is what production uses; tests use milliseconds.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Objects asked for in one page of a list.
    pub page_objects: u32,
    /// Bytes of one page, against a server that sends for ever: objects are taken out as they arrive, and some servers send
    /// all of them in one page whatever they are asked for. A page above it is asked for again with half as many objects.
    pub page_bytes_max: usize,
    /// Pages of one list, against a server that continues for ever.
    pub pages_max: u32,
    /// Bytes of one watch event, and of one object of a list. etcd takes about 1.5 MiB an object; JSON and managed fields blow that up.
    pub frame_bytes_max: usize,
    /// From a request to the headers of its answer.
    pub headers: Duration,
    /// Silence in the body of a list.
    pub list_stall: Duration,
    /// What `timeoutSeconds` of each watch is drawn from. Below the 240 s after which common load balancers drop an idle
    /// connection, and spread so that watches do not end together.
    pub watch_timeout: RangeInclusive<Duration>,
    /// How long after a list, and up to half as long again, another one is made beside the watch: what no watch told of is found
    /// by it.
    pub list_again: Duration,
    /// When another list is made because whoever serves what is read has less than it was told: after the first of these at the
    /// latest, then after twice as long each time, up to the second.
    pub list_lacking: RangeInclusive<Duration>,
    /// How much longer than its `timeoutSeconds` a watch may be silent.
    pub watch_grace: Duration,
    /// A watch that ends sooner than this and told nothing counts as failed. One that lasts longer says that the server answers.
    pub short_watch: Duration,
    /// So many watches in a row that the server ends with an internal error at the same resourceVersion are tried before a list.
    pub stuck_max: u32,
    /// A watch that lived this long has settled: the back-off starts over.
    pub settled: Duration,
    /// The bound of the first delay after a failure.
    pub backoff_first: Duration,
    /// The bound of every delay after failures.
    pub backoff_max: Duration,
    /// When an informer finds that the server answers again, the others that wait for that go on within this time.
    pub recovery_spread: Duration,
    /// The longest `Retry-After` that is honoured.
    pub retry_after_max: Duration,
    /// How often the same failure is reported again.
    pub failing_again: Duration,
}

impl Limits {
    /// How long a watch is asked to last; `draw` is any number.
    pub(super) fn lasting(&self, draw: u64) -> Duration {
        let (first, last) = (*self.watch_timeout.start(), *self.watch_timeout.end());
        first + share(last.saturating_sub(first), draw)
    }

    /// How long after a list another one is due even if nothing calls for it; `draw` is any number. Each ends the watch beside
    /// it, which is let live for a moment.
    pub(super) fn listed_again(&self, draw: u64) -> Duration {
        (self.list_again + share(self.list_again / 2, draw)).max(self.short_watch)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            page_objects: 500,
            page_bytes_max: 1 << 30,
            pages_max: 20_000,
            frame_bytes_max: 16 << 20,
            headers: Duration::from_secs(20),
            list_stall: Duration::from_secs(30),
            watch_timeout: Duration::from_secs(120)..=Duration::from_secs(200),
            list_again: Duration::from_secs(600),
            list_lacking: Duration::from_secs(30)..=Duration::from_secs(600),
            watch_grace: Duration::from_secs(15),
            short_watch: Duration::from_secs(1),
            stuck_max: 3,
            settled: Duration::from_secs(5),
            backoff_first: Duration::from_millis(250),
            backoff_max: Duration::from_secs(30),
            recovery_spread: Duration::from_secs(1),
            retry_after_max: Duration::from_secs(60),
            failing_again: Duration::from_secs(30),
        }
    }
}
