//! Held routes: an operator keeps the routes of an earlier generation, while those of the cluster are compiled behind
//! them. Endpoints are still updated: a rollback restores old routes, never old pods.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use tidegate_config::model::{BackendKey, BackendMap, Generation, SnapshotParts, VirtualHost};
use tidegate_config::object::ObjectName;

use super::Reconciler;
use super::backlog::Reason;
use crate::command::Command;
use crate::compile::{Unit, backends_of_host, used_by_stream};
use crate::history::{Cause, Changes};
use crate::not_serving::ByCommand;
use crate::queue::Lane;

/// The held routes.
#[derive(Debug)]
pub(super) struct Hold {
    command: Command,
    since: Instant,
    /// The generation of the routes.
    generation: Generation,
    routes: SnapshotParts,
    /// The compiled changes that are not published.
    withheld: Changes,
}

impl Hold {
    /// The description of the hold.
    pub(super) fn by_command(&self, now: Instant, wall: SystemTime) -> ByCommand {
        let since = wall.checked_sub(now.saturating_duration_since(self.since)).unwrap_or(wall);
        ByCommand { command: self.command, generation: self.generation, since }
    }

    /// The parts to publish: these routes, and the current endpoints.
    fn over(&self, backends: &BackendMap) -> SnapshotParts {
        SnapshotParts { backends: backends.clone(), ..self.routes.clone() }
    }

    /// The Service ports of the routes.
    fn backends(&self) -> BTreeSet<BackendKey> {
        let hosts: Vec<VirtualHost> = self.routes.hosts.iter().map(|(host, _)| host).collect();
        let streams = self.routes.streams.iter().flat_map(|(_, route)| used_by_stream(route));
        hosts.iter().flat_map(|host| backends_of_host(&self.routes, host)).cloned().chain(streams).collect()
    }

    /// Withholds the changes of routes; returns those to publish.
    fn withhold(&mut self, mut changes: Changes) -> Changes {
        let endpoints = changes.take_endpoints();
        if changes.units.routes() {
            self.withheld.append(changes);
        }
        endpoints
    }
}

impl Reconciler {
    /// Serves the routes of a generation from the next step on, whatever changes in the cluster.
    pub fn hold(&mut self, command: Command, generation: Generation, routes: SnapshotParts, now: Instant) {
        let withheld = self.hold.take().map(|hold| hold.withheld).unwrap_or_default();
        let hold = Hold { command, since: now, generation, routes, withheld };
        self.follow(hold.backends(), now);
        self.hold = Some(hold);
        self.commanded = Some(Changes::of(Cause::Commanded { command }));
    }

    /// Serves the routes of the cluster again from the next step on.
    pub fn thaw(&mut self, command: Command, now: Instant) {
        let Some(hold) = self.hold.take() else { return };
        self.follow(BTreeSet::new(), now);
        let mut changes = Changes::of(Cause::Commanded { command });
        changes.append(hold.withheld);
        self.commanded = Some(changes);
    }

    /// The generation of the held routes.
    #[must_use]
    pub fn held(&self) -> Option<Generation> {
        self.hold.as_ref().map(|hold| hold.generation)
    }

    /// Changes the Service ports of held routes. Unknown ones are compiled in the next step, so that no route is
    /// published without its endpoints; unused ones are removed later.
    fn follow(&mut self, backends: BTreeSet<BackendKey>, now: Instant) {
        let known = &self.compiled.parts.backends;
        let missing = backends.iter().filter(|key| !known.contains_key(key));
        self.next.extend(missing.map(|key| Unit::Service(key.service.clone())));
        let before = std::mem::replace(&mut self.held_backends, backends);
        let gone: BTreeSet<&ObjectName> = before.iter().map(|key| &key.service).collect();
        for service in gone {
            let cause = Arc::new(Cause::Released { service: service.clone() });
            let reason = Reason { cause, lane: Lane::Slow, received: now, own: false };
            self.backlog.compile(Unit::Service(service.clone()), &reason, u64::MAX);
        }
        self.names.note_all();
    }

    /// The publication for compiled changes, if there is one.
    pub(super) fn outgoing(&mut self, changes: Changes) -> Option<(SnapshotParts, Changes)> {
        let commanded = self.commanded.take();
        let forced = commanded.is_some();
        let passed = match &mut self.hold {
            None => changes,
            Some(hold) => hold.withhold(changes),
        };
        let mut changes = commanded.unwrap_or_default();
        let differs = passed.units.routes() || passed.units.endpoints();
        if differs {
            changes.append(passed);
        }
        let now = &self.compiled.parts;
        let parts = || self.hold.as_ref().map_or_else(|| now.clone(), |hold| hold.over(&now.backends));
        (forced || differs).then(|| (parts(), changes))
    }
}
