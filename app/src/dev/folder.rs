//! The desired objects of a folder's files, and the changes that follow when files change. Only objects that came from
//! a file are ever deleted, and an unreadable file deletes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, DirEntry};
use std::io;
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
    /// Files and folders of which not all could be read.
    unread: BTreeSet<PathBuf>,
    /// A folder could not be read, and may be readable later without any change of it.
    pub(super) is_incomplete: bool,
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

/// Reads every manifest of a folder and of the folders in it. `known` are the files of the earlier reading,
/// with which [`Reading::keep_unread`] has to be called.
pub(super) fn read(folder: &Path, known: &BTreeSet<PathBuf>) -> Reading {
    read_by(folder, known, &|folder| Ok(Box::new(fs::read_dir(folder)?)))
}

/// The entries of a folder, each of which may fail.
type Entries = Box<dyn Iterator<Item = io::Result<DirEntry>>>;

fn read_by(folder: &Path, known: &BTreeSet<PathBuf>, list: &dyn Fn(&Path) -> io::Result<Entries>) -> Reading {
    let (mut reading, mut found) = (Reading::default(), Found::default());
    reading.find(folder, 0, list, &mut |file| found.add(file, known));
    if let Some(first) = found.skipped {
        let why = format!("is skipped, like all files after it: there are more than {FILES_MAX} files");
        reading.complain(&first, None, why);
        reading.unread.extend(found.skipped_known);
    }
    for file in found.files {
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

/// The manifests of a folder, in the order of their paths.
#[derive(Default)]
struct Found {
    /// The first [`FILES_MAX`].
    files: BTreeSet<PathBuf>,
    /// The first one after them.
    skipped: Option<PathBuf>,
    /// Those after them that an earlier reading has read.
    skipped_known: Vec<PathBuf>,
}

impl Found {
    fn add(&mut self, file: PathBuf, known: &BTreeSet<PathBuf>) {
        self.files.insert(file);
        if self.files.len() > FILES_MAX
            && let Some(last) = self.files.pop_last()
        {
            if known.contains(&last) {
                self.skipped_known.push(last.clone());
            }
            self.skipped = Some(self.skipped.take().map_or(last.clone(), |first| first.min(last)));
        }
    }
}

impl Reading {
    /// Finds the manifests of a folder. An entry or a folder that cannot be read is unread, and not gone.
    fn find(
        &mut self,
        folder: &Path,
        depth: usize,
        list: &dyn Fn(&Path) -> io::Result<Entries>,
        add: &mut dyn FnMut(PathBuf),
    ) {
        let entries = match list(folder) {
            Ok(entries) => entries,
            Err(why) => return self.fail(folder, &why),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(why) => {
                    self.fail(folder, &why);
                    continue;
                }
            };
            let path = entry.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
                continue;
            }
            // That of a link itself, so no link to a folder is followed. It needs no right to search the folder.
            match entry.file_type() {
                Ok(found) if found.is_dir() && depth == DEPTH_MAX => {
                    self.complain(&path, None, format!("is skipped: it is more than {DEPTH_MAX} folders deep"));
                }
                Ok(found) if found.is_dir() => self.find(&path, depth + 1, list, add),
                Ok(_) if path.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json") => {
                    add(path)
                }
                Ok(_) => {}
                Err(why) => self.fail(&path, &why),
            }
        }
    }

    /// A folder, or an entry of one, cannot be read at the moment.
    fn fail(&mut self, path: &Path, why: &io::Error) {
        self.complain(path, None, format!("{why}; its objects stay until it can be read"));
        self.is_incomplete = true;
    }

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

    /// Adds a complaint. Objects that an earlier reading found in the file, or in the files of this folder, stay.
    fn complain(&mut self, file: &Path, number: Option<usize>, why: String) {
        self.unread.insert(file.to_owned());
        self.complaints.insert(Complaint { file: file.to_owned(), number, why });
    }

    /// Keeps the objects that an earlier reading found in files and folders that are unread now. Their stamps stay too:
    /// the next text is compared with the last one that could be read.
    pub(super) fn keep_unread(&mut self, before: &Self) {
        let unread = std::mem::take(&mut self.unread);
        let is_unread = |file: &Path| file.ancestors().any(|path| unread.contains(path));
        for (identity, wanted) in before.objects.iter().filter(|(_, wanted)| is_unread(&wanted.file)) {
            self.objects.entry(identity.clone()).or_insert_with(|| wanted.clone());
        }
        for (file, stamp) in before.files.iter().filter(|(file, _)| is_unread(file)) {
            self.files.entry(file.clone()).or_insert(*stamp);
        }
    }

    /// Keeps the objects of files that may be only half written: a shell empties a file when a command starts, and the
    /// command writes its text seconds later, part by part. A text that is shorter than the one before, or lacks one of
    /// its objects, counts once it has settled; an empty one never counts. Returns the files whose texts may be half
    /// written.
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
mod tests;
