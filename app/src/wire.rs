//! The parts that `run` and `dev` share: the control loop, the proxy and the process's own pages, wired through one
//! published snapshot, and their orderly shutdown.

mod beside;
mod reviews;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use prometheus::Registry;
use tidegate_config::model::{Bind, BindKey, BindProtocol, Binds, EdgeSettings, Listener};
use tidegate_config::object::ObjectRef;
use tidegate_config::published::{self, Published};
use tidegate_control::options::Options;
use tidegate_control::{ApiServer, BindFailures, Control, Following, Order, Reporter, View};
use tidegate_proxy::{Bound, BudgetLimits, Proxy};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::admin::Admin;
use crate::clock;
use crate::debug::{self, Debug};
use crate::listen_place::ListenPlace;
use crate::own;
use crate::report::reporter;
use crate::resources;
use crate::serve::serve;
use crate::served::Served;
use crate::settings::{DebugAddress, Drain, Edge, ListenAddress, Process, Serve, Sockets};
use crate::signal::Signals;
use crate::supervise::Supervisor;

/// The time without any open socket after which the process gives up: a predecessor may hold a port for a moment.
const LISTENERS_LOST_MAX: Duration = Duration::from_secs(5);
/// The time for the tasks to end after the traffic has ended.
pub(crate) const TASKS_GRACE: Duration = Duration::from_secs(5);

/// The clients of the API server. Each belongs to the runtime that it is created on.
#[derive(Clone)]
pub(crate) struct Clients {
    /// The client for lists and watches.
    pub(crate) watch: kube::Client,
    /// The client for writes, whose answers are short.
    pub(crate) write: kube::Client,
    /// The client for writes of others, without this process's credentials; `None` if none are forwarded.
    pub(crate) forward: Option<kube::Client>,
    /// The addresses of the API server, as far as they are known.
    pub(crate) api_server: ApiServer,
    /// The files of their credentials, and of the served API.
    pub(crate) following: Following,
}

/// The running parts.
#[derive(Debug)]
pub(crate) struct Wired {
    pub(crate) tasks: Supervisor,
    pub(crate) published: Published,
    pub(crate) view: View,
    /// Cancelled when the tasks of the set have to end.
    pub(crate) stop: CancellationToken,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) debug: Option<ListenPlace>,
    /// The address of the served API.
    pub(crate) api: Option<ListenPlace>,
    proxy: Proxy,
    /// Cancelled when a signal has told the process to end, or no socket is open.
    pub(crate) draining: CancellationToken,
    drain: Drain,
}

impl Wired {
    /// Starts everything on the current runtime; traffic is accepted as soon as the first snapshot is published.
    pub(crate) fn start(edge: Edge, clients: Clients, namespaces: Vec<Arc<str>>) -> anyhow::Result<Self> {
        let Edge { sockets, rates, idle, external_auth, drain, process, budget, counters, limit_store, lease, .. } =
            edge;
        let (mut control, limits, cache, mut serve, cached) =
            (edge.control, edge.limits, edge.cache, edge.serve, edge.cached);
        let registry = registry().context("metrics")?;
        let (stop, draining) = (CancellationToken::new(), CancellationToken::new());
        let mut tasks = Supervisor::new(&registry, stop.clone(), clock::draw).context("metrics")?;

        let (admin_socket, debug_socket) = (listen_admin(sockets.admin)?, DebugSocket::open(&sockets.debug)?);
        control.edge =
            Arc::new(EdgeSettings { log_format: process.access_log_format.clone(), ..EdgeSettings::default() });
        control.binds = binds(&sockets);
        let builder = builder(&mut control, sockets.deis_builder);
        let threads = process.threads.unwrap_or(tidegate_proxy::Options::default().threads);
        let (budget, pool_size) = shared_out(budget, threads, serve.as_mut());
        let removals = control.pace.unconfirmed_removals;
        let Clients { watch: client, write, forward, api_server, following } = clients;
        let mut served = serve.as_ref().map(|serve| Served::open(serve, removals, &following)).transpose()?;
        keep_files(following, &registry, &mut tasks, &stop)?;
        let pages = [local(admin_socket.as_ref()), debug_socket.address(), served.as_ref().and_then(Served::address)];
        let traffic = control.binds.iter().map(|bind| bind.key.address).chain(builder);
        let listening = traffic.chain(pages.into_iter().flatten());
        control.addresses.sockets = own::sockets(listening, &host_addresses());
        let (publisher, published) = published::channel();
        let in_use = InUse::default();
        let secrets = serve.is_some_and(|serve| serve.secrets);
        let copies = served.as_mut().map(|served| served.copies(&control, secrets));
        let cached_copies = served.as_ref().map(Served::cached_copies);
        let (failed, unopened) = watch::channel(BindFailures::default());
        let cached_kinds = cached.clone();
        let control = Control {
            client,
            api_server,
            unopened,
            namespaces,
            options: control,
            order: in_use.first(),
            limits,
            cache,
            copies,
            cached,
            cached_copies,
        };
        let published_to = (publisher, published.clone());
        let (view, control) = tidegate_control::start(control, published_to, &registry, stop.clone())?;
        let reviews = Some(reviews::by(write.clone()));
        if let Some(lease) = lease {
            keep_status(reporter(lease, write, view.clone(), &registry).context("metrics")?, &mut tasks, &stop);
        }
        if let Some(served) = &served {
            served.await_kinds(&mut tasks, &stop, Some(view.readiness()), cached_kinds, view.cached());
        }
        let api = served.map(|served| served.keep(&mut tasks, &stop, &registry, forward)).transpose()?.flatten();
        let Process { access_log, loop_token, driver, server_header, limit_headers, .. } = process;
        let options =
            tidegate_proxy::Options { access_log, loop_token, driver, server_header, threads, ..Default::default() };
        let mut options = tidegate_proxy::Options { budget, counters, limit_headers, limit_store, reviews, ..options };
        (options.client.rates, options.client.proxy_header) = (rates, sockets.proxy_protocol);
        (options.client.keep_alive_idle, options.client.proxy_idle) = (idle.client, idle.proxy);
        (options.upstream.external_auth, options.upstream.pool_size) = (external_auth, pool_size);
        let proxy = Proxy::start(published.clone(), view.generation(), options, &registry)?;
        in_use.ask(proxy.recently_used());
        beside::keep_beside(&proxy, failed, &mut tasks, &stop);
        let (readiness, cached, bound, health) = (view.readiness(), view.cached(), proxy.bound(), tasks.health());
        let pages = Admin { readiness, cached, bound, draining: draining.clone(), health, registry };
        let admin = serve_admin(admin_socket, pages, &mut tasks, &stop);
        let debug = serve_debug(debug_socket, &published, &view, &mut tasks, &stop);
        tasks.once("control", control);
        Ok(Self { tasks, published, view, stop, admin, debug, api, proxy, draining, drain })
    }

    /// The sockets with their real addresses.
    pub(crate) fn bound(&self) -> watch::Receiver<Bound> {
        self.proxy.bound()
    }

    /// Runs until a signal, then shuts down in order: unready and still accepting, while clients are asked to close;
    /// draining; end. A second signal cuts connections.
    pub(crate) async fn until_over(self, signals: &mut Signals) -> anyhow::Result<ExitCode> {
        let why = tokio::select! {
            signal = signals.next() => Ok(signal),
            why = lost(self.proxy.bound()) => Err(why),
        };
        self.draining.cancel();
        let over = match why {
            Err(why) => Err(anyhow::anyhow!("no socket is open for traffic: {why}")),
            Ok(signal) => {
                tracing::info!(
                    signal,
                    delay_s = self.drain.delay.as_secs(),
                    "shutting down: not ready, still accepting connections"
                );
                let proxy = self.proxy;
                proxy.announce_end();
                let drained = async {
                    sleep(self.drain.delay).await;
                    proxy.drain(self.drain.grace).await
                };
                tokio::select! {
                    cut = drained => {
                        tracing::info!(connections_cut = cut, "drained");
                        Ok(ExitCode::SUCCESS)
                    }
                    second = signals.next_but_twins() => {
                        tracing::warn!(signal = second, "exiting at once");
                        Ok(ExitCode::FAILURE)
                    }
                }
            }
        };
        for place in [&self.debug, &self.api].into_iter().flatten() {
            if let ListenPlace::Unix(path) = place {
                debug::unlink(path);
            }
        }
        self.tasks.finish(TASKS_GRACE).await;
        over
    }
}

/// Keeps the task that writes to the cluster running.
fn keep_status(reporter: Reporter, tasks: &mut Supervisor, stop: &CancellationToken) {
    let stop = stop.clone();
    tasks.keep("status", move || reporter.clone().run(stop.clone()));
}

/// Keeps the files of credentials and certificates followed.
pub(crate) fn keep_files(
    following: Following,
    registry: &Registry,
    tasks: &mut Supervisor,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    following.register(registry).context("metrics")?;
    let stop = stop.clone();
    tasks.keep("followed-files", move || following.clone().run(stop.clone()));
    Ok(())
}

/// The objects whose routes are in use, as the proxy reports once it runs; until then, none.
#[derive(Clone, Default)]
struct InUse(Arc<OnceLock<Box<RecentlyUsed>>>);

type RecentlyUsed = dyn Fn(&ObjectRef) -> bool + Send + Sync;

impl InUse {
    fn ask(&self, recently_used: impl Fn(&ObjectRef) -> bool + Send + Sync + 'static) {
        self.0.get_or_init(|| Box::new(recently_used));
    }

    /// Objects in use are first.
    fn first(&self) -> Order {
        let Self(recently_used) = self.clone();
        Order::by(move |object| u64::from(!recently_used.get().is_some_and(|recently_used| recently_used(object))))
    }
}

/// The address of the Deis builder, if there is one.
fn builder(control: &mut Options, requested: Option<ListenAddress>) -> Option<SocketAddr> {
    let (_, address) = control.sources.deis.as_mut()?.builder.as_mut()?;
    if let Some(requested) = requested {
        *address = requested.settle();
    }
    Some(*address)
}

/// Completes the budget with the open files and memory of the process, and returns it with the number of idle
/// connections to endpoints per thread. Connections to the served API are lowered to the files for them.
fn shared_out(mut budget: BudgetLimits, threads: usize, serve: Option<&mut Serve>) -> (BudgetLimits, usize) {
    let (open_files, memory_kib) = (resources::raise(), resources::memory_max_kib());
    let served_max = serve.map_or(0, |serve| {
        serve.connections_max = resources::served_max(open_files, serve.connections_max);
        serve.connections_max
    });
    let pool_size = resources::share_files(open_files, threads, &mut budget, served_max);
    resources::share_memory(memory_kib, &mut budget);
    let BudgetLimits { files, memory_kib: traffic_kib, .. } = budget;
    tracing::info!(
        open_files,
        memory_kib,
        sockets_max = files,
        traffic_kib,
        pool_size,
        served_connections_max = served_max,
        "limits of this process"
    );
    (budget, pool_size)
}

/// Waits until no socket has been open for longer than a moment, and returns the reason.
async fn lost(mut bound: watch::Receiver<Bound>) -> String {
    loop {
        if bound.wait_for(Bound::is_lost).await.is_err() {
            return "the traffic threads have ended".to_owned();
        }
        let back = timeout(LISTENERS_LOST_MAX, bound.wait_for(|bound| !bound.is_lost())).await.is_ok();
        if !back {
            let bound = bound.borrow();
            let errors = bound.iter().filter_map(|(key, bind)| Some(format!("{}: {}", key.address, bind.error()?)));
            return errors.collect::<Vec<_>>().join("; ");
        }
    }
}

/// The sockets of plain Ingress: one listener each, for every host.
fn binds(sockets: &Sockets) -> Binds {
    let bind = |requested: &ListenAddress, protocol, name: &str| Bind {
        key: BindKey { address: requested.settle(), protocol },
        listeners: [Listener::for_every_host(name)].into(),
    };
    let http = sockets.http.iter().map(|requested| bind(requested, BindProtocol::Http, "http"));
    let https = sockets.https.iter().map(|requested| bind(requested, BindProtocol::Https, "https"));
    http.chain(https).collect()
}

pub(crate) fn registry() -> prometheus::Result<Registry> {
    let registry = Registry::new();
    #[cfg(target_os = "linux")]
    registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
    let opts = prometheus::Opts::new("tidegate_build_info", "Always 1; the version is in the label.");
    let build = prometheus::IntGaugeVec::new(opts, &["version"])?;
    build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
    registry.register(Box::new(build))?;
    Ok(registry)
}

/// The addresses of this host. Without them only addresses that name this process by themselves are known to be its
/// own.
pub(crate) fn host_addresses() -> Vec<IpAddr> {
    own::host_addresses().unwrap_or_else(|error| {
        tracing::warn!(%error, "the addresses of this host are unknown; set them with --own-address");
        Vec::new()
    })
}

pub(crate) fn local(socket: Option<&TcpListener>) -> Option<SocketAddr> {
    socket.and_then(|socket| socket.local_addr().ok())
}

fn listen(requested: ListenAddress) -> io::Result<TcpListener> {
    let socket = TcpListener::bind(requested.settle())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

pub(crate) fn listen_admin(requested: Option<ListenAddress>) -> anyhow::Result<Option<TcpListener>> {
    requested.map(|requested| listen(requested).with_context(|| format!("--admin {}", requested.address))).transpose()
}

/// The open socket of the dumps.
#[derive(Debug)]
enum DebugSocket {
    Off,
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl DebugSocket {
    fn open(wanted: &DebugAddress) -> anyhow::Result<Self> {
        Ok(match wanted {
            DebugAddress::Off => Self::Off,
            DebugAddress::Tcp(requested) => {
                Self::Tcp(listen(*requested).with_context(|| format!("--debug {}", requested.address))?)
            }
            DebugAddress::Unix(path) => {
                let listener = debug::bind_unix(path).with_context(|| format!("--debug unix:{}", path.display()))?;
                Self::Unix(listener, path.clone())
            }
        })
    }

    fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) => local(Some(socket)),
            Self::Off | Self::Unix(..) => None,
        }
    }
}

fn serve_admin(
    socket: Option<TcpListener>,
    pages: Admin,
    tasks: &mut Supervisor,
    stop: &CancellationToken,
) -> Option<SocketAddr> {
    let address = local(socket.as_ref());
    if let Some(socket) = socket {
        keep_tcp("admin", socket, pages.pages(), tasks, stop);
    }
    address
}

fn serve_debug(
    socket: DebugSocket,
    published: &Published,
    view: &View,
    tasks: &mut Supervisor,
    stop: &CancellationToken,
) -> Option<ListenPlace> {
    let dumps = Debug { published: published.clone(), view: view.clone() };
    let address = socket.address();
    match socket {
        DebugSocket::Off => None,
        DebugSocket::Tcp(socket) => {
            let private = address.is_some_and(|address| address.ip().is_loopback());
            keep_tcp("debug", socket, debug::guarded(dumps.pages(private)), tasks, stop);
            address.map(ListenPlace::Tcp)
        }
        DebugSocket::Unix(socket, path) => {
            let (pages, stop) = (dumps.pages(true), stop.clone());
            tasks.keep("debug", move || {
                let listener = socket.try_clone().and_then(tokio::net::UnixListener::from_std);
                let (pages, stop) = (pages.clone(), stop.clone());
                async move {
                    match listener {
                        Ok(listener) => serve(listener, pages, stop).await,
                        Err(error) => tracing::error!(%error, "the debug socket cannot be used"),
                    }
                }
            });
            Some(ListenPlace::Unix(path))
        }
    }
}

/// Serves pages on a port that stays bound over restarts of its task.
pub(crate) fn keep_tcp(
    name: &'static str,
    socket: TcpListener,
    pages: axum::Router,
    tasks: &mut Supervisor,
    stop: &CancellationToken,
) {
    let stop = stop.clone();
    tasks.keep(name, move || {
        let listener = socket.try_clone().and_then(tokio::net::TcpListener::from_std);
        let (pages, stop) = (pages.clone(), stop.clone());
        async move {
            match listener {
                Ok(listener) => serve(listener, pages, stop).await,
                Err(error) => tracing::error!(task = name, %error, "the socket cannot be used"),
            }
        }
    });
}
