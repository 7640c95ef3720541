//! A kind that depends on a CustomResourceDefinition: it is watched while the API server serves it.
//!
//! The definition is an object like others, so it is watched by name, with the same lists, watches, pauses and
//! timeouts. That costs one more watch, which is silent unless the definition changes; and no request is made for the
//! collection of a kind that is not served. It is listed periodically, like all watched collections, in case an event
//! was missed.
//!
//! Only a definition can remove objects: by its deletion, reported by an event, or by a list and a second one that
//! confirms it; or because it serves none of the supported versions. An unreadable definition, or a 404 for the
//! collection, removes nothing.

mod definition;
mod without_definitions;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::client::Body;
use tidegate_config::object::Kind;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::api::{Api, chunk};
use super::failure::Failure;
use super::frames::{Frames, TooLong};
use super::list::pages;
use super::pauses::Pauses;
use super::resource::Resource;
use super::watch::{Frame, read_frame};
use super::{Closed, Informer, Interest};
use crate::clock;
use crate::event::{Collection, Event};
use definition::{DefinitionObject, read};

/// Watches a collection while the cluster serves its kind. Created by [`Informer::while_served`].
#[derive(Clone)]
pub struct WhileServed {
    informer: Informer,
    definition: Definition,
    /// Whether the definition is that of the informer's own kind, and so determines the version.
    own: bool,
}

/// Whether the cluster serves a kind.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Presence {
    /// Not known yet.
    Unknown,
    /// It does not.
    Absent,
    /// Its definition may not be read, with the denial, and the kind was not requested.
    Denied(Arc<str>),
    /// It does.
    Served {
        /// The version to request.
        version: Arc<str>,
        /// The uid of the definition: another definition of the same name has other objects.
        uid: Arc<str>,
    },
}

impl Presence {
    /// Whether a definition says that the kind is served, and not only a discovery document.
    fn is_defined(&self) -> bool {
        matches!(self, Self::Served { uid, .. } if !uid.is_empty())
    }
}

/// The loop that watches a definition.
#[derive(Clone)]
struct Definition {
    api: Api,
    name: Arc<str>,
    /// The supported versions of the kind, in order of preference.
    versions: Box<[Arc<str>]>,
    /// The collection that events refer to.
    collection: Collection,
    /// Whether changes of the release are sent. For a kind that depends on another one, that kind's own informer does
    /// so.
    tells_release: bool,
    /// The release in the last event; `None` without a definition.
    release: Option<Arc<str>>,
    /// Whether nothing waits for the kind if the definition may not be read.
    optional: bool,
    events: mpsc::Sender<Event>,
    rng: fastrand::Rng,
    /// The latest resourceVersion; `None` before the first list, and when a list is needed.
    reached: Option<Arc<str>>,
    /// The time of the next periodic list.
    list_due: Instant,
    /// Whether the last list lacked the definition although it existed before.
    unconfirmed: bool,
    /// Whether the last attempt failed.
    failing: bool,
    /// Whether the control loop was notified of the failure.
    logged: bool,
}

impl Informer {
    /// The same informer for a kind that the cluster may not have: it watches the collection while the kind's
    /// definition serves one of these versions, the first one if there are several.
    ///
    /// While the kind is not served, and when it is removed, it sends an [`Event::Unserved`]; if it may not know, and
    /// the kind is [optional](WhileServed::optional), an [`Event::Unreadable`]. The required permissions
    /// are to list and watch `customresourcedefinitions`, for this one name.
    #[must_use]
    pub fn while_served(self, versions: impl IntoIterator<Item = Arc<str>>) -> WhileServed {
        let definition = self.api().interest.resource.definition();
        self.while_there(definition, versions, true)
    }

    /// The same for a kind that matters only beside another one that the cluster may not have: it is watched while the
    /// other one is served.
    #[must_use]
    pub fn while_other_served(self, other: Kind, versions: impl IntoIterator<Item = Arc<str>>) -> WhileServed {
        self.while_there(Resource::of(other).definition(), versions, false)
    }

    fn while_there(self, name: String, versions: impl IntoIterator<Item = Arc<str>>, own: bool) -> WhileServed {
        let Api { client, interest: Interest { collection, .. }, limits, .. } = self.api();
        let interest = Interest {
            collection: Collection { kind: collection.kind, namespace: None },
            resource: Resource::of_definitions(),
            label_selector: None,
            field_selector: Some(format!("metadata.name={name}")),
        };
        let definition = Definition {
            api: Api::new(client.clone(), interest, limits.clone()),
            name: name.into(),
            versions: versions.into_iter().collect(),
            collection: collection.clone(),
            tells_release: own && collection.kind.is_of_gateway_api(),
            release: None,
            optional: false,
            events: self.events.clone(),
            rng: self.rng.clone(),
            reached: None,
            list_due: clock::now(),
            unconfirmed: false,
            failing: false,
            logged: false,
        };
        WhileServed { informer: self, definition, own }
    }

    /// The same with another version of its resource.
    fn at(mut self, version: &Arc<str>) -> Self {
        let Api { client, mut interest, limits, .. } = self.lister.api;
        interest.resource.version = Arc::clone(version);
        self.lister.api = Api::new(client, interest, limits);
        self
    }
}

impl WhileServed {
    /// The same; with `true`, nothing waits for the kind if its definition may not be read: the operator has not
    /// requested it.
    #[must_use]
    pub const fn optional(mut self, optional: bool) -> Self {
        self.definition.optional = optional;
        self
    }

    /// Watches the definition, and the collection while that is served, until `stop` is cancelled, or the receiver of
    /// events is gone. The first event is an [`Event::Listed`], an [`Event::Unserved`] or an [`Event::Unreadable`],
    /// unless failures come before it.
    pub async fn run(self, stop: CancellationToken) {
        let Self { informer, mut definition, own } = self;
        let (presence_tx, presence) = watch::channel(Presence::Unknown);
        let mut pauses = informer.pauses.clone();
        // In one task, so that no event of the informer follows the removal of the kind.
        let both = async {
            tokio::select! {
                ended = definition.follow(&presence_tx, &mut pauses) => ended,
                ended = follow_while_served(&informer, presence, own) => ended,
            }
        };
        match stop.run_until_cancelled(both).await {
            None | Some(Err(Closed)) => {}
            Some(Ok(never)) => match never {},
        }
    }
}

async fn follow_while_served(
    informer: &Informer,
    mut presence: watch::Receiver<Presence>,
    own: bool,
) -> Result<Infallible, Closed> {
    // Whether the last informer has reported a failure, so that the next one reports its end.
    let mut failing = false;
    // Whether the kind was last known to have no objects.
    let mut absent = false;
    loop {
        let now = presence.borrow_and_update().clone();
        let collection = || informer.api().collection().clone();
        let was_absent = std::mem::replace(&mut absent, now == Presence::Absent);
        if was_absent && !absent {
            informer.send(Event::Unlisted { collection: collection() }).await?;
        }
        match &now {
            Presence::Absent => {
                failing = false;
                informer.lister.tee.unserved(true);
                informer.send(Event::Unserved { collection: collection(), received: clock::now() }).await?;
            }
            Presence::Denied(why) => {
                failing = false;
                informer.lister.tee.unserved(false);
                let (why, received) = (why.to_string(), clock::now());
                informer.send(Event::Unreadable { collection: collection(), why, received }).await?;
            }
            Presence::Unknown | Presence::Served { .. } => {}
        }
        let other = presence.wait_for(|later| *later != now);
        match &now {
            Presence::Unknown | Presence::Absent | Presence::Denied(_) => drop(other.await),
            Presence::Served { version, .. } => {
                let informer = if own { informer.clone().at(version) } else { informer.clone() };
                let mut informer = Informer { failing, ..informer };
                tokio::select! {
                    biased;
                    later = other => drop(later),
                    ended = informer.follow() => return ended,
                }
                failing = informer.failing;
            }
        }
    }
}

impl Definition {
    async fn follow(
        &mut self,
        presence_tx: &watch::Sender<Presence>,
        pauses: &mut Pauses,
    ) -> Result<Infallible, Closed> {
        // Whether a list is made although a watch could be resumed.
        let mut again = false;
        loop {
            pauses.begin();
            let after = self.reached.clone().filter(|_| !again);
            let followed = match &after {
                None => self.list(presence_tx, pauses).await,
                Some(version) => self.watch(version, presence_tx, pauses).await,
            };
            again = match followed {
                Ok(()) if after.is_none() => self.unconfirmed,
                Ok(()) => clock::now() >= self.list_due,
                // It was a periodic list: the watch continues, and the list is retried when a watch ends after the
                // pause.
                Err(failure) if after.is_none() && self.reached.is_some() => {
                    let pause = pauses.after(&failure, self.rng.u64(..)).length;
                    self.list_due = clock::now() + pause;
                    tracing::warn!(definition = %self.name, error = %failure, "a relist failed; the watch continues");
                    false
                }
                Err(failure) => {
                    if failure.calls_for_list().is_some() {
                        self.reached = None;
                    }
                    let served = matches!(*presence_tx.borrow(), Presence::Served { .. });
                    if self.optional && failure.is_denied() && !served {
                        self.go_without(&failure, presence_tx);
                    }
                    self.wait_after(&failure, served, pauses).await?;
                    clock::now() >= self.list_due
                }
            };
        }
    }

    async fn list(&mut self, presence_tx: &watch::Sender<Presence>, pauses: &mut Pauses) -> Result<(), Failure> {
        let mut found = Ok(None);
        let mut take = |item: &[u8]| match read(item) {
            // A server that ignores field selectors lists others as well.
            Ok(definition) if definition.metadata.name != *self.name => {}
            other => found = other.map(Some),
        };
        let version = match pages(&self.api, self.api.limits.page_objects, &mut take).await {
            Err(failure @ Failure::Refused { code: 404, .. }) if !presence_tx.borrow().is_defined() => {
                return self.look_up(&failure, presence_tx, pauses).await;
            }
            other => other?,
        };
        let found = found?;
        pauses.answered();
        self.sound().await;
        let served = matches!(*presence_tx.borrow(), Presence::Served { .. });
        if found.is_none() && served && !std::mem::replace(&mut self.unconfirmed, true) {
            tracing::warn!(definition = %self.name, "a list lacks the definition; listing again to confirm that it was deleted");
            return Ok(());
        }
        self.reached = Some(version);
        self.list_due = clock::now() + self.api.limits.relist_after(self.rng.u64(..));
        self.report(found.as_ref(), presence_tx).await;
        Ok(())
    }

    /// Watches the definition until the watch ends.
    async fn watch(
        &mut self,
        after: &str,
        presence_tx: &watch::Sender<Presence>,
        pauses: &mut Pauses,
    ) -> Result<(), Failure> {
        let lasting = self.api.limits.lasting(self.rng.u64(..));
        let body = self.api.watch(after, lasting).await?;
        let opened = clock::now();
        self.sound().await;
        let silence_max = lasting + self.api.limits.watch_grace;
        let end = pauses.opened(self.take_all(body, silence_max, presence_tx)).await;
        let lived = clock::now().saturating_duration_since(opened);
        pauses.closed(lived);
        let nothing_new = self.reached.as_deref() == Some(after);
        if end.is_ok() && nothing_new && lived < self.api.limits.short_watch { Err(Failure::Short) } else { end }
    }

    async fn take_all(
        &mut self,
        mut body: Body,
        silence_max: Duration,
        presence_tx: &watch::Sender<Presence>,
    ) -> Result<(), Failure> {
        let mut frames = Frames::new(self.api.limits.frame_bytes_max);
        while let Some(bytes) = chunk(&mut body, silence_max).await? {
            frames.push(&bytes);
            while let Some(frame) = frames.next().map_err(|TooLong| Failure::FrameTooLong)? {
                self.take(read_frame(&frame)?, presence_tx).await?;
            }
        }
        Ok(())
    }

    async fn take(&mut self, frame: Frame<'_>, presence_tx: &watch::Sender<Presence>) -> Result<(), Failure> {
        let (object, there) = match frame {
            Frame::There(object) => (object, true),
            Frame::Gone(object) => (object, false),
            Frame::Bookmark(version) => {
                self.reached = version.or(self.reached.take());
                return Ok(());
            }
        };
        let definition = read(object.get().as_bytes())?;
        if definition.metadata.name == *self.name {
            self.report(Some(&definition).filter(|_| there), presence_tx).await;
        }
        self.reached = Some(definition.metadata.resource_version.into());
        Ok(())
    }

    /// Applies the definition, or its absence.
    async fn report(&mut self, definition: Option<&DefinitionObject>, presence_tx: &watch::Sender<Presence>) {
        self.unconfirmed = false;
        let release = definition.map(DefinitionObject::release);
        if self.tells_release && self.release != release {
            self.release.clone_from(&release);
            let event = Event::Defined { kind: self.collection.kind, release, received: clock::now() };
            // If the receiver is gone, the next event notices.
            drop(self.events.send(event).await);
        }
        let now = definition
            .map_or(Presence::Absent, |definition| definition.presence(&self.versions, &presence_tx.borrow()));
        self.set(now, presence_tx);
    }

    fn set(&self, now: Presence, presence_tx: &watch::Sender<Presence>) {
        presence_tx.send_if_modified(|presence| {
            if *presence == now {
                return false;
            }
            tracing::info!(definition = %self.name, ?now, "the API server has started or stopped serving a kind, or its version has changed");
            *presence = now;
            true
        });
    }

    /// The kind was not requested explicitly, and its definition may not be read. One kind of the Gateway API logs it,
    /// and each kind without which requests may pass.
    fn go_without(&mut self, failure: &Failure, presence_tx: &watch::Sender<Presence>) {
        let (kind, is_news) = (self.collection.kind, !matches!(*presence_tx.borrow(), Presence::Denied(_)));
        if kind == Kind::GatewayClass && is_news {
            tracing::warn!(error = %failure, "the Gateway API is not served: no permission to read its CustomResourceDefinitions; deploy/gateway has it, \
                and --source ingress needs none");
        }
        if kind.restricts_access() && is_news {
            tracing::warn!(%kind, error = %failure, "no permission to read the CustomResourceDefinition: objects of the kind are not read, and only those of \
                the edge cache restrict access; deploy/policies has the permission");
        }
        (self.failing, self.logged, self.unconfirmed) = (true, true, false);
        if is_news {
            self.set(Presence::Denied(format!("its definition: {failure}").into()), presence_tx);
        }
    }

    /// The API server has answered as expected.
    async fn sound(&mut self) {
        self.failing = false;
        if std::mem::take(&mut self.logged) {
            // If the receiver is gone, the next event notices.
            drop(self.events.send(Event::Watching { collection: self.collection.clone() }).await);
        }
    }

    /// Waits for the back-off or the delay that the server requests. While the kind is served, its own informer reports
    /// failures; otherwise this loop does.
    async fn wait_after(&mut self, failure: &Failure, served: bool, pauses: &mut Pauses) -> Result<(), Closed> {
        let pause = pauses.after(failure, self.rng.u64(..));
        let routine = failure.is_expired();
        if routine || std::mem::replace(&mut self.failing, true) {
            tracing::debug!(definition = %self.name, error = %failure, pause = ?pause.length, "a definition cannot be watched");
        } else {
            tracing::warn!(definition = %self.name, error = %failure, pause = ?pause.length, "a definition cannot be watched");
        }
        if !routine && !served && !std::mem::replace(&mut self.logged, true) {
            let (why, denied) = (format!("its definition: {failure}"), failure.is_denied());
            let event = Event::Failing { collection: self.collection.clone(), why, denied };
            self.events.send(event).await.map_err(|_unsent| Closed)?;
        }
        pauses.wait(pause, self.rng.u64(..)).await;
        Ok(())
    }
}

impl fmt::Debug for WhileServed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WhileServed").field("definition", &self.definition.name).finish_non_exhaustive()
    }
}
