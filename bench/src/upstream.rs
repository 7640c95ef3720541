//! What every peer leads to: one small nginx that answers at once, and an echo for WebSockets.

use std::net::{Ipv4Addr, SocketAddr};

use futures::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::nginx::Nginx;

/// The running upstream; gone when dropped.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// Answers every HTTP request with 200 and a few bytes.
    pub(crate) http: SocketAddr,
    /// Answers every WebSocket message with itself.
    pub(crate) echo: SocketAddr,
    _nginx: Nginx,
    _echoing: AbortOnDropHandle<()>,
}

impl Upstream {
    /// Starts both.
    ///
    /// # Errors
    /// When one cannot be started.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let nginx = Nginx::start("upstream", 1, |address| {
            format!("server {{ listen {address} backlog=4096; location / {{ return 200 \"right\\n\"; }} }}\n")
        })
        .await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let echo = listener.local_addr()?;
        let echoing = AbortOnDropHandle::new(tokio::spawn(echo_all(listener)));
        Ok(Self { http: nginx.address(), echo, _nginx: nginx, _echoing: echoing })
    }
}

/// Ends with its task; so do its connections.
async fn echo_all(listener: TcpListener) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(echo(stream));
        while connections.try_join_next().is_some() {}
    }
}

/// A connection that fails is its client's to notice.
async fn echo(stream: TcpStream) {
    let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
    while let Some(Ok(message)) = socket.next().await {
        if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err() {
            return;
        }
    }
}
