//! The lists and watches of one cached kind, under its current path in the API server.
//!
//! Lists are made between watches and not concurrently: no routes depend on the delay.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::client::Body;
use serde::Deserialize;
use tidegate_config::object::ObjectName;
use tokio::time::timeout;

use super::super::api::{Api, chunk};
use super::super::failure::{Failure, ListReason};
use super::super::frames::{Frames, TooLong};
use super::super::lacking::Lacking;
use super::super::list::{newest, pages};
use super::super::lister::no_older;
use super::super::pauses::Pauses;
use super::super::tee::Tee;
use super::super::watch::{Frame, read_frame};
use super::CachedInformer;
use crate::clock;
use crate::cluster::cached::CachedCondition;
use crate::cluster::collection_metrics::CollectionSeries;

/// The collection of one cached kind.
pub(super) struct CachedCollection<'a> {
    pub(super) of: &'a mut CachedInformer,
    pub(super) api: Api,
    pub(super) series: CollectionSeries,
    pub(super) tee: Tee,
    pub(super) pauses: Pauses,
    pub(super) names: BTreeSet<ObjectName>,
    /// The latest resourceVersion; `None` before the first list, and when a list is needed.
    pub(super) reached: Option<Arc<str>>,
    /// Whether that was restored, and it is not yet known whether a watch can be resumed from it.
    pub(super) resumes: bool,
    pub(super) list_due: Instant,
    pub(super) page_objects: u32,
    /// Whether the last list lacked so many objects that another one must confirm it.
    pub(super) unconfirmed: bool,
    /// The time of the next list for a server of copies that lacks objects.
    pub(super) lacking: Lacking,
}

/// The identity of an object.
#[derive(Deserialize)]
struct Identified {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    resource_version: String,
}

/// The state of a kind that the API server no longer serves under the known path.
pub(super) struct Moved {
    pub(super) names: BTreeSet<ObjectName>,
    pub(super) reached: Option<Arc<str>>,
}

/// A 404 for the collection.
struct NotFound;

fn is_not_found(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused { code: 404, .. })
}

impl CachedCollection<'_> {
    /// Lists and watches the collection until it no longer exists under its path.
    pub(super) async fn follow(mut self) -> Moved {
        let mut reason = if self.resumes {
            match self.compare().await {
                Ok(reason) => reason,
                Err(NotFound) => return self.moved(),
            }
        } else {
            Some(ListReason::Start)
        };
        loop {
            let step = match (reason.take(), self.reached.clone()) {
                (None, Some(version)) => self.watch(&version).await,
                (asked, _) => self.list(asked.unwrap_or(ListReason::Retry)).await,
            };
            match step {
                Ok(next) => reason = next,
                Err(failure) => {
                    self.tee.interrupted();
                    self.of.wait_after(&failure, &mut self.pauses).await;
                    if is_not_found(&failure) {
                        return self.moved();
                    }
                    reason = failure.calls_for_list().filter(|_| self.reached.is_some());
                }
            }
        }
    }

    fn moved(self) -> Moved {
        Moved { names: self.names, reached: self.reached }
    }

    /// Asks the API server until it is known whether a watch can be resumed from the kept resourceVersion. Returns the
    /// reason for a list if it cannot.
    async fn compare(&mut self) -> Result<Option<ListReason>, NotFound> {
        let kept = self.reached.clone().unwrap_or_default();
        loop {
            self.pauses.begin();
            let compared = async { Ok(self.of.identity.same().await? && no_older(&newest(&self.api).await?, &kept)) };
            match compared.await {
                Ok(true) => return Ok(None),
                Ok(false) => return Ok(Some(ListReason::VersionRegressed)),
                Err(failure) => {
                    self.of.wait_after(&failure, &mut self.pauses).await;
                    if is_not_found(&failure) {
                        return Err(NotFound);
                    }
                }
            }
        }
    }

    /// Makes one list. Returns the reason for another list, if one must follow.
    async fn list(&mut self, reason: ListReason) -> Result<Option<ListReason>, Failure> {
        self.of.asked.mark_unchanged();
        self.pauses.begin();
        let started = clock::now();
        self.series.list_begins(reason.as_str());
        self.tee.list_begins();
        let (mut listed, mut unidentified) = (BTreeSet::new(), 0);
        let mut take = |item: &[u8]| {
            if let Some((name, _)) = identify(item) {
                self.tee.listed(&name, item);
                listed.insert(name);
            } else {
                unidentified += 1;
            }
        };
        let version = match pages(&self.api, self.page_objects, &mut take).await {
            Ok(version) => version,
            Err(failure) => {
                self.series.list_failed(failure.reason());
                self.tee.list_failed();
                if matches!(failure, Failure::PageTooLong) {
                    self.page_objects = (self.page_objects / 2).max(1);
                }
                return Err(failure);
            }
        };
        self.pauses.answered();
        self.series.list_done(clock::now().saturating_duration_since(started), listed.len());
        self.series.unidentified(unidentified);
        let complete = unidentified == 0;
        self.list_due = clock::now() + self.api.limits.relist_after(self.of.rng.u64(..));
        self.tee.list_done(&version, complete, true);
        self.lacking.listed(&self.tee);
        let gone = self.names.difference(&listed).count();
        let much = complete && self.of.removals.needs_confirmation(gone, self.names.len());
        if much && !std::mem::replace(&mut self.unconfirmed, true) {
            tracing::warn!(kind = %self.of.wanted, gone, "a list lacks most objects of a cached kind; listing again to confirm that they were deleted");
            return Ok(Some(ListReason::Asked));
        }
        self.unconfirmed = false;
        if complete {
            self.names = listed;
        } else {
            self.names.append(&mut listed);
        }
        (self.reached, self.resumes) = (Some(version), false);
        self.current();
        Ok(None)
    }

    /// Watches the kind until the watch ends, a list is requested, or one is due. Returns the reason for a list, if one
    /// must follow.
    async fn watch(&mut self, after: &Arc<str>) -> Result<Option<ListReason>, Failure> {
        let lasting = self.api.limits.lasting(self.of.rng.u64(..));
        self.pauses.begin();
        let body = self.api.watch(after, lasting).await?;
        let opened = clock::now();
        if !self.resumes {
            self.current();
        }
        let connected = self.series.connected();
        let silence_max = lasting + self.api.limits.watch_grace;
        let mut asked = self.of.asked.clone();
        let (mut lacking, tee, draw) = (self.lacking.clone(), self.tee.clone(), self.of.rng.u64(..));
        let end = tokio::select! {
            biased;
            Ok(()) = asked.changed() => Ok(Some(ListReason::Asked)),
            () = lacking.wait(&tee, draw) => Ok(Some(ListReason::Lacking)),
            end = self.take_all(body, silence_max) => end.map(|()| None),
        };
        drop(connected);
        self.lacking = lacking;
        let lived = clock::now().saturating_duration_since(opened);
        self.pauses.closed(lived);
        if lived >= self.api.limits.short_watch {
            self.pauses.answered();
        }
        let short = self.reached.as_ref() == Some(after) && lived < self.api.limits.short_watch;
        let end = match end {
            Ok(None) if short => Err(Failure::Short),
            Ok(None) if clock::now() >= self.list_due => Ok(Some(ListReason::Periodic)),
            end => end,
        };
        self.series
            .watch_ended(end.as_ref().map_or_else(Failure::reason, |asked| asked.map_or("ended", |_| "relisted")));
        end
    }

    async fn take_all(&mut self, mut body: Body, silence_max: Duration) -> Result<(), Failure> {
        let mut frames = Frames::new(self.api.limits.frame_bytes_max);
        loop {
            let next = if self.resumes && frames.is_empty() {
                // After a resumed watch opens, the server sends all events since the kept version, or that it has
                // expired, without delay.
                match timeout(self.api.limits.short_watch, chunk(&mut body, silence_max)).await {
                    Ok(next) => next?,
                    Err(_elapsed) => {
                        self.current();
                        continue;
                    }
                }
            } else {
                chunk(&mut body, silence_max).await?
            };
            let Some(bytes) = next else { return Ok(()) };
            frames.push(&bytes);
            while let Some(frame) = frames.next().map_err(|TooLong| Failure::FrameTooLong)? {
                self.series.event(clock::wall());
                self.take(&read_frame(&frame)?)?;
            }
        }
    }

    fn take(&mut self, frame: &Frame<'_>) -> Result<(), Failure> {
        let (raw, gone) = match frame {
            Frame::There(raw) => (raw, false),
            Frame::Gone(raw) => (raw, true),
            Frame::Bookmark(version) => {
                if let Some(version) = version {
                    self.tee.reached(version);
                    self.reached = Some(Arc::clone(version));
                }
                self.current();
                return Ok(());
            }
        };
        let unread = || Failure::Unreadable { why: "an object without an identity".to_owned() };
        let (name, version) = identify(raw.get().as_bytes()).ok_or_else(unread)?;
        self.tee.event(&name, raw.get().as_bytes(), gone, &version);
        if gone {
            self.names.remove(&name);
        } else {
            self.names.insert(name);
        }
        self.reached = Some(version);
        Ok(())
    }

    /// The state of the kind is current.
    fn current(&mut self) {
        self.resumes = false;
        self.of.reporter.report(|state| {
            (state.standing, state.failing, state.denied) = (CachedCondition::Current, None, false);
        });
    }
}

fn identify(raw: &[u8]) -> Option<(ObjectName, Arc<str>)> {
    let Identified { metadata: Metadata { name, namespace, resource_version } } = serde_json::from_slice(raw).ok()?;
    let whole = !name.is_empty() && !resource_version.is_empty();
    whole.then(|| (ObjectName::new(namespace, name), resource_version.into()))
}
