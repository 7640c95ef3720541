//! The control core as the process runs it, without its informers: events go in, snapshots come out.

use std::time::Instant;

use anyhow::ensure;
use tidegate_config::model::Generation;
use tidegate_config::object::Kind;
use tidegate_config::published::{Published, Publisher, channel};
use tidegate_control::options::Options;
use tidegate_control::{Collection, Event, Reconciler};

/// A running control core.
#[derive(Debug)]
pub(crate) struct Core {
    reconciler: Reconciler,
    publisher: Publisher,
    published: Published,
    now: Instant,
}

impl Core {
    /// A core that has taken these events: the lists of all kinds.
    ///
    /// # Errors
    /// When a list has to be confirmed.
    pub(crate) fn start(
        options: Options,
        events: impl IntoIterator<Item = Event>,
        now: Instant,
    ) -> anyhow::Result<Self> {
        let collections = Kind::ALL.map(|kind| Collection { kind, namespace: None });
        let (publisher, published) = channel();
        let mut core = Self { reconciler: Reconciler::new(options, collections), publisher, published, now };
        for event in events {
            core.take(event)?;
        }
        Ok(core)
    }

    /// The published snapshot.
    #[must_use]
    pub(crate) const fn published(&self) -> &Published {
        &self.published
    }

    /// The parts that publish, without the rest of the core.
    pub(crate) fn into_published(self) -> (Publisher, Published) {
        (self.publisher, self.published)
    }

    /// Takes a change and publishes the result, as the control loop does between two waits. Returns the generation that
    /// serves it, if it made one.
    ///
    /// # Errors
    /// When it is a list that has to be confirmed.
    pub(crate) fn take(&mut self, event: Event) -> anyhow::Result<Option<Generation>> {
        let asked_again = self.reconciler.observe(event, self.now);
        ensure!(asked_again.is_none(), "a list has to be confirmed");
        let mut published = None;
        while let Some(step) = self.reconciler.reconcile(self.now) {
            if let Some((parts, _)) = step.published {
                let ready = self.publisher.prepare(parts);
                published = Some(self.publisher.publish(ready));
            }
            if !self.reconciler.busy() {
                break;
            }
        }
        Ok(published)
    }
}
