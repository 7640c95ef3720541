//! Writes of the status of HTTPRoutes, Gateways and policies, as seen by a watch.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use serde::Serialize;
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
    Policy,
}

/// Numbers of objects of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Counts {
    pub(super) routes: usize,
    pub(super) gateways: usize,
    pub(super) policies: usize,
}

impl Counts {
    /// The number of all.
    pub(super) const fn all(self) -> usize {
        self.routes + self.gateways + self.policies
    }

    const fn of(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Route => &mut self.routes,
            Kind::Gateway => &mut self.gateways,
            Kind::Policy => &mut self.policies,
        }
    }
}

/// The times of the last writes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    pub(super) route: Option<Instant>,
    pub(super) gateway: Option<Instant>,
    pub(super) policy: Option<Instant>,
}

impl Written {
    /// The last write for any object.
    pub(super) fn any(self) -> Option<Instant> {
        self.route.max(self.gateway).max(self.policy)
    }
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

/// Follows the statuses of all HTTPRoutes, Gateways and policies.
#[derive(Debug)]
pub(super) struct Statuses {
    events: mpsc::UnboundedReceiver<Event>,
    /// Ends with this handle.
    _watches: JoinSet<anyhow::Result<()>>,
    routes: BTreeMap<String, Known>,
    gateways: BTreeMap<String, Known>,
    policies: BTreeMap<String, Known>,
    settled: Counts,
    writes: Counts,
    last: Written,
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
            policies: BTreeMap::new(),
            settled: Counts::default(),
            writes: Counts::default(),
            last: Written::default(),
        };
        let (routes, gateways) = peer.gateway_objects()?;
        let policies = peer.policies()?.api().clone();
        for (kind, api) in [(Kind::Route, routes), (Kind::Gateway, gateways), (Kind::Policy, policies)] {
            let list = api.list(&ListParams::default()).await?;
            let version = list.metadata.resource_version.clone().context("a list without a version")?;
            for object in list {
                statuses.take(Event { kind, at: now(), object });
            }
            watches.spawn(watch(kind, api, version, sender.clone()));
        }
        (statuses.writes, statuses.last) = (Counts::default(), Written::default());
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

    /// The objects whose conditions of ours are all about the current generation.
    pub(super) const fn settled(&self) -> Counts {
        self.settled
    }

    /// Whether a route is one of them.
    pub(super) fn is_settled(&self, route: &str) -> bool {
        self.routes.get(route).is_some_and(Known::is_settled)
    }

    /// Whether a policy is one of them.
    pub(super) fn policy_is_settled(&self, policy: &str) -> bool {
        self.policies.get(policy).is_some_and(Known::is_settled)
    }

    /// The generation of a route; 0 where it is not known.
    pub(super) fn generation(&self, route: &str) -> i64 {
        self.routes.get(route).map_or(0, |known| known.generation)
    }

    /// The generation of a policy; 0 where it is not known.
    pub(super) fn policy_generation(&self, policy: &str) -> i64 {
        self.policies.get(policy).map_or(0, |known| known.generation)
    }

    /// The number of routes that Gateways count on all of their listeners together.
    pub(super) fn attached(&self) -> usize {
        let listeners = self.gateways.values().filter_map(|known| known.status["listeners"].as_array()).flatten();
        let counts = listeners.filter_map(|listener| listener["attachedRoutes"].as_u64());
        counts.filter_map(|count| usize::try_from(count).ok()).sum()
    }

    /// The number of written statuses.
    pub(super) const fn writes(&self) -> Counts {
        self.writes
    }

    /// The times of the last writes.
    pub(super) const fn last_written(&self) -> Written {
        self.last
    }

    fn take(&mut self, event: Event) {
        let Event { kind, at, object } = event;
        let name = object.metadata.name.clone().unwrap_or_default();
        let status = object.data.get("status").cloned().unwrap_or_default();
        let now = Known { generation: object.metadata.generation.unwrap_or_default(), status };
        let (known, last) = match kind {
            Kind::Route => (&mut self.routes, &mut self.last.route),
            Kind::Gateway => (&mut self.gateways, &mut self.last.gateway),
            Kind::Policy => (&mut self.policies, &mut self.last.policy),
        };
        let settled = now.is_settled();
        let written = known.get(&name).map_or(!now.status.is_null(), |before| before.status != now.status);
        let before = known.insert(name, now);
        if written {
            *self.writes.of(kind) += 1;
            *last = Some(at);
        }
        let count = self.settled.of(kind);
        *count += usize::from(settled);
        *count -= usize::from(before.is_some_and(|before| before.is_settled()));
    }
}

impl Known {
    fn is_settled(&self) -> bool {
        let about = |condition: &Value| condition["observedGeneration"].as_i64() == Some(self.generation);
        let is_settled = |it: &Value| it["conditions"].as_array().is_some_and(|all| all.iter().all(about));
        let Some(entries) = self.status["parents"].as_array() else { return is_settled(&self.status) };
        let mut own = entries.iter().filter(|entry| entry["controllerName"] == CONTROLLER).peekable();
        own.peek().is_some() && own.all(is_settled)
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
