//! The choice of the map that holds the hosts of a snapshot: the measurement behind
//! `docs/decisions/0001-persistent-maps.md`.
//!
//! Each candidate publishes a change as the control loop does: the next version is made from the current one, which
//! readers may still hold, and the current one is dropped once it is replaced.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use foldhash::fast::RandomState;
use rpds::HashTrieMapSync;
use tidegate_bench::allocation::{Allocations, counted, live_bytes};
use tidegate_bench::clock::timed;

type Name = Arc<str>;
/// Stands for the routes of a host: one pointer, as in the snapshot.
type Value = Arc<u64>;
type Plain = HashMap<Name, Value, RandomState>;

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
const CHANGES: usize = 400;
const LOOKUPS: usize = 200_000;

trait Candidate {
    fn insert(&mut self, name: Name, value: Value);
    /// The next version with one more value. The previous version is dropped on return.
    fn change(&mut self, name: Name, value: Value);
    fn find(&self, name: &str) -> Option<&Value>;
}

struct Trie(HashTrieMapSync<Name, Value, RandomState>);

impl Candidate for Trie {
    fn insert(&mut self, name: Name, value: Value) {
        self.0.insert_mut(name, value);
    }
    fn change(&mut self, name: Name, value: Value) {
        let mut next = self.0.clone();
        next.insert_mut(name, value);
        self.0 = next;
    }
    fn find(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }
}

struct Sharded<const SHARDS: usize> {
    hasher: RandomState,
    shards: Arc<[Arc<Plain>]>,
}

impl<const SHARDS: usize> Sharded<SHARDS> {
    fn new() -> Self {
        Self { hasher: RandomState::default(), shards: (0..SHARDS).map(|_| Arc::default()).collect() }
    }

    fn shard<K: Hash + ?Sized>(&self, name: &K) -> usize {
        // Not the bits by which the shard's own map chooses its bucket: that one has a seed of its own.
        usize::try_from(self.hasher.hash_one(name) >> 32).unwrap_or(0) % SHARDS
    }
}

impl<const SHARDS: usize> Candidate for Sharded<SHARDS> {
    fn insert(&mut self, name: Name, value: Value) {
        let number = self.shard(&*name);
        if let Some(shard) = Arc::get_mut(&mut self.shards).and_then(|shards| shards.get_mut(number)) {
            Arc::make_mut(shard).insert(name, value);
        }
    }
    fn change(&mut self, name: Name, value: Value) {
        let number = self.shard(&*name);
        let current = Arc::clone(&self.shards);
        if let Some(shard) = Arc::make_mut(&mut self.shards).get_mut(number) {
            Arc::make_mut(shard).insert(name, value);
        }
        drop(current);
    }
    fn find(&self, name: &str) -> Option<&Value> {
        self.shards.get(self.shard(name))?.get(name)
    }
}

struct Whole(Arc<Plain>);

impl Candidate for Whole {
    fn insert(&mut self, name: Name, value: Value) {
        Arc::make_mut(&mut self.0).insert(name, value);
    }
    fn change(&mut self, name: Name, value: Value) {
        let current = Arc::clone(&self.0);
        Arc::make_mut(&mut self.0).insert(name, value);
        drop(current);
    }
    fn find(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }
}

fn main() {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header([
        "map",
        "hosts",
        "allocations a change",
        "bytes a change",
        "median µs a change",
        "ns a look-up",
        "bytes a host",
    ]);
    for size in SIZES {
        measure(&mut table, "rpds HashTrieMapSync", size, || {
            Trie(HashTrieMapSync::new_with_hasher_and_ptr_kind(RandomState::default()))
        });
        measure(&mut table, "256 shards", size, Sharded::<256>::new);
        measure(&mut table, "4096 shards", size, Sharded::<4096>::new);
        measure(&mut table, "HashMap, cloned whole", size, || Whole(Arc::default()));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
}

#[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn measure<C: Candidate>(table: &mut Table, title: &str, size: usize, empty: impl FnOnce() -> C) {
    let names: Vec<Name> = (0..size).map(|i| format!("app-{i:06}.example.com").into()).collect();
    let values: Vec<Value> = (0..size as u64).map(Arc::new).collect();
    let before = live_bytes();
    let mut map = empty();
    for (name, value) in names.iter().zip(&values) {
        map.insert(Arc::clone(name), Arc::clone(value));
    }
    let live = live_bytes() - before;

    let mut times: Vec<Duration> = Vec::with_capacity(CHANGES);
    let mut allocations = Allocations::default();
    for name in spread(&names, CHANGES) {
        let value = Arc::new(0);
        let (((), took), counts) = counted(|| timed(|| map.change(Arc::clone(name), value)));
        allocations += counts;
        times.push(took);
    }
    times.sort_unstable();

    let (found, took) = timed(|| spread(&names, LOOKUPS).filter(|name| black_box(map.find(name)).is_some()).count());
    assert_eq!(found, LOOKUPS, "every name is there");
    table.add_row([
        title.to_owned(),
        size.to_string(),
        format!("{:.1}", allocations.count as f64 / CHANGES as f64),
        format!("{:.0}", allocations.bytes as f64 / CHANGES as f64),
        format!("{:.2}", times.get(CHANGES / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6)),
        format!("{:.0}", took.as_secs_f64() * 1e9 / LOOKUPS as f64),
        format!("{:.0}", live as f64 / size as f64),
    ]);
}

/// Names in an order that caches cannot predict: steps of a prime larger than any size.
fn spread(names: &[Name], count: usize) -> impl Iterator<Item = &Name> {
    (0..count).filter_map(|i| names.get(i * 1_000_003 % names.len()))
}
