//! The faults, one a row. A test keeps the table of `docs/faults.md` equal to this one.

use std::time::Duration;

use tidegate_config::object::Kind;

use super::super::fake_api::{Answer, Seen, Step};
use super::super::{MS, frame};
use super::cluster::{expired, internal, kind_of, name_of};

/// The effect on requests while the fault lasts: a minute, in which the cluster changes too.
pub(super) struct Row {
    pub(super) name: &'static str,
    /// The answer to a request, given the answer of a healthy server and the number of requests for the collection or
    /// object since the fault began.
    pub(super) fault: Fault,
    pub(super) credentials: Credentials,
    /// Whether a backup is restored at its beginning: resourceVersions continue from an older one.
    pub(super) restored: bool,
    /// The interval of periodic lists, if they are due within the minute. The cluster changes after lists have begun to
    /// fail.
    pub(super) lists_due: Option<Duration>,
    /// The routes that serve during the minute.
    pub(super) meanwhile: Meanwhile,
    /// Whether the loop reports itself as degraded at the end of the minute.
    pub(super) degraded: bool,
    /// Whether it may briefly report itself as healthy when all of its collections happen to have succeeded.
    pub(super) flickers: bool,
    /// The maximum number of requests for a collection in the minute, without further pages of a list.
    pub(super) requests: Requests,
    /// The maximum time from the end of the fault until the current state is served.
    pub(super) recovers: Duration,
    /// The time between repeated requests for the collections, if a success notifies the others.
    pub(super) apart: Option<Duration>,
}

pub(super) type Fault = fn(&Seen, usize, Answer) -> Answer;

/// The credentials that the server requires.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Credentials {
    /// Nothing.
    Open,
    /// Another token than the one in the file, which is replaced only after the minute.
    Token,
    /// A certificate of another authority than the one in the file, which is replaced only after the minute.
    Authority,
}

/// The routes that serve while the fault lasts.
#[derive(Clone, Copy)]
pub(super) enum Meanwhile {
    /// The routes from before the fault.
    AsBefore,
    /// The changes of the cluster without deletions: no object counts as deleted.
    Added,
    /// All changes of the cluster.
    Followed,
}

/// The reason for the bound on requests.
#[derive(Clone, Copy)]
pub(super) enum Requests {
    /// Pauses that double to 30 s, and this number of requests after each.
    BackedOff(usize),
    /// Each request takes this long before it is given up, or before the server accepts the next.
    Each(Duration),
    /// Exactly these.
    Only(usize),
}

impl Requests {
    /// Eight pauses until they have grown; from then on their mean is 15 s. That all of them take a quarter of it has a
    /// probability of less than one in a million.
    pub(super) fn in_a_minute(self) -> usize {
        match self {
            Self::BackedOff(each) => (8 + 60 * 4 / 15) * each,
            Self::Each(time) => usize::try_from(60_000 / time.as_millis()).unwrap() + 1,
            Self::Only(count) => count,
        }
    }
}

/// The longest pause, and a margin.
const PAUSE: Duration = Duration::from_secs(32);
/// A watch that has lasted for a second notifies the others, which follow within another second, with a tolerance.
const TOGETHER: Duration = Duration::from_secs(3);
/// Lists are due repeatedly within this time, long before a watch ends.
pub(super) const LISTS_DUE: Duration = Duration::from_secs(5);
/// The longest silence of a watch, and a pause.
const SILENCE: Duration = Duration::from_secs(215 + 3);

impl Row {
    /// A fault during which no request succeeds, and which ends with the next request.
    const fn new(name: &'static str, fault: Fault) -> Self {
        Self {
            name,
            fault,
            credentials: Credentials::Open,
            restored: false,
            lists_due: None,
            meanwhile: Meanwhile::AsBefore,
            degraded: true,
            flickers: false,
            requests: Requests::BackedOff(1),
            recovers: PAUSE,
            apart: None,
        }
    }

    const fn costs(mut self, requests: Requests) -> Self {
        self.requests = requests;
        self
    }

    const fn serves(mut self, meanwhile: Meanwhile) -> Self {
        self.meanwhile = meanwhile;
        self
    }

    const fn unnoticed(mut self) -> Self {
        self.degraded = false;
        self
    }

    const fn recovers_in(mut self, recovers: Duration) -> Self {
        self.recovers = recovers;
        self
    }

    const fn flickers(mut self) -> Self {
        self.flickers = true;
        self
    }

    const fn together(mut self) -> Self {
        self.apart = Some(TOGETHER);
        self
    }

    const fn restored(mut self) -> Self {
        self.restored = true;
        self
    }

    const fn lists_due(mut self) -> Self {
        self.lists_due = Some(LISTS_DUE);
        self
    }

    const fn asks_for(mut self, credentials: Credentials) -> Self {
        self.credentials = credentials;
        self
    }
}

/// The rows in the format of `docs/faults.md`.
pub(super) fn written() -> String {
    let row = |row: &Row| {
        let meanwhile = match row.meanwhile {
            Meanwhile::AsBefore => "as before",
            Meanwhile::Added => "what came and moved",
            Meanwhile::Followed => "as it is",
        };
        let degraded = if row.degraded { "yes" } else { "no" };
        let (requests, recovers) = (row.requests.in_a_minute(), row.recovers.as_secs());
        let apart = row.apart.map_or("–".to_owned(), |apart| format!("{} s", apart.as_secs()));
        format!("| {} | {meanwhile} | {degraded} | {requests} | {recovers} s | {apart} |\n", row.name)
    };
    table().iter().map(row).collect()
}

/// Every fault.
pub(super) fn table() -> Vec<Row> {
    [connections(), refusals(), watches(), lists(), lists_due()].into_iter().flatten().collect()
}

fn connections() -> Vec<Row> {
    vec![
        Row::new("every connection is cut, once", |_, _, sound| sound)
            .serves(Meanwhile::Followed)
            .unnoticed()
            .costs(Requests::Only(1)),
        Row::new("connections are closed before any answer", |_, _, _| Answer::HangUp).together(),
        Row::new("those for one collection are, and the others not", |seen, _, sound| {
            if kind_of(seen) == Kind::Secret { Answer::HangUp } else { sound }
        })
        .serves(Meanwhile::Followed),
        Row::new("headers never come", |_, _, _| Answer::Mute)
            .costs(Requests::Each(MS(20_000)))
            .recovers_in(PAUSE + MS(20_000)),
        Row::new("the token expires, and a new one comes late", |_, _, sound| sound)
            .asks_for(Credentials::Token)
            .together(),
        Row::new("the authority is replaced, and the new one comes late", |_, _, sound| sound)
            .asks_for(Credentials::Authority)
            .together(),
    ]
}

fn refusals() -> Vec<Row> {
    vec![
        Row::new("403 to everything", |_, _, _| Answer::status(403)),
        Row::new("404 to everything", |_, _, _| Answer::status(404)),
        Row::new("422 to everything", |_, _, _| Answer::status(422)),
        Row::new("429 to everything", |_, _, _| Answer::status(429)),
        Row::new("429 to everything, with `Retry-After: 10`", |_, _, _| Answer::status(429).with("retry-after", "10"))
            .costs(Requests::Each(MS(10_000))),
        Row::new("429 to everything, with `Retry-After: 0`", |_, _, _| Answer::status(429).with("retry-after", "0")),
        Row::new("500 to everything", |_, _, _| Answer::status(500)).together(),
        Row::new("by turns no answer, 403 and 410 to everything", |_, nth, _| match nth % 3 {
            0 => Answer::HangUp,
            1 => Answer::status(403),
            _ => Answer::status(410),
        })
        .costs(Requests::BackedOff(2)),
    ]
}

fn watches() -> Vec<Row> {
    vec![
        Row::new("410 to each watch", |seen, _, sound| to_watch(seen, sound, Answer::status(410)))
            .serves(Meanwhile::Followed)
            .costs(Requests::BackedOff(2)),
        Row::new("410 as an event of each watch", |seen, _, sound| to_watch(seen, sound, Answer::ok(expired())))
            .serves(Meanwhile::Followed)
            .costs(Requests::BackedOff(2)),
        Row::new("500 as an event of each watch", |seen, _, sound| to_watch(seen, sound, Answer::ok(internal())))
            .serves(Meanwhile::Followed)
            .costs(Requests::BackedOff(2)),
        Row::new("422 to each watch", |seen, _, sound| to_watch(seen, sound, Answer::status(422)))
            .serves(Meanwhile::Followed)
            .costs(Requests::BackedOff(2)),
        Row::new("500 to each watch", |seen, _, sound| to_watch(seen, sound, Answer::status(500))).together(),
        Row::new("503 to four watches, and then 410", |seen, nth, sound| match nth {
            0..4 => to_watch(seen, sound, Answer::status(503)),
            4 => to_watch(seen, sound, Answer::ok(expired())),
            _ => sound,
        })
        .serves(Meanwhile::Followed)
        .unnoticed()
        .costs(Requests::Only(7)),
        Row::new("a backup is restored: resourceVersions are newer than any, which is answered 504", |_, _, sound| {
            sound
        })
        .restored()
        .serves(Meanwhile::Followed)
        .unnoticed()
        .costs(Requests::Only(3)),
        Row::new("watches stay silent", |seen, _, sound| to_watch(seen, sound, Answer::steps(vec![Step::Hang])))
            .unnoticed()
            .costs(Requests::Only(1))
            .recovers_in(SILENCE),
        Row::new("watches are closed at once", |seen, _, sound| to_watch(seen, sound, Answer::ok(""))),
        Row::new("watches repeat one event and are closed", |seen, _, sound| {
            to_watch(seen, sound, Answer::ok(frame("DELETED", UNRELATED)))
        }),
        Row::new("watches are cut within a chunk", |seen, _, sound| {
            let half = frame("DELETED", UNRELATED)[..40].to_owned();
            to_watch(seen, sound, Answer::steps(vec![Step::Send(half), Step::Cut]))
        })
        .together(),
        // Each watch that has lasted for a second notifies the others, which fail in turn.
        Row::new("watches are cut after two seconds", |seen, _, sound| {
            to_watch(seen, sound, Answer::steps(vec![Step::Pause(MS(2000)), Step::Cut]))
        })
        .costs(Requests::BackedOff(2))
        .flickers(),
        Row::new("an object of each watch cannot be read", |seen, _, sound| {
            to_watch(seen, sound, Answer::ok(frame("ADDED", NAMELESS)))
        })
        .serves(Meanwhile::Followed)
        .costs(Requests::BackedOff(2)),
    ]
}

fn lists() -> Vec<Row> {
    vec![
        Row::new("lists are never answered", |seen, _, _| to_list(seen, Answer::Mute))
            .costs(Requests::Each(MS(20_000)))
            .recovers_in(PAUSE + MS(20_000)),
        Row::new("lists stop in the middle", |seen, _, _| to_list(seen, half_list(Step::Hang)))
            .costs(Requests::Each(MS(30_000)))
            .recovers_in(PAUSE + MS(30_000)),
        Row::new("lists are cut within a chunk", |seen, _, _| to_list(seen, half_list(Step::Cut))).together(),
        Row::new("lists are no lists", |seen, _, _| to_list(seen, Answer::ok("<html>sign in</html>"))),
        Row::new("500 to lists", |seen, _, _| to_list(seen, Answer::status(500))).together(),
        Row::new("the last page of each list is lost", |seen, _, sound| {
            if seen.query.contains_key("continue") { Answer::HangUp } else { to_list(seen, sound) }
        })
        .costs(Requests::BackedOff(2)),
        Row::new("the pages of each list expire before they are asked for", |seen, _, sound| {
            if seen.query.contains_key("continue") { Answer::status(410) } else { to_list(seen, sound) }
        })
        .costs(Requests::BackedOff(2)),
        Row::new("one list comes without its objects", |_, nth, sound| match nth {
            0 => Answer::status(410),
            1 => Answer::ok(r#"{"metadata":{"resourceVersion":"100000"},"items":[]}"#),
            _ => sound,
        })
        .serves(Meanwhile::Followed)
        .unnoticed()
        .costs(Requests::Only(5)),
        Row::new("an object of one list cannot be read", |_, nth, sound| match nth {
            0 => Answer::status(410),
            1 => sound
                .edited(|list| list.replace(r#""items":["#, &format!(r#""items":[{NAMELESS},"#)).replace(",]", "]")),
            _ => sound,
        })
        .serves(Meanwhile::Added)
        .unnoticed()
        .costs(Requests::Only(3))
        .recovers_in(SILENCE),
    ]
}

/// Lists concurrent with healthy watches. Each successful list costs a watch as well, and so may the beginning.
fn lists_due() -> Vec<Row> {
    let faults: [(&'static str, Fault); 5] = [
        ("429 to lists that are due", |seen, _, sound| to_due(seen, sound, Answer::status(429))),
        ("500 to lists that are due", |seen, _, sound| to_due(seen, sound, Answer::status(500))),
        ("lists that are due are never answered", |seen, _, sound| to_due(seen, sound, Answer::Mute)),
        ("lists that are due stop in the middle", |seen, _, sound| to_due(seen, sound, half_list(Step::Hang))),
        ("the last page of each list that is due expires", |seen, _, sound| {
            if seen.query.contains_key("continue") { Answer::status(410) } else { sound }
        }),
    ];
    let row = |(name, fault)| Row::new(name, fault).lists_due().serves(Meanwhile::Followed).unnoticed();
    faults.map(row).map(|row| row.costs(Requests::BackedOff(2))).into()
}

fn to_watch(seen: &Seen, sound: Answer, faulty: Answer) -> Answer {
    if seen.is_watch() { faulty } else { sound }
}

/// The faulty answer to lists, and to reads of one object; watches are refused, so that lists are made.
fn to_list(seen: &Seen, faulty: Answer) -> Answer {
    if seen.is_watch() { Answer::status(410) } else { faulty }
}

/// The faulty answer to lists while watches succeed.
fn to_due(seen: &Seen, sound: Answer, faulty: Answer) -> Answer {
    if seen.is_watch() || name_of(seen).is_some() { sound } else { faulty }
}

fn half_list(then: Step) -> Answer {
    Answer::steps(vec![Step::Send(r#"{"metadata":{"resourceVersion":"300"},"items":["#.to_owned()), then])
}

/// An object that no route depends on.
const UNRELATED: &str = r#"{"metadata":{"name":"unrelated","namespace":"shop","resourceVersion":"1"},"spec":{}}"#;
/// An object without an identity.
const NAMELESS: &str = r#"{"metadata":{"resourceVersion":"7"}}"#;
