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
use crate::listen::binder::{Binder, Bound};
use crate::observe::connection_metrics::ConnectionMetrics;
use crate::options::Options;
use crate::runtime::{self, Process};
use crate::shared::Shared;

/// What threads get to end after their connections' time is up, before they are left behind.
const STRAGGLERS: Duration = Duration::from_secs(2);

/// Why the data plane could not start.
#[derive(Debug)]
pub enum StartError {
    /// TLS could not be set up.
    Tls(TlsSetupError),
    /// A metric's name was taken.
    Metrics(prometheus::Error),
    /// There was no thread to be had.
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

/// The running data plane. Dropping it cuts all traffic; [`Proxy::announce_end`] and then [`Proxy::drain`] end it well.
#[derive(Debug)]
pub struct Proxy {
    leaving: watch::Sender<bool>,
    stop: watch::Sender<Option<Instant>>,
    bound: watch::Receiver<Bound>,
    threads: Vec<oneshot::Receiver<usize>>,
    published: Published,
    shared: Arc<Shared>,
}

/// Forgets what outlived its objects. It has to be asked: the data plane does no work of this size by itself.
#[derive(Clone, Debug)]
pub struct Sweeper {
    published: Published,
    shared: Arc<Shared>,
}

impl Sweeper {
    /// Forgets the state and the metrics of what the published snapshot no longer names. The work grows with the whole
    /// model, unless nothing was published or made since the last time: call it now and then, from a thread that carries no
    /// traffic.
    pub fn sweep(&self) {
        self.shared.sweep(&self.published.pin());
    }
}

/// Takes the resident memory of the process into account. It has to be told: the data plane reads no files.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Budget>);

impl Memory {
    /// Notes the resident memory, in KiB. Above 80 % of [`BudgetLimits::resident_max_kib`](crate::BudgetLimits) slow clients
    /// and those that hold much give way; above 90 % new requests are answered 503 and new connections take the places of
    /// idle ones, while traffic is charged for a quarter of its memory or more.
    pub fn note_resident(&self, kib: u64) {
        self.0.note_resident(kib);
    }
}

impl Proxy {
    /// Starts the traffic threads. They listen on the binds of the published snapshot, and look again whenever
    /// `changes` says that there is a new one.
    ///
    /// # Errors
    /// When TLS, the metrics or a thread cannot be had. A bind that cannot be opened is no such error: see [`Self::bound`].
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
        let (leaving, told) = watch::channel(false);
        let (stop, stopped) = watch::channel(None);
        let binder =
            Arc::new(Binder::new([&shared.listening, &shared.listening_udp].map(Arc::clone), Arc::clone(&metrics)));
        let kept = (published.clone(), Arc::clone(&shared));
        let process = Process {
            published,
            changes,
            leaving: told,
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

    /// What forgets the state and the metrics of objects and endpoints that are gone.
    #[must_use]
    pub fn sweeper(&self) -> Sweeper {
        Sweeper { published: self.published.clone(), shared: Arc::clone(&self.shared) }
    }

    /// What is told of the process's memory.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory(Arc::clone(&self.shared.budget))
    }

    /// Whether the routes of an object had requests lately: since the sweep before the last.
    pub fn lately(&self) -> impl Fn(&ObjectRef) -> bool + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move |object| shared.metrics.lately(object)
    }

    /// The binds as they really are: addresses with their real ports, and errors of those that cannot be opened.
    #[must_use]
    pub fn bound(&self) -> watch::Receiver<Bound> {
        self.bound.clone()
    }

    /// Tells clients that the end is near: HTTP/1.1 connections close after their next response, HTTP/2 ones are told to go
    /// away. Everything is served as before, and so are new connections, which are told the same.
    pub fn announce_end(&self) {
        self.leaving.send_replace(true);
    }

    /// Stops listening at once, lets requests in flight finish for as long as `grace`, and cuts the rest. Idle
    /// connections close, HTTP/1.1 ones close after their next response, HTTP/2 ones are told to go away.
    ///
    /// Returns how many connections were cut.
    pub async fn drain(self, grace: Duration) -> usize {
        let until = Instant::from_std(clock::now()) + grace;
        self.stop.send_replace(Some(until));
        let mut cut = 0;
        for thread in self.threads {
            // A thread that does not answer has lost its connections with itself.
            cut += timeout_at(until + STRAGGLERS, thread).await.ok().and_then(Result::ok).unwrap_or_default();
        }
        cut
    }
}
