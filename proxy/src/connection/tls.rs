//! TLS with clients: one rustls configuration for the process, whose certificates are read from the snapshot at
//! every handshake, so that a rotation acts on the next one and disturbs none before it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert, ServerSessionMemoryCache};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SignatureScheme};
use tidegate_config::model::Certificate;
use tidegate_config::published::Published;
use tokio::net::TcpStream;
use tokio::time::timeout_at;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::connection::TlsFacts;
use crate::options::TlsLimits;

/// The name in the certificate that is shown when no object gives one.
const SELF_SIGNED_NAME: &str = "Tidegate default certificate";

/// Why TLS cannot be offered at all.
#[derive(Debug)]
pub enum TlsSetupError {
    /// No certificate of our own could be made.
    SelfSigned(rcgen::Error),
    /// rustls refused the configuration.
    Config(rustls::Error),
}

impl fmt::Display for TlsSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SelfSigned(error) => write!(f, "no default certificate could be made: {error}"),
            Self::Config(error) => write!(f, "TLS cannot be set up: {error}"),
        }
    }
}

impl std::error::Error for TlsSetupError {}

/// TLS 1.2 and 1.3 with HTTP/2 before HTTP/1.1, resumed by tickets whose keys rotate, or by a bounded cache.
///
/// A resumed session is one that this very configuration began: there is no client authentication whose change
/// it could outlive.
///
/// # Errors
/// When rustls or the making of the self-signed certificate fails.
pub(crate) fn acceptor(published: Published, limits: &TlsLimits) -> Result<TlsAcceptor, TlsSetupError> {
    let provider = Arc::new(ring::default_provider());
    let resolver = Resolver { published, self_signed: Arc::new(self_signed(&provider)?) };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsSetupError::Config)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ticketer = ring::Ticketer::new().map_err(TlsSetupError::Config)?;
    config.session_storage = ServerSessionMemoryCache::new(limits.sessions_max);
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn self_signed(provider: &rustls::crypto::CryptoProvider) -> Result<CertifiedKey, TlsSetupError> {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, SELF_SIGNED_NAME);
    let key = rcgen::KeyPair::generate().map_err(TlsSetupError::SelfSigned)?;
    let certificate = params.self_signed(&key).map_err(TlsSetupError::SelfSigned)?;
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    CertifiedKey::from_der(vec![certificate.der().clone()], key.into(), provider).map_err(TlsSetupError::Config)
}

/// Chooses the certificate of a handshake.
#[derive(Debug)]
struct Resolver {
    published: Published,
    self_signed: Arc<CertifiedKey>,
}

impl ResolvesServerCert for Resolver {
    /// The first certificate for the server name with which the client can check a signature, else the default one
    /// (also for clients that name no server, or an address: RFC 6066 section 3 has no addresses), else our own.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let snapshot = self.published.pin();
        let schemes = hello.signature_schemes();
        let named = hello.server_name().and_then(|name| {
            let certificates = snapshot.certificates_for(&name.to_ascii_lowercase());
            certificates.iter().find(|certificate| can_sign(certificate, schemes))
        });
        let chosen = named.or_else(|| snapshot.default_certificate().filter(|default| can_sign(default, schemes)));
        Some(Arc::clone(chosen.map_or(&self.self_signed, |certificate| &certificate.key)))
    }
}

fn can_sign(certificate: &Certificate, schemes: &[SignatureScheme]) -> bool {
    certificate.key.key.choose_scheme(schemes).is_some()
}

/// Why a handshake came to nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Failure {
    /// It took too long.
    Timeout,
    /// The client went away.
    Closed,
    /// The client spoke plain HTTP.
    PlainHttp,
    /// The client refused what it was offered, often the certificate.
    Refused,
    /// Client and server have no version, cipher suite or other parameter in common.
    Incompatible,
    /// What the client sent was not TLS, or wrong.
    Malformed,
}

impl Failure {
    /// Every reason.
    pub(crate) const ALL: [Self; 6] =
        [Self::Timeout, Self::Closed, Self::PlainHttp, Self::Refused, Self::Incompatible, Self::Malformed];

    /// Its name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::PlainHttp => "plain_http",
            Self::Refused => "refused",
            Self::Incompatible => "incompatible",
            Self::Malformed => "malformed",
        }
    }

    fn of(error: &io::Error) -> Self {
        let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
            return Self::Closed;
        };
        // rustls adds variants in minor versions; whatever else goes wrong came from what the client sent.
        if matches!(error, rustls::Error::AlertReceived(_)) {
            Self::Refused
        } else if matches!(error, rustls::Error::PeerIncompatible(_) | rustls::Error::NoApplicationProtocol) {
            Self::Incompatible
        } else {
            Self::Malformed
        }
    }
}

/// How a handshake ended.
pub(crate) enum Handshake {
    /// Well.
    Done {
        /// The stream inside TLS.
        stream: Box<TlsStream<TcpStream>>,
        /// What was agreed on.
        facts: TlsFacts,
        /// Whether HTTP/2 was agreed on.
        http2: bool,
    },
    /// The first byte is no TLS record's but that of an HTTP method; nothing was read.
    PlainHttp(TcpStream),
    /// Not at all.
    Failed(Failure),
}

/// Shakes hands with a client, which has until then.
pub(crate) async fn handshake(acceptor: &TlsAcceptor, stream: TcpStream, until: Instant) -> Handshake {
    let shaken = timeout_at(until.into(), async {
        let mut first = [0];
        match stream.peek(&mut first).await {
            Ok(1) if first[0].is_ascii_uppercase() => return Handshake::PlainHttp(stream),
            Ok(1) => {}
            Ok(_) | Err(_) => return Handshake::Failed(Failure::Closed),
        }
        match acceptor.accept(stream).await {
            Ok(stream) => {
                let (facts, http2) = agreed(&stream);
                Handshake::Done { stream: Box::new(stream), facts, http2 }
            }
            Err(error) => Handshake::Failed(Failure::of(&error)),
        }
    });
    shaken.await.unwrap_or(Handshake::Failed(Failure::Timeout))
}

fn agreed(stream: &TlsStream<TcpStream>) -> (TlsFacts, bool) {
    let (_, session) = stream.get_ref();
    let version = match session.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
        Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
        Some(_) | None => "unknown",
    };
    let cipher = session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or("unknown");
    let server_name = session.server_name().map(|name| name.to_ascii_lowercase().into());
    (TlsFacts { server_name, version, cipher }, session.alpn_protocol() == Some(b"h2"))
}
