//! Events, for `kubectl describe` and `kubectl events`. They are written beside everything else: nothing waits for
//! them, and when too many wait themselves, new ones are dropped.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidegate_config::object::ObjectName;
use tokio::sync::mpsc;

use super::status::stamp;
use crate::clock;

/// The maximum number of Events that wait to be written.
const WAITING_MAX: usize = 1_024;
/// The maximum number of Events that are counted on when they repeat; after that, counting starts again.
const COUNTED_MAX: usize = 1_024;

/// Something that happened to an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Notice {
    pub(super) about: About,
    pub(super) warns: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The object of a notice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct About {
    pub(super) kind: Kind,
    pub(super) name: ObjectName,
    pub(super) uid: String,
}

/// The kind of the object, which determines the reporting component.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Deployment,
    ReplicaSet,
    Pod,
    /// A container of a Pod, by its name.
    Container(String),
}

/// Takes notices.
#[derive(Clone, Debug)]
pub(super) struct Recorder(mpsc::Sender<Notice>);

impl Recorder {
    /// Starts a task that writes Events for as long as there is a recorder.
    pub(super) fn start(client: kube::Client) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        tokio::spawn(write(client, receiver));
        Self(sender)
    }

    /// Records a normal Event; it is dropped if there is no room.
    pub(super) fn note(&self, about: About, reason: &'static str, message: impl Into<String>) {
        drop(self.0.try_send(Notice { about, warns: false, reason, message: message.into() }));
    }

    /// Records a warning.
    pub(super) fn warn(&self, about: About, reason: &'static str, message: impl Into<String>) {
        drop(self.0.try_send(Notice { about, warns: true, reason, message: message.into() }));
    }
}

async fn write(client: kube::Client, mut notices: mpsc::Receiver<Notice>) {
    let mut counted = BTreeMap::new();
    while let Some(notice) = notices.recv().await {
        if let Err(error) = write_one(&client, &notice, &mut counted).await {
            tracing::debug!(name = %notice.about.name, %error, "an Event was not written");
        }
    }
}

/// Writes one Event, or counts a known one up.
async fn write_one(
    client: &kube::Client,
    notice: &Notice,
    counted: &mut BTreeMap<(String, &'static str, String), (String, i32)>,
) -> kube::Result<()> {
    let events: Api<Event> = Api::namespaced(client.clone(), &notice.about.name.namespace);
    let key = (notice.about.uid.clone(), notice.reason, notice.message.clone());
    let now = stamp(clock::wall());
    if let Some((name, count)) = counted.get_mut(&key) {
        *count += 1;
        let patch = Patch::Merge(json!({"count": *count, "lastTimestamp": now}));
        if events.patch(name, &PatchParams::default(), &patch).await.is_ok() {
            return Ok(());
        }
    }
    let name = format!("{}.{:016x}", notice.about.name.name, clock::draw_bits() >> 64);
    let event = serde_json::from_value(event(notice, &name, &now)).map_err(kube::Error::SerdeError)?;
    events.create(&PostParams::default(), &event).await?;
    if counted.len() >= COUNTED_MAX {
        counted.clear();
    }
    counted.insert(key, (name, 1));
    Ok(())
}

fn event(notice: &Notice, name: &str, now: &str) -> Value {
    let About { kind, name: object, uid } = &notice.about;
    let (api_version, kind, component, field) = match kind {
        Kind::Deployment => ("apps/v1", "Deployment", "deployment-controller", None),
        Kind::ReplicaSet => ("apps/v1", "ReplicaSet", "replicaset-controller", None),
        Kind::Pod => ("v1", "Pod", "default-scheduler", None),
        Kind::Container(name) => ("v1", "Pod", "kubelet", Some(format!("spec.containers{{{name}}}"))),
    };
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": &*object.namespace},
        "involvedObject": {
            "apiVersion": api_version, "kind": kind, "namespace": &*object.namespace, "name": &*object.name, "uid": uid,
            "fieldPath": field,
        },
        "type": if notice.warns { "Warning" } else { "Normal" }, "reason": notice.reason, "message": notice.message,
        "source": {"component": component}, "reportingComponent": component, "reportingInstance": "",
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    })
}
