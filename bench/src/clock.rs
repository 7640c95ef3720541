//! The only module that reads the clock. Everything else takes time as an argument or measures through [`timed`].

use std::time::{Duration, Instant};

/// The current time.
#[allow(clippy::disallowed_methods, reason = "this is the shell")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// Runs `work` and measures its duration.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let value = work();
    (value, now() - start)
}

/// Blocks this thread: for threads of their own that poll, and for the last moments of a child process.
#[allow(clippy::disallowed_methods, reason = "this is the shell, and no runtime thread runs here")]
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Awaits `work` and measures its duration.
pub async fn timed_async<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let start = now();
    let value = work.await;
    (value, now() - start)
}
