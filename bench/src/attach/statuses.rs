//! Writes of the status of HTTPRoutes and Gateways, as seen by a watch.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::clock::now;
use crate::peer::Peer;

/// The controller name of the entries that count.
const CONTROLLER: &str = "tidegate.io/gateway";

/// The kind of a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Route,
    Gateway,
}

/// The current state of an object.
#[derive(Debug)]
struct Event {
    kind: Kind,
    at: Instant,
    object: DynamicObject,
}

/// The latest state of one object.
#[derive(Debug, Default)]
struct Known {
    generation: i64,
    status: Value,
}

/// Follows the statuses of all HTTPRoutes and Gateways.
#[derive(Debug)]
pub(super) struct Statuses {
    events: mpsc::UnboundedReceiver<Event>,
    /// Ends with this handle.
    _watches: JoinSet<anyhow::Result<()>>,
    routes: BTreeMap<String, Known>,
    gateways: BTreeMap<String, Known>,
    settled: usize,
    writes: (usize, usize),
    last: (Option<Instant>, Option<Instant>),
}

impl Statuses {
    /// Begins with the existing objects.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub(super) async fn follow(peer: &Peer) -> anyhow::Result<Self> {
        let (sender, events) = mpsc::unbounded_channel();
        let mut watches = JoinSet::new();
        let mut statuses = Self {
            events,
            _watches: JoinSet::new(),
            routes: BTreeMap::new(),
            gateways: BTreeMap::new(),
            settled: 0,
            writes: (0, 0),
            last: (None, None),
        };
        let (routes, gateways) = peer.gateway_objects()?;
        for (kind, api) in [(Kind::Route, routes), (Kind::Gateway, gateways)] {
            let list = api.list(&ListParams::default()).await?;
            let version = list.metadata.resource_version.clone().context("a list without a version")?;
            for object in list {
                statuses.take(Event { kind, at: now(), object });
            }
            watches.spawn(watch(kind, api, version, sender.clone()));
        }
        (statuses.writes, statuses.last) = ((0, 0), (None, None));
        statuses._watches = watches;
        Ok(statuses)
    }

    /// Reads events until a condition holds for all objects.
    ///
    /// # Errors
    /// When a watch ends.
    pub(super) async fn until(&mut self, holds: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        while !holds(self) {
            let event = self.events.recv().await.context("a watch has ended")?;
            self.take(event);
        }
        Ok(())
    }

    /// Reads events until there has been none for this long.
    ///
    /// # Errors
    /// When a watch ends.
    pub(super) async fn until_quiet(&mut self, quiet: Duration) -> anyhow::Result<()> {
        while let Ok(event) = timeout(quiet, self.events.recv()).await {
            self.take(event.context("a watch has ended")?);
        }
        Ok(())
    }

    /// The routes whose conditions of ours are all about the current generation.
    pub(super) const fn settled(&self) -> usize {
        self.settled
    }

    /// Whether a route is one of them.
    pub(super) fn is_settled(&self, route: &str) -> bool {
        self.routes.get(route).is_some_and(Known::is_settled)
    }

    /// The generation of a route; 0 where it is not known.
    pub(super) fn generation(&self, route: &str) -> i64 {
        self.routes.get(route).map_or(0, |known| known.generation)
    }

    /// The number of routes that Gateways count on all of their listeners together.
    pub(super) fn attached(&self) -> usize {
        let listeners = self.gateways.values().filter_map(|known| known.status["listeners"].as_array()).flatten();
        let counts = listeners.filter_map(|listener| listener["attachedRoutes"].as_u64());
        counts.filter_map(|count| usize::try_from(count).ok()).sum()
    }

    /// The number of written statuses: of routes, and of Gateways.
    pub(super) const fn writes(&self) -> (usize, usize) {
        self.writes
    }

    /// The time of the last write: for a route, and for a Gateway.
    pub(super) const fn last_written(&self) -> (Option<Instant>, Option<Instant>) {
        self.last
    }

    fn take(&mut self, event: Event) {
        let Event { kind, at, object } = event;
        let name = object.metadata.name.clone().unwrap_or_default();
        let status = object.data.get("status").cloned().unwrap_or_default();
        let now = Known { generation: object.metadata.generation.unwrap_or_default(), status };
        let known = if kind == Kind::Route { &mut self.routes } else { &mut self.gateways };
        let settled = now.is_settled();
        let written = known.get(&name).map_or(!now.status.is_null(), |before| before.status != now.status);
        let before = known.insert(name, now);
        let (writes, last) = match kind {
            Kind::Route => (&mut self.writes.0, &mut self.last.0),
            Kind::Gateway => (&mut self.writes.1, &mut self.last.1),
        };
        if written {
            *writes += 1;
            *last = Some(at);
        }
        if kind == Kind::Route {
            self.settled += usize::from(settled);
            self.settled -= usize::from(before.is_some_and(|before| before.is_settled()));
        }
    }
}

impl Known {
    fn is_settled(&self) -> bool {
        let entries = self.status["parents"].as_array().into_iter().flatten();
        let mut own = entries.filter(|entry| entry["controllerName"] == CONTROLLER).peekable();
        let about = |condition: &Value| condition["observedGeneration"].as_i64() == Some(self.generation);
        own.peek().is_some() && own.all(|it| it["conditions"].as_array().is_some_and(|all| all.iter().all(about)))
    }
}

/// Sends every object that a watch reports.
async fn watch(
    kind: Kind,
    api: Api<DynamicObject>,
    version: String,
    sender: mpsc::UnboundedSender<Event>,
) -> anyhow::Result<()> {
    let mut events = api.watch(&WatchParams::default(), &version).await?.boxed();
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                ensure!(sender.send(Event { kind, at: now(), object }).is_ok(), "the receiver is gone");
            }
            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(error) => return Err(kube::Error::Api(error).into()),
        }
    }
    Ok(())
}
