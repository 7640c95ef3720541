//! The process of one replica: started, restarted when it dies, probed, and ended after routing has moved away from it.

use std::convert::Infallible;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;
use std::time::Duration;

use tidegate_lite::ContainerLog;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::probe::{self, Probe, Readiness};
use super::process::Program;
use crate::clock;
use crate::supervise::Backoff;

/// The time that a process continues after its endpoints are marked as terminating.
const LEAVE: Duration = Duration::from_millis(300);
/// The interval of checks for a process that does not accept connections yet.
const LOOK: Duration = Duration::from_millis(50);

/// An event in the life of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Happened {
    /// The process runs, but is not ready for requests on this port of 127.0.0.1.
    Running(u16),
    /// The process is ready for requests on this port of 127.0.0.1.
    Up(u16),
    /// The process is gone and will be restarted. The code with which it ended, if it had started.
    Down(Option<i32>),
    /// A probe has failed.
    Unhealthy(String),
    /// The process has ended as requested.
    Gone,
}

/// The inputs of a replica.
pub(super) struct Job {
    pub(super) pod: Arc<str>,
    pub(super) program: Program,
    pub(super) probe: Option<Probe>,
    pub(super) log: ContainerLog,
}

/// The channel of events, keyed by the pod's name.
pub(super) type Events = mpsc::Sender<(Arc<str>, Happened)>;

/// The receiver is gone, as it is at shutdown.
struct ReceiverGone;

/// Keeps a process running until it is told to end, and sends its events under the pod's name.
pub(super) async fn run(job: Job, events: Events, end: CancellationToken) {
    let pod = &job.pod;
    let mut backoff = Backoff::default();
    while !end.is_cancelled() {
        let (started, mut code) = (Instant::now(), None);
        match job.program.start(pod, &job.log).await {
            Ok(mut process) => {
                let port = process.port;
                tokio::select! {
                    status = process.child.wait() => {
                        tracing::warn!(%pod, ?status, "a process ended");
                        code = status.ok().and_then(|status| status.code().or_else(|| Some(128 + status.signal()?)));
                    }
                    Err(ReceiverGone) = job.tell_readiness(port, &events) => return,
                    () = end.cancelled() => {
                        sleep(LEAVE).await;
                        process.finish().await;
                        break;
                    }
                }
            }
            Err(error) => tracing::warn!(%pod, %error, "a process did not start"),
        }
        if job.report(Happened::Down(code), &events).await.is_err() {
            return;
        }
        let pause = backoff.after(started.elapsed(), clock::draw());
        end.run_until_cancelled(sleep(pause)).await;
    }
    drop(job.report(Happened::Gone, &events).await);
}

impl Job {
    async fn report(&self, what: Happened, events: &Events) -> Result<(), ReceiverGone> {
        events.send((Arc::clone(&self.pod), what)).await.map_err(|_| ReceiverGone)
    }

    /// Reports every change of readiness while the process runs.
    async fn tell_readiness(&self, port: u16, events: &Events) -> Result<Infallible, ReceiverGone> {
        if !self.program.is_up_at_once() {
            self.report(Happened::Running(port), events).await?;
            while !probe::accepts(port).await {
                sleep(LOOK).await;
            }
        }
        let Some(probe) = &self.probe else {
            self.report(Happened::Up(port), events).await?;
            return std::future::pending().await;
        };
        self.report(Happened::Running(port), events).await?;
        sleep(probe.initial_delay).await;
        let mut before = Readiness::default();
        loop {
            let result = probe.succeeds(port).await;
            let now = probe.after(before, result.is_ok());
            if let Err(why) = result {
                self.report(Happened::Unhealthy(why), events).await?;
            }
            if now.ready != before.ready {
                self.report(if now.ready { Happened::Up(port) } else { Happened::Running(port) }, events).await?;
            }
            before = now;
            sleep(probe.period).await;
        }
    }
}
