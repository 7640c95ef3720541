//! What others may see of the control loop: readiness, findings, topology. Questions are sent to the loop and
//! answered between two batches, so the loop's state needs no lock.

use serde::Serialize;
use tidegate_config::finding::Finding;
use tidegate_config::model::Generation;
use tidegate_config::object::{Kind, ObjectRef};
use tokio::sync::{mpsc, oneshot, watch};

use crate::cached::CachedStates;
use crate::command::{Command, Refusal};
use crate::explain::Refused;
use crate::history::Publication;
use crate::not_serving::NotServing;
use crate::reconcile::{Desired, Made, ObjectFindings};
use crate::sources::Verdict;
use crate::status::Reports;
use crate::topology::Key;
use crate::tree::{Tree, TreeQuery};

/// A door to the control loop; cloning it is cheap.
#[derive(Clone, Debug)]
pub struct View {
    pub(crate) generation: watch::Receiver<Generation>,
    pub(crate) readiness: watch::Receiver<Readiness>,
    pub(crate) cached: watch::Receiver<CachedStates>,
    pub(crate) questions: mpsc::Sender<Question>,
    pub(crate) reports: Reports,
}

/// Whether the edge is right to take traffic, and what it knows of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Readiness {
    /// The first complete model has been published. It stays so whatever becomes of the API server.
    pub ready: bool,
    /// Something could not be listed or watched: what is served is right without it, or as of before.
    pub degraded: bool,
    /// As of when the state is that was kept over a restart and still serves, in seconds since the epoch; `None` once every source of
    /// it is known as it is now.
    pub stale_since_s: Option<u64>,
    /// Each source.
    pub sources: Vec<SourceState>,
}

impl Readiness {
    /// Whether the cluster is known as it is now, as far as it may be read: a source that the API server denies is never known again,
    /// and does not keep the rest from being told.
    pub(crate) fn may_report(&self) -> bool {
        let settled = |source: &SourceState| source.synced || source.restored_as_of_s.is_none() || source.denied;
        let known = self.sources.iter().any(|source| source.synced) && self.sources.iter().all(settled);
        self.stale_since_s.is_none() || known
    }
}

/// What is known of one source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SourceState {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; `None` for all.
    pub namespace: Option<String>,
    /// Whether it is known as it is now: it has been listed whole, or its watch goes on from what was restored.
    pub synced: bool,
    /// As of when it is, in seconds since the epoch, where it is not synced and what was kept over a restart serves.
    pub restored_as_of_s: Option<u64>,
    /// Why it fails at the moment, if it does.
    pub failing: Option<String>,
    /// Whether it fails because the API server answers that it may not be read, or that there is nothing of the kind.
    pub denied: bool,
    /// The resourceVersion that has been reached.
    pub resource_version: Option<String>,
}

/// What has been published, as far as it is remembered.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Past {
    /// The generation whose routes are held.
    pub held: Option<Generation>,
    /// The oldest generation from which on each can be gone back to.
    pub oldest: Option<Generation>,
    /// The generation that was held last, where it is older than those: it can be gone back to as well.
    pub apart: Option<Generation>,
    /// The one that serves.
    pub newest: Generation,
    /// The latest publications, the newest last; those that changed the endpoints of one Service within a minute as one.
    pub publications: Vec<Publication>,
}

/// Which publications are asked for.
#[derive(Clone, Debug)]
pub(crate) struct Which {
    /// At most so many, the latest.
    pub(crate) last: usize,
    /// Those that may have changed this host, as rules write it.
    pub(crate) host: Option<String>,
}

/// A question to the loop, or a command.
#[derive(Debug)]
pub(crate) enum Question {
    History(Which, oneshot::Sender<Past>),
    NotServing(oneshot::Sender<NotServing>),
    Command(Command, oneshot::Sender<Result<Generation, Refusal>>),
    Findings(oneshot::Sender<Vec<Finding>>),
    Topology(oneshot::Sender<Vec<(ObjectRef, Key)>>),
    Refused(ObjectRef, String, oneshot::Sender<Vec<Refused>>),
    Tree(TreeQuery, oneshot::Sender<Tree>),
    Verdicts(oneshot::Sender<Vec<(ObjectRef, Verdict)>>),
    DesiredStatus(ObjectRef, oneshot::Sender<Option<Desired>>),
    MadeFor(ObjectRef, oneshot::Sender<Option<Made>>),
    ObjectFindings(ObjectRef, oneshot::Sender<Option<ObjectFindings>>),
    LookAgain(oneshot::Sender<()>),
}

impl View {
    /// The generation that was published last; it changes after each publication.
    #[must_use]
    pub fn generation(&self) -> watch::Receiver<Generation> {
        self.generation.clone()
    }

    /// Readiness; it changes when anything about it does.
    #[must_use]
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.clone()
    }

    /// How far the caching of kinds has come that routing does not read.
    #[must_use]
    pub fn cached(&self) -> watch::Receiver<CachedStates> {
        self.cached.clone()
    }

    /// Everything users should be told, ordered by object. `None` while the loop does not run.
    pub async fn findings(&self) -> Option<Vec<Finding>> {
        self.ask(Question::Findings).await
    }

    /// Every reference between objects. `None` while the loop does not run.
    pub async fn topology(&self) -> Option<Vec<(ObjectRef, Key)>> {
        self.ask(Question::Topology).await
    }

    /// A page of what is attached to what. `None` while the loop does not run.
    pub async fn tree(&self, query: TreeQuery) -> Option<Tree> {
        self.ask(|answer| Question::Tree(query, answer)).await
    }

    /// The routes for a host that a Gateway does not accept, whether they name it or one of its ListenerSets; a bounded number. `None` while
    /// the loop does not run.
    pub async fn refused(&self, gateway: ObjectRef, host: String) -> Option<Vec<Refused>> {
        self.ask(|answer| Question::Refused(gateway, host, answer)).await
    }

    /// What became of each Ingress. `None` while the loop does not run.
    pub async fn verdicts(&self) -> Option<Vec<(ObjectRef, Verdict)>> {
        self.ask(Question::Verdicts).await
    }

    /// The latest publications, at most so many, or those of them that may have changed a host: its name is among those that
    /// are written down, or not all are. `None` while the loop does not run.
    pub async fn history(&self, last: usize, host: Option<String>) -> Option<Past> {
        self.ask(|answer| Question::History(Which { last, host }, answer)).await
    }

    /// What has been compiled and does not serve, and why. `None` while the loop does not run.
    pub async fn not_serving(&self) -> Option<NotServing> {
        self.ask(Question::NotServing).await
    }

    /// Gives a command; the generation that was published for it. `None` while the loop does not run.
    ///
    /// # Errors
    /// Why it is not carried out. Then nothing has changed.
    pub async fn command(&self, command: Command) -> Option<Result<Generation, Refusal>> {
        self.ask(|answer| Question::Command(command, answer)).await
    }

    /// What has to be written into the status of an object, if anything. `None` while the loop does not run.
    pub(crate) async fn desired_status(&self, object: ObjectRef) -> Option<Option<Desired>> {
        self.ask(|answer| Question::DesiredStatus(object, answer)).await
    }

    /// What is to be made for a Gateway. `None` while the loop does not run, or does not know enough.
    pub(crate) async fn made_for(&self, gateway: ObjectRef) -> Option<Made> {
        self.ask(|answer| Question::MadeFor(gateway, answer)).await.flatten()
    }

    /// What there is to tell of an object. `None` while the loop does not run, or does not know enough.
    pub(crate) async fn standing(&self, object: ObjectRef) -> Option<ObjectFindings> {
        self.ask(|answer| Question::ObjectFindings(object, answer)).await.flatten()
    }

    /// Has the loop name every object whose status is not what it ought to be, and every object about which anything is
    /// found. `None` while the loop does not run.
    pub(crate) async fn look_again(&self) -> Option<()> {
        self.ask(Question::LookAgain).await
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

    /// Sources as `synced`, `restored` or `denied`, the latter restored as well.
    #[track_caller]
    fn check(sources: &[&str], want: bool) {
        let source = |state: &&str| SourceState {
            kind: Kind::Service,
            namespace: None,
            synced: *state == "synced",
            restored_as_of_s: (*state == "restored" || *state == "denied").then_some(7),
            failing: None,
            denied: *state == "denied" || *state == "refused",
            resource_version: None,
        };
        let sources: Vec<SourceState> = sources.iter().map(source).collect();
        let stale_since_s = sources.iter().filter_map(|source| source.restored_as_of_s).min();
        let readiness = Readiness { ready: true, degraded: true, stale_since_s, sources };
        assert_eq!(readiness.may_report(), want);
    }

    #[test]
    fn a_restored_source_that_is_denied_keeps_nothing_from_being_told() {
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
