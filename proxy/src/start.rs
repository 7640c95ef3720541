//! The data plane as a whole: started once, drained once.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tidegate_config::model::Generation;
use tidegate_config::object::ObjectRef;
use tidegate_config::published::Published;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::budget::Budget;
use crate::clock;
use crate::connection::tls::{Tls, TlsSetupError};
use crate::limit::store::LimitStoreTask;
use crate::listen::binder::{Binder, Bound};
use crate::observe::connection_metrics::ConnectionMetrics;
use crate::options::Options;
use crate::runtime::{self, Process};
use crate::shared::Shared;

/// The additional time for threads to end after the deadline of their connections.
const STRAGGLERS: Duration = Duration::from_secs(2);

/// The reason why the data plane cannot start.
#[derive(Debug)]
pub enum StartError {
    /// TLS cannot be configured.
    Tls(TlsSetupError),
    /// The metrics registry has one of the names already.
    Metrics(prometheus::Error),
    /// A thread cannot be started.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(error) => error.fmt(f),
            Self::Metrics(error) => write!(f, "metrics cannot be registered: {error}"),
            Self::Thread(error) => write!(f, "a traffic thread cannot be started: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// The running data plane. Dropping it aborts all traffic; [`Proxy::announce_end`] and then [`Proxy::drain`] end it
/// gracefully.
#[derive(Debug)]
pub struct Proxy {
    leaving: watch::Sender<bool>,
    stop: watch::Sender<Option<Instant>>,
    bound: watch::Receiver<Bound>,
    threads: Vec<oneshot::Receiver<usize>>,
    published: Published,
    shared: Arc<Shared>,
}

/// Removes state that outlived its objects. It must be called: the data plane does no work of this size by itself.
#[derive(Clone, Debug)]
pub struct Sweeper {
    published: Published,
    shared: Arc<Shared>,
}

impl Sweeper {
    /// Removes the state and the metrics of objects that are not in the published snapshot. The cost grows with the
    /// whole model, unless nothing was published or created since the last call: call it periodically, from a thread
    /// without traffic.
    pub fn sweep(&self) {
        self.shared.sweep(&self.published.pin());
    }
}

/// Receives the resident memory of the process, because the data plane reads no files.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Budget>);

impl Memory {
    /// Sets the resident memory, in KiB. Above 80 % of [`BudgetLimits::resident_max_kib`](crate::BudgetLimits) slow
    /// clients and those that hold much are disconnected or refused; above 90 % new requests are answered 503 and new
    /// connections replace idle ones, while at least a quarter of the memory is charged to traffic.
    pub fn note_resident(&self, kib: u64) {
        self.0.note_resident(kib);
    }
}

impl Proxy {
    /// Starts the traffic threads. They listen on the binds of the published snapshot, and reconcile them whenever
    /// `changes` has a new generation.
    ///
    /// # Errors
    /// If TLS, the metrics or a thread cannot be set up. A bind that cannot be opened is not an error here: see
    /// [`Self::bound`].
    pub fn start(
        published: Published,
        changes: watch::Receiver<Generation>,
        options: Options,
        registry: &Registry,
    ) -> Result<Self, StartError> {
        let options = options.floored();
        let shared = Shared::new(&options, registry).map_err(StartError::Metrics)?;
        let metrics = Arc::new(ConnectionMetrics::register(registry).map_err(StartError::Metrics)?);
        let tls = Arc::new(Tls::new(published.clone(), &options.tls).map_err(StartError::Tls)?);
        let (leaving, receiver) = watch::channel(false);
        let (stop, stopped) = watch::channel(None);
        let binder =
            Arc::new(Binder::new([&shared.listening, &shared.listening_udp].map(Arc::clone), Arc::clone(&metrics)));
        let kept = (published.clone(), Arc::clone(&shared));
        let process = Process {
            published,
            changes,
            leaving: receiver,
            stop: stopped,
            shared,
            tls,
            binder,
            metrics,
            options: Arc::new(options),
        };
        let bound = process.binder.subscribe();
        let threads = (0..process.options.threads)
            .map(|thread| runtime::start(thread, process.clone()).map_err(StartError::Thread))
            .collect::<Result<_, _>>()?;
        let (published, shared) = kept;
        Ok(Self { leaving, stop, bound, threads, published, shared })
    }

    /// The sweeper of state and metrics of removed objects and endpoints.
    #[must_use]
    pub fn sweeper(&self) -> Sweeper {
        Sweeper { published: self.published.clone(), shared: Arc::clone(&self.shared) }
    }

    /// The receiver of the process's memory usage.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory(Arc::clone(&self.shared.budget))
    }

    /// The task of the store of limits, if there is one. It must be run: without it the store counts as away.
    #[must_use]
    pub fn limit_store(&self) -> Option<LimitStoreTask> {
        self.shared.counters.store_task()
    }

    /// A function that returns `true` if the routes of an object had requests since the sweep before the last.
    pub fn recently_used(&self) -> impl Fn(&ObjectRef) -> bool + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move |object| shared.metrics.used_recently(object)
    }

    /// The actual state of the binds: addresses with their actual ports, and errors of those that cannot be opened.
    #[must_use]
    pub fn bound(&self) -> watch::Receiver<Bound> {
        self.bound.clone()
    }

    /// Announces the end to clients: HTTP/1.1 connections close after their next response, HTTP/2 ones get a GOAWAY.
    /// Everything is served as before, including new connections, which are treated the same.
    pub fn announce_end(&self) {
        self.leaving.send_replace(true);
    }

    /// Stops listening at once, lets requests in flight finish within `grace`, and aborts the rest. Idle connections
    /// close, HTTP/1.1 ones close after their next response, HTTP/2 ones get a GOAWAY.
    ///
    /// Returns the number of aborted connections.
    pub async fn drain(self, grace: Duration) -> usize {
        let until = Instant::from_std(clock::now()) + grace;
        self.stop.send_replace(Some(until));
        let mut cut = 0;
        for thread in self.threads {
            // A thread without an answer has ended together with its connections.
            cut += timeout_at(until + STRAGGLERS, thread).await.ok().and_then(Result::ok).unwrap_or_default();
        }
        cut
    }
}
