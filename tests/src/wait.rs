//! Waiting for conditions, with a generous deadline: a test never asserts a duration.

use std::time::{Duration, Instant};

use crate::clock;

/// The time after which a test fails: more than the longest pause between two retries anywhere, which is the minute
/// that client-go's informers in a real control plane may wait after some failures (30 s and jitter).
const PATIENCE: Duration = Duration::from_secs(180);

/// The current time, for counting in tests.
#[must_use]
pub fn moment() -> Instant {
    clock::now()
}

/// Polls until the result is `Ok`; fails with the last error after the deadline.
///
/// # Panics
/// When the deadline is over.
#[track_caller]
pub fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> impl Future<Output = T>
where
    F: Future<Output = Result<T, String>>,
{
    let caller = std::panic::Location::caller();
    let what = what.to_owned();
    async move {
        let deadline = clock::now() + PATIENCE;
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(complaint) => {
                    assert!(clock::now() < deadline, "{caller}: {what} never came true: {complaint}");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }
}
