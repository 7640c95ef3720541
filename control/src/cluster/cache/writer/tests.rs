//! The writer without its thread: when it writes, and what it writes after a failure of the store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use prometheus::Registry;

use super::super::pending::Listed;
use super::super::store::{PartitionChange, Position};
use super::*;

const NAME: &str = "things";

/// A writer with one listed partition whose stored state is known.
fn writer(folder: &Path, write_budget: u64, now: Instant) -> (Writer, Arc<Partition>) {
    counted(folder, write_budget, now, &Registry::new())
}

/// The same, with its metrics.
fn counted(folder: &Path, write_budget: u64, now: Instant, registry: &Registry) -> (Writer, Arc<Partition>) {
    let name: Arc<str> = NAME.into();
    let partition = Partition { name: Arc::clone(&name), form: Form::Value, listed: true, lost: AtomicBool::default() };
    let state = PartitionState { pending: Pending::new(false, true), listed: true };
    let options = CacheOptions {
        folder: folder.to_owned(),
        key_file: None,
        write_budget,
        flush_after: Duration::from_millis(1),
        server: "https://cluster.example".to_owned(),
    };
    let writer = Writer {
        options,
        removals: UnconfirmedRemovals { share: 0.5, count: 10 },
        seal: None,
        metrics: CacheMetrics::register(registry).unwrap(),
        queued: Arc::default(),
        store: Some(Store::open(folder, None).unwrap()),
        states: [(name, state)].into(),
        budget: Budget::new(write_budget, now),
        waiting: PendingSince::default(),
        failed: None,
        lists: Lists::default(),
    };
    (writer, Arc::new(partition))
}

impl Writer {
    /// Takes a message that a sink has counted.
    fn told(&mut self, partition: &Arc<Partition>, message: Message) {
        self.queued.fetch_add(message.bytes(), Ordering::Relaxed);
        assert!(self.take((Arc::clone(partition), message)));
    }

    fn changed(&mut self, partition: &Arc<Partition>, value: &str, version: &str) {
        let (key, raw, reached) = ("x".to_owned(), Some(value.as_bytes().into()), Some(version.into()));
        self.told(partition, Message::Changed { key, raw, reached });
    }
}

/// The stored version and values.
fn stored(store: &Store) -> (Option<String>, BTreeMap<String, String>) {
    let mut values = BTreeMap::new();
    store.read(NAME, |key, value| drop(values.insert(key.to_owned(), String::from_utf8_lossy(value).into()))).unwrap();
    (store.partitions().unwrap().remove(NAME).and_then(|position| position.resource_version), values)
}

fn of(version: &str, value: &str) -> (Option<String>, BTreeMap<String, String>) {
    (Some(version.to_owned()), [("x".to_owned(), value.to_owned())].into())
}

#[test]
fn batches_wait_for_the_write_budget() {
    let folder = tempfile::tempdir().unwrap();
    let begun = clock::now();
    let (mut writer, partition) = writer(folder.path(), 1000, begun);
    // A batch has several pages, so it costs a whole minute, and the budget begins with a minute's bytes.
    writer.changed(&partition, "1", "1");
    writer.note_waiting(begun);
    assert_eq!(writer.due(begun), Some(begun + writer.options.flush_after));
    writer.flush(begun);
    writer.changed(&partition, "2", "2");
    writer.note_waiting(begun);
    let second = begun + Duration::from_secs(1);
    writer.flush(second);
    writer.changed(&partition, "3", "3");
    writer.note_waiting(second);
    let due = writer.due(second).unwrap().saturating_duration_since(begun);
    assert!(due >= Duration::from_secs(60) && due < Duration::from_secs(62), "{due:?}");
    assert!(writer.metrics.written.get() > 1000, "{} bytes", writer.metrics.written.get());
    assert_eq!(stored(writer.store.as_ref().unwrap()), of("2", "2"));
}

#[test]
fn changes_from_before_a_failure_of_the_store_are_not_written_over_those_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let now = clock::now();
    let (mut writer, partition) = writer(folder.path(), 1 << 40, now);
    writer.changed(&partition, "old", "5");
    writer.fail(UnusableStore::Io("a disk".to_owned()), now);
    let theirs = Store::open(folder.path(), None).unwrap();
    let position = Position { resource_version: Some("9".to_owned()), as_of_s: 9, whole: true };
    let values = [("x".to_owned(), Some(b"theirs".to_vec()))].into();
    theirs
        .commit(&[(NAME.into(), PartitionChange { sealed: false, replace: false, values, position })].into())
        .unwrap();
    drop(theirs);
    let mut lost = writer.lists.lost.subscribe();

    writer.open_again(now);
    writer.flush(now);
    writer.changed(&partition, "older", "8");
    writer.flush(now);
    assert_eq!(stored(writer.store.as_ref().unwrap()), of("9", "theirs"));
    assert_eq!(*lost.borrow_and_update(), BTreeMap::from([(NAME.into(), 1)]), "a list is requested");
    assert_eq!(writer.metrics.losses.get(), 1);

    writer.told(&partition, Message::ListBegins { after_loss: false });
    writer.told(&partition, Message::Listed { key: "x".to_owned(), raw: b"new".as_slice().into() });
    writer.told(&partition, Message::ListDone(Listed { reached: "12".into(), complete: true, wins: true }));
    writer.flush(now);
    assert_eq!(stored(writer.store.as_ref().unwrap()), of("12", "new"));
}

#[test]
fn batches_and_unchanged_values_are_counted() {
    let (folder, registry, now) = (tempfile::tempdir().unwrap(), Registry::new(), clock::now());
    let (mut writer, partition) = counted(folder.path(), 1 << 40, now, &registry);
    for (value, version) in [("1", "1"), ("1", "2"), ("2", "3")] {
        writer.changed(&partition, value, version);
        writer.flush(now);
    }
    let families = registry.gather();
    let value = |name: &str| -> f64 {
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let values = family.get_metric().iter();
        values.map(|series| series.get_counter().get_value() + series.get_gauge().get_value()).sum()
    };
    // The version of an unchanged value is written.
    assert!((value("tidegate_cache_batches_total") - 3.0).abs() < 0.1);
    assert!((value("tidegate_cache_values_total") - 2.0).abs() < 0.1);
    assert!((value("tidegate_cache_unchanged_total") - 1.0).abs() < 0.1);
    // Some moment of this century.
    assert!(value("tidegate_cache_last_write_timestamp_seconds") > 1e9);
}
