//! TLS with endpoints by rustls itself, for both drivers: Pingora's connector verifies no other names than the server
//! name, and needs the private key of a client certificate. A configuration is created once for each combination of
//! settings and thread, so that sessions are resumed; it is removed when no snapshot refers to its settings any more.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tidegate_config::model::{Certificate, UpstreamTls, UpstreamVerification};
use tokio::net::TcpStream;
use tokio::time::timeout_at;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::connect;
use crate::clock;
use crate::reason::Reason;

/// The maximum number of configurations of a thread. Beyond that all are dropped, with their sessions.
const CONFIGS_MAX: usize = 256;

/// The key of a configuration: the addresses of the model's parts it was made of, and the protocol. While a
/// configuration exists, its parts stay allocated, so that no other part can have the same address.
type Key = (usize, usize, Alpn);

/// The protocol inside TLS, which is offered to the endpoint by ALPN (RFC 7301).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Alpn {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
    /// Any protocol of client and endpoint: ALPN is not used.
    Anything,
}

struct CachedConfig {
    verification: Option<Weak<UpstreamVerification>>,
    client: Option<Weak<Certificate>>,
    config: Arc<ClientConfig>,
}

thread_local! {
    static CONFIGS: RefCell<HashMap<Key, CachedConfig, foldhash::fast::RandomState>> = RefCell::default();
}

/// Opens a connection to an endpoint and performs the handshake, with a server name.
///
/// # Errors
/// The reason why there is none. A failed verification counts like a refused connection.
pub(crate) async fn connect(
    address: SocketAddr,
    within: Duration,
    tls: &UpstreamTls,
    name: &str,
    http2: bool,
) -> Result<TlsStream<TcpStream>, Reason> {
    let end = clock::now() + within;
    let alpn = if http2 { Alpn::Http2 } else { Alpn::Http1 };
    let stream = connect::connect(address, within).await?;
    let stream = handshake(stream, end, tls, name, alpn).await?;
    // Without ALPN an endpoint speaks HTTP/1.1.
    let agreed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    if agreed == http2 { Ok(stream) } else { Err(Reason::ConnectFailed) }
}

/// Performs the handshake with an endpoint until a deadline, with a server name.
///
/// # Errors
/// As for [`connect`].
pub(crate) async fn handshake(
    stream: TcpStream,
    until: Instant,
    tls: &UpstreamTls,
    name: &str,
    alpn: Alpn,
) -> Result<TlsStream<TcpStream>, Reason> {
    let failed = |what: &'static str, error: &dyn Display| {
        tracing::debug!(address = ?stream.peer_addr().ok(), %error, "{what}");
        Reason::ConnectFailed
    };
    let server = ServerName::try_from(name).map_err(|error| failed("no server name", &error))?.to_owned();
    let config = config(tls, alpn).map_err(|error| failed("the TLS settings of an endpoint are not valid", &error))?;
    let handshake = timeout_at(until.into(), TlsConnector::from(config).connect(server, stream)).await;
    handshake.map_err(|_| Reason::ConnectTimeout)?.map_err(|error| {
        tracing::debug!(server = name, %error, "TLS handshake with an endpoint failed");
        Reason::ConnectFailed
    })
}

/// The server name to send. If the host cannot be one (an address in brackets, or empty), the endpoint's address is
/// used.
pub(crate) fn server_name(tls: &UpstreamTls, address: SocketAddr, host: &str) -> String {
    let name = tls.server_name.as_deref().unwrap_or_else(|| host.trim_start_matches('[').trim_end_matches(']'));
    if ServerName::try_from(name).is_ok() { name.to_owned() } else { address.ip().to_string() }
}

/// Removes the configurations of settings that no snapshot refers to, and with them the private key of the edge's
/// certificate.
pub(crate) fn sweep() {
    CONFIGS.with_borrow_mut(|configs| configs.retain(|_, known| known.is_named()));
}

impl CachedConfig {
    fn is_named(&self) -> bool {
        self.verification.as_ref().is_none_or(|part| part.strong_count() > 0)
            && self.client.as_ref().is_none_or(|part| part.strong_count() > 0)
    }
}

fn config(tls: &UpstreamTls, alpn: Alpn) -> Result<Arc<ClientConfig>, rustls::Error> {
    let verification = tls.verification.as_ref().map_or(0, |part| Arc::as_ptr(part).addr());
    let client = tls.client.as_ref().map_or(0, |part| Arc::as_ptr(part).addr());
    let key = (verification, client, alpn);
    if let Some(config) = CONFIGS.with_borrow(|configs| configs.get(&key).map(|known| Arc::clone(&known.config))) {
        return Ok(config);
    }
    let config = make(tls, alpn)?;
    let known = CachedConfig {
        verification: tls.verification.as_ref().map(Arc::downgrade),
        client: tls.client.as_ref().map(Arc::downgrade),
        config: Arc::clone(&config),
    };
    CONFIGS.with_borrow_mut(|configs| {
        if configs.len() >= CONFIGS_MAX {
            configs.clear();
        }
        configs.insert(key, known);
    });
    Ok(config)
}

fn make(tls: &UpstreamTls, alpn: Alpn) -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match &tls.verification {
        Some(verification) => verifier(verification, &provider)?,
        None => Arc::new(Unverified),
    };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match &tls.client {
        Some(client) => config.with_client_cert_resolver(Arc::new(ClientCertificate(Arc::clone(&client.key)))),
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = match alpn {
        Alpn::Http1 => vec![b"http/1.1".to_vec()],
        Alpn::Http2 => vec![b"h2".to_vec()],
        Alpn::Anything => Vec::new(),
    };
    Ok(Arc::new(config))
}

fn verifier(
    verification: &Arc<UpstreamVerification>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, rustls::Error> {
    let roots = verification.authorities.as_ref().map_or_else(system_roots, |own| Arc::clone(own.roots()));
    if verification.names.is_empty() {
        let by_server_name = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider)).build();
        return by_server_name.map_err(|error| rustls::Error::General(error.to_string())).map(|it| it as _);
    }
    // The verifier lives as long as its configuration, which is removed when nothing else holds the verification.
    let verification = UpstreamVerification::clone(verification);
    Ok(Arc::new(ByNames { verification, roots, provider: Arc::clone(provider) }))
}

/// The system's certificate authorities, read once per process.
fn system_roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let read = || {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (added, ignored) = roots.add_parsable_certificates(found.certs);
        tracing::info!(added, ignored, "read the system's certificate authorities");
        Arc::new(roots)
    };
    Arc::clone(ROOTS.get_or_init(read))
}

/// Accepts any endpoint, as `proxy_ssl_verify off` of nginx does. Its signature is not verified either: anyone can sign
/// with a certificate of their own, so that a signature under an unverified certificate proves nothing. And the
/// provider cannot read every kind of certificates and keys (X.509 version 1, RSA of 1024 bits, P-521).
#[derive(Debug)]
struct Unverified;

impl ServerCertVerifier for Unverified {
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::ECDSA_NISTP521_SHA512,
            SignatureScheme::ED25519,
            SignatureScheme::ED448,
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PSS_SHA384,
            SignatureScheme::RSA_PSS_SHA512,
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA512,
        ]
    }
}

/// Verifies the chain as usual, one of these names instead of the server name, and that the endpoint has the private
/// key of its certificate.
#[derive(Debug)]
struct ByNames {
    verification: UpstreamVerification,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByNames {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(leaf)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        if !self.verification.has_name(leaf) {
            return Err(rustls::Error::InvalidCertificate(CertificateError::NotValidForName));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The edge's own certificate, for every endpoint that requests one.
#[derive(Debug)]
struct ClientCertificate(Arc<CertifiedKey>);

impl ResolvesClientCert for ClientCertificate {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.key.choose_scheme(schemes).map(|_| Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::{SubjectName, UpstreamVerification};

    use super::*;

    #[test]
    fn a_thread_keeps_a_limited_number_of_configurations() {
        let settings = |number: usize| {
            let names = [SubjectName::Dns(format!("{number}.test").into())].into();
            let verification = Some(Arc::new(UpstreamVerification { authorities: None, names }));
            UpstreamTls { verification, ..UpstreamTls::default() }
        };
        let all: Vec<UpstreamTls> = (0..2 * CONFIGS_MAX + 1).map(settings).collect();
        for tls in &all {
            let made = config(tls, Alpn::Http1).unwrap();
            assert!(Arc::ptr_eq(&made, &config(tls, Alpn::Http1).unwrap()), "it is kept");
            assert!(CONFIGS.with_borrow(|configs| configs.len()) <= CONFIGS_MAX);
        }
    }
}
