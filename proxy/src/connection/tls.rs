//! TLS with clients: a rustls configuration that is made again when the snapshot asks for other versions, cipher suites or
//! protocols, and whose certificates are read from the snapshot at every handshake, so that a rotation acts on the next one and
//! disturbs none before it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use rustls::crypto::ring;
use rustls::server::{
    ClientHello, ProducesTickets, ResolvesServerCert, ServerSessionMemoryCache, StoresServerSessions,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion};
use tidegate_config::model::{BindKey, BindProtocol, Certificate, Snapshot, TlsSettings, TlsVersions};
use tidegate_config::published::Published;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout_at;
use tokio_rustls::TlsAcceptor;

use crate::connection::TlsFacts;
use crate::connection::early_tls::EarlyTls;
use crate::connection::transport::Transport;
use crate::options::TlsLimits;

/// The name in the certificate that is shown when no object gives one.
const SELF_SIGNED_NAME: &str = "Tidegate default certificate";

/// Bytes that a client may send before the handshake is over: a usual head, and room for its records.
const EARLY_DATA_BYTES_MAX: u32 = 16 * 1024;

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

/// TLS with clients as the newest snapshot asks for it. What is agreed on with a client holds to the end of its connection.
pub(crate) struct Tls {
    published: Published,
    self_signed: Arc<CertifiedKey>,
    /// What every configuration has in common, so that sessions outlive a change.
    ticketer: Arc<dyn ProducesTickets>,
    sessions: Arc<dyn StoresServerSessions>,
    /// The newest configuration of each bind, and the settings that it was made of.
    current: watch::Sender<BTreeMap<BindKey, (TlsSettings, Arc<ServerConfig>)>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// TLS with the certificates of the newest snapshot.
    ///
    /// # Errors
    /// When rustls or the making of the self-signed certificate fails.
    pub(crate) fn new(published: Published, limits: &TlsLimits) -> Result<Self, TlsSetupError> {
        let self_signed = Arc::new(self_signed(&ring::default_provider())?);
        let ticketer = ring::Ticketer::new().map_err(TlsSetupError::Config)?;
        let sessions: Arc<dyn StoresServerSessions> = ServerSessionMemoryCache::new(limits.sessions_max);
        let tls = Self { published, self_signed, ticketer, sessions, current: watch::Sender::default() };
        // Whether rustls takes the usual settings shows now and not at the first handshake.
        let any = BindKey { address: ([0; 4], 0).into(), protocol: BindProtocol::Https };
        tls.config(any, &TlsSettings::default()).map_err(TlsSetupError::Config)?;
        Ok(tls)
    }

    /// Takes up what a handshake that begins now on a bind goes by; `None` while rustls refuses the only settings that there have
    /// been for it.
    pub(crate) fn acceptor(&self, snapshot: &Snapshot, bind: BindKey) -> Option<TlsAcceptor> {
        let settings = &snapshot.edge().tls;
        let current = self.current.borrow().get(&bind).cloned();
        let (made_of, config) = current.unzip();
        if made_of.as_ref() == Some(settings) {
            return config.map(TlsAcceptor::from);
        }
        match self.config(bind, settings) {
            Ok(config) => {
                // Two threads may come here at the same time, and make the same.
                self.current.send_modify(|all| {
                    all.retain(|bind, _| snapshot.bind(bind).is_some());
                    all.insert(bind, (settings.clone(), Arc::clone(&config)));
                });
                Some(TlsAcceptor::from(config))
            }
            // Whoever reads settings sees to it that there is a cipher suite for a version.
            Err(error) => {
                tracing::error!(%error, "TLS settings that rustls refuses; those before them hold");
                config.map(TlsAcceptor::from)
            }
        }
    }

    fn config(&self, bind: BindKey, settings: &TlsSettings) -> Result<Arc<ServerConfig>, rustls::Error> {
        let (published, self_signed) = (self.published.clone(), Arc::clone(&self.self_signed));
        config(settings, Arc::new(Resolver { published, bind, self_signed }), &self.ticketer, &self.sessions)
    }
}

/// HTTP/2 before HTTP/1.1, resumed by tickets whose keys rotate, or by a bounded cache.
///
/// A resumed session is one that this very process began: there is no client authentication whose change it could outlive.
fn config(
    settings: &TlsSettings,
    resolver: Arc<Resolver>,
    ticketer: &Arc<dyn ProducesTickets>,
    sessions: &Arc<dyn StoresServerSessions>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut provider = ring::default_provider();
    if let Some(suites) = &settings.cipher_suites {
        let place = |suite: &SupportedCipherSuite| suites.iter().position(|listed| *listed == suite.suite());
        provider.cipher_suites.retain(|suite| place(suite).is_some());
        provider.cipher_suites.sort_by_key(place);
    }
    let versions: &[&SupportedProtocolVersion] = match settings.versions {
        TlsVersions::Both => &[&TLS13, &TLS12],
        TlsVersions::Only12 => &[&TLS12],
        TlsVersions::Only13 => &[&TLS13],
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    let protocols: &[&[u8]] = if settings.http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config.ignore_client_order = settings.cipher_suites.is_some();
    if settings.early_data.is_some() {
        // Only a session that the process keeps is good for one time, so that nothing is taken twice (RFC 8446 section 8.1).
        config.max_early_data_size = EARLY_DATA_BYTES_MAX;
        config.send_half_rtt_data = true;
    } else if settings.tickets {
        config.ticketer = Arc::clone(ticketer);
    }
    config.session_storage = Arc::clone(sessions);
    Ok(Arc::new(config))
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

/// Chooses the certificate of a handshake on a bind.
#[derive(Debug)]
struct Resolver {
    published: Published,
    bind: BindKey,
    self_signed: Arc<CertifiedKey>,
}

impl ResolvesServerCert for Resolver {
    /// The first certificate for the server name with which the client can check a signature, else the default one
    /// (also for clients that name no server, or an address: RFC 6066 section 3 has no addresses), else our own.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let snapshot = self.published.pin();
        let schemes = hello.signature_schemes();
        let named = hello.server_name().and_then(|name| {
            let certificates = snapshot.certificates_for(&self.bind, &name.to_ascii_lowercase());
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
        stream: Transport,
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
        let shaken = if acceptor.config().max_early_data_size > 0 {
            EarlyTls::accept(stream, Arc::clone(acceptor.config())).await.map(|stream| {
                let (mut facts, http2) = agreed(stream.session());
                facts.early = Some(Arc::clone(stream.early())).filter(|early| early.load(Relaxed));
                Handshake::Done { stream: Transport::EarlyTls(Box::new(stream)), facts, http2 }
            })
        } else {
            acceptor.accept(stream).await.map(|stream| {
                let (facts, http2) = agreed(stream.get_ref().1);
                Handshake::Done { stream: Transport::Tls(Box::new(stream)), facts, http2 }
            })
        };
        shaken.unwrap_or_else(|error| Handshake::Failed(Failure::of(&error)))
    });
    shaken.await.unwrap_or(Handshake::Failed(Failure::Timeout))
}

fn agreed(session: &ServerConnection) -> (TlsFacts, bool) {
    let version = match session.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
        Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
        Some(_) | None => "unknown",
    };
    let cipher = session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or("unknown");
    let server_name = session.server_name().map(|name| name.to_ascii_lowercase().into());
    (TlsFacts { server_name, version, cipher, early: None }, session.alpn_protocol() == Some(b"h2"))
}
