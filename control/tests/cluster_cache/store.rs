//! The store alone: batches, positions, keys, and damaged files.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use tidegate_control::{Batch, FORMAT, PartitionChange, Position, Seal, Store, UnusableStore};

fn seal(folder: &Path, byte: u8) -> Option<Arc<Seal>> {
    let path = folder.join("key");
    std::fs::write(&path, [byte; 32]).unwrap();
    Some(Arc::new(Seal::read(&path).unwrap()))
}

fn position(version: &str) -> Position {
    Position { resource_version: Some(version.to_owned()), as_of_s: 7, whole: true }
}

fn batch(partition: &str, sealed: bool, values: &[(&str, Option<&str>)], version: &str) -> Batch {
    let values = values.iter().map(|(key, value)| ((*key).to_owned(), value.map(|value| value.as_bytes().to_vec())));
    let change = PartitionChange { sealed, replace: false, values: values.collect(), position: position(version) };
    Batch::from([(partition.into(), change)])
}

fn held(store: &Store, partition: &str) -> BTreeMap<String, String> {
    let mut held = BTreeMap::new();
    store
        .read(partition, |key, value| drop(held.insert(key.to_owned(), String::from_utf8(value.to_vec()).unwrap())))
        .unwrap();
    held
}

fn of(values: &[(&str, &str)]) -> BTreeMap<String, String> {
    values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn file(folder: &Path) -> std::path::PathBuf {
    folder.join("cluster-cache/objects.redb")
}

#[test]
fn batches_add_replace_and_remove() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), None).unwrap();
    assert!(store.partitions().unwrap().is_empty() && held(&store, "a").is_empty());
    let written = store.commit(&batch("a", false, &[("x", Some("1")), ("y", Some("1"))], "5")).unwrap();
    assert!(written > 0 && store.written() >= written);
    store.commit(&batch("a", false, &[("x", Some("2")), ("y", None), ("z", None)], "6")).unwrap();
    store.commit(&batch("b", false, &[], "9")).unwrap();
    drop(store);
    let store = Store::open(folder.path(), None).unwrap();
    assert_eq!(held(&store, "a"), of(&[("x", "2")]));
    assert_eq!(store.get("a", "x").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!((store.get("a", "y").unwrap(), store.get("none", "y").unwrap()), (None, None));
    assert_eq!(store.keys("a").unwrap(), ["x"]);
    let positions = [("a".to_owned(), position("6")), ("b".to_owned(), position("9"))];
    assert_eq!(store.partitions().unwrap(), positions.into());

    let mut whole = batch("a", false, &[("n", Some("1"))], "7");
    whole.values_mut().for_each(|change| change.replace = true);
    store.commit(&whole).unwrap();
    assert_eq!(held(&store, "a"), of(&[("n", "1")]));
    let mut part = batch("b", false, &[("x", Some("1"))], "10");
    part.values_mut().for_each(|change| change.position.whole = false);
    store.commit(&part).unwrap();
    assert!(!store.partitions().unwrap().contains_key("b"), "half a partition is none");
    store.retain(|name| name == "b").unwrap();
    assert!(held(&store, "a").is_empty());
    assert_eq!(held(&store, "b"), of(&[("x", "1")]));
}

#[test]
fn sealed_values_need_their_key() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), seal(folder.path(), 1)).unwrap();
    store.commit(&batch("secrets", true, &[("shop/tls", Some("very-private"))], "5")).unwrap();
    store.commit(&batch("plain", false, &[("shop/web", Some("well-known"))], "6")).unwrap();
    drop(store);
    let bytes = std::fs::read(file(folder.path())).unwrap();
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("well-known") && !holds("very-private"));

    let store = Store::open(folder.path(), seal(folder.path(), 1)).unwrap();
    assert_eq!(held(&store, "secrets"), of(&[("shop/tls", "very-private")]));
    drop(store);
    assert_eq!(Store::open(folder.path(), seal(folder.path(), 2)).unwrap_err(), UnusableStore::WrongKey);
    let store = Store::open(folder.path(), None).unwrap();
    assert_eq!(store.partitions().unwrap().into_keys().collect::<Vec<_>>(), ["plain"]);
    assert!(held(&store, "secrets").is_empty(), "what nobody can open any more is gone");
    drop(store);
    assert!(Store::open(folder.path(), seal(folder.path(), 2)).is_ok(), "and so is the mark of its key");
}

#[test]
fn one_process_opens_the_store_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), None).unwrap();
    assert_eq!(Store::open(folder.path(), None).unwrap_err(), UnusableStore::Locked);
    drop(store);
    assert!(Store::open(folder.path(), None).is_ok());
}

/// A store with values whose file is then damaged.
fn spoilt(spoil: impl FnOnce(&Path)) -> (TempDir, Result<BTreeMap<String, String>, UnusableStore>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), None).unwrap();
    let values: Vec<(String, String)> = (0..500).map(|key| (format!("key-{key}"), "value ".repeat(50))).collect();
    let values: Vec<(&str, Option<&str>)> = values.iter().map(|(key, value)| (&**key, Some(&**value))).collect();
    store.commit(&batch("a", false, &values, "5")).unwrap();
    drop(store);
    spoil(&file(folder.path()));
    let found = Store::open(folder.path(), None).and_then(|store| {
        let mut held = BTreeMap::new();
        store.read("a", |key, value| drop(held.insert(key.to_owned(), String::from_utf8_lossy(value).into_owned())))?;
        Ok(held)
    });
    (folder, found)
}

#[test]
fn a_store_of_a_newer_format_is_left_unchanged() {
    let newer = |path: &Path| {
        let database = redb::Database::open(path).unwrap();
        let transaction = database.begin_write().unwrap();
        let meta: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("meta");
        transaction.open_table(meta).unwrap().insert("format", (FORMAT + 1).to_string().as_bytes()).unwrap();
        transaction.commit().unwrap();
    };
    assert_eq!(spoilt(newer).1.unwrap_err(), UnusableStore::Newer);
}

#[test]
fn a_store_of_an_older_format_is_emptied() {
    let older = |path: &Path| {
        let database = redb::Database::open(path).unwrap();
        let transaction = database.begin_write().unwrap();
        let meta: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("meta");
        transaction.open_table(meta).unwrap().insert("format", &b"0"[..]).unwrap();
        transaction.commit().unwrap();
    };
    assert_eq!(spoilt(older).1, Ok(BTreeMap::new()));
}

#[test]
fn a_truncated_file_is_reported_as_damaged() {
    let length = spoilt(|_| {}).0.path().join("cluster-cache/objects.redb").metadata().unwrap().len();
    let cuts = (0..32).map(|part| length * part / 32).chain([1, 63, 64, 4095, 4096, 4097, length - 1]);
    for cut in cuts {
        let (_folder, found) =
            spoilt(|path| std::fs::File::options().write(true).open(path).unwrap().set_len(cut).unwrap());
        assert!(matches!(found, Err(UnusableStore::Damaged(_))), "cut at {cut} of {length}: {found:?}");
    }
}

#[test]
fn a_changed_byte_is_detected_or_harmless() {
    let (whole, length) = {
        let (folder, found) = spoilt(|_| {});
        (found.unwrap(), file(folder.path()).metadata().unwrap().len())
    };
    let mut rng = fastrand::Rng::with_seed(7);
    let mut damaged = 0;
    for _ in 0..60 {
        let at = usize::try_from(rng.u64(..length)).unwrap();
        let (_folder, found) = spoilt(|path| {
            let mut bytes = std::fs::read(path).unwrap();
            bytes[at] ^= 0x55;
            std::fs::write(path, bytes).unwrap();
        });
        match found {
            Err(UnusableStore::Damaged(_) | UnusableStore::Newer | UnusableStore::Io(_)) => damaged += 1,
            Err(why) => panic!("byte {at}: {why}"),
            Ok(held) => assert_eq!(held, whole, "byte {at}"),
        }
    }
    assert!(damaged > 0, "some of them mattered");
}

#[test]
fn the_folder_and_the_file_are_readable_by_the_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::open(folder.path(), None).unwrap());
    let (inner, file) = (folder.path().join("cluster-cache"), file(folder.path()));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&inner), mode(&file)), (0o700, 0o600));
    // Permissions granted meanwhile are removed.
    std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(Store::open(folder.path(), None).unwrap());
    assert_eq!((mode(&inner), mode(&file)), (0o700, 0o600));

    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::rename(&inner, elsewhere.path().join("moved")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("moved"), &inner).unwrap();
    assert!(
        matches!(Store::open(folder.path(), None), Err(UnusableStore::Io(_))),
        "a link leads to who knows whose folder"
    );
}
