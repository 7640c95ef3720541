//! Plain clients: hyper for HTTP, rustls for TLS.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper::body::Body;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A whole response.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its version.
    pub version: Version,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body as text.
    pub body: String,
}

/// Sends a GET over plain HTTP/1.1 with this host.
///
/// # Errors
/// When there is no response.
pub async fn get(address: SocketAddr, host: &str, path: &str) -> Result<Answer, String> {
    request(address, Request::get(path).header("host", host).body(Empty::new()).unwrap()).await
}

/// Sends any request over plain HTTP/1.1, on a connection of its own.
///
/// # Errors
/// When there is no response.
pub async fn request(address: SocketAddr, request: Request<Empty<Bytes>>) -> Result<Answer, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    sent(stream, request).await
}

/// Sends one request over HTTP/1.1 on an open stream.
pub(crate) async fn sent<S, B>(stream: S, request: Request<B>) -> Result<Answer, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    whole(opened(stream).await?.send_request(request).await.map_err(|error| error.to_string())?).await
}

/// Opens an HTTP/1.1 connection on an open stream.
pub(crate) async fn opened<S, B>(stream: S) -> Result<http1::SendRequest<B>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Sends a GET over HTTP/2 in plain text, by prior knowledge.
///
/// # Errors
/// When there is no response.
pub async fn h2c(address: SocketAddr, host: &str, path: &str) -> Result<Answer, String> {
    h2c_request(address, Request::get(format!("http://{host}{path}")).body(Empty::new()).unwrap()).await
}

/// Sends any request over HTTP/2 in plain text, by prior knowledge, on a connection of its own.
///
/// # Errors
/// When there is no response.
pub async fn h2c_request(address: SocketAddr, request: Request<Empty<Bytes>>) -> Result<Answer, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    whole(sender.send_request(request).await.map_err(|error| error.to_string())?).await
}

/// Sends a GET over TLS, by `h2` or `http/1.1` as ALPN negotiates, or by HTTP/1.1 alone; accepts any certificate.
///
/// # Errors
/// When there is no response.
pub async fn https(address: SocketAddr, host: &str, path: &str, h2: bool) -> Result<Answer, String> {
    let protocols: &[&[u8]] = if h2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
    let stream = connect_tls(address, host, protocols).await?;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        let request = Request::get(format!("https://{host}{path}")).body(Empty::<Bytes>::new()).unwrap();
        whole(sender.send_request(request).await.map_err(|error| error.to_string())?).await
    } else {
        sent(stream, Request::get(path).header("host", host).body(Empty::<Bytes>::new()).unwrap()).await
    }
}

/// Reads a response to its end.
pub(crate) async fn whole(response: http::Response<hyper::body::Incoming>) -> Result<Answer, String> {
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    let body = String::from_utf8(body.to_vec()).map_err(|error| error.to_string())?;
    Ok(Answer { status: head.status, version: head.version, headers: head.headers, body })
}

/// Opens a TLS connection with this server name, and accepts any certificate.
///
/// # Errors
/// When the handshake fails.
pub async fn connect_tls(
    address: SocketAddr,
    server_name: &str,
    protocols: &[&[u8]],
) -> Result<TlsStream<TcpStream>, String> {
    let config = tls_client(ring::default_provider(), rustls::DEFAULT_VERSIONS, protocols)?;
    connect_by(&Arc::new(config), address, server_name).await
}

/// A client that accepts any certificate, with these cipher suites, versions of TLS and protocols.
///
/// # Errors
/// When rustls refuses the combination.
pub fn tls_client(
    provider: CryptoProvider,
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&[u8]],
) -> Result<ClientConfig, String> {
    let provider = Arc::new(provider);
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

/// Opens a TLS connection of a client with this server name.
///
/// # Errors
/// When the handshake fails.
pub async fn connect_by(
    config: &Arc<ClientConfig>,
    address: SocketAddr,
    server_name: &str,
) -> Result<TlsStream<TcpStream>, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    // The last flight of the handshake would delay the first request until it is acknowledged.
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    shake(config, stream, server_name).await
}

/// Like [`connect_tls`], on an open connection. If the name is an address, no server name is sent.
///
/// # Errors
/// When the handshake fails.
pub async fn tls_over<S>(stream: S, server_name: &str, protocols: &[&[u8]]) -> Result<TlsStream<S>, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = tls_client(ring::default_provider(), rustls::DEFAULT_VERSIONS, protocols)?;
    shake(&Arc::new(config), stream, server_name).await
}

async fn shake<S>(config: &Arc<ClientConfig>, stream: S, server_name: &str) -> Result<TlsStream<S>, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(server_name.to_owned()).map_err(|error| error.to_string())?;
    TlsConnector::from(Arc::clone(config)).connect(name, stream).await.map_err(|error| error.to_string())
}

/// The certificate that a server presents for a name.
///
/// # Errors
/// When the handshake fails.
pub async fn certificate_of(address: SocketAddr, server_name: &str) -> Result<CertificateDer<'static>, String> {
    let stream = connect_tls(address, server_name, &[]).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    shown.map(|certificate| certificate.clone().into_owned()).ok_or_else(|| "no certificate".to_owned())
}

/// Accepts every certificate, but checks that the server holds its key.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
