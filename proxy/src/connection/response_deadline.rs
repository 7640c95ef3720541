//! The deadline of a response's head. Pingora has a timeout for each read but none for that, so a request carries its
//! own, and the code that waits for the response awaits it.

use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::sync::watch;
use tokio::time::sleep_until;

tokio::task_local! {
    /// The deadline of the request in a task, because Pingora starts requests without a reference to their connection.
    static CURRENT: ResponseDeadline;
}

/// The deadline of a response's head; not set at first, nor once the head has arrived. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseDeadline(watch::Sender<State>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    at: Option<Instant>,
    /// Whether a request has begun since the last [`ResponseDeadline::take_begun`].
    begun: bool,
}

impl ResponseDeadline {
    /// The deadline for a new request: that of the task's scope, or a new one outside of any.
    pub(crate) fn current() -> Self {
        let current = CURRENT.try_with(Self::clone).unwrap_or_default();
        current.0.send_if_modified(|state| {
            state.begun = true;
            false
        });
        current
    }

    /// Returns `true` if a request has begun since the last call: otherwise Pingora has answered by itself.
    pub(crate) fn take_begun(&self) -> bool {
        let mut begun = false;
        self.0.send_if_modified(|state| {
            begun = std::mem::take(&mut state.begun);
            false
        });
        begun
    }

    /// Runs a future in the scope of this deadline.
    pub(crate) async fn scope<F: Future>(&self, work: F) -> F::Output {
        CURRENT.scope(self.clone(), work).await
    }

    /// Sets the time.
    pub(crate) fn set(&self, at: Instant) {
        self.0.send_modify(|state| state.at = Some(at));
    }

    /// Clears the deadline.
    pub(crate) fn clear(&self) {
        self.0.send_if_modified(|state| state.at.take().is_some());
    }

    /// Returns `true` if the deadline is set.
    pub(crate) fn is_set(&self) -> bool {
        self.0.borrow().at.is_some()
    }

    /// Waits until the deadline has passed.
    pub(crate) async fn elapsed(self) {
        let mut changes = self.0.subscribe();
        loop {
            let at = changes.borrow_and_update().at;
            let at = async {
                match at {
                    Some(at) => sleep_until(at.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                // This value holds the sender, so it exists.
                _ = changes.changed() => {}
                () = at => return,
            }
        }
    }
}

/// [`ResponseDeadline::elapsed`] in poll form.
pub(crate) struct DeadlineFuture(Pin<Box<dyn Future<Output = ()> + Send + Sync>>);

impl DeadlineFuture {
    /// A future that is ready after the deadline.
    pub(crate) fn new(due: ResponseDeadline) -> Self {
        Self(Box::pin(due.elapsed()))
    }

    /// Ready after the deadline.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for DeadlineFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeadlineFuture")
    }
}
