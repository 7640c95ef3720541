//! Tests that written objects are read again, and that an unusable folder is refused with the reason.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use tempfile::tempdir;

use super::*;

fn name(name: &str) -> Name {
    Name { kind: "secrets".into(), namespace: "a".to_owned(), name: name.to_owned() }
}

fn batch(version: u64, objects: &[(&str, Option<&'static str>)]) -> Batch {
    let objects = objects.iter().map(|(key, value)| (name(key), value.map(|text| Bytes::from_static(text.as_bytes()))));
    Batch { objects: objects.collect(), version, serial: version - 10 }
}

#[test]
fn a_batch_is_there_when_the_folder_is_opened_again() {
    let folder = tempdir().unwrap();
    let disk = Disk::open(folder.path()).unwrap();
    disk.commit(&batch(11, &[("x", Some("1")), ("y", Some("2"))])).unwrap();
    disk.commit(&batch(12, &[("x", None), ("y", Some("3"))])).unwrap();
    drop(disk);
    let found = Disk::open(folder.path()).unwrap().read().unwrap();
    assert_eq!((found.version, found.serial), (12, 2));
    assert_eq!(found.objects, batch(12, &[("y", Some("3"))]).objects);
}

#[test]
fn only_its_user_can_enter() {
    let folder = tempdir().unwrap();
    let mode = |path: &str| fs::metadata(folder.path().join(path)).unwrap().permissions().mode() & 0o777;
    drop(Disk::open(folder.path()).unwrap());
    assert_eq!((mode("lite"), mode("lite/objects.redb")), (0o700, 0o600));
    fs::set_permissions(folder.path().join("lite"), Permissions::from_mode(0o755)).unwrap();
    drop(Disk::open(folder.path()).unwrap());
    assert_eq!(mode("lite"), 0o700, "what others could do is taken back");
}

#[track_caller]
fn check(spoil: impl Fn(&Path), refused: impl Fn(&DataDirError) -> bool) {
    let folder = tempdir().unwrap();
    let disk = Disk::open(folder.path()).unwrap();
    disk.commit(&batch(11, &[("x", Some("1"))])).unwrap();
    drop(disk);
    spoil(&folder.path().join("lite/objects.redb"));
    let why = Disk::open(folder.path()).err().expect("it is refused");
    assert!(refused(&why), "{why:?}");
}

#[test]
fn a_folder_that_cannot_be_used_is_refused_with_the_reason() {
    let newer = |file: &Path| {
        let database = Database::create(file).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(NUMBERS).unwrap().insert(FORMAT_KEY, FORMAT + 1).unwrap();
        transaction.commit().unwrap();
    };
    check(newer, |why| *why == DataDirError::Newer);
    check(|file| fs::write(file, "not a database, but a text").unwrap(), |why| matches!(why, DataDirError::Damaged(_)));
    let cut = |file: &Path| {
        let length = fs::metadata(file).unwrap().len();
        fs::OpenOptions::new().write(true).open(file).unwrap().set_len(length / 3).unwrap();
    };
    check(cut, |why| matches!(why, DataDirError::Damaged(_)));
    check(|file| fs::write(file, "").unwrap(), |why| matches!(why, DataDirError::Damaged(_)));
    let replaced = |file: &Path| {
        fs::remove_file(file).unwrap();
        fs::create_dir(file).unwrap();
    };
    check(replaced, |why| matches!(why, DataDirError::Io(text) if text.ends_with("is not a file")));
}

#[test]
fn one_process_at_a_time() {
    let folder = tempdir().unwrap();
    let first = Disk::open(folder.path()).unwrap();
    assert_eq!(Disk::open(folder.path()).err(), Some(DataDirError::Locked));
    drop(first);
    assert!(Disk::open(folder.path()).is_ok());
}

#[test]
fn an_error_names_the_path_that_cannot_be_a_folder() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let why = Disk::open(&file).err().expect("it is refused").to_string();
    assert!(why.contains("file/lite: "), "{why}");
}
