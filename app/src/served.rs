//! The served API: what the control loop reads, handed to a replica that programs of this machine or site read from. And the client of
//! somebody else's.

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
use tidegate_control::{Copied, Copies, Resource, served_kinds};
use tidegate_lite::{DoorSocket, Feed, Lite, ReplicaKind, ReplicaLimits, SharedDoor};
use tokio_util::sync::CancellationToken;

use crate::debug;
use crate::settings::{Serve, ServeAddress, Server, TlsFiles};
use crate::supervise::Supervisor;
use crate::wire::DebugPlace;

/// A token has at least so many characters: fewer could be guessed.
const TOKEN_MIN: usize = 16;

/// The served API, its socket open.
#[derive(Debug)]
pub(crate) struct Served {
    door: Door,
    socket: Socket,
    feeds: Feeds,
}

type Feeds = Arc<BTreeMap<Kind, Feed>>;

/// The parts of the door, which is opened again after a failure.
#[derive(Clone)]
struct Door {
    lite: Lite,
    tls: Option<Arc<ServerConfig>>,
    token: Option<String>,
    connections_max: usize,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Served {
    /// Opens the socket, and makes a replica of every kind that is read in all namespaces.
    pub(crate) fn open(serve: &Serve, options: &Options) -> anyhow::Result<Self> {
        let token = serve.token_file.as_deref().map(|path| token("--serve-token-file", path)).transpose()?;
        let tls = serve.tls.as_ref().map(certificates).transpose()?;
        let kinds: Vec<Kind> =
            served_kinds(options).into_iter().filter(|kind| *kind != Kind::Secret || serve.secrets).collect();
        let limits = ReplicaLimits {
            bytes_max: serve.bytes_max,
            sweep_share_max: options.pace.sweep_share_max,
            sweep_free: options.pace.sweep_free,
        };
        let (lite, feeds) = Lite::replica(&kinds.iter().copied().map(replica_kind).collect::<Vec<_>>(), limits);
        let feed = |kind: &Kind| {
            let feed = feeds.get(&(kind.group().to_owned(), kind.plural().to_owned()));
            feed.map(|feed| (*kind, feed.clone()))
        };
        let feeds = Arc::new(kinds.iter().filter_map(feed).collect());
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
        let door = Door { lite, tls, token, connections_max: serve.connections_max };
        Ok(Self { door, socket, feeds })
    }

    /// Where it is, if it is an address.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(..) => None,
        }
    }

    /// Where the control loop hands over what it reads.
    pub(crate) fn copies(&self) -> Copies {
        let feeds = Arc::clone(&self.feeds);
        Copies::to(move |source, copied| {
            // What is read in one namespace alone is not all there is of the kind.
            let Some(feed) = feeds.get(&source.kind).filter(|_| source.namespace.is_none()) else { return };
            match copied {
                Copied::ListBegins => feed.list_begins(),
                Copied::Listed { name, raw } => feed.listed(&name.namespace, &name.name, raw),
                Copied::ListFailed => feed.list_failed(),
                Copied::ListDone { reached, complete, wins } => feed.list_done(reached, complete, wins),
                Copied::Told { name, raw, gone } => feed.told(&name.namespace, &name.name, raw, gone),
                Copied::Reached(version) => feed.reached(version),
            }
        })
    }

    /// Serves for as long as the process runs.
    pub(crate) fn keep(
        self,
        tasks: &mut Supervisor,
        stop: &CancellationToken,
        registry: &Registry,
    ) -> anyhow::Result<Option<DebugPlace>> {
        registry.register(Box::new(FeedCollector::new(Arc::clone(&self.feeds))?))?;
        let place = match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok().map(DebugPlace::Tcp),
            Socket::Unix(_, path) => Some(DebugPlace::Unix(path.clone())),
        };
        let (stop, Self { door, socket, .. }) = (stop.clone(), self);
        tasks.keep("served-api", move || {
            let opened = match &socket {
                Socket::Tcp(listener) => {
                    listener.try_clone().and_then(tokio::net::TcpListener::from_std).map(DoorSocket::Tcp)
                }
                Socket::Unix(listener, _) => {
                    listener.try_clone().and_then(tokio::net::UnixListener::from_std).map(DoorSocket::Unix)
                }
            };
            let Door { lite, tls, token, connections_max } = door.clone();
            let stop = stop.clone();
            async move {
                match opened {
                    Ok(opened) => {
                        SharedDoor { lite, tls, token, connections_max }.serve(opened, stop.cancelled()).await;
                    }
                    Err(error) => tracing::error!(%error, "the socket of the served API cannot be used"),
                }
            }
        });
        Ok(place)
    }
}

fn replica_kind(kind: Kind) -> ReplicaKind {
    let Resource { group, version, plural } = Resource::of(kind);
    let [group, version, plural] = [group, version, plural].map(|text| text.to_string());
    ReplicaKind { group, version, plural, kind: kind.as_str().to_owned(), namespaced: kind.namespaced() }
}

fn read(flag: &str, path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("{flag} {}", path.display()))
}

/// The certificates in a file, none where nothing in it is PEM.
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
    // What the parser says could quote the key.
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

/// How a server that is named by its URL is reached.
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

/// What is held of each kind, as it is when somebody asks.
struct FeedCollector {
    feeds: Feeds,
    objects: IntGaugeVec,
    bytes: IntGaugeVec,
    watches: IntGaugeVec,
}

impl FeedCollector {
    fn new(feeds: Feeds) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| IntGaugeVec::new(Opts::new(name, help), &["kind"]);
        Ok(Self {
            feeds,
            objects: gauge("tidegate_served_objects", "Objects that the served API holds.")?,
            bytes: gauge("tidegate_served_bytes", "Bytes that the JSON of those objects takes.")?,
            watches: gauge("tidegate_served_watches", "Watches of the served API that are open.")?,
        })
    }
}

impl Collector for FeedCollector {
    fn desc(&self) -> Vec<&Desc> {
        [&self.objects, &self.bytes, &self.watches].into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for (kind, feed) in &*self.feeds {
            let (figures, kind) = (feed.figures(), [kind.as_str()]);
            self.objects.with_label_values(&kind).set(number(figures.objects));
            self.bytes.with_label_values(&kind).set(number(figures.bytes));
            self.watches.with_label_values(&kind).set(number(figures.watches));
        }
        [&self.objects, &self.bytes, &self.watches].into_iter().flat_map(Collector::collect).collect()
    }
}
