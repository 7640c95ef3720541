//! Held routes: an operator keeps the routes of an earlier generation, while those of the cluster are compiled behind
//! them. Endpoints are still updated: a rollback restores old routes, never old pods.

use std::collections::BTreeSet;
use std::time::{Instant, SystemTime};

use tidegate_config::model::{BackendKey, BackendMap, Generation, SnapshotParts};
use tidegate_config::object::ObjectName;

use super::Reconciler;
use super::model::Model;
use crate::command::Command;
use crate::compile::Unit;
use crate::history::{Cause, Changes};
use crate::not_serving::ByCommand;

/// The held routes.
#[derive(Debug)]
struct Hold {
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
    fn by_command(&self, now: Instant, wall: SystemTime) -> ByCommand {
        let since = wall.checked_sub(now.saturating_duration_since(self.since)).unwrap_or(wall);
        ByCommand { command: self.command, generation: self.generation, since }
    }

    /// The parts to publish: these routes, and the current endpoints.
    fn over(&self, backends: &BackendMap) -> SnapshotParts {
        SnapshotParts { backends: backends.clone(), ..self.routes.clone() }
    }

    /// The Service ports of the routes.
    fn backends(&self) -> BTreeSet<BackendKey> {
        Unit::backends_in(&self.routes)
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

/// The hold, the endpoints that it still needs, and the operator's last command.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// Held routes, which serve instead of the cluster's.
    hold: Option<Hold>,
    /// Units for the next step: unknown endpoints that a held route needs.
    next: BTreeSet<Unit>,
    /// The changes of an operator's command, until they are published.
    commanded: Option<Changes>,
}

impl Holding {
    /// The hold, for a loop that starts again.
    pub(super) fn without_queue(self) -> Self {
        Self { hold: self.hold, ..Self::default() }
    }

    /// Whether routes are held.
    pub(super) const fn holds(&self) -> bool {
        self.hold.is_some()
    }

    /// Whether a command waits for its publication.
    pub(super) const fn commanded(&self) -> bool {
        self.commanded.is_some()
    }

    /// The description of the hold.
    pub(super) fn by_command(&self, now: Instant, wall: SystemTime) -> Option<ByCommand> {
        self.hold.as_ref().map(|hold| hold.by_command(now, wall))
    }

    /// The units to compile in this step.
    pub(super) fn take_next(&mut self) -> BTreeSet<Unit> {
        std::mem::take(&mut self.next)
    }

    /// The next step is a publication, even without changes.
    pub(super) fn publish_first(&mut self) {
        self.commanded.get_or_insert_with(|| Changes::of(Cause::Started));
    }

    /// Begins a hold. Returns the Services of the previous one.
    fn begin(&mut self, mut hold: Hold, model: &mut Model) -> BTreeSet<ObjectName> {
        hold.withheld = self.hold.take().map(|hold| hold.withheld).unwrap_or_default();
        self.commanded = Some(Changes::of(Cause::Commanded { command: hold.command }));
        let released = self.follow(hold.backends(), model);
        self.hold = Some(hold);
        released
    }

    /// Ends the hold. Returns its Services.
    fn end(&mut self, command: Command, model: &mut Model) -> Option<BTreeSet<ObjectName>> {
        let hold = self.hold.take()?;
        let mut changes = Changes::of(Cause::Commanded { command });
        changes.append(hold.withheld);
        self.commanded = Some(changes);
        Some(self.follow(BTreeSet::new(), model))
    }

    /// Changes the Service ports of held routes. Unknown ones are compiled in the next step, so that no route is
    /// published without its endpoints. Returns the Services of the previous ones, which may be unused now.
    fn follow(&mut self, backends: BTreeSet<BackendKey>, model: &mut Model) -> BTreeSet<ObjectName> {
        let missing = backends.iter().filter(|key| !model.compiled.parts.backends.contains_key(key));
        self.next.extend(missing.map(|key| Unit::Service(key.service.clone())));
        let before = std::mem::replace(&mut model.held, backends);
        before.into_iter().map(|key| key.service.clone()).collect()
    }

    /// The publication for changes of the compiled parts, if there is one.
    pub(super) fn outgoing(&mut self, changes: Changes, now: &SnapshotParts) -> Option<(SnapshotParts, Changes)> {
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
        let parts = || self.hold.as_ref().map_or_else(|| now.clone(), |hold| hold.over(&now.backends));
        (forced || differs).then(|| (parts(), changes))
    }
}

impl Reconciler {
    /// Serves the routes of a generation from the next step on, whatever changes in the cluster.
    pub fn hold(&mut self, command: Command, generation: Generation, routes: SnapshotParts, now: Instant) {
        let hold = Hold { command, since: now, generation, routes, withheld: Changes::default() };
        let released = self.holding.begin(hold, &mut self.model);
        self.backlog.release(released, now);
        self.names.note_all();
    }

    /// Serves the routes of the cluster again from the next step on.
    pub fn thaw(&mut self, command: Command, now: Instant) {
        if let Some(released) = self.holding.end(command, &mut self.model) {
            self.backlog.release(released, now);
            self.names.note_all();
        }
    }

    /// The generation of the held routes.
    #[must_use]
    pub fn held(&self) -> Option<Generation> {
        self.holding.hold.as_ref().map(|hold| hold.generation)
    }
}
