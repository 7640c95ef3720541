//! The desired objects of a folder's files, and the changes that follow when files change. Only objects that came from
//! a file are ever deleted, and an unreadable file deletes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;
use tidegate_control::regular_file;

use super::documents::{self, FILE_BYTES_MAX, Identity};

/// The maximum number of files; a folder with more is probably a mistake.
const FILES_MAX: usize = 1000;
/// The maximum depth of nested folders.
const DEPTH_MAX: usize = 8;

/// A complaint about a file or a document of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Complaint {
    pub(super) file: PathBuf,
    /// The position of the document, from 1; `None` for the file as a whole.
    pub(super) number: Option<usize>,
    pub(super) why: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            Some(number) => write!(f, "{}, document {number}: {}", self.file.display(), self.why),
            None => write!(f, "{}: {}", self.file.display(), self.why),
        }
    }
}

/// An object and its place in the files.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Wanted {
    pub(super) file: PathBuf,
    pub(super) number: usize,
    pub(super) object: Value,
}

/// One reading of a folder.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Reading {
    pub(super) objects: BTreeMap<Identity, Wanted>,
    pub(super) complaints: BTreeSet<Complaint>,
    /// The files, with the last text of each that could be read.
    pub(super) files: BTreeMap<PathBuf, Stamp>,
}

/// Tells one text of a file from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    /// Bytes of the text; 0 if it is empty.
    length: usize,
    modified: Option<SystemTime>,
}

/// A change of one object.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Change {
    /// Create the object, or bring it to this state; `before` is its previous state in the files, if it had one.
    Put { identity: Identity, wanted: Wanted, before: Option<Value> },
    /// The object is in no file any more.
    Delete(Identity),
}

/// Reads every manifest of a folder and of the folders in it.
pub(super) fn read(folder: &Path) -> Reading {
    let mut reading = Reading::default();
    let mut files = Vec::new();
    find(folder, 0, &mut files, &mut reading);
    files.sort();
    for file in files {
        // Whoever writes on after this is seen by the next reading.
        let modified = fs::metadata(&file).and_then(|found| found.modified()).ok();
        match regular_file::read_text(&file, FILE_BYTES_MAX) {
            Ok(text) => {
                reading.files.insert(file.clone(), Stamp { length: text.trim_end().len(), modified });
                reading.take(&file, &text);
            }
            Err(why) => reading.complain(&file, None, why),
        }
    }
    reading
}

fn find(folder: &Path, depth: usize, files: &mut Vec<PathBuf>, reading: &mut Reading) {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(why) => return reading.complain(folder, None, why.to_string()),
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let manifest = path.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json");
        if hidden {
            continue;
        } else if path.is_dir() && !path.is_symlink() {
            if depth < DEPTH_MAX {
                find(&path, depth + 1, files, reading);
            } else {
                reading.complain(&path, None, format!("is skipped: it is more than {DEPTH_MAX} folders deep"));
            }
        } else if manifest && files.len() == FILES_MAX {
            return reading.complain(&path, None, format!("is skipped: there are more than {FILES_MAX} files"));
        } else if manifest {
            files.push(path);
        }
    }
}

impl Reading {
    fn take(&mut self, file: &Path, text: &str) {
        for found in documents::read(text) {
            match found {
                Err(fault) => self.complain(file, Some(fault.number), fault.why),
                Ok(document) => match self.objects.get(&document.identity) {
                    // Several examples may each bring their Namespace.
                    Some(first) if first.object == document.object => {}
                    Some(first) => {
                        let first = first.file.display();
                        let why = format!("{} stands in {first} already; that one counts", document.identity);
                        self.complain(file, Some(document.number), why);
                    }
                    None => {
                        let wanted = Wanted { file: file.to_owned(), number: document.number, object: document.object };
                        self.objects.insert(document.identity, wanted);
                    }
                },
            }
        }
    }

    fn complain(&mut self, file: &Path, number: Option<usize>, why: String) {
        self.complaints.insert(Complaint { file: file.to_owned(), number, why });
    }

    /// Keeps the objects that an earlier reading found in files and folders that are unreadable now. Their stamps stay
    /// too: the next text is compared with the last one that could be read.
    pub(super) fn keep_unread(&mut self, before: &Self) {
        let unread: Vec<PathBuf> = self.complaints.iter().map(|complaint| complaint.file.clone()).collect();
        let is_unread = |file: &Path| unread.iter().any(|path| file.starts_with(path));
        for (identity, wanted) in before.objects.iter().filter(|(_, wanted)| is_unread(&wanted.file)) {
            self.objects.entry(identity.clone()).or_insert_with(|| wanted.clone());
        }
        for (file, stamp) in before.files.iter().filter(|(file, _)| is_unread(file)) {
            self.files.entry(file.clone()).or_insert(*stamp);
        }
    }

    /// Keeps the objects of files that may be only half written: a shell empties a file when a command starts, and the
    /// command writes its text seconds later, part by part. A text that is shorter than the one before, or lacks one of
    /// its objects, counts once it has settled; an empty one never counts. Returns the files that are waited for.
    pub(super) fn keep_unsettled(
        &mut self,
        before: &Self,
        is_settled: impl Fn(&Path, Stamp) -> bool,
    ) -> Vec<(PathBuf, Stamp)> {
        let mut waiting = Vec::new();
        for (file, last) in &before.files {
            let Some(stamp) = self.files.get(file).copied().filter(|stamp| stamp != last) else { continue };
            let had = || before.objects.iter().filter(|(_, wanted)| wanted.file == *file);
            let has_lost = had().any(|(identity, _)| !self.objects.contains_key(identity));
            let is_empty = stamp.length == 0;
            let counts = !has_lost && stamp.length >= last.length || !is_empty && is_settled(file, stamp);
            if counts || had().next().is_none() {
                continue;
            }
            self.objects.retain(|_, wanted| wanted.file != *file);
            for (identity, wanted) in had() {
                self.objects.entry(identity.clone()).or_insert_with(|| wanted.clone());
            }
            self.files.insert(file.clone(), *last);
            if is_empty {
                let why = "is empty: its objects stay until it has a text or is deleted";
                self.complain(file, None, why.to_owned());
            } else {
                waiting.push((file.clone(), stamp));
            }
        }
        waiting
    }

    /// The changes from an earlier reading to this one: deletions last, namespaces created first and deleted last.
    pub(super) fn changes_since(&self, before: &Self) -> Vec<Change> {
        let put = self.objects.iter().filter_map(|(identity, wanted)| {
            let before = before.objects.get(identity).map(|before| &before.object);
            let change = Change::Put { identity: identity.clone(), wanted: wanted.clone(), before: before.cloned() };
            (before != Some(&wanted.object)).then_some(change)
        });
        let gone = before.objects.keys().rev().filter(|identity| !self.objects.contains_key(identity));
        put.chain(gone.cloned().map(Change::Delete)).collect()
    }
}

/// The merge patch (RFC 7386) that brings an object to the current state of its file: all fields of the file, and null
/// for fields that the file no longer has. Fields set by others stay.
pub(super) fn patch(before: Option<&Value>, now: &Value) -> Value {
    let Value::Object(now) = now else { return now.clone() };
    let before = before.and_then(Value::as_object);
    let kept = now.iter().map(|(key, value)| (key.clone(), patch(before.and_then(|before| before.get(key)), value)));
    let gone = before.into_iter().flat_map(serde_json::Map::keys).filter(|key| !now.contains_key(*key));
    Value::Object(kept.chain(gone.map(|key| (key.clone(), Value::Null))).collect())
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_folder_is_read_up_to_its_limits() {
        let name = |number: usize| format!("{number:04}.yaml");
        let files: Vec<(String, String)> =
            (0..FILES_MAX + 2).map(|number| (name(number), manifest("ConfigMap", &format!("m{number}"), ""))).collect();
        let files: Vec<(&str, String)> = files.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
        let reading = read(folder(&files).path());
        let why: Vec<&str> = reading.complaints.iter().map(|complaint| complaint.why.as_str()).collect();
        assert_eq!((reading.objects.len(), why), (FILES_MAX, vec!["is skipped: there are more than 1000 files"]));

        let deep = |depth: usize| format!("{}a.yaml", "d/".repeat(depth));
        let [last, beyond] = [DEPTH_MAX, DEPTH_MAX + 1].map(deep);
        let files =
            [(last.as_str(), manifest("ConfigMap", "last", "")), (&*beyond, manifest("ConfigMap", "beyond", ""))];
        let reading = read(folder(&files).path());
        let why: Vec<&str> = reading.complaints.iter().map(|complaint| complaint.why.as_str()).collect();
        assert_eq!((reading.objects.len(), why), (1, vec!["is skipped: it is more than 8 folders deep"]));
    }

    #[track_caller]
    fn check(before: &[(&str, String)], after: &[(&str, String)], want: &[&str]) {
        let folder = folder(before);
        let first = read(folder.path());
        for (name, _) in before {
            fs::remove_file(folder.path().join(name)).unwrap();
        }
        for (name, text) in after {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let mut second = read(folder.path());
        second.keep_unread(&first);
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
    /// are waited for, and the objects that stay once the text has settled.
    #[track_caller]
    fn check_rewritten(text: &str, at_first: &[&str], waits: usize, at_last: &[&str]) {
        let folder = folder(&[("1.yaml", manifest("Service", "a", "") + &manifest("Service", "b", "spec: {}\n"))]);
        let before = read(folder.path());
        fs::write(folder.path().join("1.yaml"), text).unwrap();
        let reading = |settled| {
            let mut reading = read(folder.path());
            reading.keep_unread(&before);
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
        let longer =
            a.clone() + &manifest("Service", "b", "spec: {type: ExternalName}\n") + &manifest("Secret", "c", "");
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
            let mut reading = read(folder.path());
            reading.keep_unread(before);
            let waiting = reading.keep_unsettled(before, |_, _| false).len();
            let names: Vec<String> = reading.objects.keys().map(|identity| identity.name.clone()).collect();
            assert_eq!(names, ["a", "b"], "{:?}", reading.complaints);
            (reading, waiting)
        };
        let whole = read(folder.path());
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
        let before = read(folder.path());
        assert_eq!(before.complaints, BTreeSet::new());
        fs::write(folder.path().join("1.yaml"), "").unwrap();
        let mut reading = read(folder.path());
        reading.keep_unsettled(&before, |_, _| true);
        let why: Vec<&str> = reading.complaints.iter().map(|complaint| complaint.why.as_str()).collect();
        assert_eq!(why, ["is empty: its objects stay until it has a text or is deleted"]);
    }

    #[test]
    fn errors_name_file_document_and_reason() {
        let a = manifest("Service", "a", "");
        let other = manifest("Service", "a", "spec: {}\n");
        let files =
            [("1.yaml", a.clone()), ("sub/2.yaml", format!("{other}---\nkind: Secret\n")), ("sub/same.yaml", a)];
        let folder = folder(&files);
        let reading = read(folder.path());
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
}
