//! Streams of clients and endpoints, in plain text or over TLS.

use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::anyone::Anyone;

/// A stream that clients read and write.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Performs a TLS handshake without verification.
pub async fn over_tls(stream: TcpStream) -> Box<dyn Stream> {
    let schemes = default_provider().signature_verification_algorithms.supported_schemes();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(schemes)))
        .with_no_client_auth();
    let name = ServerName::try_from("a.test").unwrap();
    Box::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap())
}

/// A TLS acceptor of an endpoint, with a self-signed certificate.
pub fn acceptor() -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}
