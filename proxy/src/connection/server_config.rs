//! The rustls server configurations of the edge. They are created when the snapshot's settings change, and not for each
//! handshake: a resolver reads the certificates from the snapshot.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    ClientHello, NoClientAuth, ProducesTickets, ResolvesServerCert, ServerSessionMemoryCache, StoresServerSessions,
    WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme, SupportedCipherSuite,
    SupportedProtocolVersion,
};
use tidegate_config::model::{
    BindKey, Certificate, ClientVerification, Snapshot, TlsSettings, TlsVersions, VerificationMode,
};
use tidegate_config::published::Published;

use super::hello::compared;

/// The name in the self-signed certificate.
const SELF_SIGNED_NAME: &str = "Tidegate default certificate";

/// The maximum size of early data in bytes: a usual head, and its record overhead.
const EARLY_DATA_BYTES_MAX: u32 = 16 * 1024;

/// The reason why TLS cannot be offered at all.
#[derive(Debug)]
pub enum TlsSetupError {
    /// The self-signed certificate could not be created.
    SelfSigned(rcgen::Error),
    /// rustls refused the configuration.
    Config(rustls::Error),
}

impl fmt::Display for TlsSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SelfSigned(error) => write!(f, "the default certificate could not be created: {error}"),
            Self::Config(error) => write!(f, "the TLS configuration is not valid: {error}"),
        }
    }
}

impl std::error::Error for TlsSetupError {}

/// The state for resuming sessions. rustls does not check how the client of a session was verified, so configurations
/// that verify clients in different ways never share it.
#[derive(Clone)]
pub(super) struct Sessions {
    ticketer: Arc<dyn ProducesTickets>,
    storage: Arc<dyn StoresServerSessions>,
}

impl Sessions {
    /// New keys for tickets, and a cache of `max` sessions for clients that resume without tickets.
    pub(super) fn new(max: usize) -> Result<Self, rustls::Error> {
        Ok(Self { ticketer: ring::Ticketer::new()?, storage: ServerSessionMemoryCache::new(max) })
    }
}

/// HTTP/2 before HTTP/1.1 if requests are read, else any protocol that a client and its endpoint speak. Sessions are
/// resumed by tickets with rotating keys, or from a bounded cache.
pub(super) fn server_config(
    (settings, reads): (&TlsSettings, bool),
    clients: Option<&ClientVerification>,
    resolver: Arc<Resolver>,
    sessions: &Sessions,
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
    let provider = Arc::new(provider);
    let verifier = clients.map(|clients| verifier(clients, &provider)).transpose()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(verifier.unwrap_or_else(|| Arc::new(NoClientAuth)))
        .with_cert_resolver(resolver);
    let protocols: &[&[u8]] = if settings.http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
    config.alpn_protocols = protocols.iter().filter(|_| reads).map(|protocol| protocol.to_vec()).collect();
    config.ignore_client_order = settings.cipher_suites.is_some();
    if settings.early_data.is_some() && reads && clients.is_none() {
        // A session in the process's cache can be used once only, so early data is never accepted twice (RFC 8446
        // section 8.1).
        config.max_early_data_size = EARLY_DATA_BYTES_MAX;
        config.send_half_rtt_data = true;
    } else if settings.tickets {
        config.ticketer = Arc::clone(&sessions.ticketer);
    }
    config.session_storage = Arc::clone(&sessions.storage);
    Ok(Arc::new(config))
}

fn verifier(
    clients: &ClientVerification,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
    let roots = Arc::clone(clients.authorities.roots());
    let valid = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider)).build();
    let valid = valid.map_err(|error| rustls::Error::General(error.to_string()))?;
    Ok(match clients.mode {
        VerificationMode::ValidOnly => valid,
        VerificationMode::InsecureFallback => Arc::new(InsecureFallback(valid)),
    })
}

/// Requests a certificate of these authorities, but accepts any other, or none. A client must still prove that it has
/// the key of its certificate.
#[derive(Debug)]
struct InsecureFallback(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for InsecureFallback {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// The certificate for the case that neither an object nor the operator provides one.
pub(super) fn self_signed() -> Result<CertifiedKey, TlsSetupError> {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, SELF_SIGNED_NAME);
    let key = rcgen::KeyPair::generate().map_err(TlsSetupError::SelfSigned)?;
    let certificate = params.self_signed(&key).map_err(TlsSetupError::SelfSigned)?;
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    CertifiedKey::from_der(vec![certificate.der().clone()], key.into(), &ring::default_provider())
        .map_err(TlsSetupError::Config)
}

/// Chooses the certificate of a handshake on a bind.
#[derive(Debug)]
pub(super) struct Resolver {
    pub(super) published: Published,
    pub(super) bind: BindKey,
    pub(super) self_signed: Arc<CertifiedKey>,
}

impl ResolvesServerCert for Resolver {
    /// The first certificate whose signature the client can check.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let snapshot = self.published.pin();
        let name = hello.server_name().map(compared);
        self.choose(&snapshot, name.as_deref(), hello.signature_schemes())
    }
}

impl Resolver {
    /// A certificate of the listener, if it has its own. Otherwise one for the server name, else the default one (also
    /// for clients that send no server name, or an address: RFC 6066 section 3 does not allow addresses), else the
    /// self-signed one.
    fn choose(
        &self,
        snapshot: &Snapshot,
        name: Option<&str>,
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        let fits = |certificate: &&Arc<Certificate>| can_sign(certificate, schemes);
        if let Some(chosen) = snapshot.handshake_certificates(&self.bind, name).find(fits) {
            return Some(Arc::clone(&chosen.key));
        }
        snapshot.own_tls(&self.bind, name).is_none().then(|| Arc::clone(&self.self_signed))
    }
}

fn can_sign(certificate: &Certificate, schemes: &[SignatureScheme]) -> bool {
    certificate.key.key.choose_scheme(schemes).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// rustls makes new keys when half of the lifetime has passed, and keeps the previous ones until its end. Its own
    /// tests are about that; this one is about the choice of it.
    #[test]
    fn keys_of_tickets_are_random_and_end_after_half_a_day() {
        let [one, other] = [(); 2].map(|()| Sessions::new(8).unwrap().ticketer);
        assert_eq!(one.lifetime(), 12 * 60 * 60);
        assert!(format!("{one:?}").contains("TicketRotator"), "{one:?}");
        let ticket = one.encrypt(b"session").unwrap();
        assert_eq!(one.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(other.decrypt(&ticket), None, "a ticket of another process");
    }
}
