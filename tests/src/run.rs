//! `tidegate run` as a child process, on free ports of loopback.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::client::get;
use crate::program::binary;
use crate::wait::eventually;

/// A running `tidegate run`; killed with its handle.
#[derive(Debug)]
pub struct Run {
    /// The process.
    pub child: Child,
    /// The address of plain HTTP.
    pub http: SocketAddr,
    /// The address of HTTPS, if it is open.
    pub https: Option<SocketAddr>,
    /// The address of health and metrics.
    pub admin: SocketAddr,
    /// The address of the served API, if it is open: an address, or `unix:PATH`.
    pub api: Option<String>,
}

impl Run {
    /// Starts it on free ports, which it reports in its log.
    pub async fn start(kubeconfig: &Path, arguments: &[&str]) -> Self {
        Self::started(Command::new(binary()), kubeconfig, arguments).await
    }

    /// The same, for a command that begins with the program.
    pub async fn started(mut command: Command, kubeconfig: &Path, arguments: &[&str]) -> Self {
        command.arg("run").arg("--kubeconfig").arg(kubeconfig);
        Self::reading(command, arguments).await
    }

    /// Starts one that reads from the served API of another one.
    pub async fn fed_by(server: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command.args(["run", "--server", server]);
        Self::reading(command, arguments).await
    }

    async fn reading(mut command: Command, arguments: &[&str]) -> Self {
        command.arg("--allow-loopback-endpoints");
        // Tests of other sources name them by a flag, which takes precedence over the environment.
        command.env("TIDEGATE_SOURCE", "ingress");
        let any = "127.0.0.1:0";
        command.args(["--http", any, "--admin", any, "--debug", "off"]).args(arguments);
        command.args(["--access-log", "stdout", "--log-form", "json", "--log-level", "info"]);
        if !arguments.contains(&"--shutdown-delay") {
            command.args(["--shutdown-delay", "0s"]);
        }
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.kill_on_drop(true).spawn().expect("tidegate run");
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let secure = !arguments.contains(&"off");
        let (mut http, mut https, mut admin, mut api) = (None, None, None, None);
        let read = async {
            while http.is_none() || admin.is_none() || secure && https.is_none() {
                let line = log.next_line().await.expect("text").expect("a line about each socket");
                let line: serde_json::Value = serde_json::from_str(&line)
                    .unwrap_or_else(|error| panic!("not a line of the log: {line} ({error})"));
                let address = |field: &str| line[field].as_str().and_then(|text| text.parse().ok());
                if line["message"] == "listening" && line["protocol"] == "Http" {
                    http = address("address");
                }
                if line["message"] == "listening" && line["protocol"] == "Https" {
                    https = address("address");
                }
                admin = admin.or_else(|| address("admin"));
                if let Some(at) = line["api"].as_str() {
                    api = Some(at.to_owned());
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), read).await.expect("its sockets");
        // Unread output would fill the pipe.
        tokio::spawn(async move { while log.next_line().await.is_ok_and(|line| line.is_some()) {} });
        Self { child, http: http.expect("an address"), https, admin: admin.expect("an address"), api }
    }

    /// Waits until it is ready.
    pub async fn ready(&self) {
        eventually("ready", || async {
            let answer = get(self.admin, "localhost", "/readyz").await?;
            if answer.status == 200 { Ok(()) } else { Err(answer.body) }
        })
        .await;
    }

    /// Waits until a host responds with this status.
    pub async fn answers(&self, host: &str, status: u16) {
        eventually(&format!("{host} answers {status}"), || async {
            let answer = get(self.http, host, "/").await?;
            if answer.status == status { Ok(()) } else { Err(answer.status.to_string()) }
        })
        .await;
    }

    /// Sends it a signal, such as `-KILL`.
    pub async fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(signal).arg(self.child.id().expect("it runs").to_string()).status().await;
        assert!(sent.expect("kill").success());
    }

    /// The text of its metrics.
    pub async fn metrics(&self) -> String {
        get(self.admin, "localhost", "/metrics").await.expect("metrics").body
    }
}

/// Responds to every request, each on a connection of its own, with `kept`.
pub async fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                // A request of these tests fits into one read.
                let mut head = [0; 4096];
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nkept";
                if stream.read(&mut head).await.is_ok_and(|read| read > 0) {
                    drop(stream.write_all(answer).await);
                }
            });
        }
    });
    address
}
