//! The limits of one informer.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::backoff::share;

/// The limits of one informer. The defaults are for production; tests use milliseconds.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The page size of lists, in objects.
    pub page_objects: u32,
    /// The size limit of one page in bytes, against an endless response: objects are processed as they arrive, and some
    /// servers ignore the page size and send all of them in one page. After a larger page, the list is retried with
    /// half the page size.
    pub page_bytes_max: usize,
    /// The limit of pages in one list, against an endless list.
    pub pages_max: u32,
    /// The size limit of one watch event and of one object in a list, in bytes. etcd stores up to about 1.5 MiB for an
    /// object; JSON and managed fields increase that.
    pub frame_bytes_max: usize,
    /// The timeout from a request to the headers of its response.
    pub headers: Duration,
    /// The timeout for silence in the body of a list.
    pub list_stall: Duration,
    /// The range of `timeoutSeconds` of watches, drawn at random. Below the 240 s after which common load balancers
    /// drop an idle connection, and spread so that watches do not end together.
    pub watch_timeout: RangeInclusive<Duration>,
    /// The delay from one list to the next, up to half as long again. It is made concurrently with the watch and finds
    /// changes whose events were missed.
    pub relist_interval: Duration,
    /// The delay before another list for a server of copies that lacks objects: at most the first value, then doubled
    /// each time up to the second.
    pub list_lacking: RangeInclusive<Duration>,
    /// The time that a watch may be silent beyond its `timeoutSeconds`.
    pub watch_grace: Duration,
    /// A watch that ends sooner than this without events counts as failed. One that lasts longer proves that the server
    /// answers.
    pub short_watch: Duration,
    /// The number of consecutive watches ended by an internal error at the same resourceVersion before a list is made.
    pub stuck_max: u32,
    /// The duration after which a watch is considered stable and the back-off is reset.
    pub settled: Duration,
    /// The upper bound of the first delay after a failure.
    pub backoff_first: Duration,
    /// The upper bound of all delays after failures.
    pub backoff_max: Duration,
    /// When an informer finds that the server answers again, the waiting ones continue within this time.
    pub recovery_spread: Duration,
    /// The longest `Retry-After` that is respected.
    pub retry_after_max: Duration,
    /// The interval for logging the same failure again.
    pub failing_again: Duration,
}

impl Limits {
    /// The duration of the next watch; `draw` is a random number.
    pub(super) fn lasting(&self, draw: u64) -> Duration {
        let (first, last) = (*self.watch_timeout.start(), *self.watch_timeout.end());
        first + share(last.saturating_sub(first), draw)
    }

    /// The delay until the next periodic list; `draw` is a random number. A list ends the concurrent watch, so the
    /// delay is at least a short watch.
    pub(super) fn relist_after(&self, draw: u64) -> Duration {
        (self.relist_interval + share(self.relist_interval / 2, draw)).max(self.short_watch)
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
            relist_interval: Duration::from_secs(600),
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
