//! Readings of a folder, and what follows from their differences.

use super::*;
use serde_json::json;

fn manifest(kind: &str, name: &str, extra: &str) -> String {
    format!("---\napiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}}}\n{extra}")
}

fn folder(files: &[(&str, String)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// The reading after another one.
fn again(folder: &Path, before: &Reading) -> Reading {
    again_by(folder, before, &|folder| Ok(Box::new(fs::read_dir(folder)?)))
}

fn again_by(folder: &Path, before: &Reading, list: &dyn Fn(&Path) -> io::Result<Entries>) -> Reading {
    let mut reading = read_by(folder, &before.files.keys().cloned().collect(), list);
    reading.keep_unread(before);
    reading
}

fn names(reading: &Reading) -> Vec<&str> {
    reading.objects.keys().map(|identity| identity.name.as_str()).collect()
}

#[test]
fn a_folder_is_read_up_to_its_limits() {
    let name = |number: usize| format!("{number:04}.yaml");
    let files: Vec<(String, String)> =
        (0..FILES_MAX + 2).map(|number| (name(number), manifest("ConfigMap", &format!("m{number}"), ""))).collect();
    let files: Vec<(&str, String)> = files.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
    let reading = read(folder(&files).path(), &BTreeSet::new());
    let why: Vec<&str> = reading.complaints.iter().map(|complaint| complaint.why.as_str()).collect();
    assert_eq!(
        (reading.objects.len(), why),
        (FILES_MAX, vec!["is skipped, like all files after it: there are more than 1000 files"])
    );

    let deep = |depth: usize| format!("{}a.yaml", "d/".repeat(depth));
    let [last, beyond] = [DEPTH_MAX, DEPTH_MAX + 1].map(deep);
    let files = [(last.as_str(), manifest("ConfigMap", "last", "")), (&*beyond, manifest("ConfigMap", "beyond", ""))];
    let reading = read(folder(&files).path(), &BTreeSet::new());
    let why: Vec<&str> = reading.complaints.iter().map(|complaint| complaint.why.as_str()).collect();
    assert_eq!((reading.objects.len(), why), (1, vec!["is skipped: it is more than 8 folders deep"]));
}

#[track_caller]
fn check(before: &[(&str, String)], after: &[(&str, String)], want: &[&str]) {
    let folder = folder(before);
    let first = read(folder.path(), &BTreeSet::new());
    for (name, _) in before {
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    for (name, text) in after {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let second = again(folder.path(), &first);
    let got: Vec<String> = second
        .changes_since(&first)
        .iter()
        .map(|change| match change {
            Change::Put { identity, before, .. } => {
                format!("{} {identity}", if before.is_some() { "update" } else { "create" })
            }
            Change::Delete(identity) => format!("delete {identity}"),
        })
        .collect();
    assert_eq!(got, want);
}

#[test]
fn changes_of_files_become_changes_of_objects() {
    let (a, b) = (manifest("Service", "a", ""), manifest("Service", "b", ""));
    let namespace = manifest("Namespace", "z", "");
    check(&[], &[("1.yaml", format!("{a}{namespace}"))], &["create Namespace z", "create Service a"]);
    check(&[("1.yaml", format!("{namespace}{a}"))], &[], &["delete Service a", "delete Namespace z"]);
    check(&[("1.yaml", a.clone())], &[("1.yaml", a.clone())], &[]);
    check(&[("1.yaml", a.clone())], &[("2.yaml", a.clone())], &[]);
    check(&[("1.yaml", a.clone())], &[("1.yaml", manifest("Service", "a", "spec: {}\n"))], &["update Service a"]);
    check(&[("1.yaml", a.clone())], &[("1.yaml", b)], &["create Service b", "delete Service a"]);
    check(&[("1.txt", a.clone())], &[(".1.yaml", a)], &[]);
}

#[test]
fn an_unreadable_file_deletes_nothing() {
    let (a, b) = (manifest("Service", "a", ""), manifest("Service", "b", ""));
    let before = [("1.yaml", format!("{a}{b}")), ("2.yaml", manifest("Service", "c", ""))];
    check(&before, &[("1.yaml", format!("{a}---\nkind: [\n"))], &["delete Service c"]);
    check(&before, &[("1.yaml", "\u{0}".to_owned()), before[1].clone()], &[]);
}

/// Writes `text` to a file of two Services, and compares the objects that stay at first, the number of files that
/// may be half written, and the objects that stay once the text has settled.
#[track_caller]
fn check_rewritten(text: &str, at_first: &[&str], waits: usize, at_last: &[&str]) {
    let folder = folder(&[("1.yaml", manifest("Service", "a", "") + &manifest("Service", "b", "spec: {}\n"))]);
    let before = read(folder.path(), &BTreeSet::new());
    fs::write(folder.path().join("1.yaml"), text).unwrap();
    let reading = |settled| {
        let mut reading = again(folder.path(), &before);
        let waiting = reading.keep_unsettled(&before, |_, _| settled).len();
        let names: Vec<String> = reading.objects.keys().map(|identity| identity.name.clone()).collect();
        (names.join(" "), waiting)
    };
    assert_eq!(reading(false), (at_first.join(" "), waits));
    assert_eq!(reading(true), (at_last.join(" "), 0));
}

#[test]
fn a_half_written_file_keeps_its_objects_until_it_has_settled() {
    let (a, b) = (manifest("Service", "a", ""), manifest("Service", "b", ""));
    check_rewritten("", &["a", "b"], 0, &["a", "b"]);
    check_rewritten("\n\n", &["a", "b"], 0, &["a", "b"]);
    check_rewritten(&a, &["a", "b"], 1, &["a"]);
    check_rewritten(&(a.clone() + &b), &["a", "b"], 1, &["a", "b"]);
    check_rewritten(&(a.clone() + "---\nkind: Serv"), &["a", "b"], 1, &["a", "b"]);
    check_rewritten("# nothing any more\n", &["a", "b"], 1, &[]);
    let longer = a.clone() + &manifest("Service", "b", "spec: {type: ExternalName}\n") + &manifest("Secret", "c", "");
    check_rewritten(&longer, &["c", "a", "b"], 0, &["c", "a", "b"]);
    let renamed = a + &manifest("Service", "c", "spec: {type: ExternalName}\n");
    check_rewritten(&renamed, &["a", "b"], 1, &["a", "c"]);
}

/// Makes a file of two Services unreadable, then writes a text without one of them; both have to stay.
#[track_caller]
fn check_unreadable_moment(make_unreadable: impl Fn(&Path), text: &str, waits: usize) {
    let folder = folder(&[("1.yaml", manifest("Service", "a", "") + &manifest("Service", "b", "spec: {}\n"))]);
    let file = folder.path().join("1.yaml");
    let follow = |before: &Reading| {
        let mut reading = again(folder.path(), before);
        let waiting = reading.keep_unsettled(before, |_, _| false).len();
        let names: Vec<String> = reading.objects.keys().map(|identity| identity.name.clone()).collect();
        assert_eq!(names, ["a", "b"], "{:?}", reading.complaints);
        (reading, waiting)
    };
    let whole = read(folder.path(), &BTreeSet::new());
    fs::remove_file(&file).unwrap();
    make_unreadable(&file);
    let (unread, waiting) = follow(&whole);
    assert_eq!((unread.complaints.len(), waiting), (1, 0), "{:?}", unread.complaints);
    let (still_unread, _) = follow(&unread);
    fs::remove_file(&file).unwrap();
    fs::write(&file, text).unwrap();
    assert_eq!(follow(&still_unread).1, waits);
}

#[test]
fn a_file_is_as_protected_after_an_unreadable_moment_as_before() {
    let fewer = manifest("Service", "a", "");
    for (text, waits) in [(fewer.as_str(), 1), ("", 0), ("# nothing yet\n", 1)] {
        let cut = |file: &Path| fs::write(file, [fewer.as_bytes(), b"# caf\xc3"].concat()).unwrap();
        check_unreadable_moment(cut, text, waits);
        let dangling = |file: &Path| std::os::unix::fs::symlink("nowhere", file).unwrap();
        check_unreadable_moment(dangling, text, waits);
        let too_long = |file: &Path| fs::File::create(file).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        check_unreadable_moment(too_long, text, waits);
    }
}

#[test]
fn an_empty_file_is_told_of_if_it_had_objects() {
    let folder = folder(&[("1.yaml", manifest("Service", "a", "")), ("2.yaml", String::new())]);
    let before = read(folder.path(), &BTreeSet::new());
    assert_eq!(before.complaints, BTreeSet::new());
    fs::write(folder.path().join("1.yaml"), "").unwrap();
    let mut reading = again(folder.path(), &before);
    reading.keep_unsettled(&before, |_, _| true);
    let why: Vec<&str> = reading.complaints.iter().map(|complaint| complaint.why.as_str()).collect();
    assert_eq!(why, ["is empty: its objects stay until it has a text or is deleted"]);
}

#[test]
fn errors_name_file_document_and_reason() {
    let a = manifest("Service", "a", "");
    let other = manifest("Service", "a", "spec: {}\n");
    let files = [("1.yaml", a.clone()), ("sub/2.yaml", format!("{other}---\nkind: Secret\n")), ("sub/same.yaml", a)];
    let folder = folder(&files);
    let reading = read(folder.path(), &BTreeSet::new());
    let complaints: Vec<String> = reading.complaints.iter().map(ToString::to_string).collect();
    let at = folder.path().display();
    assert_eq!(
        complaints,
        [
            format!("{at}/sub/2.yaml, document 1: Service a stands in {at}/1.yaml already; that one counts"),
            format!("{at}/sub/2.yaml, document 2: has no apiVersion"),
        ]
    );
}

#[test]
fn a_patch_removes_only_fields_of_the_file() {
    let before = json!({"spec": {"replicas": 2, "paused": true}, "metadata": {"labels": {"a": "1", "b": "2"}}});
    let now = json!({"spec": {"replicas": 3}, "metadata": {"labels": {"b": "2"}}});
    let want = json!({"spec": {"replicas": 3, "paused": null}, "metadata": {"labels": {"a": null, "b": "2"}}});
    assert_eq!(patch(Some(&before), &now), want);
    assert_eq!(patch(None, &now), now);
}

#[test]
fn files_that_are_skipped_keep_their_objects() {
    let write = |folder: &Path, name: &str| {
        fs::write(folder.join(format!("{name}.yaml")), manifest("ConfigMap", name, "")).unwrap();
    };
    let folder = folder(&[]);
    (0..FILES_MAX).for_each(|number| write(folder.path(), &format!("m{number:04}")));
    let whole = read(folder.path(), &BTreeSet::new());
    assert_eq!((whole.objects.len(), whole.complaints.len()), (FILES_MAX, 0));
    // They come before the others, and one comes after them.
    ["a1", "a2", "a3", "z"].iter().for_each(|name| write(folder.path(), name));
    let more = again(folder.path(), &whole);
    let complaints: Vec<String> = more.complaints.iter().map(ToString::to_string).collect();
    let first = folder.path().join("m0997.yaml");
    let want = format!("{}: is skipped, like all files after it: there are more than 1000 files", first.display());
    assert_eq!((more.objects.len(), complaints), (FILES_MAX + 3, vec![want]));
    assert_eq!(again(folder.path(), &more), more);
    // One that is deleted is not skipped.
    fs::remove_file(folder.path().join("m0998.yaml")).unwrap();
    let changes = again(folder.path(), &more).changes_since(&more);
    assert!(matches!(&*changes, [Change::Delete(gone)] if gone.name == "m0998"), "{changes:?}");
}

/// Reads a folder again while not all of it can be read: all objects stay, and one complaint names the `unread` path.
/// Then deletes a file, and reads all of the folder.
#[track_caller]
fn check_incomplete(list: &dyn Fn(&Path) -> io::Result<Entries>, folder: &Path, before: &Reading, unread: &str) {
    let incomplete = again_by(folder, before, list);
    assert_eq!(names(&incomplete), ["a", "b", "c"]);
    let complaints: Vec<_> = incomplete.complaints.iter().map(|complaint| complaint.file.as_path()).collect();
    assert_eq!((complaints, incomplete.is_incomplete), (vec![&*folder.join(unread)], true));
    assert_eq!(again_by(folder, &incomplete, list), incomplete);
    fs::remove_file(folder.join("1.yaml")).unwrap();
    let readable = again(folder, &incomplete);
    assert_eq!((names(&readable), readable.is_incomplete), (vec!["b", "c"], false));
}

fn two_folders() -> (tempfile::TempDir, Reading) {
    let service = |name: &str| manifest("Service", name, "");
    let folder = folder(&[("1.yaml", service("a")), ("sub/2.yaml", service("b")), ("sub/3.yaml", service("c"))]);
    let before = read(folder.path(), &BTreeSet::new());
    (folder, before)
}

#[test]
fn an_entry_that_cannot_be_read_deletes_nothing() {
    let (folder, before) = two_folders();
    let sub = folder.path().join("sub");
    let list = |path: &Path| -> io::Result<Entries> {
        let entries = fs::read_dir(path)?;
        if path != sub {
            return Ok(Box::new(entries));
        }
        Ok(Box::new(std::iter::once(Err(io::Error::other("a broken sector"))).chain(entries.skip(1))))
    };
    check_incomplete(&list, folder.path(), &before, "sub");
}

#[test]
fn a_folder_that_cannot_be_read_deletes_nothing() {
    let (folder, before) = two_folders();
    let (sub, root) = (folder.path().join("sub"), folder.path().to_owned());
    // A folder without the right to search: its entries are listed, and nothing is known about them.
    let aside = tempfile::tempdir().unwrap();
    let list = |path: &Path| -> io::Result<Entries> {
        if path != root {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let entries: Vec<_> = fs::read_dir(path)?.collect();
        fs::rename(&sub, aside.path().join("sub"))?;
        Ok(Box::new(entries.into_iter()))
    };
    let list = |path: &Path| {
        let listed = list(path);
        if path == sub {
            fs::rename(aside.path().join("sub"), &sub)?;
        }
        listed
    };
    check_incomplete(&list, folder.path(), &before, "sub");
}
