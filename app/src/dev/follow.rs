//! A reflector for a server in the same process: a list, then a watch, then a list again when the watch breaks. The
//! control loop has its own, which handles network failures.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// The pause before a list after a failure.
const PAUSE: Duration = Duration::from_millis(500);

/// A change of the objects of a kind.
#[derive(Debug)]
pub(super) enum Seen<K> {
    /// The complete list of objects.
    All(Vec<K>),
    /// An object is new or different.
    Put(K),
    /// An object is gone.
    Gone(K),
}

/// Sends changes until the receiver is dropped.
pub(super) async fn follow<K>(api: Api<K>, sender: mpsc::Sender<Seen<K>>)
where
    K: Clone + DeserializeOwned + Debug + Send + 'static,
{
    while !sender.is_closed() {
        if let Err(error) = once(&api, &sender).await {
            tracing::debug!(%error, "a list or watch failed");
            sleep(PAUSE).await;
        }
    }
}

/// One list and the watches after it, until one of them fails.
async fn once<K>(api: &Api<K>, sender: &mpsc::Sender<Seen<K>>) -> kube::Result<()>
where
    K: Clone + DeserializeOwned + Debug + Send + 'static,
{
    let list = api.list(&ListParams::default()).await?;
    let version = list.metadata.resource_version.unwrap_or_default();
    if sender.send(Seen::All(list.items)).await.is_err() {
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
        if sender.send(seen).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}
