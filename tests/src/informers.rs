//! Programs that read an API like controllers: `tests/clients/build` builds them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The programs, and the way each of them reads a collection.
const PROGRAMS: [(&str, &str, &[&str], Option<&str>); 4] = [
    ("client-go, list and watch", "informers", &["--resync", "2s", "--server", "SERVER"], Some("false")),
    ("client-go, streaming list", "informers", &["--server", "SERVER"], Some("true")),
    ("kube-rs, list and watch", "reflectors", &["SERVER", "list"], None),
    ("kube-rs, streaming list", "reflectors", &["SERVER", "stream"], None),
];

/// One of them, running.
#[derive(Debug)]
pub struct Informers {
    /// The client library, and the way it reads.
    pub name: &'static str,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

/// Its store, and the events it has seen.
#[derive(Debug)]
pub struct Held {
    /// `true` if every collection has been read once.
    pub synced: bool,
    /// `PLURAL NAMESPACE/NAME` and the object, without the fields that lists omit and those that a cache may omit.
    pub objects: BTreeMap<String, Value>,
    /// The number of events of each type.
    pub events: Value,
    /// Events that contradict the earlier ones.
    pub faults: Value,
}

impl Informers {
    /// Starts each of them over some resources; `None`, with one printed line, if they are not built.
    pub fn start_all(server: &str, resources: &[&str]) -> Option<Vec<Self>> {
        let Some(folder) = folder() else {
            crate::skipped("clients", "informers are not built (tests/clients/build)");
            return None;
        };
        Some(PROGRAMS.iter().map(|program| Self::start(&folder, program, server, resources)).collect())
    }

    fn start(
        folder: &Path,
        (name, program, arguments, streaming): &(&'static str, &str, &[&str], Option<&str>),
        server: &str,
        resources: &[&str],
    ) -> Self {
        let mut command = Command::new(folder.join(program));
        command.args(arguments.iter().map(|argument| if *argument == "SERVER" { server } else { argument }));
        command.args(resources).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        if let Some(streaming) = streaming {
            command.env("KUBE_FEATURE_WatchListClient", streaming);
        }
        let mut child = command.spawn().expect("a client");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        Self { name, stdin: child.stdin.take().expect("its input"), lines, _child: child }
    }

    /// Requests its state.
    pub async fn held(&mut self) -> Held {
        self.stdin.write_all(b"\n").await.expect("it runs");
        let line = self.lines.next_line().await.expect("text").expect("a line");
        let mut answer: Value = serde_json::from_str(&line).expect("JSON");
        let Value::Object(objects) = answer["objects"].take() else { panic!("no objects: {line}") };
        let objects = objects.into_iter().map(|(key, object)| (key, plain(object))).collect();
        Held {
            synced: answer["synced"] == true,
            objects,
            events: answer["events"].take(),
            faults: answer["faults"].take(),
        }
    }
}

/// An object without the fields that lists omit and those that a cache may omit.
#[must_use]
pub fn plain(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|field, _| field != "apiVersion" && field != "kind");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

fn folder() -> Option<PathBuf> {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/build");
    let built = std::process::Command::new(build).arg("--path").output().ok()?;
    let path = String::from_utf8(built.stdout).ok()?;
    built.status.success().then(|| PathBuf::from(path.trim()))
}
