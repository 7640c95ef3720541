//! Holds a WebSocket open and uses it all the time, to see whether it breaks.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_util::sync::CancellationToken;

/// The interval of messages.
const PAUSE: Duration = Duration::from_millis(20);
/// The maximum time to wait for an echo.
const ECHO_MAX: Duration = Duration::from_secs(5);

/// An open WebSocket.
#[derive(Debug)]
pub(crate) struct Held(WebSocketStream<TcpStream>);

impl Held {
    /// Opens one to a host.
    ///
    /// # Errors
    /// When it is refused.
    pub(crate) async fn open(address: SocketAddr, host: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        let request = format!("ws://{host}/").into_client_request()?;
        let handshake = timeout(ECHO_MAX, tokio_tungstenite::client_async(request, stream));
        let (socket, _) = handshake.await.context("no answer to an upgrade")?.context("an upgrade is refused")?;
        Ok(Self(socket))
    }

    /// Sends messages and waits for their echoes until told to stop; returns the number of echoes.
    ///
    /// # Errors
    /// The reason why it broke.
    pub(crate) async fn hold(mut self, stop: &CancellationToken) -> anyhow::Result<u64> {
        let mut echoes = 0;
        while !stop.is_cancelled() {
            let sent = Message::text(format!("message {echoes}"));
            self.0.send(sent.clone()).await?;
            let back = timeout(ECHO_MAX, self.0.next()).await.context("no echo in time")?;
            ensure!(back.context("closed")?? == sent, "another message came back");
            echoes += 1;
            sleep(PAUSE).await;
        }
        Ok(echoes)
    }
}
