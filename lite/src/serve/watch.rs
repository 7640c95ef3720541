//! Watches: the existing objects, then the changes, with bookmarks between, until the deadline.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Response, StatusCode};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep, sleep_until};

use super::answer;
use super::body::LiteBody;
use super::form::Form;
use super::query::Query;
use super::read::{select, wait_for};
use crate::failure::Failure;
use crate::kind::KindId;
use crate::lite::Lite;
use crate::selector::Selection;
use crate::store::{Change, Event, Object, State, frame};

/// The shortest watch without `timeoutSeconds`; the longest is twice that.
const TIMEOUT_MIN: Duration = Duration::from_secs(1_800);
/// The maximum duration of a watch, whatever its `timeoutSeconds`.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3_600);
/// The interval of bookmarks, a twelfth more or less, so that watches do not move in step.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// The time of the last bookmark before the deadline: the next watch begins there.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// The start of a watch.
enum Start {
    /// All existing objects, with a mark after them if requested.
    Everything { mark: bool },
    /// Changes after this moment.
    Now,
    /// Changes after a version.
    After(u64),
}

/// A running watch.
struct Watching {
    lite: Lite,
    kind: KindId,
    selection: Selection,
    form: Form,
    include: String,
    /// The objects that existed when the watch began.
    existing: VecDeque<Arc<Object>>,
    /// The bookmark to send after them.
    mark: Option<u64>,
    /// The changes between the requested version and the beginning.
    missed: VecDeque<Arc<Event>>,
    events: mpsc::Receiver<Arc<Event>>,
    /// The history of the kind that this watch follows, and whether its end has been sent.
    history: u64,
    ended: bool,
    timers: Timers,
}

struct Timers {
    deadline: Pin<Box<Sleep>>,
    /// `None`: no bookmarks.
    bookmark: Option<Pin<Box<Sleep>>>,
    interval: Duration,
    last_bookmark: Option<Pin<Box<Sleep>>>,
}

/// Begins a watch. An invalid query is refused as such; a version that cannot be served becomes an event, since
/// existing clients understand it only there.
pub(super) async fn watch(
    lite: &Lite,
    kind: &KindId,
    namespace: Option<&str>,
    query: &Query,
    form: Form,
) -> Result<Response<LiteBody>, Failure> {
    query.check_options()?;
    let version = query.exact_version()?;
    let (selection, part) = select(kind, namespace, query)?;
    let start = match (query.send_initial_events, version) {
        (Some(true), _) => Start::Everything { mark: true },
        (None, None) => Start::Everything { mark: false },
        (Some(false), None) => Start::Now,
        (Some(false) | None, Some(version)) => Start::After(version),
    };
    if let Err(failure) = wait_for(lite, kind, version).await {
        return Ok(refused(&failure));
    }
    let timers = Timers::start(query, lite.now().fraction());
    // No change can happen between the read of the existing objects and the subscription: one lock covers both.
    let watching = lite.store().between(|state| {
        let mut missed = VecDeque::new();
        let mut existing = VecDeque::new();
        match start {
            Start::Everything { .. } => existing.extend(state.list(kind, &part).map(|(_, object)| object.clone())),
            Start::Now => {}
            Start::After(version) => {
                let changes = state.changes_after(kind, version).map_err(|gone| {
                    Failure::expired(format!("too old resource version: {version} ({})", gone.complete_after))
                })?;
                missed.extend(changes.filter(|event| part.has(&event.key)).cloned());
            }
        }
        let mark = matches!(start, Start::Everything { mark: true }).then(|| state.version_of(kind));
        let (events, history) = (state.subscribe(kind, part, selection.looks_inside), state.histories(kind));
        let include = query.include_object.clone();
        Ok(Watching {
            lite: lite.clone(),
            kind: kind.clone(),
            selection,
            form,
            include,
            existing,
            mark,
            missed,
            events,
            history,
            ended: false,
            timers,
        })
    });
    Ok(match watching.await {
        Ok(watching) => {
            let frames = futures::stream::unfold(watching, |mut watching| async {
                let frame = watching.next().await?;
                Some((frame, watching))
            });
            answer::with(StatusCode::OK, "application/json", LiteBody::watch(frames.boxed()))
        }
        Err(failure) => refused(&failure),
    })
}

fn refused(failure: &Failure) -> Response<LiteBody> {
    answer::bytes(StatusCode::OK, frame("ERROR", failure.status().to_string().as_bytes()))
}

impl Timers {
    /// `fraction` spreads timers that would otherwise fire for all watches at once.
    fn start(query: &Query, fraction: f64) -> Self {
        let timeout = query.timeout.unwrap_or_else(|| TIMEOUT_MIN.mul_f64(1.0 + fraction)).min(TIMEOUT_MAX);
        let interval = BOOKMARK_INTERVAL.mul_f64(1.0 + (fraction - 0.5) / 6.0);
        let deadline = Box::pin(sleep(timeout));
        let bookmark = query.bookmarks.then(|| Box::pin(sleep(interval)));
        let has_last = query.bookmarks && timeout > BOOKMARK_BEFORE_END;
        let last_bookmark = has_last.then(|| Box::pin(sleep_until(deadline.deadline() - BOOKMARK_BEFORE_END)));
        Self { deadline, bookmark, interval, last_bookmark }
    }
}

impl Watching {
    /// The next line; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        while let Some(object) = self.existing.pop_front() {
            if self.selection.all || self.selection.matches(object.opened().value()) {
                return Some(self.line(Change::Added, &object));
            }
        }
        if let Some(version) = self.mark.take() {
            return Some(self.bookmark(version, true));
        }
        while let Some(event) = self.missed.pop_front() {
            if let Some(line) = self.event(&event) {
                return Some(line);
            }
        }
        loop {
            tokio::select! {
                biased;
                event = self.events.recv() => {
                    let Some(event) = event else { return self.end().await };
                    if let Some(line) = self.event(&event) {
                        return Some(line);
                    }
                }
                () = &mut self.timers.deadline => return None,
                () = maybe(&mut self.timers.last_bookmark) => {
                    self.timers.last_bookmark = None;
                    if let Some(version) = self.idle_at().await {
                        return Some(self.bookmark(version, false));
                    }
                }
                () = maybe(&mut self.timers.bookmark) => {
                    if let Some(timer) = &mut self.timers.bookmark {
                        let next = timer.deadline() + self.timers.interval;
                        timer.as_mut().reset(next);
                    }
                    if let Some(version) = self.idle_at().await {
                        return Some(self.bookmark(version, false));
                    }
                }
            }
        }
    }

    /// The version up to which this watch has sent everything, if nothing waits for it. Bookmarks also drive the expiry
    /// of old objects, of all kinds, even when there are no changes.
    async fn idle_at(&self) -> Option<u64> {
        let look = |state: &mut State| {
            state.trim(self.lite.now().since_start);
            (self.events.is_empty() && !self.events.is_closed()).then(|| state.version_of(&self.kind))
        };
        self.lite.store().between(look).await
    }

    /// The last line of a watch that was closed, if it has one. A client that resumes from its last version would miss
    /// nothing, unless the upstream server has another history since: then the same version may mean another state, and
    /// the client has to list.
    async fn end(&mut self) -> Option<Bytes> {
        let other = self.lite.store().look(|state| state.histories(&self.kind)).await != self.history;
        if std::mem::replace(&mut self.ended, true) || !other {
            return None;
        }
        let failure = Failure::expired("too old resource version: the API server has begun another history");
        Some(frame("ERROR", failure.status().to_string().as_bytes()))
    }

    fn event(&self, event: &Event) -> Option<Bytes> {
        let fields = &self.kind.description().fields;
        let change = if self.selection.all { event.change() } else { event.seen_by(&self.selection, fields)? };
        Some(match self.form {
            Form::Whole if self.kind.shows_stored() => event.frame(change),
            Form::Whole | Form::Table | Form::Metadata => self.line(change, &event.shown(change)),
        })
    }

    fn line(&self, change: Change, object: &Arc<Object>) -> Bytes {
        let unix_seconds = || self.lite.now().unix.as_secs();
        let object = &self.kind.shown(object);
        match self.form {
            Form::Whole => frame(change.name(), &object.json()),
            Form::Table | Form::Metadata => {
                let shown =
                    self.form.one(self.kind.description(), object.opened().value(), &self.include, unix_seconds());
                frame(change.name(), shown.to_string().as_bytes())
            }
        }
    }

    fn bookmark(&self, version: u64, ends_existing: bool) -> Bytes {
        let kind = self.kind.description();
        let metadata = json!({"resourceVersion": version.to_string()});
        let mut object = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
        if ends_existing {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let shown = self.form.one(kind, &object, &self.include, 0);
        frame("BOOKMARK", shown.to_string().as_bytes())
    }
}

/// Waits for the timer; without a timer, forever.
async fn maybe(timer: &mut Option<Pin<Box<Sleep>>>) {
    match timer {
        Some(timer) => timer.as_mut().await,
        None => std::future::pending().await,
    }
}
