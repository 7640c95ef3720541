//! One turn of a proxy: load, a sampler, a WebSocket and gRPC streams, and the changes made during it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Args, Contestant, Pace, SOCKET};
use crate::clock::now;
use crate::grpc;
use crate::load::{Case, Load, saturated};
use crate::peer::{Change, Kind, Route, SECURE, STREAMED, Target, rolled};
use crate::place::{Usage, usage};
use crate::sampler::{Sample, sample};
use crate::steal::Steal;
use crate::upstream::Upstream;
use crate::websocket::Held;

/// The interval of memory samples.
const MEMORY_EVERY: Duration = Duration::from_millis(250);
/// The number of retries for opening the streams of a turn, and the pause between them.
const OPENED_AGAIN_MAX: usize = 3;
const OPENED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// One turn of a proxy.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Turn {
    /// The name of its row.
    pub(super) peer: String,
    pub(super) kind: Kind,
    pub(super) round: usize,
    pub(super) pace: Pace,
    /// Changes per second that were handed over.
    pub(super) reached: f64,
    /// Rolls per second that were handed over.
    pub(super) rolled: f64,
    /// Batches of changes published meanwhile, by its own metrics.
    pub(super) published: Option<f64>,
    pub(super) load: Load,
    /// CPU time of the proxy with all of its processes, for one request, in microseconds.
    pub(super) cpu_us: f64,
    /// Memory that is resident at the end, in MiB.
    pub(super) resident_mib: f64,
    /// Processes at the end.
    pub(super) processes: usize,
    /// The CPU time that the hypervisor took meanwhile.
    pub(super) stolen: Option<Steal>,
    /// The reason why the WebSocket broke.
    pub(super) socket_broken: Option<String>,
    /// The results of gRPC streams.
    pub(super) grpc: grpc::Seen,
    /// Lines of the access log that were written by the end; proxies buffer some.
    pub(super) logged: u64,
    /// Memory over time.
    pub(super) memory: Vec<Memory>,
    /// The times at which changes were handed over, in milliseconds from the beginning.
    pub(super) changes_ms: Vec<f64>,
    /// Latency over time.
    pub(super) samples: Vec<Sample>,
}

impl Turn {
    /// All failed requests, including those of the sampler.
    #[must_use]
    pub(super) fn failures(&self) -> u64 {
        let sampled = self.samples.iter().filter(|sample| sample.latency_ms.is_none()).count();
        self.load.failures() + u64::try_from(sampled).unwrap_or(u64::MAX)
    }
}

/// The memory of a proxy at a moment.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Memory {
    at_ms: f64,
    resident_mib: f64,
    processes: usize,
}

/// Opens the streams of a turn. For a peer it may be retried, because a worker that the last reload has told to end may
/// still accept a connection and then refuse its requests.
async fn opened<T>(kind: Kind, open: impl AsyncFn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let again = if kind == Kind::Tidegate { 0 } else { OPENED_AGAIN_MAX };
    for _ in 0..again {
        match open().await {
            Ok(opened) => return Ok(opened),
            Err(_) => sleep(OPENED_AGAIN_AFTER).await,
        }
    }
    open().await
}

/// Loads a proxy while it is changed.
///
/// # Errors
/// When something cannot be measured, or a change is refused.
pub(super) async fn turn(
    contestant: &mut Contestant,
    (asked, pace): (&Case, Pace),
    round: usize,
    upstream: &Upstream,
    args: &Args,
) -> anyhow::Result<Turn> {
    let peer = &contestant.peer;
    let (choice, address, process) = (peer.choice().clone(), peer.address(), peer.process());
    let ask = asked.ask(address, peer.secure_address());
    let duration = Duration::from_secs(args.seconds);
    let stop = CancellationToken::new();
    let socket = opened(choice.kind, async || Held::open(address, SOCKET).await).await?;
    let streams = opened(choice.kind, async || grpc::Held::open(peer.secure_address(), STREAMED).await).await?;
    peer.take_log().await?;
    let (published, before) = (contestant.published().await?, usage(process));
    let loading = async {
        let load = saturated(asked, &ask, duration, &args.load).await;
        stop.cancel();
        load
    };
    let sampling = sample(address, SECURE, Duration::from_millis(args.sample_every_ms.max(1)), stop.clone());
    let changing = changing(contestant, pace, upstream, args, &stop);
    let holding = async { tokio::join!(socket.hold(&stop), streams.hold(&stop)) };
    let (load, changes, (held, grpc), samples, memory) =
        tokio::join!(loading, changing, holding, sampling, watch(process, &stop));
    let (load, changes, after) = (load?, changes?, usage(process));
    let seconds = duration.as_secs_f64();
    let published = contestant.published().await?.zip(published).map(|(after, before)| after.since(before).count());
    #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    Ok(Turn {
        peer: choice.name(),
        kind: choice.kind,
        round,
        pace,
        reached: changes.made as f64 / seconds,
        rolled: changes.rolled as f64 / seconds,
        published,
        load,
        cpu_us: after.cpu().saturating_sub(before.cpu()).as_secs_f64() * 1e6 / load.requests as f64,
        resident_mib: mebibytes(&after),
        processes: after.processes,
        stolen: None,
        socket_broken: held.err().map(|why| format!("{why:#}")),
        grpc,
        logged: contestant.peer.take_log().await?,
        memory,
        changes_ms: changes.at_ms,
        samples: samples?,
    })
}

#[allow(clippy::cast_precision_loss, reason = "bytes far below 2^52")]
fn mebibytes(usage: &Usage) -> f64 {
    usage.resident_bytes as f64 / f64::from(1 << 20)
}

fn milliseconds_since(start: Instant) -> f64 {
    (now() - start).as_secs_f64() * 1e3
}

/// The changes handed over.
#[derive(Debug, Default)]
struct Changes {
    made: usize,
    rolled: usize,
    at_ms: Vec<f64>,
}

/// Changes the targets of hosts, one after the other, and rolls endpoints, until told to stop.
async fn changing(
    contestant: &mut Contestant,
    pace: Pace,
    upstream: &Upstream,
    args: &Args,
    stop: &CancellationToken,
) -> anyhow::Result<Changes> {
    let Contestant { peer, changes: changed_before, rolls: rolled_before } = contestant;
    let (start, mut done, mut rolls) = (now(), Changes::default(), 0);
    let gathers = peer.gathers(Duration::try_from_secs_f64(args.reload_every)?);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few thousand")]
    let due = |rate: f64| ((now() - start).as_secs_f64() * rate) as usize;
    while !stop.is_cancelled() {
        let (changes, rolls_due) = (due(f64::from(pace.rate)), due(pace.rolls));
        let numbers = *changed_before + done.made..*changed_before + changes;
        let routes: Vec<Route> = numbers.map(|change| changed(change, args.routes)).collect();
        // Only one more than the last, however many were due: after three the endpoints would be the same again.
        let next = *rolled_before + done.rolled + 1;
        let endpoints: Option<[SocketAddr; 2]> = (rolls_due > rolls).then(|| rolled(upstream, next));
        if !routes.is_empty() || endpoints.is_some() {
            done.at_ms.push(milliseconds_since(start));
            peer.change(&Change { routes: &routes, endpoints: endpoints.as_ref().map(<[SocketAddr; 2]>::as_slice) })
                .await?;
            (done.made, rolls) = (changes, rolls_due);
            done.rolled += usize::from(endpoints.is_some());
        }
        tokio::select! {
            () = sleep(gathers) => {}
            () = stop.cancelled() => {}
        }
    }
    *changed_before += done.made;
    *rolled_before += done.rolled;
    Ok(done)
}

/// The change with this number, for this number of routes: routes that begin at [`Target::Again`] move to the other
/// target one after the other, and then back.
fn changed(change: usize, routes: usize) -> Route {
    let target = if (change / routes).is_multiple_of(2) { Target::Right } else { Target::Again };
    Route::numbered(change % routes, target)
}

/// Records memory over time, until told to stop.
async fn watch(process: u32, stop: &CancellationToken) -> Vec<Memory> {
    let (start, mut seen) = (now(), Vec::new());
    while !stop.is_cancelled() {
        let usage = usage(process);
        let (resident_mib, processes) = (mebibytes(&usage), usage.processes);
        seen.push(Memory { at_ms: milliseconds_since(start), resident_mib, processes });
        tokio::select! {
            () = sleep(MEMORY_EVERY) => {}
            () = stop.cancelled() => {}
        }
    }
    seen
}
