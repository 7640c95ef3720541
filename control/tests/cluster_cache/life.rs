//! One run of a process with a cache: it resumes from the restored state and sends the events of the model, by watches,
//! by lists and by lists concurrent with watches.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use fastrand::Rng;
use prometheus::Registry;
use tidegate_control::options::UnconfirmedRemovals;
use tidegate_control::{Cache, CacheMetrics, CacheOptions, Restored, Sink};

use crate::model::{KINDS, Model, object, object_name, version};

/// The maximum number of versions by which a concurrent list may lag behind the model.
const LAG_MAX: u64 = 4;

pub(crate) fn options(folder: &Path) -> CacheOptions {
    CacheOptions {
        folder: folder.to_owned(),
        key_file: Some(folder.join("key")),
        write_budget: 1 << 40,
        flush_after: Duration::from_millis(1),
        server: "https://cluster.example".to_owned(),
    }
}

/// Waits this long, without cancellation.
pub(crate) fn pause(length: Duration) {
    let (_open, never) = channel::<()>();
    assert!(never.recv_timeout(length).is_err());
}

/// Opens the cache of a folder for the whole model.
pub(crate) fn open(folder: &Path, seed: u64) -> (Option<Cache>, Restored) {
    let metrics = CacheMetrics::register(&Registry::new()).unwrap();
    let collections = KINDS.map(|kind| Model { seed, kind }.kept()).to_vec();
    // Lists of this model may lack any number of objects.
    let removals = UnconfirmedRemovals { share: 1.0, count: usize::MAX };
    Cache::open(options(folder), (collections, Vec::new()), removals, &metrics)
}

/// The events of a kind.
struct Teller {
    model: Model,
    sink: Sink,
    /// The latest version sent.
    reached: u64,
}

impl Teller {
    fn event(&mut self) {
        self.reached += 1;
        let happened = self.model.at(self.reached);
        let raw = happened.content.map(|content| object(&happened.name, content, self.reached));
        self.sink.event(&object_name(&happened.name), raw.as_deref(), Some(&version(self.reached)));
    }

    /// A list at the latest version when it ends, or before; events are sent meanwhile.
    fn list(&mut self, ahead: bool, rng: &mut Rng) {
        let begun = self.reached;
        let of = if ahead { begun + LAG_MAX } else { begun };
        self.sink.list_begins();
        for (name, content) in self.model.state(of) {
            self.sink.listed(&object_name(&name), &object(&name, content, of));
            if rng.u8(..4) == 0 && self.reached < begun + LAG_MAX {
                self.event();
            }
        }
        match rng.u8(..8) {
            0 => self.sink.list_failed(),
            _ if of >= self.reached => {
                self.reached = of;
                self.sink.list_done(version(of), true, true);
            }
            _ => self.sink.list_done(version(self.reached), true, false),
        }
    }
}

/// Lives until it is killed.
pub(crate) fn live(folder: &Path, seed: u64, life: u64) {
    let mut rng = Rng::with_seed(seed ^ life << 32);
    let (cache, restored) = open(folder, seed);
    let cache = cache.expect("a cache");
    cache.reached_by().learn(&BTreeSet::new(), None);
    let mut tellers = KINDS.map(|kind| {
        let model = Model { seed, kind };
        let resume: Option<u64> = restored.resume(&model.collection()).map(|version| version.parse().unwrap());
        let sink = cache.sink(&model.collection(), resume.is_some()).unwrap();
        let teller = Teller { model, sink, reached: resume.unwrap_or_default() };
        if resume.is_none() {
            teller.sink.list_begins();
            teller.sink.list_done(version(0), true, true);
        }
        teller
    });
    println!("alive");
    loop {
        let teller = &mut tellers[rng.usize(..KINDS.len())];
        match rng.u8(..20) {
            0 => {
                let ahead = rng.bool();
                teller.list(ahead, &mut rng);
            }
            1 => std::thread::yield_now(),
            _ => teller.event(),
        }
        // The pauses let the kill hit every step of the writer, and keep the model finite.
        pause(Duration::from_micros(rng.u64(..400)));
    }
}
