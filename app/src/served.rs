//! The served API: a copy of the objects that the control loop reads, for programs of this machine or site. And the
//! client of another process's served API.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts, Registry};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tidegate_config::object::Kind;
use tidegate_control::options::Options;
use tidegate_control::options::UnconfirmedRemovals;
use tidegate_control::{
    CachedKind, Collection, Copies, CopyEvent, CopyState, CopySubscriber, Resource, ServedKind, served_kinds,
};
use tidegate_lite::{Feed, Lite, ServerSocket, SharedServer, WRITE_TIMEOUT, WatchCacheKind, WatchCacheLimits};
use tokio_util::sync::CancellationToken;

use crate::listen_place::ListenPlace;
use crate::settings::{Serve, ServeAddress, Server, TlsFiles};
use crate::supervise::Supervisor;
use crate::{debug, forward_writes, user_file};

/// The minimum length of a token in characters: shorter ones could be guessed.
const TOKEN_MIN: usize = 16;
/// The maximum size of a file with certificates, a key or a token.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The served API with its open socket.
#[derive(Debug)]
pub(crate) struct Served {
    server: ServerParts,
    socket: Socket,
    limits: WatchCacheLimits,
    forwards_writes: bool,
    /// The kinds that routing reads.
    routed: Vec<Kind>,
}

/// The parts of the server, which is started again after a failure.
#[derive(Clone)]
struct ServerParts {
    lite: Lite,
    tls: Option<Arc<ServerConfig>>,
    token: Option<String>,
    connections_max: usize,
}

impl std::fmt::Debug for ServerParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerParts").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Served {
    /// Opens the socket, and creates the watch cache. `removals` limits the objects that one list may remove.
    pub(crate) fn open(serve: &Serve, removals: UnconfirmedRemovals) -> anyhow::Result<Self> {
        let token = serve.token_file.as_deref().map(|path| token("--serve-token-file", path)).transpose()?;
        let tls = serve.tls.as_ref().map(certificates).transpose()?;
        let UnconfirmedRemovals { share, count } = removals;
        let limits = WatchCacheLimits {
            bytes_max: serve.bytes_max,
            unconfirmed_removals_share: share,
            unconfirmed_removals_count: count,
        };
        let (lite, _) = Lite::watch_cache(&[], limits);
        let socket = match &serve.at {
            ServeAddress::Tcp(at) => {
                let listener = TcpListener::bind(at).with_context(|| format!("--serve-api {at}"))?;
                listener.set_nonblocking(true)?;
                Socket::Tcp(listener)
            }
            ServeAddress::Unix(path) => {
                let bound = debug::bind_unix(path).with_context(|| format!("--serve-api unix:{}", path.display()))?;
                Socket::Unix(bound, path.clone())
            }
        };
        let server = ServerParts { lite, tls, token, connections_max: serve.connections_max };
        Ok(Self { server, socket, limits, forwards_writes: serve.forward_writes, routed: Vec::new() })
    }

    /// The TCP address, if there is one.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(..) => None,
        }
    }

    /// The sinks for the kinds that the control loop reads: those read in all namespaces, and Secrets only if they are
    /// to be served.
    pub(crate) fn copies(&mut self, options: &Options, secrets: bool) -> Copies {
        self.routed = served_kinds(options).into_iter().filter(|kind| *kind != Kind::Secret || secrets).collect();
        let (lite, limits, forwards_writes) = (self.server.lite.clone(), self.limits, self.forwards_writes);
        let routed = self.routed.clone();
        Copies::to(move |collection: &Collection| {
            // A copy of one namespace alone is not the complete kind.
            if collection.namespace.is_some() || !routed.contains(&collection.kind) {
                return CopySubscriber::of_nothing();
            }
            let (kind, lite) = (watch_cache_kind(collection.kind, forwards_writes), lite.clone());
            // A kind is served from its first list on; one that the cluster lacks is never listed.
            CopySubscriber::new(move |copied| {
                let begins = matches!(copied, CopyEvent::ListBegins);
                let feed = if begins { Some(lite.follow(&kind, limits)) } else { lite.followed(&kind, limits) };
                feed.map_or(CopyState::Whole, |feed| take(&feed, &copied))
            })
        })
    }

    /// The sinks for cached kinds.
    pub(crate) fn cached_copies(&self) -> Copies<ServedKind> {
        let (lite, limits, forwards_writes) = (self.server.lite.clone(), self.limits, self.forwards_writes);
        Copies::to(move |served: &ServedKind| {
            let ServedKind { group, version, plural, kind, namespaced, short } = served.clone();
            taker(
                lite.follow(
                    &WatchCacheKind { group, version, plural, kind, namespaced, forwards_writes, short },
                    limits,
                ),
            )
        })
    }

    /// Serves for as long as the process runs.
    pub(crate) fn keep(
        self,
        tasks: &mut Supervisor,
        stop: &CancellationToken,
        registry: &Registry,
        forward: Option<kube::Client>,
    ) -> anyhow::Result<Option<ListenPlace>> {
        let forward = forward.map(|client| forward_writes::forwarder(client, registry)).transpose()?;
        registry.register(Box::new(FeedCollector::new(self.server.lite.clone(), &self.routed)?))?;
        let place = match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok().map(ListenPlace::Tcp),
            Socket::Unix(_, path) => Some(ListenPlace::Unix(path.clone())),
        };
        let (stop, Self { server, socket, .. }) = (stop.clone(), self);
        tasks.keep("served-api", move || {
            let opened = match &socket {
                Socket::Tcp(listener) => {
                    listener.try_clone().and_then(tokio::net::TcpListener::from_std).map(ServerSocket::Tcp)
                }
                Socket::Unix(listener, _) => {
                    listener.try_clone().and_then(tokio::net::UnixListener::from_std).map(ServerSocket::Unix)
                }
            };
            let ServerParts { lite, tls, token, connections_max } = server.clone();
            let (stop, forward) = (stop.clone(), forward.clone());
            async move {
                match opened {
                    Ok(opened) => {
                        let write_timeout = WRITE_TIMEOUT;
                        let server = SharedServer { lite, tls, token, forward, connections_max, write_timeout };
                        server.serve(opened, stop.cancelled()).await;
                    }
                    Err(error) => tracing::error!(%error, "the socket of the served API cannot be used"),
                }
            }
        });
        Ok(place)
    }
}

/// Passes the events of a kind to its feed.
fn taker(feed: Feed) -> CopySubscriber {
    CopySubscriber::new(move |copied| take(&feed, &copied))
}

fn take(feed: &Feed, copied: &CopyEvent<'_>) -> CopyState {
    match copied {
        CopyEvent::ListBegins => feed.list_begins(),
        CopyEvent::Listed { name, raw } => feed.listed(&name.namespace, &name.name, raw),
        CopyEvent::ListFailed => feed.list_failed(),
        CopyEvent::ListDone { reached, complete, wins } => feed.list_done(reached, *complete, *wins),
        CopyEvent::Changed { name, raw, gone } => feed.event(&name.namespace, &name.name, raw, *gone),
        CopyEvent::Reached(version) => feed.reached(version),
        CopyEvent::Unserved => feed.unserved(),
    }
    if feed.lacks() { CopyState::Lacking } else { CopyState::Whole }
}

fn watch_cache_kind(kind: Kind, forwards_writes: bool) -> WatchCacheKind {
    let Resource { group, version, plural } = Resource::of(kind);
    let [group, version, plural] = [group, version, plural].map(|text| text.to_string());
    let (kind, namespaced) = (kind.as_str().to_owned(), kind.namespaced());
    WatchCacheKind { group, version, plural, kind, namespaced, forwards_writes, short: Vec::new() }
}

fn read(flag: &str, path: &Path) -> anyhow::Result<Vec<u8>> {
    user_file::read(path, FILE_BYTES_MAX).map_err(|why| anyhow::anyhow!("{flag} {}: {why}", path.display()))
}

/// The certificates in a file; empty if it holds no PEM certificate.
fn certificates_in(flag: &str, path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_slice_iter(&read(flag, path)?).collect::<Result<_, _>>();
    certificates.map_err(|_| anyhow::anyhow!("{flag} {}: holds no certificates in PEM", path.display()))
}

fn token(flag: &str, path: &Path) -> anyhow::Result<String> {
    let text = String::from_utf8(read(flag, path)?).unwrap_or_default();
    let token = text.trim();
    let plain = token.len() >= TOKEN_MIN && token.bytes().all(|byte| byte.is_ascii_graphic());
    anyhow::ensure!(plain, "{flag} {}: holds no token: {TOKEN_MIN} visible characters at least", path.display());
    Ok(token.to_owned())
}

fn certificates(files: &TlsFiles) -> anyhow::Result<Arc<ServerConfig>> {
    let parsed = |flag: &str, path: &Path| -> anyhow::Result<Vec<CertificateDer<'static>>> {
        let certificates = certificates_in(flag, path)?;
        anyhow::ensure!(!certificates.is_empty(), "{flag} {}: holds no certificate in PEM", path.display());
        Ok(certificates)
    };
    let chain = parsed("--serve-cert", &files.cert)?;
    // The parser's message could quote the key.
    let key = PrivateKeyDer::from_pem_slice(&read("--serve-key", &files.key)?)
        .map_err(|_| anyhow::anyhow!("--serve-key {}: holds no private key in PEM", files.key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in parsed("--serve-client-ca", path)? {
                roots.add(authority).with_context(|| format!("--serve-client-ca {}", path.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.context("--serve-client-ca")?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).context("--serve-cert and --serve-key")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The client configuration for a server named by its URL.
pub(crate) fn config(server: &Server) -> anyhow::Result<kube::Config> {
    let mut config = kube::Config::new(server.url.clone());
    if let Some(path) = &server.ca {
        let certificates = certificates_in("--server-ca", path)?;
        config.root_cert = Some(certificates.iter().map(|certificate| certificate.to_vec()).collect());
    }
    // The library would send the line end of a file along.
    let token = server.token_file.as_deref().map(|path| token("--server-token-file", path)).transpose()?;
    config.auth_info.token = token.map(Into::into);
    Ok(config)
}

/// The metrics of every served kind at the time of a scrape.
struct FeedCollector {
    lite: Lite,
    /// The label of each kind that routing reads, by group and plural.
    routed: BTreeMap<(String, String), &'static str>,
    objects: IntGaugeVec,
    bytes: IntGaugeVec,
    watches: IntGaugeVec,
}

impl FeedCollector {
    fn new(lite: Lite, routed: &[Kind]) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| IntGaugeVec::new(Opts::new(name, help), &["kind"]);
        let named = |kind: &Kind| ((kind.group().to_owned(), kind.plural().to_owned()), kind.as_str());
        Ok(Self {
            lite,
            routed: routed.iter().map(named).collect(),
            objects: gauge("tidegate_served_objects", "Objects held by the served API.")?,
            bytes: gauge("tidegate_served_bytes", "Size of their JSON, in bytes.")?,
            watches: gauge("tidegate_served_watches", "Open watches of the served API.")?,
        })
    }
}

impl Collector for FeedCollector {
    fn desc(&self) -> Vec<&Desc> {
        [&self.objects, &self.bytes, &self.watches].into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for series in [&self.objects, &self.bytes, &self.watches] {
            // A kind that is no longer served has no series.
            series.reset();
        }
        for (name, figures) in self.lite.figures() {
            // The same labels as those of lists and watches.
            let (group, plural) = &name;
            let cached = || CachedKind::new(plural, group, None).to_string();
            let label = self.routed.get(&name).map_or_else(cached, |kind| (*kind).to_owned());
            self.objects.with_label_values(&[&label]).set(number(figures.objects));
            self.bytes.with_label_values(&[&label]).set(number(figures.bytes));
            self.watches.with_label_values(&[&label]).set(number(figures.watches));
        }
        [&self.objects, &self.bytes, &self.watches].into_iter().flat_map(Collector::collect).collect()
    }
}
