//! Cached kinds with a faulty API server: the copies of the informer and a watch cache equal the server's content once
//! it has recovered.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use fastrand::Rng;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use prometheus::Registry;
use serde_json::{Value, json};
use tidegate_control::options::UnconfirmedRemovals;
use tidegate_control::{
    ApiServer, CachedCondition, CachedControl, CachedKind, CachedStates, Copies, CopyEvent, CopyState, CopySubscriber,
    Limits, ServedKind, start_cached,
};
use tidegate_lite::{Feed, Lite, LiteService, WatchCacheKind, WatchCacheLimits};
use tokio_util::sync::CancellationToken;
use tower::Service;

/// An API server that answers as [`Lite`] does, or, for a share of the requests in percent, with a fault.
#[derive(Clone)]
struct Faulty {
    inner: LiteService,
    share: Arc<AtomicU64>,
    draws: Arc<AtomicU64>,
    /// The number of following lists that are empty, at the current version.
    empty: Arc<AtomicU64>,
}

type Answer = Response<http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, Infallible>>;

fn answer(status: StatusCode, body: String) -> Answer {
    Response::builder().status(status).body(Full::from(body).boxed_unsync()).unwrap()
}

impl Faulty {
    /// A random fault for a request to read a collection.
    fn fault(&self, watch: bool) -> Option<Answer> {
        let mut rng = Rng::with_seed(self.draws.fetch_add(1, Ordering::Relaxed));
        if rng.u64(..100) >= self.share.load(Ordering::Relaxed) {
            return None;
        }
        let status = |code: u16| json!({"kind": "Status", "code": code, "message": "drawn", "metadata": {}});
        let empty = json!({"kind": "L", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []});
        Some(match (rng.u8(..5), watch) {
            (0, _) => answer(StatusCode::SERVICE_UNAVAILABLE, status(503).to_string()),
            (1, true) => answer(StatusCode::OK, format!("{}\n", json!({"type": "ERROR", "object": status(410)}))),
            (2, true) => answer(StatusCode::OK, "{\"type\":\"ADDED\",\"object\":{\"metadata\"".to_owned()),
            (3, true) => answer(StatusCode::OK, format!("{}\n", json!({"type": "ADDED", "object": {"metadata": {}}}))),
            (_, true) => answer(StatusCode::OK, String::new()),
            (1, false) => answer(StatusCode::OK, "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[{".to_owned()),
            // The answer of a proxy without the objects: the missing objects must not be removed.
            (2, false) => answer(StatusCode::OK, empty.to_string()),
            (_, false) => answer(StatusCode::NOT_FOUND, status(404).to_string()),
        })
    }
}

impl Service<Request<Body>> for Faulty {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let reads = request.method() == Method::GET && path.ends_with("/configmaps");
        if let Some(fault) = reads.then(|| self.fault(query.contains("watch"))).flatten() {
            return Box::pin(async { Ok(fault) });
        }
        let left = |count: u64| count.checked_sub(1);
        if reads
            && !query.contains("watch")
            && self.empty.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
        {
            *request.uri_mut() = format!("{path}?labelSelector=no%3Dno").parse().unwrap();
        }
        let answered = self.inner.call(request);
        Box::pin(async { Ok(answered.await?.map(http_body_util::BodyExt::boxed_unsync)) })
    }
}

struct Bed {
    /// The API server's own objects.
    upstream: Api<DynamicObject>,
    in_shop: Api<DynamicObject>,
    /// The served copies.
    served: Api<DynamicObject>,
    faulty: Faulty,
    states: tokio::sync::watch::Receiver<CachedStates>,
    _stop: tokio_util::sync::DropGuard,
}

fn config_maps() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "ConfigMap"), "configmaps")
}

fn fed(feed: Feed) -> CopySubscriber {
    CopySubscriber::new(move |copied| {
        match copied {
            CopyEvent::ListBegins => feed.list_begins(),
            CopyEvent::Listed { name, raw } => feed.listed(&name.namespace, &name.name, raw),
            CopyEvent::ListFailed => feed.list_failed(),
            CopyEvent::ListDone { reached, complete, wins } => feed.list_done(reached, complete, wins),
            CopyEvent::Changed { name, raw, gone } => feed.event(&name.namespace, &name.name, raw, gone),
            CopyEvent::Reached(version) => feed.reached(version),
            CopyEvent::Unserved => feed.unserved(),
        }
        if feed.lacks() { CopyState::Lacking } else { CopyState::Whole }
    })
}

fn bed(seed: u64, kind: CachedKind) -> Bed {
    let limits =
        WatchCacheLimits { bytes_max: 1 << 24, unconfirmed_removals_share: 0.5, unconfirmed_removals_count: 2 };
    bed_of(seed, kind, limits, Duration::from_secs(3))
}

fn bed_of(seed: u64, kind: CachedKind, limits: WatchCacheLimits, relist_interval: Duration) -> Bed {
    let lite = Lite::new();
    let draws = Arc::new(AtomicU64::new(seed << 32));
    let faulty = Faulty { inner: lite.service(), share: Arc::default(), draws, empty: Arc::default() };
    let (cache, _) = Lite::watch_cache(&[], limits);
    let of = cache.clone();
    let copies = Copies::to(move |served: &ServedKind| {
        let ServedKind { group, version, plural, kind, namespaced, short } = served.clone();
        fed(of.follow(
            &WatchCacheKind { group, version, plural, kind, namespaced, forwards_writes: false, short },
            limits,
        ))
    });
    let short = Duration::from_millis(20);
    let limits = Limits {
        page_objects: 3,
        watch_timeout: Duration::from_secs(1)..=Duration::from_secs(2),
        short_watch: short,
        backoff_first: Duration::from_millis(5),
        backoff_max: short,
        relist_interval,
        ..Limits::default()
    };
    let control = CachedControl {
        client: Client::new(faulty.clone(), "default"),
        api_server: ApiServer::default(),
        kinds: vec![kind],
        removals: UnconfirmedRemovals { share: 0.5, count: 2 },
        limits,
        cache: None,
        copies,
    };
    let stop = CancellationToken::new();
    let (states, running) = start_cached(control, &Registry::new(), stop.clone()).unwrap();
    tokio::spawn(running);
    let direct = Client::new(lite.service(), "default");
    Bed {
        upstream: Api::all_with(direct.clone(), &config_maps()),
        in_shop: Api::namespaced_with(direct, "default", &config_maps()),
        served: Api::all_with(Client::new(cache.service(), "default"), &config_maps()),
        faulty,
        states,
        _stop: stop.drop_guard(),
    }
}

/// Every object with its version.
async fn all(api: &Api<DynamicObject>) -> Result<Vec<Value>, kube::Error> {
    Ok(api
        .list(&ListParams::default())
        .await?
        .items
        .iter()
        .map(|object| serde_json::to_value(object).unwrap())
        .collect())
}

impl Bed {
    async fn same(&self, what: &str) {
        let compared = async {
            loop {
                let want = all(&self.upstream).await.unwrap();
                if all(&self.served).await.is_ok_and(|got| got == want) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), compared)
            .await
            .unwrap_or_else(|_| panic!("{what}: never the same"));
    }

    async fn change(&self, rng: &mut Rng) {
        let name = format!("map-{}", rng.u8(..12));
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"odd": "true"}},
            "data": {"a": rng.u32(..).to_string()}});
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        // A refused request, such as a second create, changes nothing.
        match rng.u8(..4) {
            0 => drop(self.in_shop.delete(&name, &DeleteParams::default()).await),
            1 => drop(self.in_shop.patch(&name, &PatchParams::default(), &Patch::Merge(&object)).await),
            _ => drop(self.in_shop.create(&PostParams::default(), &object).await),
        }
    }
}

fn kind() -> CachedKind {
    CachedKind::new("configmaps", "", None)
}

#[tokio::test(start_paused = true)]
async fn copies_equal_the_api_server_after_its_recovery() {
    for seed in 0..24 {
        let (bed, mut rng) = (bed(seed, kind()), Rng::with_seed(seed));
        for round in 0..4 {
            bed.faulty.share.store(rng.u64(..90), Ordering::Relaxed);
            for _ in 0..rng.usize(5..40) {
                bed.change(&mut rng).await;
                tokio::time::sleep(Duration::from_millis(rng.u64(..200))).await;
            }
            bed.faulty.share.store(0, Ordering::Relaxed);
            bed.same(&format!("seed {seed}, round {round}")).await;
        }
        // The objects may be equal while a refused watch has not been opened again.
        let well = |states: &CachedStates| {
            states.values().all(|state| (state.standing, state.denied) == (CachedCondition::Current, false))
        };
        let mut states = bed.states.clone();
        let reached = tokio::time::timeout(Duration::from_secs(60), states.wait_for(well)).await;
        assert!(reached.is_ok(), "seed {seed}: {:?}", bed.states.borrow());
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_lacks_most_objects_must_be_confirmed() {
    let bed = bed(0, kind());
    let mut rng = Rng::with_seed(7);
    while all(&bed.upstream).await.unwrap().len() < 8 {
        bed.change(&mut rng).await;
    }
    bed.same("at first").await;
    // A periodic list. Only the list that confirms it follows.
    bed.faulty.empty.store(1, Ordering::Relaxed);
    for _ in 0..400 {
        assert_eq!(all(&bed.served).await.unwrap().len(), 8);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(bed.faulty.empty.load(Ordering::Relaxed), 0, "it was made");
    bed.faulty.empty.store(2, Ordering::Relaxed);
    while !all(&bed.served).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The confirming list shows the true state.
    bed.same("at last").await;
}

/// Periodic lists are an hour apart, so that only the missing room can cause one.
#[tokio::test(start_paused = true)]
async fn a_kind_beyond_the_memory_limit_is_served_once_it_fits() {
    let limits = WatchCacheLimits { bytes_max: 20_000, unconfirmed_removals_share: 0.5, unconfirmed_removals_count: 2 };
    let bed = bed_of(0, kind(), limits, Duration::from_secs(3600));
    let map = |name: &str, bytes: usize| -> DynamicObject {
        let data = json!({"a": "x".repeat(bytes)});
        serde_json::from_value(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}),
        )
        .unwrap()
    };
    bed.in_shop.create(&PostParams::default(), &map("small", 10)).await.unwrap();
    bed.same("at first").await;
    bed.in_shop.create(&PostParams::default(), &map("large", 30_000)).await.unwrap();
    while all(&bed.served).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Lists that do not help are repeated with growing delays.
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(all(&bed.served).await.is_err());
    bed.in_shop.delete("large", &DeleteParams::default()).await.unwrap();
    let served = async {
        while all(&bed.served).await.is_err() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), served).await.expect("listed again");
    bed.same("at last").await;
}

#[tokio::test(start_paused = true)]
async fn only_selected_objects_are_cached() {
    let wanted = CachedKind { label_selector: Some("odd=true".into()), ..kind() };
    let bed = bed(0, wanted);
    for (name, odd) in [("one", "true"), ("two", "false")] {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"odd": odd}}});
        bed.in_shop.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
    let mut states = bed.states.clone();
    let current = states.wait_for(|states| states.values().all(|state| state.standing == CachedCondition::Current));
    drop(tokio::time::timeout(Duration::from_secs(60), current).await.expect("current").unwrap());
    let names = async || {
        bed.served
            .list(&ListParams::default())
            .await
            .map(|list| list.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>())
    };
    while names().await.unwrap() != ["one"] {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_resource_is_reported_as_absent() {
    let bed = bed(0, CachedKind::new("widgets", "", None));
    let mut states = bed.states.clone();
    let absent = states.wait_for(|states| states.values().all(|state| state.standing == CachedCondition::Absent));
    let told = tokio::time::timeout(Duration::from_secs(60), absent).await.expect("absent").unwrap().clone();
    let state = told.values().next().unwrap();
    assert!(!state.is_pending(), "a denied kind delays nothing");
}
