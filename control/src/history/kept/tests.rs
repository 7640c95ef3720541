//! Models are published one after the other; the remaining ones are compared.

use std::sync::Arc;
use std::time::SystemTime;

use tidegate_config::model::{Action, HostPattern, HostRoutes, Origin, PathMatch, Route, VirtualHost};
use tidegate_config::object::{Age, Kind, ObjectName, ObjectRef};

use super::*;
use crate::command::Command;
use crate::compile::ChangedUnits;
use crate::history::{Cause, Changes};

/// Consecutive models, and those that are kept.
struct Bed {
    kept: RetainedModels,
    parts: SnapshotParts,
    generation: u64,
    held: Option<Generation>,
    /// The changed units of the last publication.
    changed: Vec<String>,
}

impl Bed {
    fn keeping(models_max: usize, routes_max: usize) -> Self {
        let (kept, parts) = (RetainedModels::new(models_max, routes_max), SnapshotParts::default());
        Self { kept, parts, generation: 0, held: None, changed: Vec::new() }
    }

    fn publish(&mut self, changes: Changes) -> u64 {
        self.generation += 1;
        let (generation, held) = (Generation(self.generation), self.held);
        let mut publication = Publication { generation, at: SystemTime::UNIX_EPOCH, changes, held, coalesced: None };
        self.kept.record(&mut publication, &self.parts);
        self.changed = publication.changes.units.routing.first.iter().map(ToString::to_string).collect();
        self.generation
    }

    /// Sets the number of routes of hosts, 0 to remove one, and publishes the changes with the counts of the compiler.
    fn change(&mut self, hosts: &[(&str, usize)]) -> u64 {
        let mut changes = Changes::default();
        for (name, routes) in hosts {
            changes.units.add(Unit::Host(host(name)));
            changes.units.replaced += self.parts.hosts.get(&host(name)).map_or(0, |before| before.len());
            changes.units.added += routes;
            self.put(name, *routes);
        }
        self.publish(changes)
    }

    fn put(&mut self, name: &str, routes: usize) {
        if routes == 0 {
            self.parts.hosts.remove(&host(name));
            return;
        }
        let routes = (0..routes).map(|_| route(name)).collect();
        self.parts.hosts.insert(&host(name), Arc::new(HostRoutes::new(host(name), routes, None)));
    }

    fn endpoints(&mut self) -> u64 {
        let mut changes = Changes::default();
        changes.units.add(Unit::Service(ObjectName::new("shop", "cart")));
        self.publish(changes)
    }

    /// Publishes the routes of an earlier generation; returns the current ones.
    fn roll_back(&mut self, generation: u64) -> SnapshotParts {
        let command = Command::Rollback(Generation(generation));
        let before = self.kept.parts(Generation(generation)).expect("kept").clone();
        self.held = Some(Generation(generation));
        let now = std::mem::replace(&mut self.parts, before);
        self.publish(Changes::of(Cause::Commanded { command }));
        now
    }

    /// Publishes these again, after `withheld` routes were compiled behind the hold.
    fn thaw(&mut self, parts: SnapshotParts, withheld: usize) -> u64 {
        (self.held, self.parts) = (None, parts);
        let changes = Changes::of(Cause::Commanded { command: Command::Thaw });
        let units = ChangedUnits { replaced: withheld, added: withheld, ..ChangedUnits::default() };
        self.publish(Changes { units, ..changes })
    }

    /// Checks the hosts of a restored generation, each with its number of routes.
    #[track_caller]
    fn check(&self, generation: u64, want: Option<&str>) {
        let texts = |parts: &SnapshotParts| {
            let hosts = parts.hosts.iter().map(|(host, routes)| format!("{host}:{}", routes.len()));
            let mut hosts: Vec<String> = hosts.collect();
            hosts.sort();
            hosts.join(" ")
        };
        assert_eq!(self.kept.parts(Generation(generation)).map(texts).as_deref(), want, "generation {generation}");
    }

    #[track_caller]
    fn check_range(&self, oldest: u64, newest: u64) {
        assert_eq!(self.kept.range(), Some((Generation(oldest), Generation(newest))));
    }
}

fn host(name: &str) -> VirtualHost {
    HostPattern::Exact(name.into()).into()
}

fn route(name: &str) -> Arc<Route> {
    let name = ObjectName::new("shop", name);
    let (object, age) = (ObjectRef::new(Kind::Ingress, name.clone()), Age { created_s: 0, name });
    let origin = Origin { object, age, field: "spec".into(), position: 0 };
    Arc::new(Route::new(origin, PathMatch::Prefix("".into()), Action::Forward(Box::default())))
}

#[test]
fn a_generation_has_the_routes_of_the_last_change() {
    let mut bed = Bed::keeping(10, 10);
    bed.endpoints();
    assert_eq!(bed.kept.range(), None);
    bed.change(&[("a", 1)]);
    bed.endpoints();
    bed.change(&[("a", 2)]);
    bed.endpoints();
    for (generation, want) in
        [(1, None), (2, Some("a:1")), (3, Some("a:1")), (4, Some("a:2")), (5, Some("a:2")), (6, None)]
    {
        bed.check(generation, want);
    }
    bed.check_range(2, 5);
}

#[test]
fn kept_generations_are_limited_in_number_and_in_routes() {
    let mut bed = Bed::keeping(4, 1000);
    for routes in 1..=9 {
        bed.change(&[("a", routes)]);
    }
    bed.check_range(6, 9);

    // Of the models except the last two, 10 and 5 routes that do not serve may be kept.
    let mut bed = Bed::keeping(100, 5);
    for _ in 1..=9 {
        bed.change(&[("a", 10)]);
    }
    bed.check_range(7, 9);
    // Small ones take less.
    for _ in 10..=20 {
        bed.change(&[("b", 1)]);
    }
    bed.check_range(9, 20);
}

#[test]
fn a_change_that_removes_everything_can_be_rolled_back() {
    let mut bed = Bed::keeping(100, 5);
    let good = bed.change(&[("a", 50), ("b", 50)]);
    bed.change(&[("a", 0), ("b", 0)]);
    bed.check(good, Some("a:50 b:50"));
    // Later changes do not displace it either.
    for _ in 0..4 {
        bed.change(&[("c", 1)]);
    }
    bed.check(good, Some("a:50 b:50"));
}

#[test]
fn changes_that_remove_everything_step_by_step_can_be_rolled_back() {
    let mut bed = Bed::keeping(100, 5);
    let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let good = bed.change(&names.iter().map(|name| (name.as_str(), 10)).collect::<Vec<_>>());
    for name in &names {
        bed.change(&[(name, 0)]);
    }
    for _ in 0..4 {
        bed.change(&[("new", 1)]);
    }
    bed.check_range(good, bed.generation);
}

#[test]
fn the_last_held_generation_is_kept() {
    let mut bed = Bed::keeping(3, 5);
    let good = bed.change(&[("a", 10)]);
    let bad = bed.change(&[("a", 9)]);
    let now = bed.roll_back(good);
    bed.endpoints();
    bed.check(bed.generation, Some("a:10"));
    bed.check_range(good, bed.generation);
    let thawed = bed.thaw(now, 100_000);
    bed.check(thawed, Some("a:9"));
    for routes in 1..=8 {
        bed.change(&[("a", routes)]);
    }
    bed.check(good, Some("a:10"));
    bed.check(bad, None);
    bed.check(thawed, None);
    bed.check_range(bed.generation - 1, bed.generation);
    assert_eq!(bed.kept.apart(), Some(Generation(good)));
    // Another hold releases it.
    let now = bed.roll_back(bed.generation - 1);
    bed.thaw(now, 0);
    bed.change(&[("a", 3)]);
    bed.check(good, None);
    assert_eq!(bed.kept.models.len(), 3, "the one that was held is among them");
}

/// Whatever the limits, also with a hold.
#[test]
fn the_generation_before_the_newest_is_kept() {
    let mut bed = Bed::keeping(1, 0);
    bed.change(&[("a", 10)]);
    let now = bed.roll_back(1);
    bed.thaw(now, 0);
    for routes in 1..=5 {
        bed.change(&[("a", routes), ("b", 1)]);
        bed.change(&[("a", 0), ("b", 0)]);
        bed.check(bed.generation - 1, Some(&format!("a:{routes} b:1")));
        assert!(bed.kept.models.len() <= 3);
    }
}

#[test]
fn a_held_generation_counts_routes_shared_with_dropped_ones() {
    let mut bed = Bed::keeping(3, 5);
    bed.change(&[("a", 10), ("b", 10)]);
    bed.change(&[("b", 1)]);
    let now = bed.roll_back(1);
    bed.thaw(now, 0);
    for routes in 1..=5 {
        bed.change(&[("a", routes)]);
    }
    assert_eq!(bed.kept.models[0].replaced, 20);
}

#[test]
fn a_thaw_counts_the_differing_routes_only() {
    let mut bed = Bed::keeping(100, 5);
    let first = bed.change(&[("a", 10)]);
    bed.change(&[("b", 1)]);
    bed.change(&[("b", 2)]);
    let good = bed.change(&[("b", 1)]);
    bed.change(&[("b", 0)]);
    let now = bed.roll_back(good);
    bed.thaw(now, 100_000);
    bed.change(&[("c", 1)]);
    bed.change(&[("c", 2)]);
    bed.check_range(first, bed.generation);
}

#[test]
fn a_command_names_the_units_that_it_changes() {
    let mut bed = Bed::keeping(10, 100);
    let first = bed.change(&[("a", 1), ("b", 1)]);
    bed.change(&[("b", 2), ("c", 1)]);
    let now = bed.roll_back(first);
    assert_eq!(bed.changed, ["host b", "host c"]);
    // The changes that were compiled during the hold may cancel each other.
    bed.thaw(now, 7);
    assert_eq!(bed.changed, ["host b", "host c"]);
}

#[test]
fn a_freeze_and_its_thaw_add_no_generation() {
    let mut bed = Bed::keeping(2, 0);
    let good = bed.change(&[("a", 1)]);
    bed.change(&[("a", 0)]);
    for _ in 0..3 {
        let now = bed.roll_back(bed.generation);
        bed.thaw(now, 0);
    }
    bed.check(good, Some("a:1"));
    bed.check_range(good, bed.generation);
}

#[test]
fn a_restart_replaces_every_generation() {
    let mut bed = Bed::keeping(100, 5);
    bed.change(&[("a", 10)]);
    for _ in 0..5 {
        bed.put("a", 10);
        bed.publish(Changes::of(Cause::Started));
    }
    bed.check_range(bed.generation - 2, bed.generation);
}
