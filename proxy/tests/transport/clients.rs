//! Independent clients: raw HTTP/1 over any stream, the `h2` crate, rustls.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::bed::{PATIENCE, head_len, read_until};
use crate::anyone::Anyone;

/// A hand-written HTTP/1 client.
pub struct Http1<S> {
    pub stream: S,
    bytes: Vec<u8>,
}

impl Http1<TcpStream> {
    pub async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http1<S> {
    pub const fn over(stream: S) -> Self {
        Self { stream, bytes: Vec::new() }
    }

    pub async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next response, head and body; `None` at the end of the stream.
    pub async fn response(&mut self) -> Option<String> {
        let read = async {
            let head = read_until(&mut self.stream, &mut self.bytes, head_len).await?;
            let text = String::from_utf8_lossy(&self.bytes[..head]).to_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            let whole = head + length.unwrap_or_default();
            read_until(&mut self.stream, &mut self.bytes, |bytes| (bytes.len() >= whole).then_some(whole)).await
        };
        let whole = timeout(PATIENCE, read).await.expect("no response came")?;
        let rest = self.bytes.split_off(whole);
        Some(String::from_utf8(std::mem::replace(&mut self.bytes, rest)).unwrap())
    }

    /// A GET and its response.
    pub async fn get(&mut self, path: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\n\r\n")).await;
        self.response().await.expect("the connection was closed instead")
    }

    /// Waits for the end of the stream, with no bytes before it.
    pub async fn closed(&mut self) {
        let mut rest = Vec::new();
        // A reset counts as an end.
        timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await.expect("it stays open").ok();
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }
}

#[track_caller]
pub fn assert_ok(response: &str, body: &str) {
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with(body), "{response}");
}

/// The ClientHello of a TLS client.
#[derive(Clone, Copy)]
pub struct TlsClient {
    pub name: &'static str,
    pub alpn: &'static [&'static [u8]],
    pub schemes: &'static [SignatureScheme],
}

impl Default for TlsClient {
    fn default() -> Self {
        Self { name: "a.example", alpn: &[b"http/1.1"], schemes: &[ECDSA, SignatureScheme::RSA_PSS_SHA256] }
    }
}

pub const ECDSA: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;

impl TlsClient {
    /// A configuration with session storage of its own.
    pub fn config(self, versions: &[&'static rustls::SupportedProtocolVersion]) -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(self.schemes.to_vec())))
            .with_no_client_auth();
        config.alpn_protocols = self.alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }

    pub async fn connect(self, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        self.over(TcpStream::connect(address).await.unwrap()).await
    }

    /// The same over an existing connection.
    pub async fn over(self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        over(&self.config(rustls::ALL_VERSIONS), self.name, stream).await
    }
}

pub async fn connect(
    config: &Arc<ClientConfig>,
    name: &'static str,
    address: SocketAddr,
) -> std::io::Result<TlsStream<TcpStream>> {
    over(config, name, TcpStream::connect(address).await.unwrap()).await
}

async fn over(
    config: &Arc<ClientConfig>,
    name: &'static str,
    stream: TcpStream,
) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(name).unwrap();
    timeout(PATIENCE, TlsConnector::from(Arc::clone(config)).connect(name, stream)).await.expect("no handshake")
}

/// The certificate that a server presented.
pub fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone()
}

/// One GET over a new stream of an HTTP/2 connection: the status and the body.
pub async fn h2_get(
    sender: &mut h2::client::SendRequest<bytes::Bytes>,
    path: &str,
) -> Result<(u16, String), h2::Error> {
    let uri = format!("http://shop.example{path}");
    let request = http::Request::get(uri).body(()).unwrap();
    let exchange = async {
        let (response, _) = sender.clone().ready().await?.send_request(request, true)?;
        let (head, mut body) = response.await?.into_parts();
        let mut text = Vec::new();
        while let Some(bytes) = body.data().await {
            text.extend_from_slice(&bytes?);
        }
        Ok((head.status.as_u16(), String::from_utf8(text).unwrap()))
    };
    timeout(PATIENCE, exchange).await.expect("no response came")
}

/// The status of a GET for a host over a new stream of an HTTP/2 connection.
pub async fn h2_status(sender: &mut h2::client::SendRequest<bytes::Bytes>, host: &str) -> u16 {
    let request = http::Request::get(format!("https://{host}/")).body(()).unwrap();
    let exchange = async { sender.clone().ready().await?.send_request(request, true)?.0.await };
    let response: Result<_, h2::Error> = timeout(PATIENCE, exchange).await.expect("no response came");
    response.unwrap().status().as_u16()
}
