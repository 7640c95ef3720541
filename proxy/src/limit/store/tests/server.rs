//! A real server for the tests: the `redis-server` of the distribution, on a free port of loopback, without files.

#[path = "../../../../../tests/src/skip.rs"]
mod skip;

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, cmd};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::clock;

/// A server, which is stopped when this is dropped.
pub(super) struct Server {
    child: Child,
    /// Its folder, for the file of a cluster.
    _folder: TempDir,
    pub(super) port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Server {
    /// A server that answers; `None`, with a line that says so, if the machine has none.
    pub(super) async fn start() -> Option<Self> {
        Self::start_at(free_port()).await
    }

    /// The same on this port.
    pub(super) async fn start_at(port: u16) -> Option<Self> {
        Self::start_with(port, &[]).await
    }

    /// A cluster of one node, which has all slots.
    pub(super) async fn start_cluster() -> Option<Self> {
        // Its second port, for other nodes, would be 10,000 higher.
        let (port, bus) = (free_port(), free_port());
        let server = Self::start_with(port, &["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()]).await?;
        let mut at = server.connect().await;
        cmd("CLUSTER").arg(&["ADDSLOTSRANGE", "0", "16383"]).exec_async(&mut at).await.unwrap();
        Some(server)
    }

    async fn start_with(port: u16, more: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let settings = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()];
        let mut command = Command::new("redis-server");
        let started = command.args(settings).args(more).current_dir(folder.path()).stdout(Stdio::null()).spawn();
        let Ok(child) = started else {
            skip::skipped("redis-server", "there is no redis-server");
            return None;
        };
        let server = Self { child, _folder: folder, port };
        server.connect().await;
        Some(server)
    }

    /// A connection to it.
    pub(super) async fn connect(&self) -> MultiplexedConnection {
        let client = Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        let until = clock::now() + Duration::from_secs(60);
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
        loop {
            match client.get_multiplexed_async_connection_with_config(&config).await {
                Ok(connection) => return connection,
                Err(error) => assert!(clock::now() < until, "{error}"),
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Sends it a signal: `STOP`, `CONT`.
    pub(super) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }
}
