//! `cache`: bytes that the cluster cache writes to disk for a change, and the time to read it back.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use prometheus::Registry;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_config::object::{Kind, ObjectName};
use tidegate_control::options::UnconfirmedRemovals;
use tidegate_control::{Cache, CacheMetrics, CacheOptions, Collection, Restored, Sink, StoredCollection};

use crate::clock::{now, pause, timed};
use crate::size::Size;
use crate::table::{Output, figure, spread, table};

/// The maximum time for a batch.
const BATCH_MAX: Duration = Duration::from_secs(60);
const KINDS: [Kind; 3] = [Kind::Ingress, Kind::Service, Kind::EndpointSlice];

/// Measures the bytes that the cluster cache writes, and the time to read it.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The size of the measurement; a smoke run fails if an unnecessary write is made.
    #[arg(long, value_enum, default_value = "full")]
    size: Size,
    /// The number of Ingresses, each with a Service and a slice of its own; comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000")]
    ingresses: Vec<u64>,
    /// The number of batches of each size, and of complete reads.
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    #[command(flatten)]
    output: Output,
}

/// The measurements with this number of Ingresses.
#[derive(Debug, Serialize)]
struct Row {
    ingresses: u64,
    /// Bytes of the objects as received.
    raw_bytes: u64,
    /// Bytes written for the first lists.
    first_bytes: f64,
    /// Bytes written for one batch of this number of changed Ingresses.
    batches: Vec<(u64, Vec<f64>)>,
    /// Bytes written when each of a hundred Ingresses got another managed field.
    unchanged_bytes: f64,
    file_bytes: u64,
    /// Seconds from a closed file to projected objects.
    read_s: Vec<f64>,
}

/// Runs the command.
///
/// # Errors
/// When the cache cannot be used, or at smoke size when an irrelevant change is written.
pub fn run(mut args: Args) -> anyhow::Result<()> {
    if args.size == Size::Smoke {
        (args.ingresses, args.rounds) = (vec![200], 1);
    }
    let mut rows = Vec::new();
    for ingresses in args.ingresses {
        let row = measure(ingresses, args.rounds)?;
        ensure!(args.size == Size::Full || row.unchanged_bytes < 1.0, "an irrelevant change was written: {row:?}");
        rows.push(row);
    }
    args.output.tell(&rows, |rows| print(rows))
}

fn measure(ingresses: u64, rounds: u64) -> anyhow::Result<Row> {
    let folder = tempfile::tempdir()?;
    let mut bed = Bed::open(folder.path())?;
    let raw_bytes = bed.list(ingresses)?;
    let first_bytes = bed.written();
    let mut batches = Vec::new();
    for changes in [1, 10, 100] {
        let bytes = (0..rounds).map(|_| bed.change(changes)).collect::<anyhow::Result<Vec<f64>>>()?;
        batches.push((changes, bytes));
    }
    let unchanged_bytes = bed.touch(100)?;
    bed.cache.close();
    let file_bytes = folder.path().join("cluster-cache/objects.redb").metadata()?.len();
    let mut read_s = Vec::new();
    for _ in 0..rounds {
        let metrics = CacheMetrics::register(&Registry::new())?;
        let ((cache, restored), took) = timed(|| open(folder.path(), &metrics));
        let objects: usize = restored.collections.iter().map(|collection| collection.objects.len()).sum();
        ensure!(objects as u64 == ingresses * 3, "{objects} objects are there");
        cache.context("no cache")?.close();
        read_s.push(took.as_secs_f64());
    }
    Ok(Row { ingresses, raw_bytes, first_bytes, batches, unchanged_bytes, file_bytes, read_s })
}

fn collection(kind: Kind) -> Collection {
    Collection { kind, namespace: None }
}

fn open(folder: &Path, metrics: &CacheMetrics) -> (Option<Cache>, Restored) {
    let options = CacheOptions {
        folder: folder.to_owned(),
        key_file: None,
        write_budget: 1 << 40,
        flush_after: Duration::from_millis(100),
        server: "https://cluster.example".to_owned(),
    };
    let kept = |kind| StoredCollection {
        collection: collection(kind),
        selection: "all".to_owned(),
        listed: true,
        whole: false,
    };
    let removals = UnconfirmedRemovals { share: 0.5, count: 10 };
    Cache::open(options, (KINDS.map(kept).to_vec(), Vec::new()), removals, metrics)
}

/// A cache under measurement.
struct Bed {
    cache: Cache,
    registry: Registry,
    sinks: [Sink; 3],
    ingresses: u64,
    version: u64,
}

impl Bed {
    fn open(folder: &Path) -> anyhow::Result<Self> {
        let registry = Registry::new();
        let cache = open(folder, &CacheMetrics::register(&registry)?).0.context("no cache")?;
        cache.reached_by().learn(&BTreeSet::new(), None);
        let sink = |kind| cache.sink(&collection(kind), false).context("a kind is not kept");
        let sinks = [sink(KINDS[0])?, sink(KINDS[1])?, sink(KINDS[2])?];
        Ok(Self { cache, registry, sinks, ingresses: 0, version: 0 })
    }

    /// Lists every object, and returns the bytes of the lists.
    fn list(&mut self, ingresses: u64) -> anyhow::Result<u64> {
        self.ingresses = ingresses;
        let mut bytes = 0;
        for (kind, sink) in KINDS.iter().zip(&self.sinks) {
            sink.list_begins();
            for number in 0..ingresses {
                let raw = object(*kind, number, 0, 0).to_string();
                bytes += raw.len() as u64;
                sink.listed(&name(number), raw.as_bytes());
            }
            sink.list_done("1".into(), true, true);
        }
        // The URL of the API server is one more.
        self.until("tidegate_cache_values_total", ingresses * 3 + 1)?;
        Ok(bytes)
    }

    /// Changes this number of Ingresses, far from each other, and returns the bytes of the batch.
    fn change(&mut self, changes: u64) -> anyhow::Result<f64> {
        let (before, values) = (self.written(), self.count("tidegate_cache_values_total"));
        self.version += 1;
        self.tell(changes, |number, version| object(Kind::Ingress, number, version, version));
        self.until("tidegate_cache_values_total", values + changes)?;
        Ok(self.written() - before)
    }

    /// The same with changes that the cache does not keep.
    fn touch(&mut self, changes: u64) -> anyhow::Result<f64> {
        let (before, unchanged) = (self.written(), self.count("tidegate_cache_unchanged_total"));
        // The bytes are those of the last batch, which had the same number of changes.
        let content = self.version;
        self.version += 1;
        self.tell(changes, |number, version| object(Kind::Ingress, number, content, version));
        self.until("tidegate_cache_unchanged_total", unchanged + changes)?;
        // Longer than a batch waits.
        pause(Duration::from_millis(300));
        Ok(self.written() - before)
    }

    fn tell(&self, changes: u64, object: impl Fn(u64, u64) -> Value) {
        let version = (self.version + 1).to_string().into();
        for change in 0..changes {
            let number = change * self.ingresses / changes;
            let raw = object(number, self.version).to_string();
            self.sinks[0].event(&name(number), Some(raw.as_bytes()), Some(&version));
        }
    }

    fn until(&self, series: &str, count: u64) -> anyhow::Result<()> {
        let begun = now();
        while self.count(series) < count {
            ensure!(now() - begun < BATCH_MAX, "{series} is {} after a minute and not {count}", self.count(series));
            pause(Duration::from_millis(1));
        }
        Ok(())
    }

    fn written(&self) -> f64 {
        self.value("tidegate_cache_written_bytes_total")
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    fn count(&self, series: &str) -> u64 {
        self.value(series) as u64
    }

    fn value(&self, series: &str) -> f64 {
        let families = self.registry.gather();
        let found = families.iter().filter(|family| family.name() == series).flat_map(|family| family.get_metric());
        found.map(|metric| metric.get_counter().get_value()).sum()
    }
}

fn name(number: u64) -> ObjectName {
    ObjectName::new("default", format!("app-{number:06}"))
}

/// An object of about the size that an API server sends, including fields that clients leave in it.
fn object(kind: Kind, number: u64, content: u64, touched: u64) -> Value {
    let app = format!("app-{number:06}");
    let fields =
        json!({"f:spec": {"f:a": {}, "f:b": {"f:c": {}}}, "f:metadata": {"f:annotations": {}, "f:labels": {}}});
    let mut object = json!({
        "metadata": {
            "namespace": "default", "name": app, "resourceVersion": (touched + 1).to_string(), "generation": content + 1,
            "uid": format!("00000000-0000-4000-8000-{number:012}"), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app.kubernetes.io/name": app, "app.kubernetes.io/managed-by": "Helm", "team": "shop"},
            "annotations": {"example.com/revision": content.to_string(), "kubernetes.io/ingress.class": "tidegate"},
            "managedFields": [{"manager": "helm", "operation": "Update", "time": touched, "fieldsV1": fields}],
        },
    });
    if kind == Kind::Ingress {
        let backend = json!({"service": {"name": app, "port": {"number": 80}}});
        let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
        object["spec"] = json!({"rules": [{"host": format!("{app}.example"), "http": {"paths": paths}}]});
    } else if kind == Kind::Service {
        object["spec"] = json!({"selector": {"app": app}, "ports": [{"port": 80, "protocol": "TCP"}]});
    } else {
        object["metadata"]["labels"]["kubernetes.io/service-name"] = json!(app);
        object["addressType"] = json!("IPv4");
        object["ports"] = json!([{"port": 8080, "protocol": "TCP"}]);
        object["endpoints"] = json!([{"addresses": ["192.0.2.1"], "conditions": {"ready": true}}]);
    }
    object
}

#[allow(clippy::cast_precision_loss, reason = "bytes for people")]
fn print(rows: &[Row]) {
    let mib = |bytes: f64| figure(Some(bytes / f64::from(1 << 20)), 1);
    let lines = rows.iter().map(|row| {
        let sizes = [row.raw_bytes as f64, row.first_bytes, row.file_bytes as f64].map(mib);
        let kib = row.batches.iter().map(|(_, bytes)| spread(0, bytes.iter().map(|bytes| bytes / 1024.0)));
        let head = [row.ingresses.to_string()].into_iter().chain(sizes).chain(kib);
        head.chain([figure(Some(row.unchanged_bytes), 0), spread(3, row.read_s.iter().copied())]).collect()
    });
    let header = [
        "Ingresses",
        "objects MiB",
        "first copy MiB",
        "file MiB",
        "1 change KiB",
        "10 changes KiB",
        "100 changes KiB",
        "100 of no interest bytes",
        "read back s",
    ];
    println!("{}", table(1, header, lines));
}
