//! The set of all tasks of the process. A task that ends or panics is counted, logged and started again after a pause;
//! one that cannot be started again makes the process unhealthy. Traffic goes on in either case.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use prometheus::{IntCounterVec, Opts, Registry};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// The first pause before a restart; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A task that has run for this long starts over with the shortest pause.
const SOUND_AFTER: Duration = Duration::from_secs(60);

/// The pauses before restarts of a task.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after a task that ran for a time. `draw`, from 0 to 1, spreads restarts over half of it.
    pub(crate) fn after(&mut self, ran: Duration, draw: f64) -> Duration {
        if ran >= SOUND_AFTER {
            self.failures = 0;
        }
        let pause = PAUSE_MIN.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        pause.mul_f64(0.5 + draw.clamp(0.0, 1.0) / 2.0)
    }
}

/// A task that is not running now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Down {
    /// The reason of its end.
    pub(crate) why: String,
    /// `true` if it is not restarted.
    pub(crate) for_good: bool,
}

/// The tasks that are not running now, by name.
pub(crate) type Health = watch::Receiver<BTreeMap<&'static str, Down>>;

/// Runs named tasks until told to stop.
#[derive(Debug)]
pub(crate) struct Supervisor {
    set: JoinSet<()>,
    board: Board,
    stop: CancellationToken,
    draw: fn() -> f64,
}

/// The record of ended tasks.
#[derive(Clone, Debug)]
struct Board {
    down: watch::Sender<BTreeMap<&'static str, Down>>,
    restarts: IntCounterVec,
}

impl Supervisor {
    /// An empty set that ends when `stop` is cancelled.
    ///
    /// # Errors
    /// When its metric is registered already.
    pub(crate) fn new(registry: &Registry, stop: CancellationToken, draw: fn() -> f64) -> prometheus::Result<Self> {
        let opts = Opts::new("tidegate_task_restarts_total", "Restarts of tasks that ended or panicked unexpectedly.");
        let restarts = IntCounterVec::new(opts, &["task"])?;
        registry.register(Box::new(restarts.clone()))?;
        let board = Board { down: watch::Sender::default(), restarts };
        Ok(Self { set: JoinSet::new(), board, stop, draw })
    }

    /// The tasks that are not running.
    pub(crate) fn health(&self) -> Health {
        self.board.down.subscribe()
    }

    /// Keeps a task running: `make` is called for every start. A task that sees the stop signal may end by itself.
    pub(crate) fn keep<F>(&mut self, name: &'static str, mut make: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (board, stop, draw) = (self.board.clone(), self.stop.clone(), self.draw);
        board.restarts.with_label_values(&[name]);
        self.set.spawn(async move {
            let mut backoff = Backoff::default();
            while !stop.is_cancelled() {
                let started = Instant::now();
                board.runs(name);
                let why = ending(async { make().await }).await;
                if stop.is_cancelled() {
                    return;
                }
                let pause = backoff.after(started.elapsed(), draw());
                tracing::error!(task = name, why, pause_ms = pause.as_millis(), "a task ended; it will be restarted");
                board.ended(name, why, false);
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = sleep(pause) => {}
                }
            }
        });
    }

    /// Runs a task that cannot be restarted: its end makes the process unhealthy.
    pub(crate) fn once(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let (board, stop) = (self.board.clone(), self.stop.clone());
        board.restarts.with_label_values(&[name]);
        self.set.spawn(async move {
            let why = ending(task).await;
            if !stop.is_cancelled() {
                tracing::error!(task = name, why, "a task ended permanently; traffic continues with the last snapshot");
                board.ended(name, why, true);
            }
        });
    }

    /// Tells every task to stop and waits for them; those that exceed the limit are dropped.
    pub(crate) async fn finish(mut self, limit: Duration) {
        self.stop.cancel();
        if timeout(limit, async { while self.set.join_next().await.is_some() {} }).await.is_err() {
            tracing::warn!(tasks = self.set.len(), "tasks did not end in time and are dropped");
        }
    }
}

impl Board {
    fn runs(&self, name: &'static str) {
        self.down.send_if_modified(|down| down.remove(name).is_some());
    }

    fn ended(&self, name: &'static str, why: String, for_good: bool) {
        self.restarts.with_label_values(&[name]).inc();
        self.down.send_modify(|down| {
            down.insert(name, Down { why, for_good });
        });
    }
}

/// Runs a task to its end and returns the reason of the end.
async fn ending(task: impl Future<Output = ()>) -> String {
    match AssertUnwindSafe(task).catch_unwind().await {
        Ok(()) => "it ended by itself".to_owned(),
        Err(panic) => {
            let message = panic.downcast_ref::<&str>().map(ToString::to_string);
            let message = message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            format!("it panicked: {message}")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[track_caller]
    fn check(ran_s: &[u64], draw: f64, want_ms: &[u128]) {
        let mut backoff = Backoff::default();
        let got: Vec<u128> =
            ran_s.iter().map(|ran| backoff.after(Duration::from_secs(*ran), draw).as_millis()).collect();
        assert_eq!(got, want_ms);
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        check(&[0, 0, 0, 0], 1.0, &[250, 500, 1000, 2000]);
        check(&[0; 9], 1.0, &[250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
    }

    #[test]
    fn jitter_spreads_pauses_over_half() {
        check(&[0, 0], 0.0, &[125, 250]);
        check(&[0, 0], 0.5, &[187, 375]);
        check(&[0], 7.0, &[250]);
    }

    #[test]
    fn a_task_that_ran_well_restarts_without_a_pause() {
        check(&[0, 0, 60, 0], 1.0, &[250, 500, 250, 500]);
        check(&[0, 0, 59, 0], 1.0, &[250, 500, 1000, 2000]);
    }

    fn supervisor(stop: &CancellationToken) -> Supervisor {
        Supervisor::new(&Registry::new(), stop.clone(), || 1.0).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_started_again_and_counted() {
        let stop = CancellationToken::new();
        let mut tasks = supervisor(&stop);
        let health = tasks.health();
        let restarts = tasks.board.restarts.clone();
        let starts = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&starts);
        tasks.keep("shaky", move || {
            let start = counted.fetch_add(1, Ordering::Relaxed);
            async move {
                assert!(start >= 2, "start {start}");
                std::future::pending::<()>().await;
            }
        });
        sleep(Duration::from_millis(100)).await;
        assert_eq!(health.borrow()["shaky"], Down { why: "it panicked: start 0".to_owned(), for_good: false });
        sleep(Duration::from_millis(1000)).await;
        assert_eq!(starts.load(Ordering::Relaxed), 3);
        assert_eq!(restarts.with_label_values(&["shaky"]).get(), 2);
        assert!(health.borrow().is_empty());
        tasks.finish(Duration::from_secs(1)).await;
        assert_eq!(starts.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_cannot_be_restarted_makes_the_process_unhealthy() {
        let stop = CancellationToken::new();
        let mut tasks = supervisor(&stop);
        let health = tasks.health();
        tasks.once("short", async {});
        sleep(Duration::from_millis(1)).await;
        assert_eq!(health.borrow()["short"], Down { why: "it ended by itself".to_owned(), for_good: true });
        tasks.finish(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_after_the_stop_is_not_a_failure() {
        let stop = CancellationToken::new();
        let mut tasks = supervisor(&stop);
        let health = tasks.health();
        let stopped = stop.clone();
        tasks.keep("good", move || stopped.clone().cancelled_owned());
        sleep(Duration::from_millis(1)).await;
        tasks.finish(Duration::from_secs(1)).await;
        assert!(health.borrow().is_empty());
    }
}
