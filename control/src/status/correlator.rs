//! What has been told, what there is to tell now, and how much of it at once. Pure: time is an argument, and what is to be
//! written comes out as data.
//!
//! A finding is told when it comes up; told to be so still every now and then while it stands, because API servers forget
//! Events; and told to be so again when it comes up again. In between nothing is written.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_config::object::{ObjectRef, Uid};

use super::event::{EventRecord, namespace};

/// After this long it is told that something is so still. Twice this is less than [`KEPT`]: what another leader told just
/// before it ended is told anew before it is forgotten.
const RENEW: Duration = Duration::from_secs(20 * 60);
/// How long API servers keep an Event that is not written any more, by default (`--event-ttl`).
const KEPT: Duration = Duration::from_secs(3600);
/// How much news there may be of an object at once, and how long it takes until there may be one more: as much as
/// client-go's filter lets through.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(5 * 60);
/// Objects of which something is remembered; of further ones nothing is told.
const OBJECTS_MAX: usize = 4096;
/// A namespace in which we may not write is left alone for so long at first: an API server that has just started refuses what it
/// will allow. Each further refusal doubles it, up to the second.
const FORBIDDEN_FIRST: Duration = Duration::from_secs(5);
const FORBIDDEN_MAX: Duration = Duration::from_secs(10 * 60);
/// Failures in a row after which it is given up to tell something.
const FAILURES_MAX: u32 = 5;

/// What to do about an object now.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Next<'n> {
    /// Make the Event of a notice.
    Create(&'n EventRecord),
    /// Tell in it that it is so still, or again. It has been told so often; `None` when nobody here knows.
    Renew(&'n EventRecord, Option<i32>),
    /// Nothing until then, or at all until something else is found.
    Rest(Option<Instant>),
    /// There is no room for it.
    Full,
}

/// What has been told of all objects, by one leader since it leads.
#[derive(Debug, Default)]
pub(super) struct EventCorrelator {
    objects: HashMap<ObjectRef, EventHistory>,
    /// Namespaces in which we may not write.
    forbidden: HashMap<Arc<str>, Forbidden>,
}

/// How a namespace is left alone.
#[derive(Clone, Copy, Debug)]
struct Forbidden {
    until: Instant,
    /// How long it is left alone by now.
    pause: Duration,
}

/// What has been told of one object.
#[derive(Debug)]
struct EventHistory {
    uid: Option<Uid>,
    events: Vec<Event>,
    /// When nothing counts any more of the news there was.
    even_at: Instant,
    failures: u32,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    /// That of its notice.
    id: u64,
    /// How often it has been told; `None` when somebody else made it.
    count: Option<i32>,
    /// When it was last told.
    at: Instant,
    /// Whether it is so now.
    stands: bool,
    /// Whether it was not so for a while since it was last told.
    again: bool,
}

impl EventCorrelator {
    /// What to do about an object of which these notices stand now; with its uid, where there is such an object.
    pub(super) fn next<'n>(
        &mut self,
        object: &ObjectRef,
        uid: Option<Uid>,
        notices: &'n [EventRecord],
        now: Instant,
    ) -> Next<'n> {
        let full = self.objects.len() >= OBJECTS_MAX;
        let told = match self.objects.entry(object.clone()) {
            Entry::Occupied(told) => told.into_mut(),
            Entry::Vacant(_) if notices.is_empty() => return Next::Rest(None),
            Entry::Vacant(_) if full => return Next::Full,
            Entry::Vacant(vacant) => vacant.insert(EventHistory { uid, events: Vec::new(), even_at: now, failures: 0 }),
        };
        told.look(uid, notices, now);
        let forbidden = self.forbidden.get(namespace(object)).map(|forbidden| forbidden.until);
        if let Some(until) = forbidden.filter(|until| now < *until && !notices.is_empty()) {
            return Next::Rest(Some(until));
        }
        let (news, news_at) = (told.first(notices, |event| event.is_none_or(|event| event.again)), told.news_at(now));
        let news_wait = news.is_some().then_some(news_at);
        if let Some(news) = news.filter(|_| news_at <= now) {
            return news;
        }
        if let Some(due) = told.first(notices, |event| event.is_some_and(|event| event.at + RENEW <= now)) {
            return due;
        }
        let renewals = told.events.iter().filter(|event| event.stands).map(|event| event.at + RENEW);
        if let Some(next) = renewals.chain(news_wait).min() {
            return Next::Rest(Some(next));
        }
        // Nothing stands. It is remembered for as long as it makes a difference.
        let until = told.events.iter().map(|event| event.at + KEPT).fold(told.even_at, Instant::max);
        if until > now {
            return Next::Rest(Some(until));
        }
        self.objects.remove(object);
        Next::Rest(None)
    }

    /// A notice has been told, or is not going to be: it is due again when what stands is. `count` is how often it has been
    /// told, where that is known.
    pub(super) fn recorded(&mut self, object: &ObjectRef, notice: u64, count: Option<i32>, now: Instant) {
        self.forbidden.remove(namespace(object));
        let Some(told) = self.objects.get_mut(object) else { return };
        let before = told.events.iter().position(|event| event.id == notice).map(|place| told.events.remove(place));
        if before.is_none_or(|event| event.again) {
            told.even_at = told.even_at.max(now) + REFILL;
        }
        let count = count.or(before.and_then(|event| event.count));
        told.events.push(Event { id: notice, count, at: now, stands: true, again: false });
        told.failures = 0;
    }

    /// The Event of a notice is not there any more.
    pub(super) fn vanished(&mut self, object: &ObjectRef, notice: u64) {
        if let Some(told) = self.objects.get_mut(object) {
            told.events.retain(|event| event.id != notice);
        }
    }

    /// We may not write where Events about this object are.
    pub(super) fn forbid(&mut self, object: &ObjectRef, now: Instant) {
        // One that nobody has tried for as long again is another story.
        self.forbidden.retain(|_, forbidden| now < forbidden.until + forbidden.pause);
        let before = self.forbidden.get(namespace(object));
        let pause = before.map_or(FORBIDDEN_FIRST, |before| (before.pause * 2).min(FORBIDDEN_MAX));
        self.forbidden.insert(namespace(object).into(), Forbidden { until: now + pause, pause });
    }

    /// Something could not be told; whether to try once more.
    pub(super) fn failed(&mut self, object: &ObjectRef) -> bool {
        self.objects.get_mut(object).is_some_and(|told| {
            told.failures += 1;
            told.failures < FAILURES_MAX
        })
    }
}

impl EventHistory {
    /// Takes what stands now. Events about an earlier object of the name are not about this one.
    fn look(&mut self, uid: Option<Uid>, notices: &[EventRecord], now: Instant) {
        if uid.is_some() && self.uid != uid {
            self.uid = uid;
            self.events.clear();
        }
        for event in &mut self.events {
            let stands = notices.iter().any(|notice| notice.id == event.id);
            event.again |= stands && !event.stands;
            event.stands = stands;
        }
        self.events.retain(|event| event.stands || now < event.at + KEPT);
    }

    /// What to do about the first of the notices that is due, as far as its Event says, if there is one.
    fn first<'n>(&self, notices: &'n [EventRecord], due: impl Fn(Option<&Event>) -> bool) -> Option<Next<'n>> {
        notices.iter().find_map(|notice| {
            let event = self.events.iter().find(|event| event.id == notice.id);
            due(event).then(|| event.map_or(Next::Create(notice), |event| Next::Renew(notice, event.count)))
        })
    }

    /// From when there may be news of it.
    fn news_at(&self, now: Instant) -> Instant {
        self.even_at.checked_sub(REFILL * (BURST - 1)).map_or(now, |at| at.max(now))
    }
}

#[cfg(test)]
mod tests;
