//! The written batches after lists and watch events.

use std::cell::RefCell;
use std::iter::once;

use super::*;

/// The content of a store, and whether it is unavailable.
#[derive(Default)]
struct Disk {
    values: RefCell<BTreeMap<String, Vec<u8>>>,
    away: bool,
}

impl Stored for Disk {
    fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.values.borrow().get(key).filter(|_| !self.away).cloned()
    }

    fn keys(&self) -> Option<Vec<String>> {
        (!self.away).then(|| self.values.borrow().keys().cloned().collect())
    }
}

const LIMIT: UnconfirmedRemovals = UnconfirmedRemovals { share: 0.5, count: 2 };

/// A partition with its stored values and position.
struct Bed {
    pending: Pending,
    disk: Disk,
    version: Option<String>,
}

impl Bed {
    fn new(based: bool, values: &[(&str, &str)]) -> Self {
        let bed = Self { pending: Pending::new(false, based), disk: Disk::default(), version: None };
        let values = values.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
        bed.disk.values.borrow_mut().extend(values);
        bed
    }

    fn event(&mut self, key: &str, value: Option<&str>, version: &str) {
        let value = value.map(|value| value.as_bytes().to_vec());
        self.pending.event(key.to_owned(), value, Some(version.into()), &self.disk);
    }

    fn listed(&mut self, key: &str, value: &str) {
        self.pending.listed(key.to_owned(), value.as_bytes().to_vec(), &self.disk);
    }

    fn list(&mut self, values: &[(&str, &str)], version: &str) -> bool {
        self.pending.list_begins(false);
        values.iter().for_each(|(key, value)| self.listed(key, value));
        self.done(version, true)
    }

    fn done(&mut self, version: &str, wins: bool) -> bool {
        self.pending.list_done(Listed { reached: version.into(), complete: true, wins }, LIMIT, &self.disk)
    }

    fn half_done(&mut self, version: &str) -> bool {
        self.pending.list_done(Listed { reached: version.into(), complete: false, wins: true }, LIMIT, &self.disk)
    }

    /// Writes the pending changes; returns the number of values.
    fn write(&mut self) -> Option<usize> {
        let PartitionChange { replace, values, position, .. } = self.pending.take(7)?;
        let (mut held, written) = (self.disk.values.borrow_mut(), values.len());
        if replace {
            held.clear();
        }
        for (key, value) in values {
            match value {
                Some(value) => drop(held.insert(key, value)),
                None => drop(held.remove(&key)),
            }
        }
        self.version = position.resource_version.filter(|_| position.whole);
        Some(written)
    }

    #[track_caller]
    fn check(&mut self, written: Option<usize>, version: Option<&str>, values: &[(&str, &str)]) {
        assert_eq!(self.write(), written);
        assert_eq!(self.version.as_deref(), version);
        let held = self.disk.values.borrow();
        let held: Vec<(&str, &str)> = held.iter().map(|(k, v)| (&**k, std::str::from_utf8(v).unwrap())).collect();
        assert_eq!(held, values);
    }
}

#[test]
fn events_coalesce_up_to_the_last_version() {
    let mut bed = Bed::new(true, &[("a", "1")]);
    bed.event("a", Some("2"), "10");
    bed.event("b", Some("1"), "11");
    bed.event("b", None, "12");
    bed.event("a", Some("3"), "13");
    bed.check(Some(2), Some("13"), &[("a", "3")]);
    assert_eq!(bed.write(), None);
}

#[test]
fn a_change_of_version_only_is_written_if_objects_are_served() {
    let [at_7, at_9] =
        ["7", "9"].map(|version| format!(r#"{{"metadata":{{"resourceVersion":"{version}","name":"a"}}}}"#));
    for (exact, written, kept) in [(false, 0, &at_7), (true, 1, &at_9)] {
        let mut bed = Bed::new(true, &[("a", &at_7)]);
        bed.pending = Pending::new(false, true).exactly(exact);
        bed.event("a", Some(&at_9), "9");
        bed.check(Some(written), Some("9"), &[("a", kept)]);
        assert!(bed.list(&[("a", &at_9)], "12"));
        bed.check(Some(0), Some("12"), &[("a", kept)]);
    }
}

#[test]
fn unchanged_values_are_not_written() {
    let mut bed = Bed::new(true, &[("a", "1")]);
    bed.event("a", Some("1"), "10");
    bed.event("x", None, "11");
    assert!(!bed.pending.has_values() && bed.pending.has_version());
    assert_eq!(bed.pending.unchanged, 2);
    bed.check(Some(0), Some("11"), &[("a", "1")]);
    bed.pending.reached("15".into());
    assert!(!bed.pending.has_values() && bed.pending.has_version());
}

#[test]
fn a_list_writes_the_difference() {
    let mut bed = Bed::new(true, &[("a", "1"), ("b", "1"), ("c", "1")]);
    assert!(bed.list(&[("a", "1"), ("b", "2"), ("d", "1")], "20"));
    bed.check(Some(3), Some("20"), &[("a", "1"), ("b", "2"), ("d", "1")]);
}

#[test]
fn events_before_the_first_list_are_not_written() {
    let mut bed = Bed::new(false, &[("a", "1")]);
    bed.event("a", Some("2"), "10");
    bed.pending.reached("11".into());
    assert_eq!(bed.write(), None);
    assert!(bed.list(&[("a", "3")], "20"));
    bed.event("a", Some("4"), "21");
    bed.check(Some(1), Some("21"), &[("a", "4")]);
}

#[test]
fn watch_events_during_a_list_override_the_list() {
    for based in [true, false] {
        let mut bed = Bed::new(based, &[("a", "1"), ("b", "1")]);
        bed.pending.list_begins(false);
        bed.listed("a", "1");
        bed.event("a", Some("2"), "x10");
        bed.event("c", Some("1"), "x11");
        bed.event("b", None, "x12");
        bed.listed("b", "1");
        bed.done("x12", false);
        bed.check(Some(3), Some("x12"), &[("a", "2"), ("c", "1")]);
    }
}

#[test]
fn a_newer_list_overrides_concurrent_watch_events() {
    for based in [true, false] {
        let mut bed = Bed::new(based, &[("a", "1"), ("b", "1"), ("c", "1")]);
        bed.pending.list_begins(false);
        bed.listed("a", "1");
        bed.listed("c", "1");
        // Changed, and changed back before the resourceVersion of the list.
        bed.event("a", Some("2"), "10");
        bed.event("b", None, "11");
        bed.listed("b", "1");
        assert!(bed.done("20", true));
        bed.write();
        bed.check(None, Some("20"), &[("a", "1"), ("b", "1"), ("c", "1")]);
    }
}

#[test]
fn a_list_that_lacks_most_objects_must_be_confirmed() {
    let four = [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")];
    let mut bed = Bed::new(true, &four);
    assert!(!bed.list(&[("a", "1")], "20"), "three of four, and more than may be gone unconfirmed");
    bed.event("a", Some("2"), "21");
    bed.check(None, None, &four);
    assert!(bed.list(&[("a", "3")], "30"));
    bed.check(Some(4), Some("30"), &[("a", "3")]);
    assert!(!bed.list(&[], "40"), "the last one of all");
    assert!(bed.list(&[("a", "3"), ("b", "1")], "41"));
    bed.check(Some(1), Some("41"), &[("a", "3"), ("b", "1")]);
}

#[test]
fn an_incomplete_list_removes_nothing_and_sets_no_version() {
    let mut bed = Bed::new(true, &[("a", "1"), ("b", "1")]);
    bed.pending.list_begins(false);
    bed.listed("a", "2");
    let end = Listed { reached: "20".into(), complete: false, wins: true };
    assert!(bed.pending.list_done(end, LIMIT, &bed.disk));
    bed.check(Some(1), None, &[("a", "2"), ("b", "1")]);
}

#[test]
fn after_a_loss_nothing_is_written_until_the_next_list_ends() {
    let mut bed = Bed::new(true, &[("a", "1")]);
    bed.pending.list_begins(true);
    bed.event("a", Some("3"), "12");
    assert_eq!(bed.write(), None, "what was told in between is missing");
    bed.listed("a", "2");
    bed.listed("b", "1");
    bed.done("12", false);
    bed.check(Some(2), Some("12"), &[("a", "3"), ("b", "1")]);
}

#[test]
fn a_failed_list_changes_nothing() {
    let mut bed = Bed::new(true, &[("a", "1")]);
    bed.pending.list_begins(false);
    bed.listed("b", "1");
    bed.pending.list_failed();
    assert_eq!((bed.write(), bed.pending.bytes()), (None, 0));
}

#[test]
fn failed_writes_wait_and_later_events_override_them() {
    let mut bed = Bed::new(true, &[("a", "1")]);
    bed.event("a", Some("2"), "10");
    bed.event("b", Some("1"), "11");
    let change = bed.pending.take(7).unwrap();
    bed.event("a", Some("3"), "12");
    bed.pending.restore(change);
    bed.check(Some(2), Some("12"), &[("a", "3"), ("b", "1")]);
}

#[test]
fn a_list_made_without_the_store_replaces_its_content() {
    let mut bed = Bed::new(false, &[("a", "1"), ("b", "1")]);
    bed.disk.away = true;
    assert!(bed.list(&[("a", "2")], "20"));
    bed.event("c", Some("1"), "21");
    assert!(bed.pending.replaces());
    bed.disk.away = false;
    bed.check(Some(2), Some("21"), &[("a", "2"), ("c", "1")]);
}

#[test]
fn a_large_list_is_written_in_parts_and_complete_with_the_last() {
    let mut bed = Bed::new(false, &[("gone", "1"), ("k0", "1")]);
    let large = "x".repeat(PART_BYTES / 4);
    bed.pending.list_begins(false);
    for number in 0..6 {
        bed.listed(&format!("k{number}"), &large);
    }
    assert!(bed.pending.bytes() <= PART_BYTES * 3 / 2);
    assert_eq!(bed.write(), Some(5));
    assert_eq!(bed.version, None, "it is not whole");
    assert!(bed.done("20", true));
    bed.write();
    assert_eq!(bed.version.as_deref(), Some("20"));
    let keys: Vec<String> = bed.disk.keys().unwrap();
    assert_eq!(keys, ["k0", "k1", "k2", "k3", "k4", "k5"]);
}

#[test]
fn unwanted_values_are_removed() {
    let mut bed = Bed::new(true, &[("a", "1"), ("b", "1")]);
    bed.pending.event("c".to_owned(), Some(b"1".to_vec()), None, &bed.disk);
    bed.pending.retain(&once("b".to_owned()).collect(), &bed.disk);
    bed.check(Some(2), None, &[("b", "1")]);
    bed.pending.retain(&once("b".to_owned()).collect(), &bed.disk);
    assert_eq!(bed.write(), None);
}

#[test]
fn a_store_that_is_lost_during_a_list_keeps_its_content() {
    let mut bed = Bed::new(true, &[("a", "1"), ("b", "1")]);
    bed.pending.list_begins(false);
    bed.listed("a", "1");
    bed.disk.away = true;
    bed.listed("b", "1");
    assert!(bed.done("20", true));
    bed.disk.away = false;
    bed.write();
    assert_eq!(bed.version, None, "nothing is written");
    assert_eq!(bed.disk.values.borrow().len(), 2);
}

#[test]
fn no_watch_resumes_after_an_incomplete_list() {
    let mut bed = Bed::new(true, &[("a", "1"), ("b", "1")]);
    bed.pending.list_begins(false);
    bed.listed("a", "2");
    assert!(bed.half_done("20"));
    bed.check(Some(1), None, &[("a", "2"), ("b", "1")]);
    bed.event("a", Some("3"), "21");
    bed.check(Some(1), None, &[("a", "3"), ("b", "1")]);
    bed.pending.reached("22".into());
    bed.check(None, None, &[("a", "3"), ("b", "1")]);
    assert!(bed.list(&[("a", "3"), ("b", "1")], "30"));
    bed.check(Some(0), Some("30"), &[("a", "3"), ("b", "1")]);
    bed.event("a", Some("4"), "31");
    bed.check(Some(1), Some("31"), &[("a", "4"), ("b", "1")]);
}
