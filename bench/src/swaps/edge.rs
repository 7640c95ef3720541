//! The control core as the process runs it, without its informers: events go in, snapshots come out.

use std::net::Ipv4Addr;
use std::time::Instant;

use tidegate_config::model::{Bind, BindKey, BindProtocol, Generation, Listener};
use tidegate_config::object::Kind;
use tidegate_config::published::{Published, Publisher, channel};
use tidegate_control::options::Options;
use tidegate_control::{Event, Reconciler, Source};

use super::cluster::Cluster;

/// A running control core.
#[derive(Debug)]
pub(super) struct Edge {
    reconciler: Reconciler,
    publisher: Publisher,
    published: Published,
    now: Instant,
}

impl Edge {
    /// A core that has read all of a cluster and published it.
    #[must_use]
    pub(super) fn start(cluster: &Cluster, now: Instant) -> Self {
        let sources = Kind::ALL.map(|kind| Source { kind, namespace: None });
        let (publisher, published) = channel();
        let key = BindKey { address: (Ipv4Addr::LOCALHOST, 0).into(), protocol: BindProtocol::Http };
        let listener = Listener::for_every_host("http");
        let options = Options { binds: [Bind { key, listeners: [listener].into() }].into(), ..Options::default() };
        let mut edge = Self { reconciler: Reconciler::new(options, sources), publisher, published, now };
        for event in cluster.lists(now) {
            edge.take(event);
        }
        edge
    }

    /// The published snapshot.
    #[must_use]
    pub(super) const fn published(&self) -> &Published {
        &self.published
    }

    /// Takes a change and publishes the result, as the control loop does between two waits. Returns the generation that
    /// serves it, if it made one.
    pub(super) fn take(&mut self, event: Event) -> Option<Generation> {
        // A list that would remove most objects has to be confirmed; none of the events here does.
        let _asked_again = self.reconciler.observe(event, self.now);
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
        published
    }
}
