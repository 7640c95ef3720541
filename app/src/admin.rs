//! Health and metrics, for kubelets and Prometheus. Nothing here shows or changes routes: that is [`crate::debug`].

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::{Encoder as _, Registry, TextEncoder};
use tidegate_config::model::Generation;
use tidegate_control::{CachedCondition, CachedState, CachedStates, CollectionReadiness, Readiness};
use tidegate_proxy::Bound;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::supervise::Health;

/// The text exposition format's media type, as the Prometheus documentation on exposition formats gives it.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The maximum number of concurrent responses to `/metrics`: each holds the text of every series until it is sent.
const SCRAPES_MAX: usize = 4;

/// The state behind the pages.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) readiness: watch::Receiver<Readiness>,
    /// Kinds that are cached and served in addition to those that routing reads.
    pub(crate) cached: watch::Receiver<CachedStates>,
    pub(crate) bound: watch::Receiver<Bound>,
    /// Cancelled when the process is shutting down.
    pub(crate) draining: CancellationToken,
    pub(crate) health: Health,
    pub(crate) registry: Registry,
}

impl Admin {
    /// `/healthz`, `/readyz` and `/metrics`.
    pub(crate) fn pages(self) -> Router {
        Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .with_state(self.clone())
            .merge(metrics_page(self.registry))
    }
}

/// `/metrics`.
pub(crate) fn metrics_page(registry: Registry) -> Router {
    Router::new().route("/metrics", get(metrics).with_state((registry, Arc::new(Semaphore::new(SCRAPES_MAX)))))
}

/// Liveness. A task that waits for its restart does not fail it: ending the process would end its traffic.
async fn healthz(State(admin): State<Admin>) -> Response {
    health(&admin.health)
}

pub(crate) fn health(health: &Health) -> Response {
    let down = health.borrow().clone();
    let status =
        if down.values().any(|down| down.for_good) { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
    let lines = down.iter().map(|(task, down)| {
        let then = if down.for_good { "not restarted" } else { "to be restarted" };
        format!("task {task}: {}, {then}\n", down.why)
    });
    let text: String = lines.collect();
    (status, if text.is_empty() { "ok\n".to_owned() } else { text }).into_response()
}

/// Readiness for traffic.
async fn readyz(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    let readiness = admin.readiness.borrow().clone();
    let bound = admin.bound.borrow().clone();
    let refusal = refusal(&readiness, &bound, admin.draining.is_cancelled());
    let status = if refusal.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let mut text = refusal.map_or_else(|| "ready\n".to_owned(), |why| format!("not ready: {why}\n"));
    let asked = query.unwrap_or_default();
    if asked.split('&').any(|part| part == "verbose" || part.starts_with("verbose=")) {
        text.push_str(&details(&readiness, &bound));
        text.extend(admin.cached.borrow().iter().map(cached_line));
    }
    (status, text).into_response()
}

fn refusal(readiness: &Readiness, bound: &Bound, draining: bool) -> Option<&'static str> {
    if draining {
        Some("the process is shutting down")
    } else if !readiness.ready {
        Some("no snapshot has been published yet")
    } else if bound.is_lost() || bound.iter().next().is_none() {
        Some("no socket is open for traffic")
    } else {
        None
    }
}

fn details(readiness: &Readiness, bound: &Bound) -> String {
    let mut text = format!("degraded: {}\n", readiness.degraded);
    if let Some(as_of_s) = readiness.stale_since_s {
        let _ = writeln!(text, "stale: serving the state kept on disk, as of {}", moment(as_of_s));
    }
    if let Some(Generation(held)) = readiness.held {
        let _ = writeln!(text, "held: serving the routes of generation {held}, by a freeze or a rollback");
    }
    for collection in &readiness.collections {
        let _ = writeln!(text, "{}", collection_line(collection));
    }
    for (key, bind) in bound.iter() {
        let address = bind.address().unwrap_or(key.address);
        let _ = match bind.error() {
            None => writeln!(text, "bind {address}: open on {} threads", bind.threads()),
            Some(error) => writeln!(text, "bind {address}: open on {} threads, failing: {error}", bind.threads()),
        };
    }
    text
}

/// The end of the year 9999: later times have no RFC 3339 form.
const YEAR_9999: u64 = 253_402_300_799;

/// A time in seconds since the epoch, in readable form.
fn moment(seconds: u64) -> impl std::fmt::Display {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds.min(YEAR_9999)))
}

fn collection_line(collection: &CollectionReadiness) -> String {
    let place = collection.namespace.as_deref().unwrap_or("all namespaces");
    let synced = match collection.restored_as_of_s {
        _ if collection.synced => "synced".to_owned(),
        Some(as_of_s) => format!("not synced, as of {}", moment(as_of_s)),
        None => "not synced".to_owned(),
    };
    let at = collection.resource_version.as_deref().map(|version| format!(", at {version}")).unwrap_or_default();
    let failing = collection.failing.as_deref().map(|why| format!(", failing: {why}")).unwrap_or_default();
    format!("collection {} in {place}: {synced}{at}{failing}", collection.kind)
}

/// The state of a cached kind, in one line.
pub(crate) fn cached_line((name, state): (&Arc<str>, &CachedState)) -> String {
    let standing = match state.standing {
        CachedCondition::Unknown => "not listed yet".to_owned(),
        CachedCondition::Kept(as_of_s) => format!("stale, as of {}", moment(as_of_s)),
        CachedCondition::Current => "current".to_owned(),
        CachedCondition::Absent => "absent".to_owned(),
    };
    let failing = state.failing.as_deref().map(|why| format!(", failing: {why}")).unwrap_or_default();
    format!("cached {name}: {standing}{failing}\n")
}

/// The text of every series, with its scrape permit, which is released when the text has been sent.
struct Scrape {
    text: Vec<u8>,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Scrape {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

async fn metrics(State((registry, places)): State<(Registry, Arc<Semaphore>)>) -> Response {
    let Ok(place) = places.try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many scrapes at once\n").into_response();
    };
    // Gathering walks every series, which may take a while; health answers meanwhile.
    let gathered = tokio::task::spawn_blocking(move || {
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text).map(|()| Scrape { text, _place: place })
    });
    match gathered.await {
        Ok(Ok(scrape)) => ([(CONTENT_TYPE, METRICS_TYPE)], Body::from(Bytes::from_owner(scrape))).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::object::Kind;

    fn ready() -> Readiness {
        Readiness { ready: true, ..Readiness::default() }
    }

    #[test]
    fn readiness_requires_a_snapshot_and_a_socket() {
        let nothing = Bound::default();
        assert_eq!(refusal(&ready(), &nothing, true), Some("the process is shutting down"));
        assert_eq!(refusal(&Readiness::default(), &nothing, false), Some("no snapshot has been published yet"));
        assert_eq!(refusal(&ready(), &nothing, false), Some("no socket is open for traffic"));
    }

    #[test]
    fn the_details_name_the_failures() {
        let collection = |kind, failing: Option<&str>| CollectionReadiness {
            kind,
            namespace: failing.map(|_| "shop".to_owned()),
            synced: failing.is_none(),
            restored_as_of_s: failing.map(|_| 86_400),
            failing: failing.map(str::to_owned),
            denied: false,
            resource_version: failing.is_none().then(|| "7".to_owned()),
        };
        let collections = vec![collection(Kind::Service, None), collection(Kind::Secret, Some("403 Forbidden"))];
        let readiness = Readiness {
            ready: true,
            degraded: true,
            stale_since_s: Some(86_400),
            held: Some(Generation(7)),
            collections,
        };
        let text = details(&readiness, &Bound::default());
        let want = "degraded: true\n\
            stale: serving the state kept on disk, as of 1970-01-02T00:00:00Z\n\
            held: serving the routes of generation 7, by a freeze or a rollback\n\
            collection Service in all namespaces: synced, at 7\n\
            collection Secret in shop: not synced, as of 1970-01-02T00:00:00Z, failing: 403 Forbidden\n";
        assert_eq!(text, want);
    }

    #[tokio::test]
    async fn stalled_scrapes_are_limited() {
        let places = Arc::new(Semaphore::new(SCRAPES_MAX));
        let registry = Registry::new();
        registry.register(Box::new(prometheus::IntCounter::new("x_total", "x").unwrap())).unwrap();
        let scrape = async || metrics(State((registry.clone(), Arc::clone(&places)))).await;
        let mut unread = Vec::new();
        for _ in 0..SCRAPES_MAX {
            unread.push(scrape().await);
        }
        assert!(unread.iter().all(|answer| answer.status() == StatusCode::OK));
        assert_eq!(scrape().await.status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(unread.pop());
        assert_eq!(scrape().await.status(), StatusCode::OK);
    }
}
