//! The served API: a copy of the objects that the control loop reads, for programs of this machine or site.

mod expected;
mod serve_files;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts, Registry};
use rustls::ServerConfig;
use tidegate_config::object::Kind;
use tidegate_control::options::Options;
use tidegate_control::options::UnconfirmedRemovals;
use tidegate_control::{
    CachedKind, CachedStates, Collection, CollectionReadiness, Copies, CopyEvent, CopyState, CopySubscriber, Followed,
    Following, Readiness, Resource, ServedKind, served_kinds,
};
use tidegate_lite::{Feed, Lite, ServerSocket, SharedServer, WRITE_TIMEOUT, WatchCacheKind, WatchCacheLimits};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::listen_place::ListenPlace;
use crate::settings::{Serve, ServeAddress};
use crate::supervise::Supervisor;
use crate::{debug, forward_writes};

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
#[derive(Clone, Debug)]
struct ServerParts {
    lite: Lite,
    tls: Option<Followed<ServerConfig>>,
    token: Option<Followed<String>>,
    connections_max: usize,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Served {
    /// Opens the socket, and creates the watch cache. `removals` limits the objects that one list may remove.
    pub(crate) fn open(serve: &Serve, removals: UnconfirmedRemovals, following: &Following) -> anyhow::Result<Self> {
        let token = serve.token_file.clone().map(|path| serve_files::token(following, path)).transpose()?;
        let tls = serve.tls.clone().map(|files| serve_files::certificates(following, files)).transpose()?;
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

    /// Answers requests for kinds of which nothing is known yet accordingly, from now on: those that routing reads, if
    /// `readiness` tells of them, and the cached ones.
    pub(crate) fn await_kinds(
        &self,
        tasks: &mut Supervisor,
        stop: &CancellationToken,
        readiness: Option<watch::Receiver<Readiness>>,
        cached: Vec<CachedKind>,
        states: watch::Receiver<CachedStates>,
    ) {
        let (lite, routed) = (self.server.lite.clone(), self.routed.clone());
        // A loop that has not begun has no collections.
        let expect = move |collections: &[CollectionReadiness], states: &CachedStates| {
            let routed = expected::routed(&routed, collections);
            lite.expect(routed.into_iter().chain(expected::cached(&cached, states)).collect());
        };
        expect(&[], &CachedStates::default());
        let (expect, stop) = (Arc::new(expect), stop.clone());
        tasks.keep("served-kinds", move || {
            let (expect, mut readiness, mut states) = (Arc::clone(&expect), readiness.clone(), states.clone());
            let stop = stop.clone();
            async move {
                loop {
                    let collections = readiness.as_mut().map(|it| it.borrow_and_update().collections.clone());
                    expect(&collections.unwrap_or_default(), &states.borrow_and_update());
                    let routed = async {
                        match &mut readiness {
                            Some(readiness) => readiness.changed().await,
                            None => std::future::pending().await,
                        }
                    };
                    let changed = tokio::select! {
                        changed = routed => changed,
                        changed = states.changed() => changed,
                        () = stop.cancelled() => return,
                    };
                    if changed.is_err() {
                        return;
                    }
                }
            }
        });
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
                        let (tls, token) =
                            (tls.as_ref().map(Followed::subscribe), token.as_ref().map(Followed::subscribe));
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
