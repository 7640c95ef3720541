//! The measured process: `tidegate lite`, with a cache on disk.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::sleep;

use crate::clock::now;
use crate::cores::Share;
use crate::get::get;
use crate::metrics::value;
use crate::place::{free_address, usage};
use crate::process::Group;

/// The maximum time until it is ready, or has everything on disk.
const PATIENCE: Duration = Duration::from_secs(300);
/// The maximum time for a response.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The interval of readiness checks, which is the error of the times.
const PAUSE: Duration = Duration::from_millis(1);

/// Its address, its state on disk, and the process while it runs.
pub(super) struct Server {
    program: PathBuf,
    folder: TempDir,
    api: SocketAddr,
    admin: SocketAddr,
    group: Option<Group>,
}

impl Server {
    pub(super) fn new(program: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("tidegate-bench-served-").tempdir()?;
        let (api, admin) = (free_address()?, free_address()?);
        Ok(Self { program: program.to_owned(), folder, api, admin, group: None })
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// The address of its API.
    pub(super) const fn api(&self) -> SocketAddr {
        self.api
    }

    /// Starts it and waits until it is ready.
    pub(super) async fn start(&mut self, cluster: SocketAddr) -> anyhow::Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["lite", "--server", &format!("http://{cluster}"), "--cache-kinds", "services"]);
        command.args(["--serve-api", &self.api.to_string(), "--admin", &self.admin.to_string()]);
        command.args(["--serve-memory", "4096", "--serve-connections", "100000", "--log-level", "error"]);
        command.args(["--cache-write-after", "100ms", "--cache-write-budget", "100000", "--cache-dir"]);
        command.arg(self.folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        self.group = Some(Group::spawn(&mut command, Share::ANY)?);
        let begun = now();
        while !get(self.admin, "/readyz", ANSWER_MAX).await.is_ok_and(|(status, _)| status == 200) {
            ensure!(now() - begun < PATIENCE, "it is not ready after {PATIENCE:?}");
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Ends it at once.
    pub(super) fn end(&mut self) {
        self.group = None;
    }

    fn id(&self) -> anyhow::Result<u32> {
        self.group.as_ref().and_then(|group| group.child.id()).context("it does not run")
    }

    /// Its resident memory in bytes.
    pub(super) fn resident(&self) -> anyhow::Result<u64> {
        Ok(usage(self.id()?).resident_bytes)
    }

    /// Its CPU time.
    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        Ok(usage(self.id()?).cpu())
    }

    pub(super) async fn metric(&self, series: &str) -> anyhow::Result<f64> {
        value(self.admin, series).await
    }

    /// Waits until this number of objects is on disk, and no write is pending.
    #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    pub(super) async fn until_kept(&self, objects: u64) -> anyhow::Result<()> {
        let begun = now();
        loop {
            let written = self.metric("tidegate_cache_values_total").await?;
            let pending = self.metric("tidegate_cache_pending_values").await?;
            if written >= objects as f64 && pending < 0.5 {
                return Ok(());
            }
            ensure!(now() - begun < PATIENCE, "{written} values are on disk, and {pending} wait");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Reads the first page of a list as kubectl does, and returns the number of all objects.
    pub(super) async fn first_page(&self) -> anyhow::Result<u64> {
        let (status, body) = get(self.api, "/api/v1/services?limit=500", ANSWER_MAX).await?;
        ensure!(status == 200, "a list is answered with {status}");
        let list: Value = serde_json::from_slice(&body)?;
        let items = list["items"].as_array().context("no list")?.len() as u64;
        Ok(items + list["metadata"]["remainingItemCount"].as_u64().unwrap_or_default())
    }
}
