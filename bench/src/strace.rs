//! System calls of running processes, counted by strace.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use crate::place::version;

/// The maximum time to attach or to detach.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running strace.
#[derive(Debug)]
pub(crate) struct Strace {
    child: Child,
    stderr: Lines<BufReader<ChildStderr>>,
    folder: TempDir,
}

/// The number of calls of each system call.
pub(crate) type Calls = BTreeMap<String, u64>;

/// Returns `true` if strace can be run.
#[must_use]
pub(crate) fn available() -> bool {
    version("strace", "-V").is_some()
}

/// The reason why it may not trace here; `None` if it may.
pub(crate) async fn refused() -> Option<String> {
    let mut sleeper = Command::new("sleep").arg("60").kill_on_drop(true).spawn().ok()?;
    let counted = match Strace::attach(&[sleeper.id()?]).await {
        Ok(strace) => strace.detach().await.map(drop),
        Err(why) => Err(why),
    };
    drop(sleeper.kill().await);
    counted.err().map(|why| format!("strace may not attach: {why:#}"))
}

impl Strace {
    /// Attaches to processes, with all of their threads.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub(crate) async fn attach(processes: &[u32]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-o"]).arg(folder.path().join("calls"));
        for process in processes {
            command.args(["-p", &process.to_string()]);
        }
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
        let stderr = BufReader::new(child.stderr.take().context("its stderr")?).lines();
        let mut strace = Self { child, stderr, folder };
        let mut attached = 0;
        while attached < processes.len() {
            let line = timeout(PATIENCE, strace.stderr.next_line()).await.context("strace does not attach")??;
            let line = line.context("strace ended")?;
            ensure!(line.contains("attached"), "{line}");
            attached += 1;
        }
        Ok(strace)
    }

    /// Detaches, and returns the counts.
    ///
    /// # Errors
    /// When it does not end, or its output cannot be read.
    pub(crate) async fn detach(mut self) -> anyhow::Result<Calls> {
        let process = self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).context("strace ended")?;
        kill_process(process, Signal::INT)?;
        let ended = async { while let Ok(Some(_)) = self.stderr.next_line().await {} };
        timeout(PATIENCE, ended).await.context("strace does not end")?;
        self.child.wait().await?;
        Ok(parse(&std::fs::read_to_string(self.folder.path().join("calls"))?))
    }
}

/// Reads the columns `% time`, `seconds`, `usecs/call`, `calls`, `errors` (or nothing) and `syscall`.
fn parse(text: &str) -> Calls {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (calls, name) = (fields.get(3)?.parse().ok()?, fields.get(4..)?.last()?);
        (*name != "total").then(|| ((*name).to_owned(), calls))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read_with_and_without_errors() {
        let text = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60,00    0.000090           9        10         2 recvfrom
 40.00    0.000010           1         7           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    0.000100           5        17         2 total
";
        let want = [("recvfrom".to_owned(), 10), ("epoll_wait".to_owned(), 7)];
        assert_eq!(parse(text), want.into());
    }
}
