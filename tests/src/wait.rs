//! Waiting for what has to become true, with a generous deadline: a test never asserts how long something took.

use std::time::{Duration, Instant};

use crate::clock;

/// How long tests wait before they call something broken: more than the longest pause between two tries of anything, which
/// is the minute that client-go's informers in a real control plane may wait after some failures (30 s and jitter).
const PATIENCE: Duration = Duration::from_secs(180);

/// Now, for counting in tests.
#[must_use]
pub fn moment() -> Instant {
    clock::now()
}

/// Asks until the answer is `Ok`; fails with the last complaint when it never is.
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
