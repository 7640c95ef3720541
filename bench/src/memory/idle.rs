//! Connections that have carried one request and are idle since.

use std::any::Any;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use rustls::pki_types::ServerName;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use crate::peer::SECURE;
use crate::tls;

/// The number of connections opened at the same time; that many upstream connections remain.
const AT_ONCE: usize = 8;
/// The maximum time to open one.
const OPEN_MAX: Duration = Duration::from_secs(10);

/// The protocol of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Speech {
    /// HTTP/1.1.
    Plain,
    /// HTTP/1.1 over TLS.
    Tls,
    /// HTTP/2 over TLS.
    Http2,
}

impl Speech {
    pub(super) const ALL: [Self; 3] = [Self::Plain, Self::Tls, Self::Http2];

    /// Its name in tables.
    #[must_use]
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Plain => "HTTP/1.1",
            Self::Tls => "HTTP/1.1 over TLS",
            Self::Http2 => "HTTP/2 over TLS",
        }
    }

    /// Returns `true` if it uses TLS.
    #[must_use]
    pub(super) const fn secure(self) -> bool {
        !matches!(self, Self::Plain)
    }
}

/// Connections that are held open until they are dropped.
pub(super) type Held = Vec<Box<dyn Any + Send>>;

/// Opens this number of connections, each with one successful request.
///
/// # Errors
/// When one cannot be opened, or its response is not a 200.
pub(super) async fn open(address: SocketAddr, speech: Speech, count: usize) -> anyhow::Result<Held> {
    let tls = tls::connector(if speech == Speech::Http2 { &[b"h2"] } else { &[] });
    let one = |_| async {
        let opened = timeout(OPEN_MAX, open_one(address, speech, &tls)).await;
        let opened = opened.context("no answer in time").and_then(|opened| opened);
        opened.with_context(|| format!("{speech:?} at {address}"))
    };
    stream::iter(0..count).map(one).buffer_unordered(AT_ONCE).try_collect().await
}

async fn open_one(address: SocketAddr, speech: Speech, tls: &TlsConnector) -> anyhow::Result<Box<dyn Any + Send>> {
    let stream = TcpStream::connect(address).await?;
    if !speech.secure() {
        return Ok(Box::new(http1(stream).await?));
    }
    let stream = tls.connect(ServerName::try_from(SECURE)?, stream).await?;
    match speech {
        Speech::Plain | Speech::Tls => Ok(Box::new(http1(stream).await?)),
        Speech::Http2 => http2(stream).await,
    }
}

async fn http1<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> anyhow::Result<S> {
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {SECURE}\r\n\r\n").as_bytes()).await?;
    // A task that has used its share of the runtime writes only into the buffer of its TLS session.
    stream.flush().await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"right\n") {
        let mut chunk = [0; 1024];
        let count = stream.read(&mut chunk).await?;
        ensure!(count > 0, "closed");
        answer.extend_from_slice(chunk.get(..count).unwrap_or_default());
    }
    ensure!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    Ok(stream)
}

async fn http2<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> anyhow::Result<Box<dyn Any + Send>> {
    let (mut requests, connection) = h2::client::handshake(stream).await?;
    let connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let request = http::Request::get(format!("https://{SECURE}/")).body(())?;
    let (response, _) = requests.send_request(request, true)?;
    let response = response.await?;
    ensure!(response.status() == http::StatusCode::OK, "{}", response.status());
    let mut body = response.into_body();
    while let Some(bytes) = body.data().await {
        let count = bytes?.len();
        body.flow_control().release_capacity(count)?;
    }
    Ok(Box::new((requests, connection)))
}

#[cfg(test)]
mod tests {
    use tokio::io::{BufStream, duplex};

    use super::*;

    #[tokio::test]
    async fn a_request_passes_through_a_buffered_stream() {
        let (client, mut server) = duplex(1024);
        let serving = async {
            let mut request = [0; 1024];
            let count = server.read(&mut request).await.unwrap();
            assert!(request[..count].ends_with(b"\r\n\r\n"));
            server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nright\n").await.unwrap();
        };
        let asking = timeout(Duration::from_secs(5), http1(BufStream::new(client)));
        let (answer, ()) = tokio::join!(asking, async { drop(timeout(Duration::from_secs(5), serving).await) });
        answer.expect("no answer in time").unwrap();
    }
}
