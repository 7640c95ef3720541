//! The time by which the head of a response must have come. Pingora has a clock for each read and none for that, so a
//! request carries its own, and whoever waits for the response asks it.

use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::sync::watch;
use tokio::time::sleep_until;

tokio::task_local! {
    /// The clock of the request that a task is at, for Pingora makes requests without telling of whom.
    static CURRENT: ResponseDeadline;
}

/// When the head of a response is due; at first, and again once the head is there, at no time. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseDeadline(watch::Sender<State>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    at: Option<Instant>,
    /// Whether a request has begun since the last [`ResponseDeadline::take_begun`].
    begun: bool,
}

impl ResponseDeadline {
    /// For a request that begins, the one that this task works under; one of its own where there is none.
    pub(crate) fn current() -> Self {
        let current = CURRENT.try_with(Self::clone).unwrap_or_default();
        current.0.send_if_modified(|state| {
            state.begun = true;
            false
        });
        current
    }

    /// Whether a request has begun since this was asked last: else Pingora has answered by itself, and told nobody.
    pub(crate) fn take_begun(&self) -> bool {
        let mut begun = false;
        self.0.send_if_modified(|state| {
            begun = std::mem::take(&mut state.begun);
            false
        });
        begun
    }

    /// Does some work under this one.
    pub(crate) async fn scope<F: Future>(&self, work: F) -> F::Output {
        CURRENT.scope(self.clone(), work).await
    }

    /// Sets the time.
    pub(crate) fn set(&self, at: Instant) {
        self.0.send_modify(|state| state.at = Some(at));
    }

    /// Nothing is due any more.
    pub(crate) fn clear(&self) {
        self.0.send_if_modified(|state| state.at.take().is_some());
    }

    /// Whether something is due.
    pub(crate) fn is_set(&self) -> bool {
        self.0.borrow().at.is_some()
    }

    /// Waits until it is overdue.
    pub(crate) async fn elapsed(self) {
        let mut told = self.0.subscribe();
        loop {
            let at = told.borrow_and_update().at;
            let at = async {
                match at {
                    Some(at) => sleep_until(at.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                // The sender is our own, so it lives.
                _ = told.changed() => {}
                () = at => return,
            }
        }
    }
}

/// [`ResponseDeadline::elapsed`] for who is polled.
pub(crate) struct DeadlineFuture(Pin<Box<dyn Future<Output = ()> + Send + Sync>>);

impl DeadlineFuture {
    /// Rings when it is overdue.
    pub(crate) fn new(due: ResponseDeadline) -> Self {
        Self(Box::pin(due.elapsed()))
    }

    /// Ready when it rings.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for DeadlineFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeadlineFuture")
    }
}
