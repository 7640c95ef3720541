//! Whether a resourceVersion of an earlier life still means something. An API server that was set back, restored from a backup for
//! example, takes a watch from a version that it has not reached and is silent, so it is asked first how far it has come, and
//! which cluster it serves.

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
use crate::event::Source;

/// The namespace that every cluster has and nobody makes again: its uid tells clusters apart.
const NAMESPACE: &str = "kube-system";

/// Which cluster the API server serves, compared with the one of which something was kept. Clones are one and the same.
#[derive(Clone)]
pub struct Identity {
    api: Api,
    /// The uid of the cluster of which something was kept, where it is known.
    kept: Option<Arc<str>>,
    /// What the API server has answered.
    answered: Arc<OnceCell<Option<Arc<str>>>>,
    known: watch::Sender<Option<Arc<str>>>,
}

impl Identity {
    /// That of the cluster that this client leads to. `kept` is what was known before a restart.
    #[must_use]
    pub fn new(client: kube::Client, limits: Limits, kept: Option<Arc<str>>) -> Self {
        let source = Source { kind: Kind::Namespace, namespace: None };
        let interest = Interest { resource: Resource::of(Kind::Namespace), ..Interest::in_all_of(source) };
        let (answered, known) = (Arc::default(), watch::Sender::new(kept.clone()));
        Self { api: Api::new(client, interest, limits), kept, answered, known }
    }

    /// The uid, as it is to be kept: the one of before until the API server has answered.
    #[must_use]
    pub fn known(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.known.subscribe()
    }

    /// Asks the API server, unless it has answered before. Gives whether it has by now.
    pub async fn learn(&self) -> bool {
        self.ask().await.is_ok()
    }

    /// Whether the API server serves the cluster of before, as far as that can be known: where the namespace may not be read, versions
    /// alone are compared.
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
            let read = object.and_then(|object| serde_json::from_slice::<Named>(&object).ok());
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
struct Named {
    metadata: Uid,
}

#[derive(Deserialize)]
struct Uid {
    uid: String,
}

impl Informer {
    /// Asks until the API server has said whether a watch can go on from the kept resourceVersion. Gives why it cannot, if so.
    pub(super) async fn compare(&mut self) -> Result<Option<ListReason>, Closed> {
        loop {
            self.pauses.begin();
            match self.compared().await {
                Ok(true) => return Ok(None),
                Ok(false) => {
                    let source = self.api().source();
                    tracing::warn!(%source, kept = %self.reached, "the API server was set back, or serves another cluster: it is listed");
                    return Ok(Some(ListReason::SetBack));
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
