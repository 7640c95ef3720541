//! A subject in its own process.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::io::AsyncBufReadExt as _;
use tokio::io::{AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::write_identity;
use crate::allocation::Allocations;
use crate::cores::Share;

/// The maximum time to start or to end, also under callgrind.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running subject; ended when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    asked: ChildStdin,
    told: Lines<BufReader<ChildStdout>>,
    /// The address of plain HTTP.
    pub(crate) plain: SocketAddr,
    /// The address of TLS.
    pub(crate) secure: SocketAddr,
    _folder: TempDir,
}

impl Running {
    /// Starts `tidegate-bench subject` with these arguments on its cores, run by another command if one is given.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) async fn start(
        words: &[String],
        share: Share,
        upstream: SocketAddr,
        under: &[OsString],
    ) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("tidegate-bench-subject-").tempdir()?;
        write_identity(folder.path())?;
        let own = std::env::current_exe()?.into_os_string();
        let (program, rest) = under.split_first().map_or((&own, &[][..]), |(first, rest)| (first, rest));
        let mut command = Command::new(program);
        command.args(rest);
        if !under.is_empty() {
            command.arg(&own);
        }
        command.arg("subject").args(words).args(["--upstream", &upstream.to_string()]);
        command.arg("--identity").arg(folder.path());
        let mut child = share.spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true))?;
        let asked = child.stdin.take().context("its input")?;
        let mut told = BufReader::new(child.stdout.take().context("its output")?).lines();
        let line = timeout(PATIENCE, told.next_line()).await.context("the subject does not start")??;
        let (plain, secure) = serde_json::from_str(&line.context("the subject ended at once")?)?;
        Ok(Self { child, asked, told, plain, secure, _folder: folder })
    }

    /// Its process.
    #[must_use]
    pub(crate) fn process(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Its allocations so far.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) async fn allocations(&mut self) -> anyhow::Result<Allocations> {
        self.asked.write_all(b"\n").await?;
        let line = timeout(PATIENCE, self.told.next_line()).await.context("the subject does not answer")??;
        Ok(serde_json::from_str(&line.context("the subject has ended")?)?)
    }

    /// Ends it well, so that a tool it runs under can report its counts.
    ///
    /// # Errors
    /// When it does not end well.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        let Self { mut child, asked, .. } = self;
        drop(asked);
        let status = timeout(PATIENCE, child.wait()).await.context("the subject does not end")??;
        ensure!(status.success(), "the subject: {status}");
        Ok(())
    }
}
