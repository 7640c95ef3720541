//! The Events that were written, and the next one to write, with a rate limit. Pure: time is an argument, and writes
//! are returned as data.
//!
//! A finding gets an Event when it appears; the Event is renewed periodically while the finding stands, because API
//! servers delete old Events; and it is renewed when the finding reappears. Otherwise nothing is written.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_config::object::{ObjectRef, Uid};

use super::event::{EventRecord, namespace};

/// The interval for renewing the Event of a standing finding. Twice this is less than [`KEPT`]: Events that a previous
/// leader wrote just before its end are renewed before they expire.
const RENEW: Duration = Duration::from_secs(20 * 60);
/// The default time after which API servers delete an Event that is not renewed (`--event-ttl`).
const KEPT: Duration = Duration::from_secs(3600);
/// The number of Events for an object in a burst, and the interval of further ones: as in the spam filter of client-go.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(5 * 60);
/// The limit of objects with a history; for further objects no Events are written.
const OBJECTS_MAX: usize = 4096;
/// The pause for a namespace after a denied write: an API server that has just started denies requests at first. Each
/// further denial doubles it, up to the second value.
const FORBIDDEN_FIRST: Duration = Duration::from_secs(5);
const FORBIDDEN_MAX: Duration = Duration::from_secs(10 * 60);
/// The number of consecutive failures after which an Event is skipped.
const FAILURES_MAX: u32 = 5;

/// The next write for an object.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum NextWrite<'n> {
    /// Create the Event.
    Create(&'n EventRecord),
    /// Renew the Event; with its current count, or `None` if this process does not know it.
    Renew(&'n EventRecord, Option<i32>),
    /// Nothing until this time, or until the findings change.
    Rest(Option<Instant>),
    /// There is no space for another object.
    Full,
}

/// The history of all objects, since this process became the leader.
#[derive(Debug, Default)]
pub(super) struct EventCorrelator {
    objects: HashMap<ObjectRef, EventHistory>,
    /// Namespaces with denied writes.
    forbidden: HashMap<Arc<str>, Forbidden>,
}

/// The pause of a namespace.
#[derive(Clone, Copy, Debug)]
struct Forbidden {
    until: Instant,
    /// The length of the current pause.
    pause: Duration,
}

/// The history of one object.
#[derive(Debug)]
struct EventHistory {
    uid: Option<Uid>,
    events: Vec<Event>,
    /// When the rate limiter's bucket is full again.
    even_at: Instant,
    failures: u32,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    /// The id of its [`EventRecord`].
    id: u64,
    /// Its count; `None` if another process created it.
    count: Option<i32>,
    /// When it was last written.
    at: Instant,
    /// Whether the finding stands now.
    present: bool,
    /// Whether the finding was gone for a while since the last write.
    again: bool,
}

impl EventCorrelator {
    /// The next write for an object with these standing records; `uid` is that of the object, if it exists.
    pub(super) fn next<'n>(
        &mut self,
        object: &ObjectRef,
        uid: Option<Uid>,
        records: &'n [EventRecord],
        now: Instant,
    ) -> NextWrite<'n> {
        let full = self.objects.len() >= OBJECTS_MAX;
        let history = match self.objects.entry(object.clone()) {
            Entry::Occupied(history) => history.into_mut(),
            Entry::Vacant(_) if records.is_empty() => return NextWrite::Rest(None),
            Entry::Vacant(_) if full => return NextWrite::Full,
            Entry::Vacant(vacant) => vacant.insert(EventHistory { uid, events: Vec::new(), even_at: now, failures: 0 }),
        };
        history.look(uid, records, now);
        let forbidden = self.forbidden.get(namespace(object)).map(|forbidden| forbidden.until);
        if let Some(until) = forbidden.filter(|until| now < *until && !records.is_empty()) {
            return NextWrite::Rest(Some(until));
        }
        let (news, news_at) =
            (history.first(records, |event| event.is_none_or(|event| event.again)), history.news_at(now));
        let news_wait = news.is_some().then_some(news_at);
        if let Some(news) = news.filter(|_| news_at <= now) {
            return news;
        }
        if let Some(due) = history.first(records, |event| event.is_some_and(|event| event.at + RENEW <= now)) {
            return due;
        }
        let renewals = history.events.iter().filter(|event| event.present).map(|event| event.at + RENEW);
        if let Some(next) = renewals.chain(news_wait).min() {
            return NextWrite::Rest(Some(next));
        }
        // No finding stands. The history is kept while it affects later writes.
        let until = history.events.iter().map(|event| event.at + KEPT).fold(history.even_at, Instant::max);
        if until > now {
            return NextWrite::Rest(Some(until));
        }
        self.objects.remove(object);
        NextWrite::Rest(None)
    }

    /// Records that an Event was written or skipped; the next write is due as for a standing finding. `count` is its
    /// count, if known.
    pub(super) fn recorded(&mut self, object: &ObjectRef, record: u64, count: Option<i32>, now: Instant) {
        self.forbidden.remove(namespace(object));
        let Some(history) = self.objects.get_mut(object) else { return };
        let before =
            history.events.iter().position(|event| event.id == record).map(|index| history.events.remove(index));
        if before.is_none_or(|event| event.again) {
            history.even_at = history.even_at.max(now) + REFILL;
        }
        let count = count.or(before.and_then(|event| event.count));
        history.events.push(Event { id: record, count, at: now, present: true, again: false });
        history.failures = 0;
    }

    /// The Event no longer exists.
    pub(super) fn vanished(&mut self, object: &ObjectRef, record: u64) {
        if let Some(history) = self.objects.get_mut(object) {
            history.events.retain(|event| event.id != record);
        }
    }

    /// Writing Events in the namespace of this object was denied.
    pub(super) fn forbid(&mut self, object: &ObjectRef, now: Instant) {
        // A namespace without attempts for as long as its pause starts over.
        self.forbidden.retain(|_, forbidden| now < forbidden.until + forbidden.pause);
        let before = self.forbidden.get(namespace(object));
        let pause = before.map_or(FORBIDDEN_FIRST, |before| (before.pause * 2).min(FORBIDDEN_MAX));
        self.forbidden.insert(namespace(object).into(), Forbidden { until: now + pause, pause });
    }

    /// Records a failed write; returns `true` if another attempt should follow.
    pub(super) fn failed(&mut self, object: &ObjectRef) -> bool {
        self.objects.get_mut(object).is_some_and(|history| {
            history.failures += 1;
            history.failures < FAILURES_MAX
        })
    }
}

impl EventHistory {
    /// Updates the findings that stand. Events about an earlier object of the same name do not apply to this one.
    fn look(&mut self, uid: Option<Uid>, records: &[EventRecord], now: Instant) {
        if uid.is_some() && self.uid != uid {
            self.uid = uid;
            self.events.clear();
        }
        for event in &mut self.events {
            let present = records.iter().any(|record| record.id == event.id);
            event.again |= present && !event.present;
            event.present = present;
        }
        self.events.retain(|event| event.present || now < event.at + KEPT);
    }

    /// The write for the first record that is due, judged by its Event, if it has one.
    fn first<'n>(&self, records: &'n [EventRecord], due: impl Fn(Option<&Event>) -> bool) -> Option<NextWrite<'n>> {
        records.iter().find_map(|record| {
            let event = self.events.iter().find(|event| event.id == record.id);
            due(event).then(|| event.map_or(NextWrite::Create(record), |event| NextWrite::Renew(record, event.count)))
        })
    }

    /// When the rate limiter allows the next Event.
    fn news_at(&self, now: Instant) -> Instant {
        self.even_at.checked_sub(REFILL * (BURST - 1)).map_or(now, |at| at.max(now))
    }
}

#[cfg(test)]
mod tests;
