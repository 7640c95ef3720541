//! Files that are read again for as long as the process runs: credentials, certificates and authorities.
//!
//! The files that make up one value are read together, every [`CHECK_INTERVAL`] and on request. A new text that can be
//! used replaces the value; while the files cannot be used, the last good value stays.

mod check;
mod read;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::check::Checked;
pub use self::check::Followed;
pub use self::read::{Reads, single_value};

/// The time between two reads of the same files.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// All followed files of the process, and their metrics. Clones share them.
#[derive(Clone)]
pub struct Following {
    /// In a channel, because it grows while the task runs.
    checked: watch::Sender<Vec<Arc<dyn Checked>>>,
    current: IntGaugeVec,
    reads: IntCounterVec,
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Following")
    }
}

impl Following {
    /// Follows no files yet.
    ///
    /// # Errors
    /// Never in practice: if the names of the metrics are invalid.
    pub fn new() -> prometheus::Result<Self> {
        let current = Opts::new(
            "tidegate_followed_files_current",
            "1 if credentials or certificates are in use as their source has them; 0 while the last good ones are.",
        );
        let reads = Opts::new(
            "tidegate_followed_files_reads_total",
            "Reads of credentials or certificates that changed them, or that failed.",
        );
        Ok(Self {
            checked: watch::Sender::default(),
            current: IntGaugeVec::new(current, &["source"])?,
            reads: IntCounterVec::new(reads, &["source", "outcome"])?,
        })
    }

    /// Registers the metrics.
    ///
    /// # Errors
    /// If a family with one of these names is already registered.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.current.clone()))?;
        registry.register(Box::new(self.reads.clone()))
    }

    /// Reads all files again, over and over, until `stop` is cancelled. Files that hang delay no others.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.check_all()).await;
    }

    async fn check_all(self) {
        let (mut added, mut begun, mut checks) = (self.checked.subscribe(), 0, FuturesUnordered::new());
        loop {
            let all = added.borrow_and_update().clone();
            checks.extend(all.iter().skip(begun).map(|files| check_repeatedly(Arc::clone(files))));
            begun = all.len();
            tokio::select! {
                _ = added.changed() => {}
                Some(()) = checks.next() => {}
            }
        }
    }

    fn add(&self, checked: Arc<dyn Checked>) {
        self.checked.send_modify(|all| all.push(checked));
    }

    /// The reports about one source of credentials or certificates, which can be used now.
    pub(crate) fn reports(&self, source: &'static str) -> Reports {
        self.current.with_label_values(&[source]).set(1);
        for outcome in ["changed", "failed"] {
            self.reads.with_label_values(&[source, outcome]);
        }
        let (current, reads) = (self.current.clone(), self.reads.clone());
        Reports { source, current, reads, failing: watch::Sender::new(false) }
    }
}

async fn check_repeatedly(files: Arc<dyn Checked>) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        Arc::clone(&files).check().await;
    }
}

/// Reports the state of one source: a metric, and a log line whenever it changes. No message contains a secret.
pub(crate) struct Reports {
    source: &'static str,
    current: IntGaugeVec,
    reads: IntCounterVec,
    failing: watch::Sender<bool>,
}

impl Reports {
    /// The source gave a value that can be used, which may be a new one.
    pub(crate) fn good(&self, changed: bool) {
        let source = self.source;
        let recovered = self.failing.send_replace(false);
        self.current.with_label_values(&[source]).set(1);
        if changed {
            self.reads.with_label_values(&[source, "changed"]).inc();
            tracing::info!(source, "credentials or certificates have changed, and the new ones are in use");
        } else if recovered {
            tracing::info!(source, "credentials or certificates can be read again, and have not changed");
        }
    }

    /// The source gave no value that can be used.
    pub(crate) fn bad(&self, error: &str) {
        let source = self.source;
        let failing = self.failing.send_replace(true);
        self.current.with_label_values(&[source]).set(0);
        self.reads.with_label_values(&[source, "failed"]).inc();
        if !failing {
            tracing::warn!(source, error, "credentials or certificates cannot be used; the last good ones stay in use");
        }
    }
}
