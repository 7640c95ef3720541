//! kill -9 at any moment: the store opens, and has a state that the cluster had at the stored version.
//!
//! Each run is this program again, killed after a time that depends on the seed. For more runs, and other seeds:
//!
//! ```text
//! KILLS=5000 KILL_SEED=7 cargo test --release -p tidegate-control-tests --test cluster_cache -- --ignored --nocapture
//! many
//! ```

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fastrand::Rng;
use tidegate_control::Restored;

use crate::life::{live, open, pause};
use crate::model::{KINDS, Model, State, uid};

/// The environment variable with the folder of a run.
const FOLDER: &str = "TIDEGATE_TEST_CACHE";
const LIFE: &str = "TIDEGATE_TEST_LIFE";

#[test]
fn every_kill_leaves_a_consistent_state() {
    kills(40, 4711);
}

#[test]
#[ignore = "takes minutes; the number of kills and the seed are set by KILLS and KILL_SEED"]
fn many_kills_leave_consistent_states() {
    let number = |name: &str| std::env::var_os(name).and_then(|text| text.to_str()?.parse().ok());
    kills(number("KILLS").unwrap_or(3000), number("KILL_SEED").unwrap_or(1));
}

/// The process that is killed; without a folder it does nothing.
#[test]
#[ignore = "it is a part of the tests above, which start it"]
fn a_life() {
    let text = |name: &str| std::env::var_os(name).and_then(|text| text.into_string().ok());
    if let (Some(folder), Some(life)) = (text(FOLDER), text(LIFE)) {
        let (seed, life) = life.split_once(' ').unwrap();
        live(Path::new(&folder), seed.parse().unwrap(), life.parse().unwrap());
    }
}

fn kills(kills: u64, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key"), [7; 32]).unwrap();
    let mut rng = Rng::with_seed(seed);
    let (mut reached, mut moved) = ([0; KINDS.len()], 0);
    for life in 0..kills {
        kill_one(folder.path(), (seed, life), Duration::from_micros(rng.u64(..80_000)));
        let (cache, restored) = open(folder.path(), seed);
        cache.expect("the store opens").close();
        let now = KINDS.map(|kind| check(Model { seed, kind }, &restored, life));
        for (before, now) in reached.iter().zip(now) {
            assert!(now >= *before, "life {life} of seed {seed}: back from {before} to {now}");
        }
        moved += u64::from(now != reached);
        reached = now;
        if life % 500 == 499 {
            println!("{} kills: versions {reached:?}", life + 1);
        }
    }
    println!("{kills} kills, of which {moved} after something was written: {reached:?}");
    assert!(moved > kills / 4, "lives wrote something before they were killed: {moved} of {kills}");
}

/// Runs one life for a while.
fn kill_one(folder: &Path, (seed, life): (u64, u64), after: Duration) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::a_life", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(LIFE, format!("{seed} {life}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("alive")), "it lives");
    pause(after);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Restores a kind; returns its version, and checks that its objects are those of the model at that version.
#[track_caller]
fn check(model: Model, restored: &Restored, life: u64) -> u64 {
    let collection = restored.collections.iter().find(|restored| restored.collection == model.collection());
    let Some(collection) = collection else { return 0 };
    let version = collection.resume.as_ref().expect("a version to go on from").parse().unwrap();
    let uid_of = |content: u64| tidegate_config::object::Uid::parse(&uid(content));
    let want: Vec<(String, _)> =
        model.state(version).into_iter().map(|(name, content)| (name, uid_of(content))).collect();
    let got: Vec<(String, _)> =
        collection.objects.iter().map(|object| (object.meta.object.name.name.to_string(), object.meta.uid)).collect();
    assert_eq!(got, want, "life {life} of {:?} at {version}", model.kind);
    assert!(State::len(&model.state(version)) == got.len());
    version
}
