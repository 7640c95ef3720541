//! An nginx process with a configuration of ours in a folder of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::place::free_address;

/// How long a start may take. Large configurations take seconds.
const START_MAX: Duration = Duration::from_secs(60);

/// A running nginx; stopped, with its workers, when dropped.
#[derive(Debug)]
pub(crate) struct Nginx {
    child: Child,
    folder: TempDir,
    address: SocketAddr,
    workers: usize,
}

impl Nginx {
    /// Starts one. `servers` gives what stands in its `http` block, from the address to listen on.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) async fn start(
        name: &str,
        workers: usize,
        servers: impl FnOnce(SocketAddr) -> String,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix(&format!("tidegate-bench-{name}-")).tempdir()?;
        let address = free_address()?;
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, configuration(&folder.path().display().to_string(), workers, &servers(address)))?;
        let child = command(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .context("nginx cannot be run; bench/setup installs it")?;
        let mut nginx = Self { child, folder, address, workers };
        timeout(START_MAX, nginx.until_listening()).await.context("nginx does not start")??;
        Ok(nginx)
    }

    /// Where it listens.
    #[must_use]
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its master process; its workers are children of that.
    #[must_use]
    pub(crate) fn process(&self) -> Option<u32> {
        self.child.id()
    }

    /// Replaces what stands in its `http` block and reloads, as a controller does.
    ///
    /// # Errors
    /// When the configuration cannot be written or nginx refuses it.
    pub(crate) async fn reload(&self, servers: &str) -> anyhow::Result<()> {
        let (file, next) = (self.path("nginx.conf"), self.path("nginx.conf.next"));
        tokio::fs::write(&next, configuration(&self.folder.path().display().to_string(), self.workers, servers))
            .await?;
        tokio::fs::rename(&next, &file).await?;
        let status = command(&self.folder).args(["-s", "reload"]).status().await?;
        ensure!(status.success(), "nginx -s reload: {status}");
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn until_listening(&mut self) -> anyhow::Result<()> {
        while TcpStream::connect(self.address).await.is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("nginx ended at once: {status}");
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

impl Drop for Nginx {
    /// A killed master leaves its workers behind, so it is asked to stop first.
    fn drop(&mut self) {
        let stopped = command(&self.folder).args(["-s", "stop"]).as_std_mut().status();
        if !stopped.is_ok_and(|status| status.success()) {
            eprintln!("nginx (process {:?}) could not be asked to stop", self.child.id());
            return;
        }
        for _ in 0..200 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            crate::clock::pause(Duration::from_millis(5));
        }
    }
}

fn command(folder: &TempDir) -> Command {
    let mut command = Command::new("nginx");
    // What nginx says before it has read where its log is goes to the log too.
    let log = folder.path().join("error.log");
    command.arg("-p").arg(folder.path()).arg("-c").arg(folder.path().join("nginx.conf")).arg("-e").arg(log);
    command
}

fn configuration(folder: &str, workers: usize, servers: &str) -> String {
    format!(
        "daemon off;
worker_processes {workers};
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
worker_rlimit_nofile 65536;
events {{ worker_connections 16384; }}
http {{
    access_log off;
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
