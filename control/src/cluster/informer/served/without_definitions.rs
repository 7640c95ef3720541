//! A server without CustomResourceDefinitions: whether it serves a kind, by its discovery documents.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Definition, Presence};
use crate::cluster::cached::CachedKind;
use crate::cluster::informer::discovery::look_up;
use crate::cluster::informer::failure::Failure;
use crate::cluster::informer::pauses::Pauses;

impl Definition {
    /// The server has no definitions, like the served API of another process: its discovery documents say whether it
    /// serves the kind. They are read again after a pause. A kind that has been found stays: a server that has just
    /// started does not serve it yet.
    pub(super) async fn look_up(
        &mut self,
        no_definitions: &Failure,
        presence_tx: &watch::Sender<Presence>,
        pauses: &mut Pauses,
    ) -> Result<(), Failure> {
        let (plural, group) = self.name.split_once('.').unwrap_or((&*self.name, ""));
        let mut found = None;
        for version in &self.versions {
            let wanted = CachedKind::new(plural, group, Some(&**version));
            if look_up(&self.api.client, &self.api.limits, &wanted).await?.is_some() {
                found = Some(Presence::Served { version: Arc::clone(version), uid: Arc::default() });
                break;
            }
        }
        self.sound().await;
        let served = matches!(*presence_tx.borrow(), Presence::Served { .. });
        match found {
            Some(found) => self.set(found, presence_tx),
            None if served => {}
            None => self.set(Presence::Absent, presence_tx),
        }
        let pause = pauses.after(no_definitions, self.rng.u64(..));
        pauses.wait(pause, self.rng.u64(..)).await;
        Ok(())
    }
}
