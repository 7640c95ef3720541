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
        let released = self.follow(Unit::backends_in(&hold.routes), model);
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
        let before = std::mem::replace(&mut model.frozen_backends, backends);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_config::model::{
        Action, AppProtocol, Backend, HostPattern, HostRoutes, Origin, PathMatch, Route, Target, VirtualHost,
        WeightedTarget,
    };
    use tidegate_config::object::{Age, Kind, ObjectRef};

    use super::*;
    use crate::clock;
    use crate::options::Options;

    fn name(name: &str) -> ObjectName {
        ObjectName::new("shop", name)
    }

    fn key(service: &str) -> BackendKey {
        BackendKey::tcp(name(service), 80)
    }

    fn host() -> VirtualHost {
        HostPattern::Exact("web.example".into()).into()
    }

    /// A host whose one route leads to a Service.
    fn routes_to(service: &str) -> SnapshotParts {
        let object = ObjectRef::new(Kind::Ingress, name("web"));
        let origin = Origin { object, age: Age { created_s: 0, name: name("web") }, field: "".into(), position: 0 };
        let target = Target { backend: key(service), protocol: AppProtocol::Http, tls: None, fixed: None };
        let action = Action::Forward([WeightedTarget::new(Arc::new(target), 1)].into());
        let route = Arc::new(Route::new(origin, PathMatch::Exact("/".into()), action));
        let mut parts = SnapshotParts::default();
        parts.hosts.insert(&host(), Arc::new(HostRoutes::new(host(), vec![route], None)));
        parts
    }

    /// A change of these units, whose cause is the deletion of an object of that name.
    fn change<const N: usize>(cause: &str, units: [Unit; N]) -> Changes {
        let mut changes = Changes::of(Cause::Deleted { object: ObjectRef::new(Kind::Ingress, name(cause)) });
        units.into_iter().for_each(|unit| changes.units.add(unit));
        changes
    }

    fn routing() -> Unit {
        Unit::Host(host())
    }

    fn endpoints(service: &str) -> Unit {
        Unit::Service(name(service))
    }

    /// A hold and the model beside it: the route of the cluster leads to the Service `new`, which has endpoints.
    struct Bench {
        holding: Holding,
        model: Model,
    }

    impl Bench {
        fn new() -> Self {
            let mut model = Model::new(Options::default());
            model.compiled.parts = routes_to("new");
            let backend = Backend { key: key("new"), endpoints: [].into(), draining: [].into(), requests_max: None };
            model.compiled.parts.backends.insert_mut(key("new"), Arc::new(backend));
            Self { holding: Holding::default(), model }
        }

        /// Begins a hold of a route to a Service. Returns the Services of the previous one.
        fn freeze(&mut self, service: &str) -> Vec<String> {
            let (since, generation, routes) = (clock::now(), Generation(1), routes_to(service));
            let hold = Hold { command: Command::Freeze, since, generation, routes, withheld: Changes::default() };
            self.holding.begin(hold, &mut self.model).iter().map(ToString::to_string).collect()
        }

        fn thaw(&mut self) -> Option<Vec<String>> {
            let released = self.holding.end(Command::Thaw, &mut self.model)?;
            Some(released.iter().map(ToString::to_string).collect())
        }

        /// Checks the publication for these changes: the backend of the route, the backends with endpoints, the causes
        /// and the changed units.
        #[track_caller]
        fn check(&mut self, changes: Changes, want: &[&str]) {
            let outgoing = self.holding.outgoing(changes, &self.model.compiled.parts);
            let got = outgoing.map_or_else(Vec::new, |(parts, Changes { causes, units })| {
                let host = parts.hosts.get(&host()).expect("the host");
                let route = host.routes().first().expect("a route").action.targets().map(|it| &it.backend);
                let mut got: Vec<String> = route.map(|backend| format!("route to {backend}")).collect();
                got.extend(parts.backends.keys().map(|backend| format!("endpoints for {backend}")));
                got.extend(causes.first.iter().map(ToString::to_string));
                got.extend(units.routing.first.iter().chain(&units.endpoints.first).map(ToString::to_string));
                got
            });
            assert_eq!(got, want);
        }
    }

    const NEW: &str = "route to shop/new:80";
    const OLD: &str = "route to shop/old:80";
    const KNOWN: &str = "endpoints for shop/new:80";

    #[test]
    fn without_a_hold_changes_pass_and_nothing_else_is_published() {
        let mut bench = Bench::new();
        bench.check(Changes::default(), &[]);
        bench.check(change("a", []), &[]);
        bench.check(change("a", [routing()]), &[NEW, KNOWN, "Ingress shop/a is gone", "host web.example"]);
        bench.check(change("a", [endpoints("x")]), &[NEW, KNOWN, "Ingress shop/a is gone", "endpoints of shop/x"]);
        assert_eq!(bench.thaw(), None);
        bench.check(Changes::default(), &[]);
        bench.holding.publish_first();
        bench.check(Changes::default(), &[NEW, KNOWN, "start of the control loop"]);
        bench.check(Changes::default(), &[]);
    }

    #[test]
    fn withheld_changes_are_published_at_the_end_of_the_hold() {
        let mut bench = Bench::new();
        bench.freeze("old");
        assert!(bench.holding.commanded() && bench.holding.holds());
        bench.check(Changes::default(), &[OLD, KNOWN, "an operator's freeze"]);
        assert!(!bench.holding.commanded());
        bench.check(change("a", [routing()]), &[]);
        bench.freeze("older");
        bench.check(change("b", [routing()]), &["route to shop/older:80", KNOWN, "an operator's freeze"]);
        bench.thaw();
        let causes = ["an operator's thaw", "Ingress shop/a is gone", "Ingress shop/b is gone"];
        bench.check(Changes::default(), &[&[NEW, KNOWN], &causes[..], &["host web.example"; 2]].concat());
        bench.check(change("c", [routing()]), &[NEW, KNOWN, "Ingress shop/c is gone", "host web.example"]);
    }

    #[test]
    fn endpoints_pass_while_routes_are_held() {
        let mut bench = Bench::new();
        bench.freeze("old");
        bench.check(Changes::default(), &[OLD, KNOWN, "an operator's freeze"]);
        bench.check(change("a", [endpoints("x")]), &[OLD, KNOWN, "Ingress shop/a is gone", "endpoints of shop/x"]);
        bench.model.compiled.parts.backends.remove_mut(&key("new"));
        let both = change("b", [routing(), endpoints("y")]);
        bench.check(both, &[OLD, "Ingress shop/b is gone", "endpoints of shop/y"]);
        bench.thaw();
        let causes = ["an operator's thaw", "Ingress shop/b is gone"];
        bench.check(Changes::default(), &[&[NEW], &causes[..], &["host web.example"]].concat());
    }

    #[test]
    fn endpoints_that_a_hold_lacks_are_compiled_next_and_those_of_the_previous_one_are_released() {
        let mut bench = Bench::new();
        assert_eq!(bench.freeze("new"), [""; 0]);
        assert_eq!(bench.holding.take_next(), BTreeSet::new(), "they are known");
        assert_eq!(bench.freeze("old"), ["shop/new"]);
        assert_eq!(*bench.model.frozen_backends(), [key("old")].into());
        assert_eq!(bench.holding.take_next(), [endpoints("old")].into());
        assert_eq!(bench.holding.take_next(), BTreeSet::new());
        assert_eq!(bench.thaw(), Some(vec!["shop/old".to_owned()]));
        assert_eq!((bench.model.frozen_backends().len(), bench.holding.take_next()), (0, BTreeSet::new()));
    }

    #[test]
    fn only_the_hold_outlives_a_restart_of_the_loop() {
        let mut bench = Bench::new();
        bench.freeze("old");
        bench.holding = bench.holding.without_queue();
        assert!(bench.holding.holds() && !bench.holding.commanded());
        assert_eq!(bench.holding.take_next(), BTreeSet::new());
        bench.check(change("a", [endpoints("x")]), &[OLD, KNOWN, "Ingress shop/a is gone", "endpoints of shop/x"]);
    }
}
