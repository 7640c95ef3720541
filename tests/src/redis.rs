//! A server that speaks the protocol of Redis: the one of the distribution, on a free port of loopback, without files.

use std::net::SocketAddr;
use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::free::free_addresses;
use crate::skip::skipped;
use crate::wait::eventually;

/// A running server; killed with its handle.
#[derive(Debug)]
pub struct Redis {
    child: Child,
    /// Its address.
    pub address: SocketAddr,
}

impl Redis {
    /// Starts one and waits until it answers; `None` if the machine has none.
    pub async fn start() -> Option<Self> {
        let [address] = free_addresses();
        Self::start_at(address).await
    }

    /// The same on an address.
    pub async fn start_at(address: SocketAddr) -> Option<Self> {
        let server = Self::spawn(address, &["--port", &address.port().to_string()])?;
        eventually("the server answers", || server.say("PING")).await;
        Some(server)
    }

    /// Starts one with these settings, and does not wait; `None` if the machine has none.
    #[must_use]
    pub fn spawn(address: SocketAddr, settings: &[&str]) -> Option<Self> {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]).args(settings);
        match command.stdout(Stdio::null()).kill_on_drop(true).spawn() {
            Ok(child) => Some(Self { child, address }),
            Err(_) => {
                skipped("redis-server", "there is no redis-server");
                None
            }
        }
    }

    /// Ends it, as a crash would.
    pub async fn kill(mut self) -> SocketAddr {
        self.child.kill().await.expect("it runs");
        self.address
    }

    /// Sends it a signal, such as `-STOP`.
    pub async fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(signal).arg(self.child.id().expect("it runs").to_string()).status().await;
        assert!(sent.expect("kill").success());
    }

    /// Sends a command as a line, and returns the beginning of the answer.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn say(&self, line: &str) -> Result<String, String> {
        let mut stream = TcpStream::connect(self.address).await.map_err(|error| error.to_string())?;
        stream.write_all(format!("{line}\r\n").as_bytes()).await.map_err(|error| error.to_string())?;
        let mut answer = [0; 4096];
        let read = stream.read(&mut answer).await.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(answer.get(..read).unwrap_or_default()).into_owned();
        if text.is_empty() || text.starts_with('-') { Err(text) } else { Ok(text) }
    }
}
