//! A kind that is cached and served and that routing does not read: it is listed and watched like other kinds, for the
//! disk and the server of copies only. Objects are not parsed beyond their identity.

mod cached_collection;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use tidegate_config::object::{Kind, ObjectName};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::api::Api;
use super::compare::Identity;
use super::discovery::look_up;
use super::failure::Failure;
use super::lacking::Lacking;
use super::pauses::{Pauses, Recovery};
use super::tee::Tee;
use super::{Interest, Limits, Resource};
use crate::clock;
use crate::cluster::cache::Sink;
use crate::cluster::cached::{CachedCondition, CachedKind, ServedKind, StateReporter};
use crate::cluster::collection_metrics::CollectionMetrics;
use crate::cluster::copies::Copies;
use crate::event::Collection;
use crate::options::UnconfirmedRemovals;
use cached_collection::CachedCollection;

/// Lists and watches one cached kind.
#[derive(Clone)]
pub(crate) struct CachedInformer {
    pub(crate) client: kube::Client,
    pub(crate) wanted: CachedKind,
    pub(crate) limits: Limits,
    pub(crate) removals: UnconfirmedRemovals,
    pub(crate) metrics: CollectionMetrics,
    pub(crate) sink: Option<Sink>,
    pub(crate) copies: Option<Copies<ServedKind>>,
    pub(crate) identity: Identity,
    pub(crate) reporter: StateReporter,
    /// Signals requests for a list.
    pub(crate) asked: watch::Receiver<u64>,
    pub(crate) rng: fastrand::Rng,
    pub(crate) recovery: Recovery,
}

/// The restored state of a cached kind.
#[derive(Debug, Default)]
pub(crate) struct Restarted {
    pub(crate) served: Option<ServedKind>,
    pub(crate) names: BTreeSet<ObjectName>,
    pub(crate) resume: Option<Arc<str>>,
}

impl CachedInformer {
    /// Runs until `stop` is cancelled.
    pub(crate) async fn run(mut self, restarted: Restarted, stop: CancellationToken) {
        // Each step is cancel-safe: an interrupted one is repeated from the last known state.
        if let Some(never) = stop.run_until_cancelled(self.follow(restarted)).await {
            match never {}
        }
    }

    async fn follow(&mut self, restarted: Restarted) -> Infallible {
        let Restarted { mut served, mut names, mut resume } = restarted;
        let mut pauses = Pauses::new(&self.limits);
        pauses.share(&self.recovery);
        loop {
            let found = match served.take() {
                Some(served) => served,
                None => self.discover(&mut pauses).await,
            };
            let moved = self.collection(&found, std::mem::take(&mut names), resume.take()).follow().await;
            served = self.discovered_again(&found, &mut pauses).await;
            if served.as_ref() == Some(&found) {
                (names, resume) = (moved.names, moved.reached);
            }
        }
    }

    /// Looks up the resource of the kind until it exists.
    async fn discover(&mut self, pauses: &mut Pauses) -> ServedKind {
        loop {
            pauses.begin();
            let failure = match look_up(&self.client, &self.limits, &self.wanted).await {
                Ok(Some(served)) => {
                    pauses.answered();
                    self.reporter.report(|state| (state.served, state.failing) = (Some(served.clone()), None));
                    return served;
                }
                Ok(None) => {
                    pauses.answered();
                    self.reporter.report(|state| state.standing = CachedCondition::Absent);
                    self.absent()
                }
                Err(failure) => failure,
            };
            self.wait_after(&failure, pauses).await;
        }
    }

    /// Looks up the resource again after a 404 of the collection. `None` if the API server no longer serves the kind.
    async fn discovered_again(&mut self, before: &ServedKind, pauses: &mut Pauses) -> Option<ServedKind> {
        loop {
            pauses.begin();
            let failure = match look_up(&self.client, &self.limits, &self.wanted).await {
                Ok(Some(now)) if now == *before => return Some(now),
                Ok(now) => {
                    tracing::warn!(kind = %self.wanted, ?now, "the API server no longer serves a cached kind as before");
                    self.tee(before).unserved(false);
                    self.reporter.report(|state| {
                        (state.served, state.standing) = (now.clone(), CachedCondition::Unknown);
                    });
                    return now;
                }
                Err(failure) => failure,
            };
            self.wait_after(&failure, pauses).await;
        }
    }

    fn absent(&self) -> Failure {
        let hint =
            if self.wanted.group.is_empty() { "; a kind of another group is named as deployments.apps" } else { "" };
        let why = format!("it has no {} that can be listed and watched{hint}", self.wanted);
        Failure::Refused { code: 404, why, retry_after: None }
    }

    async fn wait_after(&mut self, failure: &Failure, pauses: &mut Pauses) {
        let pause = pauses.after(failure, self.rng.u64(..));
        let (why, denied) = (failure.to_string(), failure.is_denied());
        let mut news = false;
        self.reporter.report(|state| {
            news = state.failing.as_ref() != Some(&why);
            (state.failing, state.denied) = (Some(why), denied);
        });
        if news && !failure.is_expired() {
            tracing::warn!(kind = %self.wanted, error = %failure, pause = ?pause.length, "a cached kind cannot be listed or watched");
        } else {
            tracing::debug!(kind = %self.wanted, error = %failure, pause = ?pause.length, "a cached kind cannot be listed or watched");
        }
        pauses.wait(pause, self.rng.u64(..)).await;
    }

    fn tee(&self, served: &ServedKind) -> Tee {
        Tee { sink: self.sink.clone(), copies: self.copies.as_ref().map(|copies| copies.of(served)) }
    }

    fn collection(
        &mut self,
        served: &ServedKind,
        names: BTreeSet<ObjectName>,
        resume: Option<Arc<str>>,
    ) -> CachedCollection<'_> {
        let interest = Interest {
            // The resource determines the objects to read; the collection is unused.
            collection: Collection { kind: Kind::FIRST, namespace: None },
            resource: Resource::new(&served.group, &served.version, &served.plural),
            label_selector: self.wanted.label_selector.as_deref().map(str::to_owned),
            field_selector: self.wanted.field_selector.as_deref().map(str::to_owned),
        };
        let mut pauses = Pauses::new(&self.limits);
        pauses.share(&self.recovery);
        CachedCollection {
            api: Api::new(self.client.clone(), interest, self.limits.clone()),
            series: self.metrics.of_kind(&served.resource_name(), ""),
            tee: self.tee(served),
            pauses,
            names,
            resumes: resume.is_some(),
            reached: resume,
            list_due: clock::now() + self.limits.relist_after(self.rng.u64(..)),
            page_objects: self.limits.page_objects.max(1),
            unconfirmed: false,
            lacking: Lacking::new(&self.limits),
            of: self,
        }
    }
}
