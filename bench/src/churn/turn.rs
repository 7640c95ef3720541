//! One turn of a proxy: load, a sampler, a WebSocket and gRPC streams, and the changes meanwhile.

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

/// Between two looks at the memory.
const MEMORY_EVERY: Duration = Duration::from_millis(250);
/// How often what a turn holds is opened again, and after what time.
const OPENED_AGAIN_MAX: usize = 3;
const OPENED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// One turn of a proxy.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Turn {
    /// What its row is called.
    pub(super) peer: String,
    pub(super) kind: Kind,
    pub(super) round: usize,
    pub(super) pace: Pace,
    /// Changes a second that were handed over.
    pub(super) reached: f64,
    /// Rolls a second that were handed over.
    pub(super) rolled: f64,
    /// Batches of changes that it says it has published meanwhile.
    pub(super) published: Option<f64>,
    pub(super) load: Load,
    /// CPU time of the proxy with all of its processes, for one request, in microseconds.
    pub(super) cpu_us: f64,
    /// Memory that is resident at the end, in MiB.
    pub(super) resident_mib: f64,
    /// Processes at the end.
    pub(super) processes: usize,
    /// What the hypervisor took meanwhile.
    pub(super) stolen: Option<Steal>,
    /// What broke the WebSocket.
    pub(super) socket_broken: Option<String>,
    /// What became of gRPC streams.
    pub(super) grpc: grpc::Seen,
    /// Lines of the access log that had been written by then; proxies gather some first.
    pub(super) logged: u64,
    /// Memory over time.
    pub(super) memory: Vec<Memory>,
    /// When changes were handed over, in milliseconds from the beginning.
    pub(super) changes_ms: Vec<f64>,
    /// Latency over time.
    pub(super) samples: Vec<Sample>,
}

impl Turn {
    /// Everything that went wrong with requests, those of the sampler too.
    #[must_use]
    pub(super) fn failures(&self) -> u64 {
        let sampled = self.samples.iter().filter(|sample| sample.latency_ms.is_none()).count();
        self.load.failures() + u64::try_from(sampled).unwrap_or(u64::MAX)
    }
}

/// What a proxy has at a moment.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Memory {
    at_ms: f64,
    resident_mib: f64,
    processes: usize,
}

/// Opens what a turn holds. With a peer it may be tried again, for a worker that the last reload has told to end may take a
/// connection yet and refuse what comes over it.
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

/// What was handed over.
#[derive(Debug, Default)]
struct Changes {
    made: usize,
    rolled: usize,
    at_ms: Vec<f64>,
}

/// Lets hosts lead elsewhere, one after the other, and endpoints roll, until told to stop.
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
        // One more than the last, however many were due: after three the endpoints would be the same again.
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

/// The change of this number, of all that there will be: routes that begin at [`Target::Again`] lead elsewhere one after the other, and
/// then back.
fn changed(change: usize, routes: usize) -> Route {
    let target = if (change / routes).is_multiple_of(2) { Target::Right } else { Target::Again };
    Route::numbered(change % routes, target)
}

/// Memory over time, until told to stop.
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
