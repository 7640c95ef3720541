//! `tidegate lite`: a cache of a cluster for other readers and watchers, without routing.

use std::process::ExitCode;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use prometheus::Registry;
use tidegate_control::client::{self, Deadlines};
use tidegate_control::{ApiServer, CachedControl, CachedStates, Following, awaited, start_cached};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admin::{cached_line, health, metrics_page};
use crate::args::LiteArgs;
use crate::clock;
use crate::forward_writes;
use crate::listen_place::ListenPlace;
use crate::logs;
use crate::resources;
use crate::run::access;
use crate::served::Served;
use crate::settings::Lite;
use crate::signal::Signals;
use crate::supervise::{Health, Supervisor};
use crate::wire::{TASKS_GRACE, keep_files, keep_tcp, listen_admin, local, registry};

pub(crate) async fn main(args: &LiteArgs) -> anyhow::Result<ExitCode> {
    let mut settings = Lite::try_from(args)?;
    logs::start(&settings.log_level, settings.log_form)?;
    let mut signals = Signals::listen().context("signals")?;
    let registry = registry().context("metrics")?;
    let (stop, ending) = (CancellationToken::new(), CancellationToken::new());
    let mut tasks = Supervisor::new(&registry, stop.clone(), clock::draw).context("metrics")?;
    let admin_socket = listen_admin(settings.admin)?;
    let admin = local(admin_socket.as_ref());
    settings.serve.connections_max = resources::served_max(resources::raise(), settings.serve.connections_max);
    let files = Following::new().context("metrics")?;
    let served = Served::open(&settings.serve, settings.removals, &files)?;
    let kinds = settings.kinds.clone();
    let (states, following, forward) = follow(settings, &served, &files, &registry, &stop)?;
    served.await_kinds(&mut tasks, &stop, None, kinds, states.clone());
    keep_files(files, &registry, &mut tasks, &stop)?;
    let api = served.keep(&mut tasks, &stop, &registry, forward)?;
    let pages = Pages { states, ending: ending.clone(), health: tasks.health() };
    if let Some(socket) = admin_socket {
        keep_tcp("admin", socket, pages.pages(registry), &mut tasks, &stop);
    }
    tasks.once("cached kinds", following);
    let (admin, api_text) = (admin.map(|at| at.to_string()), api.as_ref().map(ToString::to_string));
    tracing::info!(admin, api = api_text, "started; each kind is served once it is listed");
    let signal = signals.next().await;
    tracing::info!(signal, "shutting down");
    ending.cancel();
    if let Some(ListenPlace::Unix(path)) = &api {
        crate::debug::unlink(path);
    }
    tasks.finish(TASKS_GRACE).await;
    Ok(ExitCode::SUCCESS)
}

/// Starts the informers, and returns their states and the client for writes, if writes are forwarded.
fn follow(
    settings: Lite,
    served: &Served,
    files: &Following,
    registry: &Registry,
    stop: &CancellationToken,
) -> anyhow::Result<(watch::Receiver<CachedStates>, impl Future<Output = ()> + Send + 'static, Option<kube::Client>)> {
    let Lite { cluster, kinds, removals, limits, mut cache, serve, .. } = settings;
    let access = access(&cluster, files)?;
    if let Some(cache) = &mut cache {
        cache.server = access.config().cluster_url.to_string();
    }
    let api_server = ApiServer::default();
    let forward = if serve.forward_writes { Some(forward_writes::client(&access, &api_server)?) } else { None };
    let client = client::connect(&access, Deadlines::WATCH, &api_server)?;
    let control = CachedControl { client, api_server, kinds, removals, limits, cache, copies: served.cached_copies() };
    let (states, following) = start_cached(control, registry, stop.clone())?;
    Ok((states, following, forward))
}

/// The state behind health and readiness.
#[derive(Clone)]
struct Pages {
    states: watch::Receiver<CachedStates>,
    /// Cancelled when the process is shutting down.
    ending: CancellationToken,
    health: Health,
}

impl Pages {
    fn pages(self, registry: Registry) -> Router {
        let own = Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(self);
        own.merge(metrics_page(registry))
    }
}

async fn healthz(State(pages): State<Pages>) -> Response {
    health(&pages.health)
}

/// Readiness for clients: there is no kind that still has to be waited for.
async fn readyz(State(pages): State<Pages>, RawQuery(query): RawQuery) -> Response {
    let states = pages.states.borrow().clone();
    let refusal = if pages.ending.is_cancelled() {
        Some("the process is shutting down".to_owned())
    } else {
        awaited(&states).map(|name| format!("{name} are not listed yet"))
    };
    let status = if refusal.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let mut text = refusal.map_or_else(|| "ready\n".to_owned(), |why| format!("not ready: {why}\n"));
    if query.unwrap_or_default().split('&').any(|part| part == "verbose" || part.starts_with("verbose=")) {
        text.extend(states.iter().map(cached_line));
    }
    (status, text).into_response()
}
