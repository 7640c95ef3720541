//! The start and the end of one process: an echo process or a command.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tidegate_lite::ContainerLog;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdin};
use tokio::time::timeout;

use super::command::{COMMAND, Command};
use super::output;

/// The time for an echo process to finish requests in flight, a little more than it takes for itself.
const FINISH: Duration = Duration::from_secs(6);
/// The time for an echo process to report its port.
const START: Duration = Duration::from_secs(10);

/// The program of a pod.
#[derive(Clone, Debug)]
pub(super) enum Program {
    /// This program, as an echo server. `ignored` is set if the template has a command and commands are not run.
    Echo { path: Arc<Path>, ignored: bool },
    /// A command, or the reason why there is none.
    Command(Result<Command, String>),
}

/// A running process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) child: Child,
    pub(super) port: u16,
    ending: Ending,
}

/// The way to end a process.
#[derive(Debug)]
enum Ending {
    /// By closing its standard input, which is kept outside of `Child`: waiting for the child would close it.
    Stdin(Option<ChildStdin>),
    /// By SIGTERM to its group, and SIGKILL after a time.
    Signal(Duration),
}

impl Program {
    /// Returns `true` if the process accepts connections as soon as it is started.
    pub(super) fn is_up_at_once(&self) -> bool {
        matches!(self, Self::Echo { .. })
    }

    /// Starts the process. Its output goes to a new run of the log, and so does the reason of a failed start.
    pub(super) async fn start(&self, pod: &str, log: &ContainerLog) -> io::Result<Process> {
        let started = match self {
            Self::Echo { path, ignored } => echo(path, pod, log, *ignored).await,
            Self::Command(Ok(command)) => run(command, pod, log).await,
            Self::Command(Err(why)) => Err(io::Error::other(why.clone())),
        };
        started.inspect_err(|why| log.begin().line(format!("the process did not start: {why}").as_bytes()))
    }
}

/// Starts an echo process and waits for its port.
async fn echo(program: &Path, pod: &str, log: &ContainerLog, ignored: bool) -> io::Result<Process> {
    let mut command = tokio::process::Command::new(program);
    command.args(["echo", "--pod", pod]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = grouped(command).spawn()?;
    let stdin = child.stdin.take();
    let mut stdout = BufReader::new(child.stdout.take().ok_or_else(|| io::Error::other("it has no standard output"))?);
    let reading = async {
        let mut line = String::new();
        // A port is five digits.
        (&mut stdout).take(16).read_line(&mut line).await?;
        line.trim().parse().map_err(|_| io::Error::other("it reported no port"))
    };
    let port = timeout(START, reading).await.map_err(|_| io::Error::other("it reported no port in time"))??;
    let writer = log.begin();
    if ignored {
        writer.line(format!("{COMMAND} is ignored: `tidegate dev` runs commands only with --run-commands").as_bytes());
    }
    // The task ends with the process, which closes its end of the pipe.
    tokio::spawn(output::copy(stdout, writer));
    Ok(Process { child, port, ending: Ending::Stdin(stdin) })
}

/// Starts a command on a port that is chosen here.
async fn run(command: &Command, pod: &str, log: &ContainerLog) -> io::Result<Process> {
    let port = free_port().await?;
    let (program, arguments) = command.words.split_first().ok_or_else(|| io::Error::other("the command is empty"))?;
    let mut built = tokio::process::Command::new(program);
    built.args(arguments).env("HOSTNAME", pod).envs(command.env.iter().cloned()).env("PORT", port.to_string());
    built.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = grouped(built).spawn().map_err(|why| io::Error::new(why.kind(), format!("{program}: {why}")))?;
    let writer = log.begin();
    if let Some(stdout) = child.stdout.take() {
        tokio::spawn(output::copy(stdout, writer.clone()));
    }
    if let Some(stderr) = child.stderr.take() {
        tokio::spawn(output::copy(stderr, writer));
    }
    Ok(Process { child, port, ending: Ending::Signal(command.grace) })
}

/// Puts the process in a group of its own: a Ctrl-C in the terminal is for the parent alone, and a signal for the
/// process reaches its children.
fn grouped(mut command: tokio::process::Command) -> tokio::process::Command {
    command.process_group(0).kill_on_drop(true);
    command
}

/// Finds a free port. Another process may take it before the command does; then the command ends and is started again.
async fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?.port())
}

impl Process {
    /// Asks the process to end, and kills it if it does not.
    pub(super) async fn finish(mut self) {
        let grace = match &mut self.ending {
            Ending::Stdin(stdin) => {
                drop(stdin.take());
                FINISH
            }
            Ending::Signal(grace) => {
                let grace = *grace;
                self.signal(Signal::TERM);
                grace
            }
        };
        if timeout(grace, self.child.wait()).await.is_err() {
            self.signal(Signal::KILL);
            drop(self.child.wait().await);
        }
    }

    /// Signals the whole group. A group whose leader has been waited for is left alone: its id may have been reused.
    fn signal(&self, signal: Signal) {
        let group = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(group) = group {
            // It may have ended just now.
            let _ = kill_process_group(group, signal);
        }
    }
}

/// Kills the group, which ends without a grace period.
impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}
