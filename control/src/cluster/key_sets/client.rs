//! The HTTP client for URLs that policies name. Tenants choose these URLs, so addresses are checked after the look-up
//! and before the connection, no redirect is followed, and nothing is read without limits. Each request has a
//! connection of its own: there are few, minutes apart.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};
use http::uri::Scheme;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tidegate_config::model::CaBundle;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::addresses::AddressPolicy;
use crate::cluster::resolve::{Upstream, addresses_of};
use crate::url_hosts::UrlHosts;

/// The limit of a body, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// The limit of a response head, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// The refusal of a host.
const NOT_ALLOWED: &str = "the operator does not allow its host (--policy-url-hosts)";
/// The limit of the addresses of a host that are tried.
const ADDRESSES_MAX: usize = 4;

/// The client. Clones share its state.
#[derive(Clone)]
pub struct KeyClient {
    dns: Upstream,
    addresses: AddressPolicy,
    hosts: UrlHosts,
    /// The sockets of the API server.
    api_server: watch::Receiver<Arc<BTreeSet<SocketAddr>>>,
    tls: Arc<ClientConfig>,
    /// The limit of the time for one document.
    within: Duration,
}

/// The parts of a URL that a request needs.
struct Target {
    tls: bool,
    host: String,
    port: u16,
    uri: Uri,
}

impl KeyClient {
    /// The default limit of the time for one document, from the look-up of its host to its last byte.
    pub const WITHIN: Duration = Duration::from_secs(5);

    /// A client that trusts the system's certificate authorities, and these.
    ///
    /// # Errors
    /// If the TLS library has no protocol version for its cryptography.
    pub fn new(
        dns: Upstream,
        addresses: AddressPolicy,
        api_server: watch::Receiver<Arc<BTreeSet<SocketAddr>>>,
        authorities: Option<&CaBundle>,
        within: Duration,
    ) -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        let (_, ignored) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        tracing::debug!(ignored, "read the system's certificate authorities");
        roots.extend(authorities.into_iter().flat_map(|own| own.roots().roots.iter().cloned()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let hosts = UrlHosts::default();
        Ok(Self { dns, addresses, hosts, api_server, tls: Arc::new(config), within })
    }

    /// The same for these hosts only.
    #[must_use]
    pub fn only_to(self, hosts: UrlHosts) -> Self {
        Self { hosts, ..self }
    }

    /// Fetches a document in JSON.
    ///
    /// # Errors
    /// The reason, in one line, without anything of what was received.
    pub(super) async fn get(&self, url: &str) -> Result<Bytes, String> {
        let target = Target::of(url)?;
        let late = || format!("there is no complete answer within {:?}", self.within);
        timeout(self.within, self.exchange(&target)).await.unwrap_or_else(|_elapsed| Err(late()))
    }

    async fn exchange(&self, target: &Target) -> Result<Bytes, String> {
        let stream = self.connect(target).await?;
        if !target.tls {
            return request(stream, target).await;
        }
        let name = ServerName::try_from(target.host.clone()).map_err(|_invalid| "its host is no name for TLS")?;
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await;
        request(stream.map_err(|why| format!("TLS: {why}"))?, target).await
    }

    /// Connects to one of the addresses of the host that policies may name.
    async fn connect(&self, target: &Target) -> Result<TcpStream, String> {
        if !self.hosts.may_look_up(&target.host) {
            return Err(NOT_ALLOWED.to_owned());
        }
        let mut why = "its host has no addresses".to_owned();
        let mut left = ADDRESSES_MAX;
        for address in self.resolve(&target.host).await? {
            let to = SocketAddr::new(address, target.port);
            let refusal = self.addresses.refusal(to, &self.api_server.borrow());
            if let Some(refusal) = refusal {
                why = format!("{address} is not allowed: {refusal}");
            } else if !self.hosts.allows(&target.host, Some(address)) {
                NOT_ALLOWED.clone_into(&mut why);
            } else if left > 0 {
                left -= 1;
                match TcpStream::connect(to).await {
                    Ok(stream) => return Ok(stream),
                    Err(error) => why = format!("{to}: {error}"),
                }
            }
        }
        Err(why)
    }

    async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        match host.parse() {
            Ok(address) => Ok(vec![address]),
            Err(_name) => addresses_of(&self.dns, host).await,
        }
    }
}

impl Target {
    fn of(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|_invalid| "this is no URL")?;
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err("its scheme is neither http nor https".to_owned()),
        };
        if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
            return Err("it has no host, or a user before its host".to_owned());
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Ok(Self { tls, host, port, uri })
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>, http::Error> {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let agent = HeaderValue::from_static("tidegate");
        Request::get(path)
            .header(HOST, authority)
            .header(ACCEPT, HeaderValue::from_static("application/json, application/jwk-set+json"))
            .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .header(USER_AGENT, agent)
            .body(Empty::new())
    }
}

/// Sends the request over a connection, and checks and reads the response.
async fn request(stream: impl AsyncRead + AsyncWrite + Unpin, target: &Target) -> Result<Bytes, String> {
    let broken = |why: hyper::Error| format!("no valid answer: {why}");
    let mut builder = http1::Builder::new();
    let (mut sender, connection) =
        builder.max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let exchange = async {
        let request = target.request().map_err(|why| why.to_string())?;
        let response = sender.send_request(request).await.map_err(broken)?;
        if response.status() != StatusCode::OK {
            let note = if response.status().is_redirection() { "; redirects are not followed" } else { "" };
            return Err(format!("it answers with the status {}{note}", response.status().as_u16()));
        }
        check_content(response.headers())?;
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
        body.map(http_body_util::Collected::to_bytes)
            .map_err(|_too_long| format!("its body is larger than {BODY_BYTES_MAX} bytes, or not complete"))
    };
    let driving = async {
        // The exchange gets its errors.
        drop(connection.await);
        std::future::pending().await
    };
    tokio::select! { biased; done = exchange => done, never = driving => never }
}

/// Many issuers serve keys as plain text or as bytes. What is clearly something else, such as a page that asks to log
/// in, is refused with a reason that helps.
fn check_content(headers: &HeaderMap) -> Result<(), String> {
    let text = |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase());
    let allowed = |kind: &str| {
        kind.contains("json") || kind.starts_with("text/plain") || kind.starts_with("application/octet-stream")
    };
    if text(CONTENT_TYPE).is_some_and(|kind| !allowed(&kind)) {
        return Err("its content type is not JSON".to_owned());
    }
    if text(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Err("its body is compressed, although the request forbids it".to_owned());
    }
    Ok(())
}

impl fmt::Debug for KeyClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyClient").field("within", &self.within).finish_non_exhaustive()
    }
}
