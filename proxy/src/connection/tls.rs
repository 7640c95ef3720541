//! TLS with clients: the listener of a server name, the configuration of its handshake, and the outcome. Certificates
//! are read from the snapshot at every handshake, so that a rotation applies to the next one and does not affect
//! earlier ones.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection};
use tidegate_config::model::{
    BindKey, BindProtocol, ClientVerification, Listener, Snapshot, StreamRoute, TlsListener, TlsMode, TlsSettings,
};
use tidegate_config::published::Published;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout_at;
use tokio_rustls::server::StartHandshake;

pub use super::server_config::TlsSetupError;
use super::server_config::{Resolver, Sessions, self_signed, server_config};
use crate::connection::TlsFacts;
use crate::connection::early_tls::EarlyTls;
use crate::connection::hello::{self, Hello};
use crate::connection::transport::Transport;
use crate::options::TlsLimits;

/// The maximum number of cached sessions of one client verification on one bind.
const VERIFIED_SESSIONS_MAX: usize = 1024;

/// TLS with clients according to the newest snapshot. The outcome of a handshake holds to the end of its connection.
pub(crate) struct Tls {
    published: Published,
    self_signed: Arc<CertifiedKey>,
    /// Shared by all configurations that verify no clients, so that sessions outlive a change.
    sessions: Sessions,
    /// The newest configurations of each bind: one for each client verification of its listeners.
    current: watch::Sender<BTreeMap<BindKey, Vec<Current>>>,
}

/// A configuration, and its input.
#[derive(Clone)]
struct Current {
    settings: TlsSettings,
    /// Whether requests are read; otherwise bytes are passed on.
    reads: bool,
    clients: Option<Arc<ClientVerification>>,
    sessions: Sessions,
    config: Arc<ServerConfig>,
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
    /// If rustls refuses the default settings, or the self-signed certificate cannot be created.
    pub(crate) fn new(published: Published, limits: &TlsLimits) -> Result<Self, TlsSetupError> {
        let self_signed = Arc::new(self_signed()?);
        let sessions = Sessions::new(limits.sessions_max).map_err(TlsSetupError::Config)?;
        let tls = Self { published, self_signed, sessions, current: watch::Sender::default() };
        // Checks at start, and not at the first handshake, that rustls accepts the default settings.
        let any = BindKey { address: ([0; 4], 0).into(), protocol: BindProtocol::Https };
        tls.config(any, (&TlsSettings::default(), true), None, &tls.sessions).map_err(TlsSetupError::Config)?;
        Ok(tls)
    }

    /// The configuration for a new handshake on a bind; `None` if rustls refuses the settings and there is no earlier
    /// configuration.
    fn current(
        &self,
        snapshot: &Snapshot,
        (bind, reads): (BindKey, bool),
        clients: Option<&Arc<ClientVerification>>,
    ) -> Option<Arc<ServerConfig>> {
        let settings = &snapshot.edge().tls;
        let same = |current: &&Current| current.reads == reads && current.clients.as_ref() == clients;
        let of_bind = |all: &Vec<Current>| all.iter().find(same).cloned();
        let before = self.current.borrow().get(&bind).and_then(of_bind);
        if let Some(before) = before.as_ref().filter(|before| before.settings == *settings) {
            return Some(Arc::clone(&before.config));
        }
        match self.renew(bind, (settings, reads), clients, before.as_ref()) {
            Ok(current) => {
                let config = Arc::clone(&current.config);
                self.keep(snapshot, bind, current);
                Some(config)
            }
            // The projection ensures that the settings have a cipher suite for each version.
            Err(error) => {
                tracing::error!(%error, "rustls refuses the TLS settings; the previous ones stay in effect");
                before.map(|before| before.config)
            }
        }
    }

    fn renew(
        &self,
        bind: BindKey,
        (settings, reads): (&TlsSettings, bool),
        clients: Option<&Arc<ClientVerification>>,
        before: Option<&Current>,
    ) -> Result<Current, rustls::Error> {
        let sessions = match (before, clients) {
            (Some(before), _) => before.sessions.clone(),
            (None, None) if reads => self.sessions.clone(),
            (None, _) => Sessions::new(VERIFIED_SESSIONS_MAX)?,
        };
        let config = self.config(bind, (settings, reads), clients.map(|clients| &**clients), &sessions)?;
        Ok(Current { settings: settings.clone(), reads, clients: clients.cloned(), sessions, config })
    }

    /// Stores a configuration. Two threads may do so with the same one at the same time. Configurations that no bind
    /// and listener uses any more are removed, with all of their sessions.
    fn keep(&self, snapshot: &Snapshot, bind: BindKey, current: Current) {
        self.current.send_modify(|all| {
            all.retain(|key, configs| {
                let Some(bind) = snapshot.bind(key) else { return false };
                let listeners = || bind.listeners.iter().map(|listener| (reads(listener), clients(listener)));
                configs.retain(|config| listeners().any(|own| own == (config.reads, config.clients.as_ref())));
                true
            });
            let configs = all.entry(bind).or_default();
            configs.retain(|config| (config.reads, &config.clients) != (current.reads, &current.clients));
            configs.push(current);
        });
    }

    fn config(
        &self,
        bind: BindKey,
        settings: (&TlsSettings, bool),
        clients: Option<&ClientVerification>,
        sessions: &Sessions,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        let (published, self_signed) = (self.published.clone(), Arc::clone(&self.self_signed));
        server_config(settings, clients, Arc::new(Resolver { published, bind, self_signed }), sessions)
    }

    /// Returns `true` if a bind passes TLS through for any server name.
    fn passes_on(&self, bind: BindKey) -> bool {
        let passed = |listener: &Listener| mode(listener) == TlsMode::Passthrough;
        self.published.pin().bind(&bind).is_some_and(|bind| bind.listeners.iter().any(passed))
    }

    /// The handling of a connection with a server name.
    fn by_server_name(&self, bind: BindKey, server_name: Option<&str>) -> Result<ByServerName, HandshakeFailure> {
        let snapshot = self.published.pin();
        let name = server_name.unwrap_or_default();
        let listener =
            snapshot.bind(&bind).and_then(|bind| bind.listener(name)).ok_or(HandshakeFailure::UnknownName)?;
        let route = || snapshot.tls_stream(listener, name).map(Arc::clone).ok_or(HandshakeFailure::UnknownName);
        let route = match mode(listener) {
            TlsMode::Passthrough => return Ok(ByServerName::Passthrough(route()?)),
            TlsMode::Terminate => Some(route()?),
            TlsMode::Http => None,
        };
        let listener = TlsListener::of(listener);
        let config = self.current(&snapshot, (bind, route.is_none()), listener.clients.as_ref());
        Ok(ByServerName::Terminate { listener, config: config.ok_or(HandshakeFailure::Incompatible)?, route })
    }
}

/// The handling that the server name selects.
enum ByServerName {
    /// A handshake with a listener, after which bytes go by a route, or requests are read.
    Terminate { listener: TlsListener, config: Arc<ServerConfig>, route: Option<Arc<StreamRoute>> },
    /// TLS is passed through to a route.
    Passthrough(Arc<StreamRoute>),
}

fn clients(listener: &Listener) -> Option<&Arc<ClientVerification>> {
    listener.tls.as_ref()?.clients.as_ref()
}

fn mode(listener: &Listener) -> TlsMode {
    listener.tls.as_ref().map_or(TlsMode::Http, |tls| tls.mode)
}

fn reads(listener: &Listener) -> bool {
    mode(listener) == TlsMode::Http
}

/// The reason why a handshake failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum HandshakeFailure {
    /// It took too long.
    Timeout,
    /// The client closed the connection.
    Closed,
    /// The client spoke plain HTTP.
    PlainHttp,
    /// The client refused the server's choice, often the certificate.
    Refused,
    /// Client and server have no common version, cipher suite or other parameter.
    Incompatible,
    /// The client's bytes were not TLS, or invalid.
    Malformed,
    /// No listener has the server name.
    UnknownName,
    /// The client presented no certificate, or an invalid one, and the listener requires one.
    ClientCertificate,
}

impl HandshakeFailure {
    /// All reasons.
    pub(crate) const ALL: [Self; 8] = [
        Self::Timeout,
        Self::Closed,
        Self::PlainHttp,
        Self::Refused,
        Self::Incompatible,
        Self::Malformed,
        Self::UnknownName,
        Self::ClientCertificate,
    ];

    /// Its name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::PlainHttp => "plain-http",
            Self::Refused => "refused",
            Self::Incompatible => "incompatible",
            Self::Malformed => "malformed",
            Self::UnknownName => "unknown-name",
            Self::ClientCertificate => "client-certificate",
        }
    }

    fn of(error: &io::Error) -> Self {
        let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
            return Self::Closed;
        };
        Self::of_tls(error)
    }

    /// The reason for an error of rustls.
    pub(super) const fn of_tls(error: &rustls::Error) -> Self {
        use rustls::Error as E;
        // rustls adds variants in minor versions; any other error is caused by the client's bytes.
        if matches!(error, E::AlertReceived(_)) {
            Self::Refused
        } else if matches!(error, E::PeerIncompatible(_) | E::NoApplicationProtocol) {
            Self::Incompatible
        } else if matches!(error, E::NoCertificatesPresented | E::InvalidCertificate(_)) {
            Self::ClientCertificate
        } else {
            Self::Malformed
        }
    }
}

/// The outcome of a handshake.
pub(crate) enum Handshake {
    /// TLS ends here, and requests follow.
    Done {
        /// The stream inside TLS.
        stream: Transport,
        /// The negotiated parameters.
        facts: TlsFacts,
        /// Whether HTTP/2 was agreed on.
        http2: bool,
    },
    /// TLS ends here, and the bytes inside go by a route.
    Bytes {
        /// The stream inside TLS.
        stream: Transport,
        /// The route.
        route: Arc<StreamRoute>,
    },
    /// TLS is passed through.
    Passthrough {
        /// The connection.
        stream: TcpStream,
        /// The bytes read from it.
        read: Vec<u8>,
        /// The route.
        route: Arc<StreamRoute>,
    },
    /// The first byte is not that of a TLS record but of an HTTP method; nothing was read.
    PlainHttp(TcpStream),
    /// The handshake failed.
    Failed(HandshakeFailure),
}

/// Performs the handshake with a client on a bind, with a deadline.
pub(crate) async fn handshake(tls: &Tls, bind: BindKey, mut stream: TcpStream, until: Instant) -> Handshake {
    let handshake = timeout_at(until.into(), async {
        let mut first = [0];
        match stream.peek(&mut first).await {
            Ok(1) if first[0].is_ascii_uppercase() => return Handshake::PlainHttp(stream),
            Ok(1) => {}
            Ok(_) | Err(_) => return Handshake::Failed(HandshakeFailure::Closed),
        }
        let Hello { accepted, bytes, server_name } = match hello::read(&mut stream).await {
            Ok(hello) => hello,
            Err(failure) => return Handshake::Failed(failure),
        };
        match tls.by_server_name(bind, server_name.as_deref()) {
            Ok(ByServerName::Terminate { listener, config, route }) => {
                drop(bytes);
                let begun = StartHandshake::from_parts(accepted, stream);
                match (finish(begun, listener, config).await, route) {
                    (Handshake::Done { stream, .. }, Some(route)) => Handshake::Bytes { stream, route },
                    (handshake, _) => handshake,
                }
            }
            Ok(ByServerName::Passthrough(route)) => Handshake::Passthrough { stream, read: bytes, route },
            Err(failure) => {
                // A bind with TLS passthrough is not a TLS server, and the Gateway API expects no alert from it: the
                // connection is closed.
                if !tls.passes_on(bind) {
                    hello::refuse_name(&mut stream).await;
                }
                Handshake::Failed(failure)
            }
        }
    });
    handshake.await.unwrap_or(Handshake::Failed(HandshakeFailure::Timeout))
}

/// Continues after the ClientHello.
async fn finish(begun: StartHandshake<TcpStream>, listener: TlsListener, config: Arc<ServerConfig>) -> Handshake {
    let handshake = if config.max_early_data_size > 0 {
        EarlyTls::accept(begun, config).await.map(|stream| {
            let (mut facts, http2) = agreed(stream.session(), listener);
            facts.early = Some(Arc::clone(stream.early())).filter(|early| early.load(Relaxed));
            Handshake::Done { stream: Transport::EarlyTls(Box::new(stream)), facts, http2 }
        })
    } else {
        begun.into_stream(config).await.map(|stream| {
            let (facts, http2) = agreed(stream.get_ref().1, listener);
            Handshake::Done { stream: Transport::Tls(Box::new(stream)), facts, http2 }
        })
    };
    handshake.unwrap_or_else(|error| Handshake::Failed(HandshakeFailure::of(&error)))
}

fn agreed(session: &ServerConnection, listener: TlsListener) -> (TlsFacts, bool) {
    let version = match session.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
        Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
        Some(_) | None => "unknown",
    };
    let cipher = session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or("unknown");
    let server_name = session.server_name().map(|name| hello::compared(name).into());
    (TlsFacts { listener, server_name, version, cipher, early: None }, session.alpn_protocol() == Some(b"h2"))
}
