//! One gRPC call: a stream of messages in each direction.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, ensure};
use bytes::{Bytes, BytesMut};
use h2::client::{SendRequest, handshake};
use h2::{RecvStream, SendStream};
use http::header::{CONTENT_TYPE, TE};
use http::{Request, StatusCode};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::{PATH, PATIENCE, ended_well, framed, unframed};
use crate::tls;

/// The message that begins a call.
const FIRST: u64 = u64::MAX;

/// A connection that carries calls.
#[derive(Debug)]
pub(super) struct Connection {
    host: &'static str,
    requests: SendRequest<Bytes>,
    driver: Arc<AbortOnDropHandle<()>>,
}

impl Connection {
    /// Opens one over TLS.
    ///
    /// # Errors
    /// When it cannot be opened, or does not speak HTTP/2.
    pub(super) async fn open(address: SocketAddr, host: &'static str) -> anyhow::Result<Self> {
        let opening = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let stream = tls::connector(&[b"h2"]).connect(ServerName::try_from(host)?, stream).await?;
            anyhow::Ok(handshake(stream).await?)
        };
        let (requests, connection) = timeout(PATIENCE, opening).await.context("no connection in time")??;
        // An error of the connection is also an error of its calls, which report it.
        let driver = Arc::new(AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) })));
        Ok(Self { host, requests, driver })
    }

    /// Begins a call, with a first message that has to come back. nginx does not forward a call without one.
    ///
    /// # Errors
    /// When it is refused.
    pub(super) async fn call(&mut self) -> anyhow::Result<Call> {
        let request = Request::post(format!("https://{}{PATH}", self.host))
            .header(CONTENT_TYPE, super::CONTENT_TYPE)
            .header(TE, "trailers")
            .body(())?;
        timeout(PATIENCE, self.begin(request)).await.context("no answer to a call")?
    }

    async fn begin(&mut self, request: Request<()>) -> anyhow::Result<Call> {
        let mut requests = self.requests.clone().ready().await?;
        let (answer, mut up) = requests.send_request(request, false)?;
        up.send_data(framed(FIRST), false)?;
        let (head, down) = answer.await?.into_parts();
        ensure!(head.status == StatusCode::OK, "a call is answered by {}", head.status);
        if down.is_end_stream() {
            ended_well(&head.headers)?;
        }
        let content_type = head.headers.get(CONTENT_TYPE);
        ensure!(content_type.is_some_and(|it| it == super::CONTENT_TYPE), "the answer is of {content_type:?}");
        let mut call = Call { up, down, come: BytesMut::new(), _driver: Arc::clone(&self.driver) };
        let back = call.next().await?;
        ensure!(back == Some(FIRST), "{back:?} came back first");
        Ok(call)
    }
}

/// An open call.
#[derive(Debug)]
pub(super) struct Call {
    up: SendStream<Bytes>,
    down: RecvStream,
    /// The received bytes of incomplete messages.
    come: BytesMut,
    /// Keeps the connection open as long as one of its calls.
    _driver: Arc<AbortOnDropHandle<()>>,
}

impl Call {
    /// Sends a message, or buffers it until there is room.
    ///
    /// # Errors
    /// When the call has ended.
    pub(super) fn send(&mut self, number: u64) -> anyhow::Result<()> {
        Ok(self.up.send_data(framed(number), false)?)
    }

    /// Ends the sending direction.
    ///
    /// # Errors
    /// When the call has ended.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        Ok(self.up.send_data(Bytes::new(), true)?)
    }

    /// The next message; `None` if the call has ended well. Cancel-safe.
    ///
    /// # Errors
    /// When the call broke, or ended with an error.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<u64>> {
        loop {
            if let Some(number) = unframed(&mut self.come)? {
                return Ok(Some(number));
            }
            let Some(bytes) = self.down.data().await else { break };
            let bytes = bytes?;
            self.down.flow_control().release_capacity(bytes.len())?;
            self.come.extend_from_slice(&bytes);
        }
        ensure!(self.come.is_empty(), "it ended within a message");
        ended_well(&self.down.trailers().await?.unwrap_or_default())?;
        Ok(None)
    }
}
