//! Changes of a neighbour of large objects that change permanently: the number of batches until such a change is
//! published, and the compiled units. The durations are in docs/benchmarks.md.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_config::model::PathMatch;
use tidegate_config::object::Kind;
use tidegate_control::options::Pace;

use crate::bench::Bench;
use crate::growth::{self, HOSTS, below, entry};
use crate::hostile::loud;
use crate::manifests::{ingress_of, service, slice};

/// Unchanged hosts of the same tenant.
const BYSTANDERS: usize = 50;
/// The number of edits by the neighbour in a case.
const EDITS: usize = 3;
const MEBIBYTE: usize = 1 << 20;

/// The Ingresses of the loud tenant in a round.
type Edited = fn(round: usize) -> Vec<Value>;

/// The source of the loud tenant's edits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// By a watch.
    Watched,
    /// By a list of everything.
    Listed,
    /// A list that has waited long enough for a turn of its own.
    ListedLongAgo,
}

/// The paths of the neighbour after this number of edits.
fn neighbour(edits: usize) -> Value {
    ingress_of("quiet/calm", "neighbour.example", "calm", &["/", &format!("/edited-{edits}")])
}

impl Bench {
    /// The neighbour, bystanders, and the Service that the loud tenant's Ingresses lead to.
    fn with_bystanders() -> Self {
        let mut bench = Self::quiet();
        bench.apply(Kind::Service, service("loud/x"));
        bench.apply(Kind::EndpointSlice, slice("loud/x", &["10.0.0.2"]));
        for number in 0..BYSTANDERS {
            bench.apply(Kind::Ingress, bystander(number));
        }
        bench.settle();
        bench
    }

    fn edit(&mut self, edited: Vec<Value>, told: Told, edits: usize) {
        if told == Told::Watched {
            return edited.into_iter().for_each(|ingress| self.apply(Kind::Ingress, ingress));
        }
        let mut all: Vec<Value> = edited.into_iter().chain((0..BYSTANDERS).map(bystander)).collect();
        all.push(neighbour(edits));
        assert_eq!(self.list(Kind::Ingress, &all), None);
    }
}

fn bystander(number: usize) -> Value {
    loud(&format!("by{number}"), &format!("by{number}.example"), &["/"])
}

/// The loud tenant edits all of its objects before the neighbour's edit and again after every batch. Checks the number
/// of batches until the neighbour's edit is published, that only the last of them compiles its host, and the maximum
/// number of hosts and Services that a batch compiles.
#[track_caller]
fn check(what: &str, edited: Edited, told: Told, batches_max: usize, units_max: (usize, usize)) {
    let mut bench = Bench::with_bystanders();
    edited(0).into_iter().for_each(|ingress| bench.apply(Kind::Ingress, ingress));
    bench.apply(Kind::Ingress, neighbour(0));
    bench.settle();
    let mut round = 0;
    for edits in 1..=EDITS {
        let (before, mut batches) = (bench.neighbour().0, 0);
        round += 1;
        bench.edit(edited(round), told, edits - 1);
        if told == Told::ListedLongAgo {
            bench.now += Pace::default().share.slow_age_max;
        }
        bench.apply(Kind::Ingress, neighbour(edits));
        loop {
            let step = bench.reconciler.reconcile(bench.now).expect("the neighbour's edit waits");
            let [hosts, services] = ["host", "service"].map(|unit| step.touched.compiled.get(unit).map_or(0, |it| *it));
            assert!(hosts <= units_max.0 && services <= units_max.1, "{what}: {hosts} hosts, {services} Services");
            batches += 1;
            let after = bench.neighbour().0;
            let path = PathMatch::prefix(&format!("/edited-{edits}")).unwrap();
            if after.routes().iter().any(|route| route.path == path) {
                assert!(step.published.is_some(), "{what}: it is compiled and not published");
                break;
            }
            assert!(Arc::ptr_eq(&before, &after), "{what}: the neighbour's host was compiled without it");
            assert!(batches < batches_max, "{what}: not published after {batches} batches");
            round += 1;
            bench.edit(edited(round), told, edits);
        }
        bench.settle();
    }
}

fn with_annotation(name: &str, key: &str, value: String) -> Value {
    let mut ingress = loud(name, "loud.example", &["/"]);
    ingress["metadata"]["annotations"] = json!({key: value});
    ingress
}

/// 5,000 Ingresses for one host.
fn many(round: usize) -> Vec<Value> {
    let timeout = format!("{}s", round % 60 + 1);
    (0..5000)
        .map(|number| with_annotation(&format!("i{number}"), "tidegate.io/read-timeout", timeout.clone()))
        .collect()
}

/// 10,000 paths in one Ingress.
fn wide(round: usize) -> Vec<Value> {
    let paths: Vec<String> = (0..10_000).map(|number| format!("/{round}/{number}")).collect();
    vec![loud("x", "loud.example", &paths.iter().map(String::as_str).collect::<Vec<_>>())]
}

/// Many hosts and as many TLS entries in one Ingress.
fn secured(round: usize) -> Vec<Value> {
    let tls: Vec<Value> = (0..HOSTS).map(|number| entry(&below(), &format!("s{round}-{number}"))).collect();
    vec![growth::wide(|_| "x".to_owned(), &tls)]
}

/// An annotation of 1 MiB that cannot be read.
fn unreadable(round: usize) -> Vec<Value> {
    let digit = char::from(b'1' + u8::try_from(round % 9).unwrap());
    vec![with_annotation("x", "tidegate.io/connect-timeout", digit.to_string().repeat(MEBIBYTE))]
}

/// An annotation of 1 MiB that no controller reads.
fn unread(round: usize) -> Vec<Value> {
    vec![with_annotation("x", "example.com/notes", format!("{round}{}", "x".repeat(MEBIBYTE)))]
}

#[test]
fn permanent_edits_do_not_delay_a_neighbour() {
    let share = Pace::default().share;
    let (both, own) = ((2, 2), (1, 1));
    check("5,000 Ingresses", many, Told::Watched, (5000 + 1_usize).div_ceil(share.batch_max), both);
    check("10,000 paths", wide, Told::Watched, 1, both);
    check("many hosts and TLS entries", secured, Told::Watched, 1, (HOSTS + 1, 2));
    check("an unreadable annotation of 1 MiB", unreadable, Told::Watched, 1, both);
    check("an unread annotation of 1 MiB", unread, Told::Watched, 1, own);
    // Objects of a list wait in the slow lane, and watch events overtake them.
    check("5,000 Ingresses in a list", many, Told::Listed, 1, own);
    check("10,000 paths in a list", wide, Told::Listed, 1, own);
    // After its maximum wait, a list gets one turn in between.
    check("5,000 Ingresses in a list of long ago", many, Told::ListedLongAgo, 2, both);
    check("10,000 paths in a list of long ago", wide, Told::ListedLongAgo, 2, both);
}
