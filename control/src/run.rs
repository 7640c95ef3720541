//! Wiring: informers, the resolver and the loop, in one supervised set. When one of them ends or panics, all are
//! started again with back-off, while the last snapshot serves.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use prometheus::Registry;
use tidegate_config::model::Generation;
use tidegate_config::object::{Kind, ObjectName};
use tidegate_config::published::{Published, Publisher};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::drive::{Loop, Told};
use crate::event::{Event, Source};
use crate::informer::{Informer, Interest, Limits};
use crate::metrics::{ControlMetrics, SnapshotCollector};
use crate::options::Options;
use crate::reconcile::Reconciler;
use crate::resolve::Resolver;
use crate::source_metrics::SourceMetrics;
use crate::view::{Question, Readiness, View};

/// Events that wait for the loop before informers are held back.
const EVENTS_MAX: usize = 4096;
/// Questions that wait for the loop.
const QUESTIONS_MAX: usize = 16;
/// Kept out of the Secrets that are read: what can hold no certificate, and may be large or many.
const SECRETS: &str = "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token,\
                       type!=kubernetes.io/dockerconfigjson,type!=kubernetes.io/dockercfg,type!=bootstrap.kubernetes.io/token";

/// What the control loop needs.
#[derive(Clone)]
pub struct Control {
    /// The API server.
    pub client: kube::Client,
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
    let source_metrics = SourceMetrics::register(registry)?;
    registry.register(Box::new(SnapshotCollector::new(published)?))?;
    let (generation, generation_seen) = watch::channel(Generation::default());
    let (readiness, readiness_seen) = watch::channel(Readiness::default());
    let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
    let view = View { generation: generation_seen, readiness: readiness_seen, questions };
    let state = State { control, publisher, generation, readiness, asked, metrics, source_metrics };
    Ok((view, state.supervise(shutdown)))
}

struct State {
    control: Control,
    publisher: Publisher,
    generation: watch::Sender<Generation>,
    readiness: watch::Sender<Readiness>,
    asked: mpsc::Receiver<Question>,
    metrics: ControlMetrics,
    source_metrics: SourceMetrics,
}

impl State {
    /// Runs one life after the other. A life starts with lists, so nothing of a failed one is carried over but the
    /// publisher, and with it the snapshot that serves meanwhile.
    async fn supervise(mut self, shutdown: CancellationToken) {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(30));
        let mut chance = fastrand::Rng::new();
        while !shutdown.is_cancelled() {
            let ended = AssertUnwindSafe(self.live(&shutdown)).catch_unwind().await;
            if shutdown.is_cancelled() {
                return;
            }
            let why = ended.map_or_else(|panic| panic_text(&*panic), |()| "a task of it ended".to_owned());
            self.metrics.restarts.inc();
            tracing::error!(%why, "the control loop is started again; the last snapshot serves meanwhile");
            let delay = backoff.next(chance.u64(..));
            shutdown.run_until_cancelled(tokio::time::sleep(delay)).await;
        }
    }

    async fn live(&mut self, shutdown: &CancellationToken) {
        let (events, mut received) = mpsc::channel::<Event>(EVENTS_MAX);
        let (names, wanted) = watch::channel(Arc::new(BTreeSet::new()));
        let (relist, mut relists) = mpsc::unbounded_channel::<Source>();
        let stop = shutdown.child_token();
        // Whatever way this life ends, its tasks end with it.
        let _ended = stop.clone().drop_guard();
        let mut tasks = JoinSet::new();
        let mut handles = Vec::new();
        let sources = sources(&self.control.namespaces, self.control.options.default_certificate.as_ref());
        for (seed, source) in (fastrand::u64(..)..).zip(sources.clone()) {
            let selector = (source.kind == Kind::Secret).then(|| SECRETS.to_owned());
            let interest = Interest { field_selector: selector, ..Interest::in_all_of(source.clone()) };
            let Control { client, limits, .. } = self.control.clone();
            let informer = Informer::new(client, interest, limits, events.clone(), &self.source_metrics, seed);
            handles.push((source, informer.relist()));
            tasks.spawn(informer.run(stop.clone()));
        }
        tasks.spawn(Resolver::from_system(wanted, events).run(stop.clone()));
        tasks.spawn(async move {
            while let Some(source) = relists.recv().await {
                handles.iter().filter(|(of, _)| *of == source).for_each(|(_, relist)| relist.ask());
            }
        });
        let told = Told { generation: self.generation.clone(), readiness: self.readiness.clone(), names, relist };
        let reconciler = Reconciler::new(self.control.options.clone(), sources);
        let running =
            Loop::new(reconciler, &mut self.publisher, &told, &self.metrics).run(&mut received, &mut self.asked, &stop);
        tokio::select! {
            () = running => {}
            Some(Err(error)) = tasks.join_next() => tracing::error!(%error, "a task of the control loop failed"),
        }
    }
}

/// What is watched: each kind in every namespace, or in those that were named; Secrets also in the namespace of the default certificate.
fn sources(namespaces: &[Arc<str>], default_certificate: Option<&ObjectName>) -> Vec<Source> {
    let mut sources = BTreeSet::new();
    for kind in Kind::ALL {
        if !kind.namespaced() || namespaces.is_empty() {
            sources.insert(Source { kind, namespace: None });
            continue;
        }
        let secret = default_certificate.filter(|_| kind == Kind::Secret).map(|name| &name.namespace);
        let named = namespaces.iter().chain(secret);
        sources.extend(named.map(|namespace| Source { kind, namespace: Some(Arc::clone(namespace)) }));
    }
    sources.into_iter().collect()
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(namespaces: &[&str], certificate: Option<&str>, want: &[&str]) {
        let namespaces: Vec<Arc<str>> = namespaces.iter().map(|name| (*name).into()).collect();
        let certificate = certificate.map(|namespace| ObjectName::new(namespace, "default"));
        let of = |source: Source| source.namespace.map_or(source.kind.to_string(), |n| format!("{}/{n}", source.kind));
        let mut got: Vec<String> = sources(&namespaces, certificate.as_ref()).into_iter().map(of).collect();
        got.retain(|source| source.starts_with("Secret") || source.starts_with("IngressClass"));
        assert_eq!(got, want);
    }

    #[test]
    fn everything_or_the_namespaces_that_were_named() {
        check(&[], None, &["IngressClass", "Secret"]);
        check(&[], Some("edge"), &["IngressClass", "Secret"]);
        check(&["a", "b", "a"], None, &["IngressClass", "Secret/a", "Secret/b"]);
        check(&["b"], Some("edge"), &["IngressClass", "Secret/b", "Secret/edge"]);
        check(&["b"], Some("b"), &["IngressClass", "Secret/b"]);
    }
}
