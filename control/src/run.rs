//! Wiring: informers, the resolver and the loop, in one supervised set. When one of them ends or panics, all are
//! started again with back-off, while the last snapshot serves.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use prometheus::Registry;
use tidegate_config::caught::said;
use tidegate_config::model::Generation;
use tidegate_config::object::{Kind, ObjectName};
use tidegate_config::published::{Published, Publisher};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api_server::ApiServer;
use crate::backoff::Backoff;
use crate::clock;
use crate::drive::{Loop, Told};
use crate::event::{Event, Source};
use crate::history::History;
use crate::informer::{Informer, Interest, Limits, Named, NamedMetrics, Recovery};
use crate::metrics::{ControlMetrics, SnapshotCollector};
use crate::options::{Options, Publish, Secrets};
use crate::queue::Meter;
use crate::reconcile::Names;
use crate::reconcile::Reconciler;
use crate::resolve::Resolver;
use crate::source_metrics::SourceMetrics;
use crate::status::Reports;
use crate::view::{Question, Readiness, View};

/// Events that wait for the loop before informers are held back.
const EVENTS_MAX: usize = 4096;
/// Questions that wait for the loop.
const QUESTIONS_MAX: usize = 16;
/// A life that has lasted this long was sound: the pauses between lives begin anew.
const SOUND_AFTER: Duration = Duration::from_secs(60);
/// Kept out of the Secrets that are read: what can hold no certificate, and may be large or many.
const SECRETS: &str = "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token,\
                       type!=kubernetes.io/dockerconfigjson,type!=kubernetes.io/dockercfg,type!=bootstrap.kubernetes.io/token";

/// What the control loop needs.
#[derive(Clone)]
pub struct Control {
    /// The API server.
    pub client: kube::Client,
    /// Where it is: what no object may lead to.
    pub api_server: ApiServer,
    /// The namespaces to watch; none means all of them.
    pub namespaces: Vec<Arc<str>>,
    /// What the operator decided.
    pub options: Options,
    /// Bounds of the list/watch loops.
    pub limits: Limits,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("namespaces", &self.namespaces).finish_non_exhaustive()
    }
}

/// Registers the metrics and returns the view of the loop with the future that runs it until `shutdown`.
///
/// # Errors
/// When a metric cannot be registered.
pub fn start(
    control: Control,
    (publisher, published): (Publisher, Published),
    registry: &Registry,
    shutdown: CancellationToken,
) -> Result<(View, impl Future<Output = ()> + Send + 'static), prometheus::Error> {
    let metrics = ControlMetrics::register(registry)?;
    let (source_metrics, named_metrics) = (SourceMetrics::register(registry)?, NamedMetrics::register(registry)?);
    registry.register(Box::new(SnapshotCollector::new(published)?))?;
    let (generation, generation_seen) = watch::channel(Generation::default());
    let (readiness, readiness_seen) = watch::channel(Readiness::default());
    let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
    let reports = Reports::new(Meter::register(registry, "status")?, Meter::register(registry, "events")?);
    let view = View { generation: generation_seen, readiness: readiness_seen, questions, reports: reports.clone() };
    let sources = sources(&control.namespaces, &control.options);
    let reconciler =
        Reconciler::new(control.options.clone(), sources.clone()).metered(Meter::register(registry, "routes")?);
    let history = History::new(control.options.keep);
    let state = State {
        control,
        sources,
        reconciler,
        publisher,
        history,
        generation,
        readiness,
        asked,
        metrics,
        source_metrics,
        named_metrics,
        reports,
    };
    Ok((view, state.supervise(shutdown)))
}

struct State {
    control: Control,
    sources: Vec<Source>,
    reconciler: Reconciler,
    publisher: Publisher,
    history: History,
    generation: watch::Sender<Generation>,
    readiness: watch::Sender<Readiness>,
    asked: mpsc::Receiver<Question>,
    metrics: ControlMetrics,
    source_metrics: SourceMetrics,
    named_metrics: NamedMetrics,
    reports: Reports,
}

impl State {
    /// Runs one life after the other. A life starts with lists; of the one before, it keeps the publisher, and with it the
    /// snapshot that serves meanwhile, history, and World, so that what it lists is measured against what serves.
    async fn supervise(mut self, shutdown: CancellationToken) {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(30));
        let mut chance = fastrand::Rng::new();
        while !shutdown.is_cancelled() {
            let started = clock::now();
            let ended = AssertUnwindSafe(self.live(&shutdown)).catch_unwind().await;
            if shutdown.is_cancelled() {
                return;
            }
            let why = ended.unwrap_or_else(|panic| format!("the loop panicked: {}", said(&*panic)));
            self.metrics.restarts.inc();
            tracing::error!(%why, "the control loop is started again; the last snapshot serves meanwhile");
            if clock::now().saturating_duration_since(started) >= SOUND_AFTER {
                backoff.reset();
            }
            let delay = backoff.next(chance.u64(..));
            shutdown.run_until_cancelled(tokio::time::sleep(delay)).await;
            self.reconciler.start_over(self.sources.iter().cloned());
        }
    }

    /// One life, to its end; gives why it ended.
    async fn live(&mut self, shutdown: &CancellationToken) -> String {
        let (events, mut received) = mpsc::channel::<Event>(EVENTS_MAX);
        let (names, wanted) = watch::channel(Arc::new(Names::new()));
        let (relist, mut relists) = mpsc::unbounded_channel::<Source>();
        let stop = shutdown.child_token();
        // Whatever way this life ends, its tasks end with it.
        let _ended = stop.clone().drop_guard();
        let mut tasks = JoinSet::new();
        let (mut handles, recovery) = (Vec::new(), Recovery::default());
        let (secrets, followed) = mpsc::unbounded_channel();
        let Control { client, namespaces, options, limits, api_server } = &self.control;
        let by_name = match options.secrets {
            Secrets::Watched => None,
            Secrets::Referenced { refresh } => Some(refresh),
        };
        if let Some(refresh) = by_name {
            let (metrics, seed) = (self.named_metrics.clone(), fastrand::u64(..));
            let (client, limits) = (client.clone(), limits.clone());
            let named =
                Named::new(client, (refresh, limits), followed, events.clone(), metrics, seed).sharing(&recovery);
            tasks.spawn(ending("Secrets by name".to_owned(), named.run(stop.clone())));
        }
        let listed = self.sources.iter().filter(|source| source.kind != Kind::Secret || by_name.is_none());
        for (seed, source) in (fastrand::u64(..)..).zip(listed.cloned()) {
            let field_selector = field_selector(&source, namespaces, options);
            let label_selector = label_selector(&source, options);
            let interest = Interest { field_selector, label_selector, ..Interest::in_all_of(source.clone()) };
            let (client, limits) = (client.clone(), limits.clone());
            let informer = Informer::new(client, interest, limits, events.clone(), &self.source_metrics, seed);
            let informer = informer.sharing(&recovery);
            handles.push((source.clone(), informer.relist()));
            tasks.spawn(ending(format!("the informer of {source}"), informer.run(stop.clone())));
        }
        let resolver = Resolver::from_system(wanted, events);
        tasks.spawn(ending("the resolver".to_owned(), resolver.run(stop.clone())));
        tasks.spawn(ending("relisting".to_owned(), async move {
            while let Some(source) = relists.recv().await {
                handles.iter().filter(|(of, _)| *of == source).for_each(|(_, relist)| relist.ask());
            }
        }));
        let (generation, readiness) = (self.generation.clone(), self.readiness.clone());
        let told = Told { generation, readiness, names, secrets, relist, reports: self.reports.clone() };
        let Self { reconciler, publisher, history, metrics, asked, .. } = self;
        let running = Loop::new(reconciler, publisher, history, &told, metrics, api_server);
        first_end(running.run(&mut received, asked, &stop), &mut tasks).await
    }
}

/// Runs a task and says how it ended.
async fn ending(name: String, task: impl Future<Output = ()>) -> String {
    match AssertUnwindSafe(task).catch_unwind().await {
        Ok(()) => format!("{name} ended by itself"),
        Err(panic) => format!("{name} panicked: {}", said(&*panic)),
    }
}

/// Waits until the loop or one of its tasks ends, in whatever way: none of them is to end before the others.
async fn first_end(running: impl Future<Output = ()>, tasks: &mut JoinSet<String>) -> String {
    tokio::select! {
        () = running => "the loop ended by itself".to_owned(),
        Some(ended) = tasks.join_next() => ended.unwrap_or_else(|error| error.to_string()),
    }
}

/// The one object of a kind that is read wherever it is: the Secret of the default certificate, and the Service whose addresses
/// are told.
fn anywhere(kind: Kind, options: &Options) -> Option<&ObjectName> {
    match (kind, &options.publish) {
        (Kind::Secret, _) => options.default_certificate.as_ref(),
        (Kind::Deployment, _) => options.sources.deis.as_ref(),
        (Kind::Service, Publish::Service(service)) => Some(service),
        (Kind::Service | Kind::Ingress | Kind::IngressClass | Kind::EndpointSlice, _) => None,
    }
}

/// Whether a kind is read at all.
fn needed(kind: Kind, options: &Options) -> bool {
    match kind {
        Kind::Ingress | Kind::IngressClass => options.sources.ingress,
        Kind::Deployment => options.sources.deis.is_some(),
        Kind::Service | Kind::EndpointSlice | Kind::Secret => true,
    }
}

/// By which labels the objects of a source are selected: where Services make routes by a label and nothing else leads to them, the
/// others cost nothing. The Service whose addresses are told may have any labels, so where there is one, all are read.
fn label_selector(source: &Source, options: &Options) -> Option<String> {
    let alone = !options.sources.ingress && !matches!(options.publish, Publish::Service(_));
    (source.kind == Kind::Service && alone).then(|| "router.deis.io/routable=true".to_owned())
}

/// What of a source is read: outside of the namespaces that were named, one object, so that a role need not allow more.
fn field_selector(source: &Source, namespaces: &[Arc<str>], options: &Options) -> Option<String> {
    let types = (source.kind == Kind::Secret).then(|| SECRETS.to_owned());
    let outside = source.namespace.as_ref().is_some_and(|namespace| !namespaces.contains(namespace));
    let one = outside || source.kind == Kind::Deployment;
    let alone = anywhere(source.kind, options).filter(|_| one).map(|name| format!("metadata.name={}", name.name));
    let selectors: Vec<String> = types.into_iter().chain(alone).collect();
    (!selectors.is_empty()).then(|| selectors.join(","))
}

/// What is watched: each kind in every namespace, or in those that were named, and there what is read wherever it is. Secrets that
/// are read by name are one source.
fn sources(namespaces: &[Arc<str>], options: &Options) -> Vec<Source> {
    let mut sources = BTreeSet::new();
    for kind in Kind::ALL.into_iter().filter(|kind| needed(*kind, options)) {
        let by_name = kind == Kind::Secret && options.secrets != Secrets::Watched;
        if kind == Kind::Deployment {
            let router = options.sources.deis.as_ref().map(|router| Arc::clone(&router.namespace));
            sources.insert(Source { kind, namespace: router });
            continue;
        }
        if !kind.namespaced() || namespaces.is_empty() || by_name {
            sources.insert(Source { kind, namespace: None });
            continue;
        }
        let named = namespaces.iter().chain(anywhere(kind, options).map(|name| &name.namespace));
        sources.extend(named.map(|namespace| Source { kind, namespace: Some(Arc::clone(namespace)) }));
    }
    sources.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(namespaces: &[&str], certificate: Option<&str>, want: &[&str]) {
        check_with(namespaces, certificate, Publish::Nothing, &["IngressClass", "Secret"], want);
    }

    #[track_caller]
    fn check_with(namespaces: &[&str], certificate: Option<&str>, publish: Publish, kinds: &[&str], want: &[&str]) {
        let namespaces: Vec<Arc<str>> = namespaces.iter().map(|name| (*name).into()).collect();
        let default_certificate = certificate.map(|namespace| ObjectName::new(namespace, "default"));
        let options = Options { default_certificate, publish, ..Options::default() };
        let of = |source: Source| source.namespace.map_or(source.kind.to_string(), |n| format!("{}/{n}", source.kind));
        let mut got: Vec<String> = sources(&namespaces, &options).into_iter().map(of).collect();
        got.retain(|source| kinds.contains(&source.split('/').next().unwrap()));
        assert_eq!(got, want);
    }

    #[test]
    fn everything_or_the_namespaces_that_were_named() {
        check(&[], None, &["IngressClass", "Secret"]);
        check(&[], Some("edge"), &["IngressClass", "Secret"]);
        check(&["a", "b", "a"], None, &["IngressClass", "Secret/a", "Secret/b"]);
        check(&["b"], Some("edge"), &["IngressClass", "Secret/b", "Secret/edge"]);
        check(&["b"], Some("b"), &["IngressClass", "Secret/b"]);
        let publish = || Publish::Service(ObjectName::new("edge", "lb"));
        check_with(&[], None, publish(), &["Service", "Secret"], &["Service", "Secret"]);
        let want = ["Ingress/b", "Service/b", "Service/edge"];
        check_with(&["b"], None, publish(), &["Service", "Ingress"], &want);
    }

    #[test]
    fn outside_of_the_namespaces_one_object_is_read() {
        let options = Options {
            default_certificate: Some(ObjectName::new("edge", "default")),
            publish: Publish::Service(ObjectName::new("edge", "lb")),
            ..Options::default()
        };
        let check = |(kind, of): (Kind, Option<&str>), namespaces: &[&str], want: &str| {
            let namespaces: Vec<Arc<str>> = namespaces.iter().map(|name| (*name).into()).collect();
            let source = Source { kind, namespace: of.map(Into::into) };
            let got = field_selector(&source, &namespaces, &options).unwrap_or_default();
            assert_eq!(got, want, "{source} beside {namespaces:?}");
        };
        check((Kind::Service, None), &[], "");
        check((Kind::Service, Some("b")), &["b"], "");
        check((Kind::Service, Some("edge")), &["b"], "metadata.name=lb");
        check((Kind::Service, Some("edge")), &["b", "edge"], "");
        check((Kind::Secret, None), &[], SECRETS);
        check((Kind::Secret, Some("edge")), &["b", "edge"], SECRETS);
        check((Kind::Secret, Some("edge")), &["b"], &format!("{SECRETS},metadata.name=default"));
    }

    #[test]
    fn secrets_by_name_are_one_source() {
        let secrets = Secrets::Referenced { refresh: Duration::from_secs(1) };
        let options = Options { secrets, ..Options::default() };
        let sources = sources(&["a".into(), "b".into()], &options);
        let secrets: Vec<_> = sources.into_iter().filter(|source| source.kind == Kind::Secret).collect();
        assert_eq!(secrets, [Source { kind: Kind::Secret, namespace: None }]);
    }

    /// Why a life ends in which the loop goes on, beside one task that never ends and this one.
    #[track_caller]
    fn check_end(task: impl Future<Output = ()> + Send + 'static, want: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let ended = runtime.block_on(async {
            let mut tasks = JoinSet::new();
            tasks.spawn(ending("one".to_owned(), std::future::pending()));
            tasks.spawn(ending("another".to_owned(), task));
            let end = first_end(std::future::pending(), &mut tasks);
            tokio::time::timeout(Duration::from_secs(20), end).await
        });
        assert_eq!(ended.as_deref(), Ok(want));
    }

    #[test]
    fn a_task_that_ends_in_any_way_ends_the_life() {
        check_end(async {}, "another ended by itself");
        check_end(async { panic!("no {}", "luck") }, "another panicked: no luck");
    }
}
