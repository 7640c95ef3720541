//! Every object of a kind as it is now: a list, then a watch, then a list again when the watch breaks. It is for a
//! server in the same process; the control loop has its own, which minds a network.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Before a list after a failure.
const PAUSE: Duration = Duration::from_millis(500);

/// What became of the objects.
#[derive(Debug)]
pub(super) enum Seen<K> {
    /// These are all.
    All(Vec<K>),
    /// This one is new or different.
    Put(K),
    /// This one is gone.
    Gone(K),
}

/// Tells what happens until the receiver is gone.
pub(super) async fn follow<K>(api: Api<K>, told: mpsc::Sender<Seen<K>>)
where
    K: Clone + DeserializeOwned + Debug + Send + 'static,
{
    while !told.is_closed() {
        if let Err(error) = once(&api, &told).await {
            tracing::debug!(%error, "a list or watch failed");
            sleep(PAUSE).await;
        }
    }
}

/// One list and the watches after it, until one cannot go on.
async fn once<K>(api: &Api<K>, told: &mpsc::Sender<Seen<K>>) -> kube::Result<()>
where
    K: Clone + DeserializeOwned + Debug + Send + 'static,
{
    let list = api.list(&ListParams::default()).await?;
    let version = list.metadata.resource_version.unwrap_or_default();
    if told.send(Seen::All(list.items)).await.is_err() {
        return Ok(());
    }
    let mut events = api.watch(&WatchParams::default(), &version).await?.boxed();
    while let Some(event) = events.next().await {
        let seen = match event? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Seen::Put(object),
            WatchEvent::Deleted(object) => Seen::Gone(object),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        };
        if told.send(seen).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}
