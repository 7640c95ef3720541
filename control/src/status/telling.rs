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

use super::event::{Notice, namespace};

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
/// A namespace in which we may not write is left alone for so long.
const FORBIDDEN: Duration = Duration::from_secs(10 * 60);
/// Failures in a row after which it is given up to tell something.
const FAILURES_MAX: u32 = 5;

/// What to do about an object now.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Next<'n> {
    /// Make the Event of a notice.
    Create(&'n Notice),
    /// Tell in it that it is so still, or again. It has been told so often; `None` when nobody here knows.
    Renew(&'n Notice, Option<i32>),
    /// Nothing until then, or at all until something else is found.
    Rest(Option<Instant>),
    /// There is no room for it.
    Full,
}

/// What has been told of all objects, by one leader since it leads.
#[derive(Debug, Default)]
pub(super) struct Telling {
    objects: HashMap<ObjectRef, Told>,
    /// Namespaces in which we may not write, and until when they are left alone.
    forbidden: HashMap<Arc<str>, Instant>,
}

/// What has been told of one object.
#[derive(Debug)]
struct Told {
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

impl Telling {
    /// What to do about an object of which these notices stand now; with its uid, where there is such an object.
    pub(super) fn next<'n>(
        &mut self,
        object: &ObjectRef,
        uid: Option<Uid>,
        notices: &'n [Notice],
        now: Instant,
    ) -> Next<'n> {
        let full = self.objects.len() >= OBJECTS_MAX;
        let told = match self.objects.entry(object.clone()) {
            Entry::Occupied(told) => told.into_mut(),
            Entry::Vacant(_) if notices.is_empty() => return Next::Rest(None),
            Entry::Vacant(_) if full => return Next::Full,
            Entry::Vacant(vacant) => vacant.insert(Told { uid, events: Vec::new(), even_at: now, failures: 0 }),
        };
        told.look(uid, notices, now);
        let forbidden = self.forbidden.get(namespace(object)).filter(|until| now < **until);
        if let Some(until) = forbidden.filter(|_| !notices.is_empty()) {
            return Next::Rest(Some(*until));
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
    pub(super) fn told(&mut self, object: &ObjectRef, notice: u64, count: Option<i32>, now: Instant) {
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
        self.forbidden.retain(|_, until| now < *until);
        self.forbidden.insert(namespace(object).into(), now + FORBIDDEN);
    }

    /// Something could not be told; whether to try once more.
    pub(super) fn failed(&mut self, object: &ObjectRef) -> bool {
        self.objects.get_mut(object).is_some_and(|told| {
            told.failures += 1;
            told.failures < FAILURES_MAX
        })
    }
}

impl Told {
    /// Takes what stands now. Events about an earlier object of the name are not about this one.
    fn look(&mut self, uid: Option<Uid>, notices: &[Notice], now: Instant) {
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
    fn first<'n>(&self, notices: &'n [Notice], due: impl Fn(Option<&Event>) -> bool) -> Option<Next<'n>> {
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
mod tests {
    use tidegate_config::finding::{Finding, Problem};
    use tidegate_config::object::{Kind, ObjectName};

    use super::*;

    const MINUTE: u64 = 60;

    fn object(namespace: &str, name: &str) -> ObjectRef {
        ObjectRef::new(Kind::Ingress, ObjectName::new(namespace, name))
    }

    fn uid(number: u32) -> Option<Uid> {
        Uid::parse(&format!("00000000-0000-0000-0000-{number:012x}"))
    }

    /// A notice for each letter, about the object with that uid.
    fn notices(uid: Option<Uid>, letters: &str) -> Vec<Notice> {
        let finding = |letter: char| Finding::new(object("a", "a"), letter, Problem::SetAside { why: String::new() });
        letters.chars().map(|letter| Notice::of(uid.unwrap(), &finding(letter))).collect()
    }

    /// One object, at some time.
    struct Table {
        telling: Telling,
        object: ObjectRef,
        uid: Option<Uid>,
        begin: Instant,
        now: Instant,
    }

    impl Table {
        fn new() -> Self {
            let now = crate::clock::now();
            Self { telling: Telling::default(), object: object("a", "a"), uid: uid(1), begin: now, now }
        }

        /// So many seconds after the beginning.
        fn at(&mut self, second: u64) -> &mut Self {
            self.now = self.begin + Duration::from_secs(second);
            self
        }

        /// Does all there is to do while these letters stand: `+a` makes an Event, `a3` tells it the third time, and `a?` one
        /// that somebody else made. Then nothing is to do until that second, or until something changes.
        #[track_caller]
        fn check(&mut self, stand: &str, want: &str, until: Option<u64>) -> &mut Self {
            let notices = notices(self.uid, stand);
            let letter =
                |notice: &Notice| stand.chars().nth(notices.iter().position(|it| it == notice).unwrap()).unwrap();
            let mut done = Vec::new();
            let rest = loop {
                let (id, count, what) = match self.telling.next(&self.object, self.uid, &notices, self.now) {
                    Next::Create(notice) => (notice.id, Some(1), format!("+{}", letter(notice))),
                    Next::Renew(notice, Some(count)) => {
                        (notice.id, Some(count + 1), format!("{}{}", letter(notice), count + 1))
                    }
                    Next::Renew(notice, None) => (notice.id, Some(8), format!("{}?", letter(notice))),
                    Next::Rest(rest) => break rest,
                    Next::Full => panic!("no room"),
                };
                self.telling.told(&self.object, id, count, self.now);
                done.push(what);
            };
            assert_eq!(done.join(" "), want);
            assert_eq!(rest.map(|rest| (rest - self.begin).as_secs()), until);
            self
        }
    }

    #[test]
    fn what_stands_is_told_once_and_then_now_and_then() {
        let mut table = Table::new();
        table.check("", "", None).check("ab", "+a +b", Some(20 * MINUTE)).check("ab", "", Some(20 * MINUTE));
        table.at(10 * MINUTE).check("abc", "+c", Some(20 * MINUTE)).check("abc", "", Some(20 * MINUTE));
        table.at(20 * MINUTE).check("abc", "a2 b2", Some(30 * MINUTE));
        table.at(30 * MINUTE).check("abc", "c2", Some(40 * MINUTE));
        table.at(41 * MINUTE).check("bc", "b3", Some(50 * MINUTE));
        assert!(RENEW * 2 < KEPT, "what one leader told just before its end, the next one tells in time");
    }

    #[test]
    fn what_comes_again_is_told_again() {
        let mut table = Table::new();
        table.check("a", "+a", Some(20 * MINUTE));
        table.at(60).check("", "", Some(60 * MINUTE)).check("", "", Some(60 * MINUTE));
        table.at(120).check("a", "a2", Some(22 * MINUTE)).check("a", "", Some(22 * MINUTE));
        table.at(180).check("b", "+b", Some(23 * MINUTE)).at(240).check("ab", "a3", Some(23 * MINUTE));
    }

    #[test]
    fn what_is_long_gone_is_forgotten() {
        let mut table = Table::new();
        table.check("a", "+a", Some(20 * MINUTE)).at(60).check("", "", Some(60 * MINUTE));
        table.at(60 * MINUTE).check("", "", None);
        assert!(table.telling.objects.is_empty());
        table.check("a", "+a", Some(80 * MINUTE));
    }

    #[test]
    fn news_are_few() {
        let mut table = Table::new();
        let twenty: String = ('a'..='t').collect();
        let told: Vec<String> = twenty.chars().map(|letter| format!("+{letter}")).collect();
        table.check(&twenty, &told.join(" "), Some(20 * MINUTE)).at(1).check(&twenty[5..], "", Some(20 * MINUTE));
        table.check(&twenty, "a2 b2 c2 d2 e2", Some(20 * MINUTE)).check(&twenty[1..], "", Some(20 * MINUTE));
        table.check(&twenty, "", Some(5 * MINUTE)).at(5 * MINUTE - 1).check(&twenty, "", Some(5 * MINUTE));
        table.at(5 * MINUTE).check(&twenty, "a3", Some(20 * MINUTE)).check(&twenty[2..], "", Some(20 * MINUTE));
        table.check(&twenty, "", Some(10 * MINUTE));
        let still: Vec<String> = twenty[5..].chars().map(|letter| format!("{letter}2")).collect();
        table.at(20 * MINUTE).check(&twenty[5..], &still.join(" "), Some(40 * MINUTE));
    }

    #[test]
    fn what_somebody_else_told_is_asked_for_when_it_is_due() {
        let mut table = Table::new();
        let notice = &notices(table.uid, "a")[0];
        table.telling.next(&table.object, table.uid, std::slice::from_ref(notice), table.now);
        table.telling.told(&table.object, notice.id, None, table.now);
        table.check("a", "", Some(20 * MINUTE)).at(20 * MINUTE).check("a", "a?", Some(40 * MINUTE));
        table.at(40 * MINUTE).check("a", "a9", Some(60 * MINUTE));
    }

    #[test]
    fn another_object_of_the_name_is_another_one() {
        let mut table = Table::new();
        table.check("a", "+a", Some(20 * MINUTE));
        table.uid = uid(2);
        table.check("a", "+a", Some(20 * MINUTE));
        table.uid = None;
        table.check("", "", Some(60 * MINUTE));
    }

    #[test]
    fn an_event_that_is_gone_is_made_again() {
        let mut table = Table::new();
        table.check("a", "+a", Some(20 * MINUTE));
        let id = notices(table.uid, "a")[0].id;
        table.telling.vanished(&table.object, id);
        table.at(60).check("a", "+a", Some(21 * MINUTE));
    }

    #[test]
    fn where_nothing_may_be_written_nothing_is_tried() {
        let mut table = Table::new();
        let notices = notices(table.uid, "a");
        let (here, there) = (object("a", "b"), object("b", "a"));
        let (class, default) = (ObjectRef::new(Kind::IngressClass, ObjectName::new("", "a")), object("default", "a"));
        table.telling.forbid(&table.object, table.now);
        table.telling.forbid(&class, table.now);
        let until = Some(table.now + FORBIDDEN);
        for object in [&table.object, &here, &class, &default] {
            assert_eq!(table.telling.next(object, table.uid, &notices, table.now), Next::Rest(until));
        }
        assert_eq!(table.telling.next(&there, table.uid, &notices, table.now), Next::Create(&notices[0]));
        table.check("", "", None).at(10 * MINUTE).check("a", "+a", Some(30 * MINUTE));
    }

    #[test]
    fn who_fails_is_given_up_after_a_while() {
        let mut table = Table::new();
        let notices = notices(table.uid, "a");
        let mut tries = || {
            table.telling.next(&table.object, table.uid, &notices, table.now);
            table.telling.failed(&table.object)
        };
        assert_eq!([(); 5].map(|()| tries()), [true, true, true, true, false]);
        table.telling.told(&table.object, notices[0].id, None, table.now);
        table.check("a", "", Some(20 * MINUTE));
        assert!(table.telling.failed(&table.object), "what follows is counted anew");
    }

    #[test]
    fn there_is_room_for_so_many_objects() {
        let mut table = Table::new();
        let (one, notices) = (uid(1), notices(uid(1), "a"));
        let named = |number: usize| object("a", &number.to_string());
        for number in 0..OBJECTS_MAX {
            assert_eq!(table.telling.next(&named(number), one, &notices, table.now), Next::Create(&notices[0]));
        }
        let further = named(OBJECTS_MAX);
        assert_eq!(table.telling.next(&further, one, &notices, table.now), Next::Full);
        assert_eq!(table.telling.next(&further, one, &[], table.now), Next::Rest(None));
        assert_eq!(table.telling.next(&named(7), one, &[], table.now), Next::Rest(None), "of which nothing was told");
        assert_eq!(table.telling.next(&further, one, &notices, table.now), Next::Create(&notices[0]));
    }
}
