//! `tidegate lite` as a child process, on free ports of loopback.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::client::get;
use crate::program::binary;
use crate::wait::eventually;

/// A running `tidegate lite`; killed with its handle.
#[derive(Debug)]
pub struct CacheServer {
    /// The process.
    pub child: Child,
    /// The address of health and metrics.
    pub admin: SocketAddr,
    /// The address of the API.
    pub api: SocketAddr,
}

impl CacheServer {
    /// Starts it on free ports, which it reports in its log.
    pub async fn start(kubeconfig: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command.arg("lite").arg("--kubeconfig").arg(kubeconfig);
        Self::started(command, arguments).await
    }

    /// The same, with a server to read from that needs no credentials.
    pub async fn fed_by(server: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command.args(["lite", "--server", server]);
        Self::started(command, arguments).await
    }

    async fn started(mut command: Command, arguments: &[&str]) -> Self {
        command.args(["--admin", "127.0.0.1:0", "--serve-api", "127.0.0.1:0"]).args(arguments);
        let mut child = command.stderr(Stdio::piped()).kill_on_drop(true).spawn().expect("tidegate lite");
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let read = async {
            loop {
                let line = log.next_line().await.expect("text").expect("a line about its sockets");
                let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
                let address = |field: &str| line[field].as_str().and_then(|text| text.parse().ok());
                if let (Some(admin), Some(api)) = (address("admin"), address("api")) {
                    return (admin, api);
                }
            }
        };
        let (admin, api) = tokio::time::timeout(Duration::from_secs(30), read).await.expect("its sockets");
        // Unread output would fill the pipe.
        tokio::spawn(async move { while log.next_line().await.is_ok_and(|line| line.is_some()) {} });
        Self { child, admin, api }
    }

    /// The URL of the API, as clients need it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.api)
    }

    /// Waits until it is ready.
    pub async fn ready(&self) {
        eventually("ready", || async {
            let answer = get(self.admin, "localhost", "/readyz").await?;
            if answer.status == 200 { Ok(()) } else { Err(answer.body) }
        })
        .await;
    }

    /// Ends it in order.
    pub async fn end(mut self) {
        let id = self.child.id().expect("it runs").to_string();
        assert!(Command::new("kill").arg(id).status().await.expect("kill").success());
        assert!(self.child.wait().await.expect("a status").success());
    }

    /// Kills it.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("it runs");
    }
}
