//! One timer for all the deadlines of a connection. They change with every request and rarely pass, so the timer is
//! reset only if a deadline is earlier, or when it fires too early.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::time::{Sleep, sleep_until};

/// The timer.
#[derive(Debug)]
pub(crate) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// A timer that is not set.
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Ready at the given time. The time of the last call counts.
    pub(crate) fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let at = at.into();
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() > at {
            sleep.as_mut().reset(at);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= at {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_alarm_fires_at_the_last_requested_time() {
        let mut alarm = Alarm::new();
        let start = tokio::time::Instant::now();
        let at = |seconds| start.into_std() + Duration::from_secs(seconds);
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll_at(at(10), cx))).await.is_pending());
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll_at(at(60), cx))).await.is_pending());
        poll_fn(|cx| alarm.poll_at(at(60), cx)).await;
        assert_eq!(start.elapsed().as_secs(), 60);
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll_at(at(90), cx))).await.is_pending());
        poll_fn(|cx| alarm.poll_at(at(70), cx)).await;
        assert_eq!(start.elapsed().as_secs(), 70);
        // A time in the past fires at once.
        poll_fn(|cx| alarm.poll_at(at(5), cx)).await;
        assert_eq!(start.elapsed().as_secs(), 70);
    }
}
