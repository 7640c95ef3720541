//! The public view of the control loop: readiness, findings, topology. Questions are sent to the loop and answered
//! between two batches, so its state needs no lock.

use serde::Serialize;
use tidegate_config::finding::Finding;
use tidegate_config::model::Generation;
use tidegate_config::object::{Kind, ObjectRef};
use tokio::sync::{mpsc, oneshot, watch};

use crate::attachment::{Key, Verdict};
use crate::cluster::cached::CachedStates;
use crate::command::{Command, CommandRefusal, Commanded};
use crate::explain::{Ignored, Refused};
use crate::history::Publication;
use crate::not_serving::NotServing;
use crate::reconcile::{Desired, DesiredInfrastructure, ObjectFindings};
use crate::report_queue::Reports;
use crate::tree::{Tree, TreeQuery};

/// A handle to the control loop; cloning it is cheap.
#[derive(Clone, Debug)]
pub struct View {
    pub(crate) generation: watch::Receiver<Generation>,
    pub(crate) readiness: watch::Receiver<Readiness>,
    pub(crate) cached: watch::Receiver<CachedStates>,
    pub(crate) questions: mpsc::Sender<Question>,
    pub(crate) reports: Reports,
}

/// Whether the edge can serve traffic, and the state of its collections.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Readiness {
    /// The first complete model has been published. It stays `true` while the API server is unavailable.
    pub ready: bool,
    /// A collection cannot be listed or watched: its objects are missing or stale.
    pub degraded: bool,
    /// The time of the restored state that still serves, in seconds since the epoch; `None` once every restored
    /// collection is current.
    pub stale_since_s: Option<u64>,
    /// The generation whose routes are held by a freeze or a rollback.
    pub held: Option<Generation>,
    /// All collections.
    pub collections: Vec<CollectionReadiness>,
}

impl Readiness {
    /// Whether the state of the cluster is current, so that reports can be written. A collection that the API server
    /// denies never becomes current, and does not block the others.
    pub(crate) fn may_report(&self) -> bool {
        let settled = |collection: &CollectionReadiness| {
            collection.synced || collection.restored_as_of_s.is_none() || collection.denied
        };
        let known = self.collections.iter().any(|collection| collection.synced) && self.collections.iter().all(settled);
        self.stale_since_s.is_none() || known
    }
}

/// The state of one collection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CollectionReadiness {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; `None` for all.
    pub namespace: Option<String>,
    /// Whether it is current: it has been listed completely, or its watch was resumed from the restored state.
    pub synced: bool,
    /// The time of the restored state, in seconds since the epoch, if that serves because the collection is not synced.
    pub restored_as_of_s: Option<u64>,
    /// The reason why it fails at the moment, if it does.
    pub failing: Option<String>,
    /// Whether it fails because the API server denies access or does not serve the kind.
    pub denied: bool,
    /// The resourceVersion of the latest event.
    pub resource_version: Option<String>,
}

/// The recent publications.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecentPublications {
    /// The generation whose routes are held.
    pub held: Option<Generation>,
    /// The oldest generation of the range that can be rolled back to.
    pub oldest: Option<Generation>,
    /// The generation that was held last, if it is older than those: it can be rolled back to as well.
    pub apart: Option<Generation>,
    /// The current generation.
    pub newest: Generation,
    /// The latest publications, oldest first; changes of the endpoints of one Service within a minute are joined to
    /// one.
    pub publications: Vec<Publication>,
}

/// A filter of publications.
#[derive(Clone, Debug)]
pub(crate) struct HistoryFilter {
    /// The maximum number; the latest are returned.
    pub(crate) last: usize,
    /// Only publications that may have changed this host, in the notation of rules.
    pub(crate) host: Option<String>,
}

/// A question or a command for the loop.
#[derive(Debug)]
pub(crate) enum Question {
    History(HistoryFilter, oneshot::Sender<RecentPublications>),
    NotServing(oneshot::Sender<NotServing>),
    Command(Command, oneshot::Sender<Result<Commanded, CommandRefusal>>),
    Findings(oneshot::Sender<Vec<Finding>>),
    Topology(oneshot::Sender<Vec<(ObjectRef, Key)>>),
    Refused(ObjectRef, String, oneshot::Sender<Vec<Refused>>),
    Ignored(String, oneshot::Sender<Vec<Ignored>>),
    Tree(TreeQuery, oneshot::Sender<Tree>),
    Verdicts(oneshot::Sender<Vec<(ObjectRef, Verdict)>>),
    DesiredStatus(ObjectRef, oneshot::Sender<Option<Desired>>),
    DesiredInfrastructure(ObjectRef, oneshot::Sender<Option<DesiredInfrastructure>>),
    ObjectFindings(ObjectRef, oneshot::Sender<Option<ObjectFindings>>),
    LookAgain(oneshot::Sender<()>),
    /// The other writer of a contested status, if it is known.
    StatusWriter(ObjectRef, Option<String>, oneshot::Sender<()>),
}

impl View {
    /// The latest published generation; it changes with each publication.
    #[must_use]
    pub fn generation(&self) -> watch::Receiver<Generation> {
        self.generation.clone()
    }

    /// The readiness, with updates on every change.
    #[must_use]
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.clone()
    }

    /// The states of cached kinds that routing does not read.
    #[must_use]
    pub fn cached(&self) -> watch::Receiver<CachedStates> {
        self.cached.clone()
    }

    /// The current findings, ordered by object. `None` while the loop does not run.
    pub async fn findings(&self) -> Option<Vec<Finding>> {
        self.ask(Question::Findings).await
    }

    /// Every reference between objects. `None` while the loop does not run.
    pub async fn topology(&self) -> Option<Vec<(ObjectRef, Key)>> {
        self.ask(Question::Topology).await
    }

    /// A page of the tree of attachments. `None` while the loop does not run.
    pub async fn tree(&self, query: TreeQuery) -> Option<Tree> {
        self.ask(|answer| Question::Tree(query, answer)).await
    }

    /// The routes for a host that a Gateway does not accept, whether they refer to it or to one of its ListenerSets; a
    /// bounded number. `None` while the loop does not run.
    pub async fn refused(&self, gateway: ObjectRef, host: String) -> Option<Vec<Refused>> {
        self.ask(|answer| Question::Refused(gateway, host, answer)).await
    }

    /// The Ingresses and routes for a host that belong to another controller or to none; a bounded number. `None` while
    /// the loop does not run.
    pub async fn ignored(&self, host: String) -> Option<Vec<Ignored>> {
        self.ask(|answer| Question::Ignored(host, answer)).await
    }

    /// The verdict on each object that has one. `None` while the loop does not run.
    pub async fn verdicts(&self) -> Option<Vec<(ObjectRef, Verdict)>> {
        self.ask(Question::Verdicts).await
    }

    /// The latest publications, at most `last`; with a host, only those that may have changed it: it is among the
    /// recorded names, or some names were not recorded. `None` while the loop does not run.
    pub async fn history(&self, last: usize, host: Option<String>) -> Option<RecentPublications> {
        self.ask(|answer| Question::History(HistoryFilter { last, host }, answer)).await
    }

    /// Compiled routes that do not serve, with the reasons. `None` while the loop does not run.
    pub async fn not_serving(&self) -> Option<NotServing> {
        self.ask(Question::NotServing).await
    }

    /// Runs a command and returns its effect. `None` while the loop does not run.
    ///
    /// # Errors
    /// Returns the reason for a refusal; nothing has changed then.
    pub async fn command(&self, command: Command) -> Option<Result<Commanded, CommandRefusal>> {
        self.ask(|answer| Question::Command(command, answer)).await
    }

    /// The status to write to an object, if it differs. `None` while the loop does not run.
    pub(crate) async fn desired_status(&self, object: ObjectRef) -> Option<Option<Desired>> {
        self.ask(|answer| Question::DesiredStatus(object, answer)).await
    }

    /// The desired infrastructure of a Gateway. `None` while the loop does not run, or a collection is missing.
    pub(crate) async fn desired_infrastructure(&self, gateway: ObjectRef) -> Option<DesiredInfrastructure> {
        self.ask(|answer| Question::DesiredInfrastructure(gateway, answer)).await.flatten()
    }

    /// The findings about an object. `None` while the loop does not run, or a collection is missing.
    pub(crate) async fn findings_to_report(&self, object: ObjectRef) -> Option<ObjectFindings> {
        self.ask(|answer| Question::ObjectFindings(object, answer)).await.flatten()
    }

    /// Queues every object whose status differs from the desired one, and every object with findings. `None` while the
    /// loop does not run.
    pub(crate) async fn look_again(&self) -> Option<()> {
        self.ask(Question::LookAgain).await
    }

    /// Reports who else writes the status of a contested object; `None` if that cannot be known. Returns `None` while
    /// the loop does not run.
    pub(crate) async fn report_status_writer(&self, object: ObjectRef, writer: Option<String>) -> Option<()> {
        self.ask(|answer| Question::StatusWriter(object, writer, answer)).await
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.questions.send(question(answer)).await.ok()?;
        answered.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the decision for collections that are `synced`, `restored` or `denied`, the latter restored as well.
    #[track_caller]
    fn check(collections: &[&str], want: bool) {
        let collection = |state: &&str| CollectionReadiness {
            kind: Kind::Service,
            namespace: None,
            synced: *state == "synced",
            restored_as_of_s: (*state == "restored" || *state == "denied").then_some(7),
            failing: None,
            denied: *state == "denied" || *state == "refused",
            resource_version: None,
        };
        let collections: Vec<CollectionReadiness> = collections.iter().map(collection).collect();
        let stale_since_s = collections.iter().filter_map(|collection| collection.restored_as_of_s).min();
        let readiness = Readiness { ready: true, degraded: true, stale_since_s, held: None, collections };
        assert_eq!(readiness.may_report(), want);
    }

    #[test]
    fn a_denied_restored_collection_does_not_prevent_reports() {
        check(&["synced", "synced"], true);
        check(&["synced", "restored"], false);
        check(&["synced", "denied"], true);
        check(&["synced", "denied", "restored"], false);
        check(&["synced", "denied", "refused"], true);
        // An API server that has just started denies everything for a moment.
        check(&["denied", "denied"], false);
        check(&["refused"], true);
    }
}
