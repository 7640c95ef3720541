//! One watch, from its request to its end: frames become events in their order.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kube::client::Body;
use serde_json::value::RawValue;
use tidegate_config::project::{Meta, Projected, expressions_in, identify, project};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::Closed;
use super::api::{Api, chunk};
use super::aside::{Aside, Made, project_aside};
use super::failure::Failure;
use super::frames::{Frames, TooLong};
use super::lister::WatchOverlay;
use super::pauses::Pauses;
use super::tee::Tee;
use super::wire::{BookmarkObject, Status, WatchFrame};
use crate::clock;
use crate::cluster::collection_metrics::CollectionSeries;
use crate::event::Event;

/// A watch that resumes from a resourceVersion.
pub(super) struct Watch<'a> {
    pub(super) api: &'a Api,
    pub(super) events: &'a mpsc::Sender<Event>,
    pub(super) series: &'a CollectionSeries,
    /// Whether the last event about the collection's state was a failure.
    pub(super) failing: &'a mut bool,
    /// The latest resourceVersion.
    pub(super) reached: &'a mut Arc<str>,
    /// The events since a concurrent list began.
    pub(super) overlay: &'a mut WatchOverlay,
    /// Whether the resourceVersion was restored, and it is not yet known whether the server can resume from it.
    pub(super) resumes: &'a mut bool,
    /// The receivers of the objects' bytes.
    pub(super) tee: &'a Tee,
    /// The number of object events in this watch.
    pub(super) objects: u64,
    /// When the headers of the response arrived.
    pub(super) opened: &'a mut Option<Instant>,
    /// The objects that are projected beside it. If a finished list cancels the watch, they are in that list: none is
    /// taken while a list is made.
    pub(super) aside: Aside,
}

/// The reason for the end of a watch before its regular end.
pub(super) enum Stop {
    /// The receiver of events is gone.
    Closed,
    /// It failed.
    Failed(Failure),
}

/// A watch event.
pub(super) enum Frame<'a> {
    /// An object was added or modified.
    There(&'a RawValue),
    /// An object was deleted; its last state.
    Gone(&'a RawValue),
    /// A bookmark, with its resourceVersion unless that is missing.
    Bookmark(Option<Arc<str>>),
}

impl<'a> Frame<'a> {
    /// The bytes of the object, and whether it was deleted.
    const fn raw(&self) -> Option<(&'a RawValue, bool)> {
        match self {
            Self::There(raw) => Some((raw, false)),
            Self::Gone(raw) => Some((raw, true)),
            Self::Bookmark(_) => None,
        }
    }
}

impl Watch<'_> {
    /// Sends all events until the server closes the watch, which it does after `lasting`.
    ///
    /// The timeout for silence only runs while waiting for the next bytes: a slow control loop delays the watch without
    /// ending it.
    pub(super) async fn follow(&mut self, lasting: Duration, pauses: &mut Pauses) -> Result<(), Stop> {
        let body = self.api.watch(self.reached, lasting).await?;
        *self.opened = Some(clock::now());
        let _connected = self.series.connected();
        if *self.failing {
            self.send(Event::Watching { collection: self.api.collection().clone() }).await?;
            *self.failing = false;
        }
        let silence_max = lasting + self.api.limits.watch_grace;
        let all = async {
            let end = self.take_all(body, silence_max).await;
            self.finish_aside().await?;
            end
        };
        pauses.opened(all).await
    }

    async fn take_all(&mut self, mut body: Body, silence_max: Duration) -> Result<(), Stop> {
        let mut frames = Frames::new(self.api.limits.frame_bytes_max);
        while let Some(bytes) = self.chunk(&mut body, silence_max, frames.is_empty()).await? {
            let received = clock::now();
            frames.push(&bytes);
            while let Some(frame) = frames.next()? {
                self.series.event(clock::wall());
                self.take_frame(read_frame(&frame)?, received).await?;
            }
            while self.aside.is_full()
                && let Some(made) = self.aside.next().await
            {
                self.send(made.into()).await?;
            }
        }
        Ok(())
    }

    /// Sends the objects that are projected beside the watch.
    async fn finish_aside(&mut self) -> Result<(), Closed> {
        while let Some(made) = self.aside.next().await {
            self.send(made.into()).await?;
        }
        Ok(())
    }

    /// The next bytes. A resumed watch is valid once it has been silent for a short time: the server sends the events
    /// since then, or that the version has expired, without delay. In the middle of an event it is not silent, however
    /// slow the rest arrives.
    async fn chunk(
        &mut self,
        body: &mut Body,
        silence_max: Duration,
        between_frames: bool,
    ) -> Result<Option<Bytes>, Stop> {
        let mut bytes = pin!(chunk(body, silence_max));
        let mut short = pin!(sleep(self.api.limits.short_watch));
        loop {
            tokio::select! {
                biased;
                bytes = &mut bytes => return Ok(bytes?),
                Some(made) = self.aside.next() => self.send(made.into()).await?,
                () = &mut short, if *self.resumes && between_frames => self.resumed().await?,
            }
        }
    }

    async fn resumed(&mut self) -> Result<(), Stop> {
        self.finish_aside().await?;
        let (collection, resource_version) = (self.api.collection().clone(), Arc::clone(self.reached));
        self.send(Event::Resumed { collection, resource_version, received: clock::now() }).await?;
        *self.resumes = false;
        Ok(())
    }

    async fn take_frame(&mut self, frame: Frame<'_>, received: Instant) -> Result<(), Stop> {
        let kind = self.api.kind();
        let project = |object: &RawValue| project(kind, object.get().as_bytes()).map_err(Failure::Unidentified);
        let keeps = self.overlay.keeps();
        let expressions = match &frame {
            Frame::There(object) => expressions_in(kind, object.get().as_bytes()),
            Frame::Gone(_) | Frame::Bookmark(_) => 0,
        };
        if let Frame::There(object) = &frame
            && !keeps
            && expressions > 0
        {
            return self.put_aside(object.get().as_bytes(), expressions, received);
        }
        let raw = frame.raw();
        let bookmark = matches!(frame, Frame::Bookmark(_));
        let (event, reached, kept, about) = match frame {
            Frame::There(object) => {
                let projected = if expressions > 0 {
                    project_aside(kind, object.get().as_bytes().into()).await.map_err(Failure::Unidentified)?
                } else {
                    project(object)?
                };
                let projected = Box::new(projected);
                self.objects += 1;
                let reached = Arc::clone(&projected.meta.resource_version);
                let kept = keeps.then(|| (projected.meta.object.clone(), Some(Projected::clone(&projected))));
                let about = Some(projected.meta.object.clone());
                (Event::Applied { projected, received }, reached, kept, about)
            }
            Frame::Gone(object) => {
                let Meta { object, resource_version, .. } = project(object)?.meta;
                self.objects += 1;
                let reached = Arc::clone(&resource_version);
                let kept = keeps.then(|| (object.clone(), None));
                let about = Some(object.clone());
                (Event::Deleted { object, resource_version, received }, reached, kept, about)
            }
            Frame::Bookmark(Some(resource_version)) => {
                let reached = Arc::clone(&resource_version);
                (Event::Bookmark { collection: self.api.collection().clone(), resource_version }, reached, None, None)
            }
            Frame::Bookmark(None) => return Ok(()),
        };
        if let Some(object) = &about {
            self.aside.forget(object);
        }
        // A finished list cancels this wait: only sent events are kept and counted as reached.
        self.send(event).await?;
        if let Some((object, is)) = kept {
            self.overlay.keep(object, is);
        }
        if bookmark && keeps {
            self.overlay.pass();
        }
        match about.zip(raw) {
            Some((object, (raw, gone))) => self.tee.event(&object.name, raw.get().as_bytes(), gone, &reached),
            None => self.tee.reached(&reached),
        }
        *self.reached = reached;
        if bookmark && *self.resumes {
            self.resumed().await?;
        }
        Ok(())
    }

    /// Projects an object beside the watch. As it is kept, it counts as reached.
    fn put_aside(&mut self, bytes: &[u8], expressions: usize, received: Instant) -> Result<(), Stop> {
        let Meta { object, resource_version, .. } = identify(self.api.kind(), bytes).map_err(Failure::Unidentified)?;
        self.tee.event(&object.name, bytes, false, &resource_version);
        self.aside.put(object, bytes, expressions, received);
        self.objects += 1;
        *self.reached = resource_version;
        Ok(())
    }

    async fn send(&self, event: Event) -> Result<(), Closed> {
        self.events.send(event).await.map_err(|_unsent| Closed)
    }
}

/// Parses one line of a watch; the object remains unparsed.
pub(super) fn read_frame(bytes: &[u8]) -> Result<Frame<'_>, Failure> {
    let WatchFrame { what, object } = serde_json::from_slice(bytes)
        .map_err(|why| Failure::Unreadable { why: format!("not a watch event at column {}", why.column()) })?;
    match what.as_ref() {
        "ADDED" | "MODIFIED" => Ok(Frame::There(object)),
        "DELETED" => Ok(Frame::Gone(object)),
        "BOOKMARK" => {
            // A bookmark has only a version, so a malformed one loses nothing.
            let bookmark = serde_json::from_str::<BookmarkObject>(object.get()).ok();
            let version = bookmark.map(|bookmark| bookmark.metadata.resource_version);
            Ok(Frame::Bookmark(version.filter(|version| !version.is_empty()).map(Arc::from)))
        }
        "ERROR" => {
            let status: Status = serde_json::from_str(object.get()).unwrap_or_default();
            let code = status.code.unwrap_or(500);
            Err(status.into_failure(code, None))
        }
        _ => Err(Failure::Unreadable { why: "a watch event of an unknown type".to_owned() }),
    }
}

impl From<Made> for Event {
    fn from(Made { projected, received }: Made) -> Self {
        Self::Applied { projected, received }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<TooLong> for Stop {
    fn from(TooLong: TooLong) -> Self {
        Self::Failed(Failure::FrameTooLong)
    }
}

impl From<Closed> for Stop {
    fn from(Closed: Closed) -> Self {
        Self::Closed
    }
}
