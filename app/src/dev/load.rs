//! Keeps the server equal to the files of a folder: reads them, applies the differences, and follows their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecursiveMode, Watcher as _};
use serde_json::json;
use tidegate_control::options::Ingresses;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::apply::Applier;
use super::definitions;
use super::documents;
use super::folder::{self, Change, Complaint, Reading, Stamp};

/// Editors write a file in several steps: it is read after this time without a change.
const QUIET: Duration = Duration::from_millis(50);
/// The maximum number of steps to wait for, so that a folder that changes all the time is read too.
const STEPS_MAX: usize = 20;
/// The time after which a text that has not changed again counts as the whole of its file.
const SETTLED: Duration = Duration::from_secs(1);
/// The interval of retries after the server refused an object or a folder could not be read, since the reason may be
/// gone (a namespace created by hand).
const RETRY: Duration = Duration::from_secs(5);

/// One run of the task.
pub(super) struct Load {
    applier: Applier,
    folder: PathBuf,
    /// The options of Ingresses, if they are a source: for the IngressClass that is created if the folder has none.
    ingresses: Option<Ingresses>,
    /// Receives the number of Deployments in the folder when it has been applied once.
    loaded: watch::Sender<Option<usize>>,
    /// The reading applied so far.
    applied: Reading,
    /// The texts that may be half written, and since when they have been as they are.
    unsettled: BTreeMap<PathBuf, (Stamp, Instant)>,
    complaints: BTreeSet<Complaint>,
    /// `true` if the definitions that every `dev` cluster has are created.
    defined: bool,
}

impl Load {
    pub(super) fn new(
        client: kube::Client,
        folder: PathBuf,
        ingresses: Option<Ingresses>,
        loaded: watch::Sender<Option<usize>>,
    ) -> Self {
        let (applied, unsettled, complaints) = (Reading::default(), BTreeMap::new(), BTreeSet::new());
        Self {
            applier: Applier::new(client),
            folder,
            ingresses,
            loaded,
            applied,
            unsettled,
            complaints,
            defined: false,
        }
    }

    /// Leaves out all definitions except those of the folder.
    pub(super) fn without_definitions(self) -> Self {
        Self { defined: true, ..self }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        let (changed, mut changes) = mpsc::channel(1);
        // Dropping the watcher ends it.
        let _watcher = match watch_folder(&self.folder, changed) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tracing::warn!(%error, "changes to files are not watched");
                None
            }
        };
        loop {
            let refused = self.load().await;
            let deployments = self.applied.objects.keys().filter(|identity| identity.kind == "Deployment").count();
            self.loaded.send_replace(Some(deployments));
            // This follows the files, so that their routes serve sooner.
            self.define().await;
            let retry = async { if refused { sleep(RETRY).await } else { std::future::pending().await } };
            let settled = self.unsettled.values().map(|(_, since)| *since + SETTLED).min();
            let settled = async {
                match settled {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = retry => {}
                () = settled => {}
                Some(()) = changes.recv() => rest(&mut changes).await,
            }
        }
    }

    /// Reads the folder and applies the differences. Returns `true` if another attempt may do more: the server refused
    /// an object, or a folder could not be read.
    async fn load(&mut self) -> bool {
        let (folder, known) = (self.folder.clone(), self.applied.files.keys().cloned().collect());
        let reading = tokio::task::spawn_blocking(move || folder::read(&folder, &known)).await;
        let Ok(mut reading) = reading else { return true };
        reading.keep_unread(&self.applied);
        self.wait_for_whole_texts(&mut reading);
        let first = self.loaded.borrow().is_none();
        if first && !reading.objects.keys().any(|identity| identity.kind == "IngressClass") {
            self.make_class().await;
        }
        self.applied.files.clone_from(&reading.files);
        let mut complaints = reading.complaints.clone();
        // Only objects of the defined kinds wait for their definitions; all others are applied first.
        let waits = |change: &Change| {
            !self.defined && matches!(change, Change::Put { identity, .. } if definitions::are_for(identity))
        };
        let (waiting, changes): (Vec<Change>, Vec<Change>) =
            reading.changes_since(&self.applied).into_iter().partition(waits);
        let mut refused = reading.is_incomplete;
        refused |= self.apply_all(changes, &mut complaints).await;
        if !waiting.is_empty() {
            self.define().await;
            refused |= self.apply_all(waiting, &mut complaints).await;
        }
        for complaint in complaints.difference(&self.complaints) {
            tracing::warn!("{complaint}");
        }
        self.complaints = complaints;
        refused
    }

    /// Keeps the objects of files that are being written, and remembers their texts.
    fn wait_for_whole_texts(&mut self, reading: &mut Reading) {
        let (now, before) = (Instant::now(), std::mem::take(&mut self.unsettled));
        let since = |file: &Path, stamp: Stamp| {
            before.get(file).filter(|(known, _)| *known == stamp).map_or(now, |(_, since)| *since)
        };
        let waiting = reading.keep_unsettled(&self.applied, |file, stamp| now >= since(file, stamp) + SETTLED);
        self.unsettled = waiting
            .into_iter()
            .map(|(file, stamp)| {
                let since = since(&file, stamp);
                (file, (stamp, since))
            })
            .collect();
    }

    /// Applies changes, and adds the complaints about them. Returns `true` if one of them was refused.
    async fn apply_all(&mut self, changes: Vec<Change>, complaints: &mut BTreeSet<Complaint>) -> bool {
        let mut refused = false;
        for change in changes {
            if let Err(complaint) = self.apply(change).await {
                complaints.insert(complaint);
                refused = true;
            }
        }
        refused
    }

    /// Applies a change and remembers it; a refused change stays pending.
    async fn apply(&mut self, change: Change) -> Result<(), Complaint> {
        match change {
            Change::Put { identity, wanted, before } => {
                let put = self.applier.put(&identity, &wanted.object, before.as_ref()).await;
                put.map_err(|why| Complaint {
                    file: wanted.file.clone(),
                    number: Some(wanted.number),
                    why: format!("{identity}: {why}"),
                })?;
                self.applied.objects.insert(identity, wanted);
            }
            Change::Delete(identity) => {
                let file = self.applied.objects.get(&identity).map(|wanted| wanted.file.clone()).unwrap_or_default();
                let deleted = self.applier.delete(&identity).await;
                deleted.map_err(|why| Complaint { file, number: None, why: format!("{identity}: {why}") })?;
                self.applied.objects.remove(&identity);
            }
        }
        Ok(())
    }

    async fn define(&mut self) {
        if !std::mem::replace(&mut self.defined, true) {
            definitions::make(&mut self.applier).await;
        }
    }

    async fn make_class(&mut self) {
        let Some(ingresses) = &self.ingresses else { return };
        let class = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "IngressClass",
            "metadata": {
                "name": &*ingresses.class,
                "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"},
            },
            "spec": {"controller": &*ingresses.controller},
        });
        for document in documents::read(&class.to_string()).into_iter().flatten() {
            if let Err(why) = self.applier.put(&document.identity, &document.object, None).await {
                tracing::warn!(error = why, "the IngressClass could not be created");
            }
        }
    }
}

fn watch_folder(folder: &Path, changed: mpsc::Sender<()>) -> notify::Result<notify::RecommendedWatcher> {
    let on_event = move |event: notify::Result<notify::Event>| {
        // At most one event waits, because its reader reads all files. Access to a file is not a change.
        if !event.is_ok_and(|event| event.kind.is_access()) {
            let _ = changed.try_send(());
        }
    };
    let mut watcher = notify::recommended_watcher(on_event)?;
    watcher.watch(folder, RecursiveMode::Recursive)?;
    Ok(watcher)
}

/// Waits until the folder stops changing.
async fn rest(changes: &mut mpsc::Receiver<()>) {
    for _ in 0..STEPS_MAX {
        if timeout(QUIET, changes.recv()).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use kube::client::Body;
    use tidegate_lite::Lite;
    use tower::ServiceExt as _;

    use super::*;

    const MANIFESTS: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: a}
spec: {controllerName: a.test/b}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: default}
";

    #[tokio::test]
    async fn objects_of_built_in_kinds_do_not_wait_for_definitions() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("all.yaml"), MANIFESTS).unwrap();
        let (sender, mut written) = mpsc::unbounded_channel();
        let lite = Lite::new().service();
        let service = tower::service_fn(move |request: Request<Body>| {
            if request.method() != "GET" {
                sender.send(request.uri().path().to_owned()).unwrap();
            }
            lite.clone().oneshot(request)
        });
        let ingresses = Some(Ingresses { class: "a".into(), controller: "a.test/b".into() });
        let (loaded, client) = (watch::Sender::new(None), kube::Client::new(service, "default"));
        let mut load = Load::new(client, folder.path().to_owned(), ingresses, loaded);
        assert!(!load.load().await, "nothing is refused");
        assert_eq!(load.complaints, BTreeSet::new());
        drop(load);
        let mut places = Vec::new();
        while let Some(path) = written.recv().await {
            places.push(
                ["ingressclasses", "configmaps", "customresourcedefinitions", "gatewayclasses"]
                    .into_iter()
                    .find(|kind| path.contains(kind)),
            );
        }
        places.dedup();
        let order = ["ingressclasses", "configmaps", "customresourcedefinitions", "gatewayclasses"];
        assert_eq!(places, order.map(Some));
    }
}
