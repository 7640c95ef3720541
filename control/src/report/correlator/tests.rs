//! Tables of Events over time.

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

/// A record for each letter, about the object with that uid.
fn records(uid: Option<Uid>, letters: &str) -> Vec<EventRecord> {
    let finding =
        |letter: char| Finding::new(object("a", "a"), letter, Problem::ProcessingFailed { why: String::new() });
    letters.chars().map(|letter| EventRecord::of(uid.unwrap(), &finding(letter))).collect()
}

/// One object, at some time.
struct Table {
    correlator: EventCorrelator,
    object: ObjectRef,
    uid: Option<Uid>,
    begin: Instant,
    now: Instant,
}

impl Table {
    fn new() -> Self {
        let now = crate::clock::now();
        Self { correlator: EventCorrelator::default(), object: object("a", "a"), uid: uid(1), begin: now, now }
    }

    /// Sets the time to this second after the start.
    fn at(&mut self, second: u64) -> &mut Self {
        self.now = self.begin + Duration::from_secs(second);
        self
    }

    /// Makes all writes that are due while these letters stand: `+a` creates an Event, `a3` renews it with the count 3,
    /// and `a?` one that another process created. Then compares the time of the next write; `None` if there is none
    /// until the findings change.
    #[track_caller]
    fn check(&mut self, stand: &str, want: &str, until: Option<u64>) -> &mut Self {
        let records = records(self.uid, stand);
        let letter =
            |record: &EventRecord| stand.chars().nth(records.iter().position(|it| it == record).unwrap()).unwrap();
        let mut done = Vec::new();
        let rest = loop {
            let (id, count, what) = match self.correlator.next(&self.object, self.uid, &records, self.now) {
                NextWrite::Create(record) => (record.id, Some(1), format!("+{}", letter(record))),
                NextWrite::Renew(record, Some(count)) => {
                    (record.id, Some(count + 1), format!("{}{}", letter(record), count + 1))
                }
                NextWrite::Renew(record, None) => (record.id, Some(8), format!("{}?", letter(record))),
                NextWrite::Rest(rest) => break rest,
                NextWrite::Full => panic!("no room"),
            };
            self.correlator.recorded(&self.object, id, count, self.now);
            done.push(what);
        };
        assert_eq!(done.join(" "), want);
        assert_eq!(rest.map(|rest| (rest - self.begin).as_secs()), until);
        self
    }
}

#[test]
fn a_standing_finding_is_repeated_at_long_intervals() {
    let mut table = Table::new();
    table.check("", "", None).check("ab", "+a +b", Some(20 * MINUTE)).check("ab", "", Some(20 * MINUTE));
    table.at(10 * MINUTE).check("abc", "+c", Some(20 * MINUTE)).check("abc", "", Some(20 * MINUTE));
    table.at(20 * MINUTE).check("abc", "a2 b2", Some(30 * MINUTE));
    table.at(30 * MINUTE).check("abc", "c2", Some(40 * MINUTE));
    table.at(41 * MINUTE).check("bc", "b3", Some(50 * MINUTE));
    assert!(RENEW * 2 < KEPT, "what one leader writes just before its end, the next one tells in time");
}

#[test]
fn a_recurring_finding_is_reported_again() {
    let mut table = Table::new();
    table.check("a", "+a", Some(20 * MINUTE));
    table.at(60).check("", "", Some(60 * MINUTE)).check("", "", Some(60 * MINUTE));
    table.at(120).check("a", "a2", Some(22 * MINUTE)).check("a", "", Some(22 * MINUTE));
    table.at(180).check("b", "+b", Some(23 * MINUTE)).at(240).check("ab", "a3", Some(23 * MINUTE));
}

#[test]
fn a_finding_that_ended_long_ago_is_dropped() {
    let mut table = Table::new();
    table.check("a", "+a", Some(20 * MINUTE)).at(60).check("", "", Some(60 * MINUTE));
    table.at(60 * MINUTE).check("", "", None);
    assert!(table.correlator.objects.is_empty());
    table.check("a", "+a", Some(80 * MINUTE));
}

#[test]
fn reports_are_rate_limited() {
    let mut table = Table::new();
    let twenty: String = ('a'..='t').collect();
    let writes: Vec<String> = twenty.chars().map(|letter| format!("+{letter}")).collect();
    table.check(&twenty, &writes.join(" "), Some(20 * MINUTE)).at(1).check(&twenty[5..], "", Some(20 * MINUTE));
    table.check(&twenty, "a2 b2 c2 d2 e2", Some(20 * MINUTE)).check(&twenty[1..], "", Some(20 * MINUTE));
    table.check(&twenty, "", Some(5 * MINUTE)).at(5 * MINUTE - 1).check(&twenty, "", Some(5 * MINUTE));
    table.at(5 * MINUTE).check(&twenty, "a3", Some(20 * MINUTE)).check(&twenty[2..], "", Some(20 * MINUTE));
    table.check(&twenty, "", Some(10 * MINUTE));
    let still: Vec<String> = twenty[5..].chars().map(|letter| format!("{letter}2")).collect();
    table.at(20 * MINUTE).check(&twenty[5..], &still.join(" "), Some(40 * MINUTE));
}

#[test]
fn an_event_of_another_reporter_is_read_before_it_is_continued() {
    let mut table = Table::new();
    let record = &records(table.uid, "a")[0];
    table.correlator.next(&table.object, table.uid, std::slice::from_ref(record), table.now);
    table.correlator.recorded(&table.object, record.id, None, table.now);
    table.check("a", "", Some(20 * MINUTE)).at(20 * MINUTE).check("a", "a?", Some(40 * MINUTE));
    table.at(40 * MINUTE).check("a", "a9", Some(60 * MINUTE));
}

#[test]
fn a_recreated_object_starts_new_events() {
    let mut table = Table::new();
    table.check("a", "+a", Some(20 * MINUTE));
    table.uid = uid(2);
    table.check("a", "+a", Some(20 * MINUTE));
    table.uid = None;
    table.check("", "", Some(60 * MINUTE));
}

#[test]
fn a_deleted_event_is_created_again() {
    let mut table = Table::new();
    table.check("a", "+a", Some(20 * MINUTE));
    let id = records(table.uid, "a")[0].id;
    table.correlator.vanished(&table.object, id);
    table.at(60).check("a", "+a", Some(21 * MINUTE));
}

#[test]
fn a_forbidden_namespace_is_not_tried() {
    let mut table = Table::new();
    let records = records(table.uid, "a");
    let (here, there) = (object("a", "b"), object("b", "a"));
    let (class, default) = (ObjectRef::new(Kind::IngressClass, ObjectName::new("", "a")), object("default", "a"));
    table.correlator.forbid(&table.object, table.now);
    table.correlator.forbid(&class, table.now);
    let until = Some(table.now + FORBIDDEN_FIRST);
    for object in [&table.object, &here, &class, &default] {
        assert_eq!(table.correlator.next(object, table.uid, &records, table.now), NextWrite::Rest(until));
    }
    assert_eq!(table.correlator.next(&there, table.uid, &records, table.now), NextWrite::Create(&records[0]));
    table.check("", "", None).at(5).check("a", "+a", Some(20 * MINUTE + 5));
}

#[test]
fn a_forbidden_namespace_is_retried_with_back_off() {
    let mut table = Table::new();
    let records = records(table.uid, "a");
    let rest = |table: &mut Table| {
        table.correlator.forbid(&table.object, table.now);
        let NextWrite::Rest(Some(until)) = table.correlator.next(&table.object, table.uid, &records, table.now) else {
            panic!("it is tried at once");
        };
        let pause = (until - table.now).as_secs();
        table.now = until;
        pause
    };
    assert_eq!([(); 9].map(|()| rest(&mut table)), [5, 10, 20, 40, 80, 160, 320, 600, 600]);
    table.correlator.recorded(&table.object, records[0].id, Some(1), table.now);
    assert_eq!(rest(&mut table), 5, "what was allowed once is likely to be so again");
    table.now += 2 * FORBIDDEN_FIRST;
    assert_eq!(rest(&mut table), 5);
}

#[test]
fn a_failing_report_is_dropped_after_some_attempts() {
    let mut table = Table::new();
    let records = records(table.uid, "a");
    let mut tries = || {
        table.correlator.next(&table.object, table.uid, &records, table.now);
        table.correlator.failed(&table.object)
    };
    assert_eq!([(); 5].map(|()| tries()), [true, true, true, true, false]);
    table.correlator.recorded(&table.object, records[0].id, None, table.now);
    table.check("a", "", Some(20 * MINUTE));
    assert!(table.correlator.failed(&table.object), "what follows is counted anew");
}

#[test]
fn the_number_of_tracked_objects_is_limited() {
    let mut table = Table::new();
    let (one, records) = (uid(1), records(uid(1), "a"));
    let named = |number: usize| object("a", &number.to_string());
    for number in 0..OBJECTS_MAX {
        assert_eq!(table.correlator.next(&named(number), one, &records, table.now), NextWrite::Create(&records[0]));
    }
    let further = named(OBJECTS_MAX);
    assert_eq!(table.correlator.next(&further, one, &records, table.now), NextWrite::Full);
    assert_eq!(table.correlator.next(&further, one, &[], table.now), NextWrite::Rest(None));
    assert_eq!(
        table.correlator.next(&named(7), one, &[], table.now),
        NextWrite::Rest(None),
        "of which nothing was writes"
    );
    assert_eq!(table.correlator.next(&further, one, &records, table.now), NextWrite::Create(&records[0]));
}
