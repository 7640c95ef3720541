//! Checks whether a watch can be resumed from a kept resourceVersion. An API server whose state was restored from a
//! backup, for example, accepts a watch from a future version and sends no events, so its current resourceVersion and
//! its cluster are checked first.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use tidegate_config::object::Kind;
use tokio::sync::{OnceCell, watch};

use super::api::Api;
use super::failure::{Failure, ListReason};
use super::lister::no_older;
use super::resource::Resource;
use super::{Closed, Informer, Interest, Limits, list};
use crate::event::Collection;

/// A namespace of every cluster, which is never created again: its uid identifies the cluster.
const NAMESPACE: &str = "kube-system";

/// The identity of the API server's cluster, compared with the kept one. Clones share the result.
#[derive(Clone)]
pub struct Identity {
    api: Api,
    /// The uid of the cluster of the kept state, if it is known.
    kept: Option<Arc<str>>,
    /// The uid from the API server, once it has answered.
    answered: Arc<OnceCell<Option<Arc<str>>>>,
    known: watch::Sender<Option<Arc<str>>>,
}

impl Identity {
    /// The identity of the cluster of this client. `kept` is the uid known before a restart.
    #[must_use]
    pub fn new(client: kube::Client, limits: Limits, kept: Option<Arc<str>>) -> Self {
        let collection = Collection { kind: Kind::Namespace, namespace: None };
        let interest = Interest { resource: Resource::of(Kind::Namespace), ..Interest::in_all_of(collection) };
        let (answered, known) = (Arc::default(), watch::Sender::new(kept.clone()));
        Self { api: Api::new(client, interest, limits), kept, answered, known }
    }

    /// The uid to keep: the previous one until the API server has answered.
    #[must_use]
    pub fn known(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.known.subscribe()
    }

    /// Requests the uid, unless it was received before. Returns `true` if the API server has answered.
    pub async fn learn(&self) -> bool {
        self.ask().await.is_ok()
    }

    /// Whether the API server still serves the same cluster, as far as is known: if the namespace may not be read, only
    /// versions are compared.
    pub(super) async fn same(&self) -> Result<bool, Failure> {
        let now = self.ask().await?;
        Ok(match (&self.kept, now) {
            (Some(kept), Some(now)) => kept == now,
            (None, _) | (_, None) => true,
        })
    }

    async fn ask(&self) -> Result<&Option<Arc<str>>, Failure> {
        let asked = self.answered.get_or_try_init(|| async {
            let object = match self.api.object(NAMESPACE).await {
                Err(failure) if failure.is_denied() => None,
                answer => answer?,
            };
            let read = object.and_then(|object| serde_json::from_slice::<ObjectUid>(&object).ok());
            Ok(read.map(|named| Arc::from(named.metadata.uid)))
        });
        let uid = asked.await?;
        self.known.send_if_modified(|known| uid.is_some() && std::mem::replace(known, uid.clone()) != *uid);
        Ok(uid)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("kept", &self.kept).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct ObjectUid {
    metadata: Uid,
}

#[derive(Deserialize)]
struct Uid {
    uid: String,
}

impl Informer {
    /// Asks the API server until it is known whether a watch can be resumed from the kept resourceVersion. Returns the
    /// reason for a list if it cannot.
    pub(super) async fn compare(&mut self) -> Result<Option<ListReason>, Closed> {
        loop {
            self.pauses.begin();
            match self.compared().await {
                Ok(true) => return Ok(None),
                Ok(false) => {
                    let collection = self.api().collection();
                    tracing::warn!(%collection, kept = %self.reached, "the API server's state was restored to an older one, or it serves another cluster; listing again");
                    return Ok(Some(ListReason::VersionRegressed));
                }
                Err(failure) => self.wait_after(&failure).await?,
            }
        }
    }

    async fn compared(&self) -> Result<bool, Failure> {
        if let Some(identity) = &self.identity
            && !identity.same().await?
        {
            return Ok(false);
        }
        Ok(no_older(&list::newest(self.api()).await?, &self.reached))
    }
}
