//! One echo process: started, started again when it dies, and ended after routing has moved away from it.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tidegate_lite::ContainerLog;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::output;
use crate::clock;
use crate::supervise::Backoff;

/// How long a process goes on after its endpoints are said to terminate.
const LEAVE: Duration = Duration::from_millis(300);
/// How long it gets to finish what is in flight, a little more than it takes for itself.
const FINISH: Duration = Duration::from_secs(6);
/// How long it gets to say its port.
const START: Duration = Duration::from_secs(10);

/// What became of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Happened {
    /// It accepts connections on this port of 127.0.0.1.
    Up(u16),
    /// It is gone and will be started again.
    Down,
    /// It has ended as it should.
    Gone,
}

/// Keeps a process running until told to end, and tells under the pod's name what happens to it.
pub(super) async fn run(
    program: Arc<Path>,
    pod: Arc<str>,
    log: ContainerLog,
    told: mpsc::Sender<(Arc<str>, Happened)>,
    end: CancellationToken,
) {
    let mut backoff = Backoff::default();
    while !end.is_cancelled() {
        let started = Instant::now();
        match start(&program, &pod, &log).await {
            Ok(mut process) => {
                if told.send((Arc::clone(&pod), Happened::Up(process.port))).await.is_err() {
                    return;
                }
                tokio::select! {
                    status = process.child.wait() => tracing::warn!(%pod, ?status, "an echo process ended"),
                    () = end.cancelled() => {
                        sleep(LEAVE).await;
                        process.finish().await;
                        break;
                    }
                }
            }
            Err(error) => tracing::warn!(%pod, %error, "an echo process did not start"),
        }
        if told.send((Arc::clone(&pod), Happened::Down)).await.is_err() {
            return;
        }
        let pause = backoff.after(started.elapsed(), clock::draw());
        end.run_until_cancelled(sleep(pause)).await;
    }
    // Nobody is left to be told when everything ends.
    drop(told.send((pod, Happened::Gone)).await);
}

/// A process that accepts connections.
struct Process {
    child: Child,
    /// Kept out of the child, which would close it when it is waited for. The process ends when it is closed.
    stdin: Option<ChildStdin>,
    port: u16,
}

/// Starts a process and waits for its port.
async fn start(program: &Path, pod: &str, log: &ContainerLog) -> io::Result<Process> {
    let mut child = Command::new(program)
        .args(["echo", "--pod", pod])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // A Ctrl-C in the terminal is for its parent alone.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let stdin = child.stdin.take();
    let mut stdout = BufReader::new(child.stdout.take().ok_or_else(|| io::Error::other("it has no standard output"))?);
    let said = async {
        let mut line = String::new();
        // A port is five digits.
        (&mut stdout).take(16).read_line(&mut line).await?;
        line.trim().parse().map_err(|_| io::Error::other("it said no port"))
    };
    let port = timeout(START, said).await.map_err(|_| io::Error::other("it said no port in time"))??;
    // It ends with the process, which closes its end of the pipe.
    tokio::spawn(output::copy(stdout, log.begin()));
    Ok(Process { child, stdin, port })
}

impl Process {
    /// Ends it by closing its standard input; if it does not take the hint, it is killed.
    async fn finish(mut self) {
        drop(self.stdin);
        if timeout(FINISH, self.child.wait()).await.is_err() {
            drop(self.child.kill().await);
        }
    }
}
