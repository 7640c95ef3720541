//! An nginx process with a generated configuration in a folder of its own.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::clock::now;
use crate::cores::Share;
use crate::place::free_address;
use crate::process::Group;

/// The maximum time for a start. Large configurations take seconds.
const START_MAX: Duration = Duration::from_secs(300);

/// A running nginx; stopped, with its workers, when dropped.
#[derive(Debug)]
pub(crate) struct Nginx {
    group: Group,
    folder: TempDir,
    address: SocketAddr,
    how: How,
    share: Share,
}

/// The process model of an nginx.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// A master with this number of workers.
    Workers(usize),
    /// One process, run by this command.
    Under(Vec<OsString>),
}

impl Nginx {
    /// Starts one. `servers` returns the contents of its `http` block, from its address and its folder.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) async fn start(
        name: &str,
        how: How,
        share: Share,
        servers: impl FnOnce(SocketAddr, &Path) -> anyhow::Result<String>,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix(&format!("tidegate-bench-{name}-")).tempdir()?;
        let address = free_address()?;
        let file = folder.path().join("nginx.conf");
        let servers = servers(address, folder.path())?;
        std::fs::write(&file, configuration(&folder.path().display().to_string(), &how, &servers))?;
        let group = spawn(&folder, &how, share)?;
        let mut nginx = Self { group, folder, address, how, share };
        timeout(START_MAX, nginx.until_listening()).await.context("nginx does not start")??;
        Ok(nginx)
    }

    /// The address that it listens on.
    #[must_use]
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its master process; its workers are children of that.
    #[must_use]
    pub(crate) fn process(&self) -> Option<u32> {
        self.group.child.id()
    }

    /// Replaces the contents of its `http` block and reloads, as a controller does.
    ///
    /// # Errors
    /// When the configuration cannot be written or nginx refuses it.
    pub(crate) async fn reload(&self, servers: &str) -> anyhow::Result<()> {
        let (file, next) = (self.path("nginx.conf"), self.path("nginx.conf.next"));
        tokio::fs::write(&next, configuration(&self.folder.path().display().to_string(), &self.how, servers)).await?;
        tokio::fs::rename(&next, &file).await?;
        let status = command(&self.folder, &How::Workers(1)).args(["-s", "reload"]).status().await?;
        ensure!(status.success(), "nginx -s reload: {status}");
        Ok(())
    }

    /// Ends it well.
    ///
    /// # Errors
    /// When it does not end.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        let status = command(&self.folder, &How::Workers(1)).args(["-s", "stop"]).status().await?;
        ensure!(status.success(), "nginx -s stop: {status}");
        timeout(START_MAX, self.group.child.wait()).await.context("nginx does not end")??;
        Ok(())
    }

    /// Restarts it with its current configuration; returns the time at which that began.
    ///
    /// # Errors
    /// When it does not end, or cannot be started.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<Instant> {
        self.stop().await?;
        let begun = now();
        self.group = spawn(&self.folder, &self.how, self.share)?;
        Ok(begun)
    }

    /// A file in its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn until_listening(&mut self) -> anyhow::Result<()> {
        while TcpStream::connect(self.address).await.is_err() {
            if let Some(status) = self.group.child.try_wait()? {
                bail!("nginx ended at once: {status}");
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

fn spawn(folder: &TempDir, how: &How, share: Share) -> anyhow::Result<Group> {
    let mut command = command(folder, how);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    Group::spawn(&mut command, share).context("bench/setup installs it")
}

fn command(folder: &TempDir, how: &How) -> Command {
    let mut command = match how {
        How::Under(words) if let [program, rest @ ..] = &words[..] => {
            let mut command = Command::new(program);
            command.args(rest).arg("nginx");
            command
        }
        How::Under(_) | How::Workers(_) => Command::new("nginx"),
    };
    // Output from before nginx has read the path of its log goes to the log too.
    let log = folder.path().join("error.log");
    command
        .kill_on_drop(true)
        .arg("-p")
        .arg(folder.path())
        .arg("-c")
        .arg(folder.path().join("nginx.conf"))
        .arg("-e")
        .arg(log);
    command
}

fn configuration(folder: &str, how: &How, servers: &str) -> String {
    let processes = match how {
        How::Workers(workers) => format!("worker_processes {workers};"),
        How::Under(_) => "master_process off;".to_owned(),
    };
    format!(
        "daemon off;
{processes}
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
worker_rlimit_nofile 65536;
events {{ worker_connections 16384; }}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
{servers}}}
"
    )
}
