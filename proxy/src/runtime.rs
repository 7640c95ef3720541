//! The traffic threads. Each has its own runtime, sockets and upstream connections, because a pooled connection stays
//! with the reactor that opened it. A thread that fails is restarted; the others are not affected.

use std::any::Any;
use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tidegate_config::model::Generation;
use tidegate_config::published::Published;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::clock;
use crate::connection::tls::Tls;
use crate::driver::{Streams, Traffic, pingora};
use crate::listen::binder::Binder;
use crate::listen::sockets::listen;
use crate::observe::access_log::AccessLog;
use crate::observe::connection_metrics::ConnectionMetrics;
use crate::options::Options;
use crate::shared::Shared;
use crate::upstream::{client, http2, pool, tls};

/// The shortest and longest pause before a failed thread is restarted.
const RESTART: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The interval of the sweep of idle upstream connections.
const POOL_SWEEP: Duration = Duration::from_secs(1);

/// The state shared by all threads.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) published: Published,
    pub(crate) changes: watch::Receiver<Generation>,
    /// `true` when the process drains.
    pub(crate) leaving: watch::Receiver<bool>,
    /// The deadline of all traffic; `None` while the process serves.
    pub(crate) stop: watch::Receiver<Option<Instant>>,
    pub(crate) options: Arc<Options>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) metrics: Arc<ConnectionMetrics>,
    pub(crate) tls: Arc<Tls>,
    pub(crate) binder: Arc<Binder>,
}

/// Starts a traffic thread; the receiver gets the number of aborted connections when it has stopped.
///
/// # Errors
/// If the operating system cannot start a thread.
pub(crate) fn start(thread: usize, process: Process) -> io::Result<oneshot::Receiver<usize>> {
    let (stopped, ended) = oneshot::channel();
    std::thread::Builder::new().name(format!("traffic-{thread}")).spawn(move || {
        let cut = keep_running(
            |pause| run(thread, &process, pause),
            |why, pause| {
                process.metrics.thread_restarts.inc();
                process.binder.fail_all(thread, process.published.pin().binds(), why);
                tracing::error!(thread, error = why, ?pause, "a traffic thread failed and restarts");
            },
        );
        // There is no receiver if the proxy was dropped instead of drained.
        stopped.send(cut).ok();
    })?;
    Ok(ended)
}

/// Repeats failed runs until one ends well, with growing pauses.
fn keep_running(mut run: impl FnMut(Duration) -> io::Result<usize>, mut failed: impl FnMut(&str, Duration)) -> usize {
    let mut pause = Duration::ZERO;
    loop {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(pause)));
        pause = (pause * 2).clamp(RESTART.0, RESTART.1);
        match outcome {
            Ok(Ok(cut)) => return cut,
            Ok(Err(error)) => failed(&error.to_string(), pause),
            Err(panic) => failed(message(&*panic), pause),
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a message")
}

fn run(thread: usize, process: &Process, pause: Duration) -> io::Result<usize> {
    // Declared before the runtime, so dropped after it: aborted requests are logged when they are dropped.
    let log = &process.shared.access_log;
    let _flush = Flush(log);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(async {
        let mut stop = process.stop.clone();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(Option::is_some) => return 0,
        }
        let proxy = Arc::new(pingora::proxy(process.published.clone(), Arc::clone(&process.shared)));
        let traffic = Arc::new(Traffic {
            streams: Arc::new(Streams::new(
                Arc::clone(&proxy),
                process.published.clone(),
                &process.shared,
                &process.metrics,
            )),
            proxy,
            tls: Arc::clone(&process.tls),
            published: process.published.clone(),
            options: Arc::clone(&process.options),
            shared: Arc::clone(&process.shared),
            metrics: Arc::clone(&process.metrics),
            epoch: clock::now(),
            leaving: process.leaving.clone(),
        });
        let (changes, stop) = (process.changes.clone(), process.stop.clone());
        tokio::select! {
            cut = listen(thread, &traffic, &process.binder, changes, stop) => cut,
            never = log.flush_in_time() => match never {},
            never = sweep_pool(process.options.upstream.idle) => match never {},
        }
    }))
}

/// Closes idle upstream connections in time.
async fn sweep_pool(idle: Duration) -> Infallible {
    // Connections left by an earlier, failed runtime of this thread.
    pool::clear();
    http2::clear();
    client::clear();
    loop {
        tokio::time::sleep(POOL_SWEEP).await;
        pool::sweep(idle, clock::now());
        http2::sweep(idle, clock::now());
        tls::sweep();
        client::sweep(idle, clock::now());
    }
}

/// Flushes the thread's log lines, however it ends.
struct Flush<'a>(&'a AccessLog);

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        self.0.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_or_panicked_run_is_repeated_after_a_pause() {
        let mut pauses = Vec::new();
        let mut whys = Vec::new();
        let cut = keep_running(
            |pause| {
                pauses.push(pause.as_millis());
                match pauses.len() {
                    1 => Err(io::Error::other("no runtime")),
                    2 => panic!("of all things"),
                    8 => Ok(3),
                    n => panic!("for the {n}th time"),
                }
            },
            |why, _| whys.push(why.to_owned()),
        );
        assert_eq!(cut, 3);
        assert_eq!(pauses, [0, 100, 200, 400, 800, 1600, 3200, 5000]);
        assert_eq!(whys[..3], ["no runtime", "of all things", "for the 3th time"]);
    }
}
