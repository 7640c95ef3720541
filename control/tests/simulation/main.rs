//! Seeded simulation of the control loop with random events, repeats, deletions, batches, lost events, watches that
//! overtake each other, late, partial and wrong lists, kinds that are removed and defined again, restarts of the loop
//! and the process, sleep, and an operator who holds and thaws routes. After each quiet point the incremental result
//! must equal a compilation from scratch; the audit must never find a difference.
//!
//! `SIM_SEED=7` replays one seed, `SIM_SEEDS=10000` plays that many; the default is a sample that takes seconds. A seed
//! that fails shows its shortest schedule.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

mod check;
mod cluster;
mod deis;
mod gateways;
mod lists;
mod naive;
mod play;
mod schedule;

use std::time::Duration;

use play::Simulation;
use schedule::{STEPS, Schedule};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_control::{Collection, Event, World};

#[test]
fn incremental_equals_full() {
    let number = |name: &str| option_env(name).and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("SIM_SEED") {
        return Schedule::of(seed).play();
    }
    let seeds = number("SIM_SEEDS").unwrap_or(if cfg!(debug_assertions) { 60 } else { 400 });
    for seed in 0..seeds {
        Schedule::of(seed).play();
    }
    println!("{seeds} seeds of {STEPS} events each: incremental equals full");
}

#[allow(clippy::disallowed_methods, reason = "the seed of a replay comes from the environment")]
fn option_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The list of a required kind may be delayed for ever: the loop must not start before.
#[test]
fn nothing_is_published_before_every_required_kind_was_listed() {
    let mut simulation = Simulation::new(1);
    for kind in [Kind::Ingress, Kind::Service, Kind::Deployment, Kind::AuthPolicy] {
        simulation.list(kind);
        assert!(!simulation.reconcile_once());
    }
    simulation.now += Duration::from_secs(3600);
    assert!(!simulation.reconcile_once());
    simulation.list(Kind::EndpointSlice);
    assert!(!simulation.reconcile_once(), "the grace of the optional kinds has begun");
    simulation.now = simulation.reconciler.wake().expect("an end of the grace");
    assert!(simulation.reconcile_once(), "the grace of the optional kinds is over");
}

#[test]
fn a_list_that_removes_most_acts_only_when_confirmed() {
    let mut simulation = Simulation::new(2);
    simulation.cluster.clear(Kind::Service);
    for number in 0..8 {
        let object = ObjectRef::new(Kind::Service, ObjectName::new("red", format!("b{number}")));
        simulation.cluster.put_service(&object);
    }
    for kind in Kind::ALL {
        simulation.list(kind);
    }
    simulation.quiet();
    simulation.cluster.clear(Kind::Service);
    let collection = Collection { kind: Kind::Service, namespace: None };
    let event = simulation.cluster.list(Kind::Service, simulation.now);
    assert_eq!(simulation.reconciler.observe(event, simulation.now), Some(collection));
    assert_eq!(services(simulation.reconciler.model().world()), 8);
    let event = simulation.cluster.list(Kind::Service, simulation.now);
    assert_eq!(simulation.reconciler.observe(event, simulation.now), None);
    assert_eq!(services(simulation.reconciler.model().world()), 0);
}

/// A doubt about a kind ends with the kind: after it is served again, the first list that lacks most objects does not
/// confirm an earlier one. The list in between is incomplete, and so decides nothing.
#[test]
fn a_doubt_ends_when_its_kind_is_no_longer_served() {
    let mut simulation = Simulation::new(2);
    let collection = Collection { kind: Kind::Service, namespace: None };
    simulation.cluster.clear(Kind::Service);
    for number in 0..8 {
        simulation.cluster.put_service(&ObjectRef::new(Kind::Service, ObjectName::new("red", format!("b{number}"))));
    }
    let all = || simulation.cluster.list(Kind::Service, simulation.now);
    let [listed, mut again] = [all(), all()];
    if let Event::Listed { complete, .. } = &mut again {
        *complete = false;
    }
    simulation.cluster.clear(Kind::Service);
    let lacks = || simulation.cluster.list(Kind::Service, simulation.now);
    let gone = Event::Unserved { collection: collection.clone(), received: simulation.now };
    let expected = [
        (listed, None, 8),
        (lacks(), Some(collection.clone()), 8),
        (gone, None, 0),
        (again, None, 8),
        (lacks(), Some(collection), 8),
        (lacks(), None, 0),
    ];
    for (event, unconfirmed, left) in expected {
        let told = format!("{event:?}");
        assert_eq!(simulation.reconciler.observe(event, simulation.now), unconfirmed, "{told}");
        assert_eq!(services(simulation.reconciler.model().world()), left, "{told}");
    }
}

fn services(world: &World) -> usize {
    world.names_of(Kind::Service, None).count()
}

#[test]
fn a_failing_schedule_is_reduced_to_the_steps_that_make_it_fail() {
    let all = Schedule::of(3);
    let needed = [all.steps[17], all.steps[18], all.steps[211]];
    let fails = |schedule: &Schedule| needed.iter().all(|step| schedule.steps.contains(step));
    assert_eq!(all.shortest(fails).steps, needed);
}
