//! `kubectl get --watch` and `kubectl wait` across faults of the server, and checks of their output.

#![allow(clippy::disallowed_types, reason = "a test may lock")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Deserializer, Value};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout};

use crate::informers::plain;
use crate::kubectl::Kubectl;
use crate::reader::{Reader, items};
use crate::wait::eventually;

/// Objects by `NAMESPACE/NAME`, without the fields that lists omit and those that a cache may omit.
type Objects = BTreeMap<String, Value>;

/// A running `kubectl get --watch`.
#[derive(Debug)]
pub struct KubectlWatch {
    arguments: Vec<String>,
    child: Child,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    objects: Objects,
    events: usize,
    /// Events that contradict the earlier ones.
    faults: Vec<String>,
}

impl KubectlWatch {
    /// Starts it, with arguments such as `get services -A`.
    #[must_use]
    pub fn start(reader: &Reader, arguments: &[&str]) -> Self {
        let mut command = reader.kubectl.command();
        command.args(&reader.arguments).args(arguments).args(["--watch", "--output-watch-events", "-o", "json"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("kubectl");
        let seen = Arc::default();
        tokio::spawn(read(child.stdout.take().expect("piped"), Arc::clone(&seen)));
        Self { arguments: arguments.iter().map(|text| (*text).to_owned()).collect(), child, seen }
    }

    /// Waits until its output adds up to the objects of the cluster, and checks that it still watches.
    pub async fn prints(&mut self, when: &str, cluster: &Kubectl) {
        let key = |object: &Value| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            format!("{}/{}", text("namespace"), text("name"))
        };
        let (arguments, seen) = (&self.arguments, &self.seen);
        let list: Vec<&str> = arguments.iter().map(String::as_str).chain(["-o", "json"]).collect();
        eventually(&format!("kubectl {arguments:?}, {when}"), || async {
            let want = items(&cluster.run(&list).await);
            let want: Objects = want.into_iter().map(|object| (key(&object), plain(object))).collect();
            let seen = seen.lock().unwrap();
            let keys: BTreeSet<_> = want.keys().chain(seen.objects.keys()).collect();
            let other: Vec<_> = keys.into_iter().filter(|key| want.get(*key) != seen.objects.get(*key)).collect();
            if other.is_empty() { Ok(()) } else { Err(format!("{other:?} after {} events", seen.events)) }
        })
        .await;
        assert_eq!(self.seen.lock().unwrap().faults, Vec::<String>::new(), "{arguments:?}, {when}");
        assert!(self.child.try_wait().unwrap().is_none(), "kubectl {arguments:?} has ended, {when}");
    }
}

/// Reads events as they are printed: JSON values, one after the other.
async fn read(mut output: ChildStdout, seen: Arc<Mutex<Seen>>) {
    let mut text = Vec::new();
    while output.read_buf(&mut text).await.is_ok_and(|count| count > 0) {
        let mut values = Deserializer::from_slice(&text).into_iter::<Value>();
        while let Some(Ok(event)) = values.next() {
            seen.lock().unwrap().take(event);
        }
        let taken = values.byte_offset();
        text.drain(..taken);
    }
}

impl Seen {
    fn take(&mut self, mut event: Value) {
        self.events += 1;
        let object = event["object"].take();
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = format!("{}/{}", text("namespace"), text("name"));
        let version = |object: &Value| object["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok();
        let known = self.objects.get(&key);
        let rises = version(&object) > known.and_then(version);
        let follows = match event["type"].as_str() {
            Some("ADDED") => known.is_none(),
            Some("MODIFIED" | "DELETED") => known.is_some(),
            _ => false,
        };
        if !rises || !follows {
            self.faults.push(format!(
                "{} {key} at {:?} after {:?}",
                event["type"],
                version(&object),
                known.map(version)
            ));
        }
        if event["type"] == "DELETED" {
            self.objects.remove(&key);
        } else {
            self.objects.insert(key, plain(object));
        }
    }
}

/// A running `kubectl wait`.
#[derive(Debug)]
pub struct KubectlWait {
    arguments: Vec<String>,
    child: Child,
}

impl KubectlWait {
    /// Starts it, with arguments such as `service/a --for=delete`.
    #[must_use]
    pub fn start(reader: &Reader, arguments: &[&str]) -> Self {
        let mut command = reader.kubectl.command();
        command.args(&reader.arguments).arg("wait").args(arguments).arg("--timeout=10m");
        let child = command.stdout(Stdio::piped()).spawn().expect("kubectl");
        Self { arguments: arguments.iter().map(|text| (*text).to_owned()).collect(), child }
    }

    /// Checks that it has not ended.
    pub fn waits(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "kubectl wait {:?} has ended with {ended:?}", self.arguments);
    }

    /// Checks that it ends successfully.
    pub async fn ends(mut self) {
        let ended = tokio::time::timeout(Duration::from_secs(180), self.child.wait()).await;
        let ended = ended.unwrap_or_else(|_| panic!("kubectl wait {:?} goes on", self.arguments));
        assert!(ended.is_ok_and(|status| status.success()), "kubectl wait {:?}", self.arguments);
    }
}
