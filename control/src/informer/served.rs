//! A kind that the cluster may have or not, because a CustomResourceDefinition brings it: it is followed while it is served.
//!
//! The definition is an object like others, so it is followed by its own name, with the same list, watch, pauses and
//! deadlines. That costs one more watch, which is silent unless somebody changes the definition; and nothing asks for
//! the collection of a kind that is not there. Now and then it is listed again, as everything is that is watched: what no watch
//! told of is found by that.
//!
//! Only what a definition says takes objects away: that it is gone, by an event, or by a list and a second one that confirms
//! it; or that none of the versions is served that are understood here. A definition that cannot be read, and a collection that
//! answers 404, take nothing away.

mod definition;

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
use crate::event::{Event, Source};
use definition::{DefinitionObject, read};

/// Follows a collection while the cluster has its kind. Made by [`Informer::while_served`].
#[derive(Clone)]
pub struct WhileServed {
    informer: Informer,
    definition: Definition,
    /// Whether the definition is that of the informer's kind, and says at which version it is.
    own: bool,
}

/// Whether the cluster has a kind.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Presence {
    /// That is not known yet.
    Unknown,
    /// It has not.
    Absent,
    /// It has.
    Served {
        /// The version to ask for.
        version: Arc<str>,
        /// The uid of the definition: another one of the same name brings other objects.
        uid: Arc<str>,
    },
}

/// The loop that follows a definition.
#[derive(Clone)]
struct Definition {
    api: Api,
    name: Arc<str>,
    /// Versions of the kind that are understood, the one to prefer first.
    versions: Box<[Arc<str>]>,
    /// What the events are about.
    source: Source,
    /// Whether its release is told. Of a kind that follows another one, that one's own informer tells it.
    tells_release: bool,
    /// The release that was told last; `None` without a definition.
    release: Option<Arc<str>>,
    /// Whether a definition that may not be read is none.
    optional: bool,
    events: mpsc::Sender<Event>,
    chance: fastrand::Rng,
    /// The resourceVersion up to which everything is known; none before the first list, and when it has to be listed again.
    reached: Option<Arc<str>>,
    /// When a list is made even if nothing calls for it.
    list_due: Instant,
    /// Whether the last list did not name the definition although it had been there.
    doubted: bool,
    /// Whether the last attempt failed.
    failing: bool,
    /// Whether the control loop was told so.
    told: bool,
}

impl Informer {
    /// The same informer for a kind that the cluster may not have: it follows the collection while the kind's definition says
    /// that one of these versions is served, and of several the first that is.
    ///
    /// While the kind is not there, and when it goes, an [`Event::Unserved`] says so. The rights that this takes are to list and watch
    /// `customresourcedefinitions`, of this one name.
    #[must_use]
    pub fn while_served(self, versions: impl IntoIterator<Item = Arc<str>>) -> WhileServed {
        let definition = self.api().interest.resource.definition();
        self.while_there(definition, versions, true)
    }

    /// As above, for a kind that matters only beside another one, which the cluster may not have: while that is served.
    #[must_use]
    pub fn while_other_served(self, other: Kind, versions: impl IntoIterator<Item = Arc<str>>) -> WhileServed {
        self.while_there(Resource::of(other).definition(), versions, false)
    }

    fn while_there(self, name: String, versions: impl IntoIterator<Item = Arc<str>>, own: bool) -> WhileServed {
        let Api { client, interest: Interest { source, .. }, limits, .. } = self.api();
        let interest = Interest {
            source: Source { kind: source.kind, namespace: None },
            resource: Resource::of_definitions(),
            label_selector: None,
            field_selector: Some(format!("metadata.name={name}")),
        };
        let definition = Definition {
            api: Api::new(client.clone(), interest, limits.clone()),
            name: name.into(),
            versions: versions.into_iter().collect(),
            source: source.clone(),
            tells_release: own && source.kind.is_of_gateway_api(),
            release: None,
            optional: false,
            events: self.events.clone(),
            chance: self.chance.clone(),
            reached: None,
            list_due: clock::now(),
            doubted: false,
            failing: false,
            told: false,
        };
        WhileServed { informer: self, definition, own }
    }

    /// The same at another version of its resource.
    fn at(mut self, version: &Arc<str>) -> Self {
        let Api { client, mut interest, limits, .. } = self.lister.api;
        interest.resource.version = Arc::clone(version);
        self.lister.api = Api::new(client, interest, limits);
        self
    }
}

impl WhileServed {
    /// The same, where a definition that may not be read counts as none: whoever has not asked for the kind is not bothered.
    #[must_use]
    pub const fn optional(mut self, optional: bool) -> Self {
        self.definition.optional = optional;
        self
    }

    /// Follows the definition, and the collection while that is served, until told to stop, or until nobody receives the events
    /// any more. The first event is an [`Event::Listed`] or an [`Event::Unserved`], unless failures come before it.
    pub async fn run(self, stop: CancellationToken) {
        let Self { informer, mut definition, own } = self;
        let (tell, presence) = watch::channel(Presence::Unknown);
        let mut pauses = informer.pauses.clone();
        // In one task, so that nothing of the informer comes after word that the kind is gone.
        let both = async {
            tokio::select! {
                ended = definition.follow(&tell, &mut pauses) => ended,
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
    // Whether the last informer has said that it fails, so that the next one says when that is over.
    let mut failing = false;
    loop {
        let now = presence.borrow_and_update().clone();
        if now == Presence::Absent {
            failing = false;
            informer.lister.tee.unserved();
            let source = informer.api().source().clone();
            informer.send(Event::Unserved { source, received: clock::now() }).await?;
        }
        let other = presence.wait_for(|later| *later != now);
        match &now {
            Presence::Unknown | Presence::Absent => drop(other.await),
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
    async fn follow(&mut self, tell: &watch::Sender<Presence>, pauses: &mut Pauses) -> Result<Infallible, Closed> {
        // Whether a list is made although a watch could go on.
        let mut again = false;
        loop {
            pauses.begin();
            let after = self.reached.clone().filter(|_| !again);
            let followed = match &after {
                None => self.list(tell, pauses).await,
                Some(version) => self.watch(version, tell, pauses).await,
            };
            again = match followed {
                Ok(()) if after.is_none() => self.doubted,
                Ok(()) => clock::now() >= self.list_due,
                // It was only due: the watch goes on, and another list is made after one that ends when that may be.
                Err(failure) if after.is_none() && self.reached.is_some() => {
                    let pause = pauses.after(&failure, self.chance.u64(..)).length;
                    self.list_due = clock::now() + pause;
                    tracing::warn!(definition = %self.name, %failure, "a list that was due failed; the watch goes on");
                    false
                }
                Err(failure) => {
                    if failure.calls_for_list().is_some() {
                        self.reached = None;
                    }
                    let served = matches!(*tell.borrow(), Presence::Served { .. });
                    if self.optional && failure.is_denied() && !served {
                        self.go_without(&failure, tell).await;
                    }
                    self.wait_after(&failure, served, pauses).await?;
                    clock::now() >= self.list_due
                }
            };
        }
    }

    async fn list(&mut self, tell: &watch::Sender<Presence>, pauses: &mut Pauses) -> Result<(), Failure> {
        let mut found = Ok(None);
        let version = pages(&self.api, self.api.limits.page_objects, |item| match read(item) {
            // A server that knows nothing of field selectors lists others as well.
            Ok(definition) if definition.metadata.name != *self.name => {}
            other => found = other.map(Some),
        });
        let version = version.await?;
        let found = found?;
        pauses.answered();
        self.sound().await;
        let served = matches!(*tell.borrow(), Presence::Served { .. });
        if found.is_none() && served && !std::mem::replace(&mut self.doubted, true) {
            tracing::warn!(definition = %self.name, "a list does not name it any more; listing again before that acts");
            return Ok(());
        }
        self.reached = Some(version);
        self.list_due = clock::now() + self.api.limits.listed_again(self.chance.u64(..));
        self.say(found.as_ref(), tell).await;
        Ok(())
    }

    /// Follows the definition until its watch ends.
    async fn watch(&mut self, after: &str, tell: &watch::Sender<Presence>, pauses: &mut Pauses) -> Result<(), Failure> {
        let lasting = self.api.limits.lasting(self.chance.u64(..));
        let body = self.api.watch(after, lasting).await?;
        let opened = clock::now();
        self.sound().await;
        let silence_max = lasting + self.api.limits.watch_grace;
        let end = pauses.opened(self.take_all(body, silence_max, tell)).await;
        let lived = clock::now().saturating_duration_since(opened);
        pauses.closed(lived);
        let nothing_new = self.reached.as_deref() == Some(after);
        if end.is_ok() && nothing_new && lived < self.api.limits.short_watch { Err(Failure::Short) } else { end }
    }

    async fn take_all(
        &mut self,
        mut body: Body,
        silence_max: Duration,
        tell: &watch::Sender<Presence>,
    ) -> Result<(), Failure> {
        let mut frames = Frames::new(self.api.limits.frame_bytes_max);
        while let Some(bytes) = chunk(&mut body, silence_max).await? {
            frames.push(&bytes);
            while let Some(frame) = frames.next().map_err(|TooLong| Failure::FrameTooLong)? {
                self.take(read_frame(&frame)?, tell).await?;
            }
        }
        Ok(())
    }

    async fn take(&mut self, frame: Frame<'_>, tell: &watch::Sender<Presence>) -> Result<(), Failure> {
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
            self.say(Some(&definition).filter(|_| there), tell).await;
        }
        self.reached = Some(definition.metadata.resource_version.into());
        Ok(())
    }

    /// Says what follows from a definition, or from there being none.
    async fn say(&mut self, definition: Option<&DefinitionObject>, tell: &watch::Sender<Presence>) {
        self.doubted = false;
        let release = definition.map(DefinitionObject::release);
        if self.tells_release && self.release != release {
            self.release.clone_from(&release);
            let event = Event::Defined { kind: self.source.kind, release, received: clock::now() };
            // That nobody listens any more is noticed with the next event.
            drop(self.events.send(event).await);
        }
        tell.send_if_modified(|presence| {
            let now = definition.map_or(Presence::Absent, |told| told.presence(&self.versions, presence));
            if *presence == now {
                return false;
            }
            tracing::info!(definition = %self.name, ?now, "whether a kind is served");
            *presence = now;
            true
        });
    }

    /// Nobody has asked for the kind by name, and it may not be looked for. Of all its kinds one says so.
    async fn go_without(&mut self, failure: &Failure, tell: &watch::Sender<Presence>) {
        if self.source.kind == Kind::GatewayClass && *tell.borrow() == Presence::Unknown {
            tracing::warn!(%failure, "the Gateway API is not served: its definitions may not be read; deploy/gateway has the rights, \
                and --source ingress asks for none");
        }
        (self.failing, self.told) = (true, true);
        self.say(None, tell).await;
    }

    /// The API server has answered as it should.
    async fn sound(&mut self) {
        self.failing = false;
        if std::mem::take(&mut self.told) {
            // That nobody listens any more is noticed with the next event.
            drop(self.events.send(Event::Watching { source: self.source.clone() }).await);
        }
    }

    /// Waits for as long as the back-off and the server want. While the kind is served, its own informer says whether the
    /// objects are followed; otherwise nobody knows but this loop.
    async fn wait_after(&mut self, failure: &Failure, served: bool, pauses: &mut Pauses) -> Result<(), Closed> {
        let pause = pauses.after(failure, self.chance.u64(..));
        let routine = failure.is_expired();
        if routine || std::mem::replace(&mut self.failing, true) {
            tracing::debug!(definition = %self.name, %failure, pause = ?pause.length, "a definition cannot be followed");
        } else {
            tracing::warn!(definition = %self.name, %failure, pause = ?pause.length, "a definition cannot be followed");
        }
        if !routine && !served && !std::mem::replace(&mut self.told, true) {
            let (why, denied) = (format!("its definition: {failure}"), failure.is_denied());
            let event = Event::Failing { source: self.source.clone(), why, denied };
            self.events.send(event).await.map_err(|_unsent| Closed)?;
        }
        pauses.wait(pause, self.chance.u64(..)).await;
        Ok(())
    }
}

impl fmt::Debug for WhileServed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WhileServed").field("definition", &self.definition.name).finish_non_exhaustive()
    }
}
