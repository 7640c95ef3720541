//! `steady`: the cost of a request when nothing changes: time, and counts, which are free of noise.

mod counts;
mod table;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::builder::PossibleValuesParser;
use serde::Serialize;

use crate::cores::Cores;
use crate::load::{self, Amount, CASES, Case, Load, h2load, saturated};
use crate::peer::{self, Choice, H2C, HTTPS, Kind, Peer, Route, SECURE, STREAMED, Target, Work, choose};
use crate::place::{Usage, usage, version};
use crate::progress::Progress;
use crate::size::Size;
use crate::steal::{Steal, undisturbed};
use crate::subject::Running;
use crate::table::{Output, Setup};
use crate::upstream::Upstream;
use counts::Row;

/// Measures the cost of a request when nothing changes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The size of the measurement; a smoke run fails when Tidegate fails a request or a count is too high.
    #[arg(long, value_enum, default_value = "full")]
    size: Size,
    /// Counts allocations, system calls and instructions of one request, instead of measuring time.
    #[arg(long)]
    counts: bool,
    /// The kinds of requests [default: all].
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(CASES.map(|case| case.name)))]
    cases: Vec<String>,
    /// The number of rounds; in each, the proxies take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The duration of load in one turn, in seconds, both at full speed and at the fixed rate.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// The fixed rate in requests per second, for small responses.
    #[arg(long, default_value_t = 1000)]
    rate: usize,
    /// The numbers of workers to measure with, one after the other [default: the one of --workers].
    #[arg(long, value_delimiter = ',')]
    worker_counts: Vec<usize>,
    /// The number of requests that are counted.
    #[arg(long, default_value_t = 2000)]
    count_requests: usize,
    /// Skips the bare Pingora.
    #[arg(long)]
    no_bare: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    load: load::Args,
    #[command(flatten)]
    peers: peer::Args,
}

/// A process that takes turns.
#[derive(Debug)]
enum Contestant {
    /// A complete proxy.
    Peer(Peer),
    /// A bare Pingora.
    Bare(Box<Running>),
}

/// The name of a [`Contestant::Bare`].
const BARE: &str = "bare pingora";
/// The name of a Tidegate that writes no access log and does all other work.
const NO_LOG: &str = "tidegate, no log";

impl Contestant {
    fn name(&self) -> String {
        match self {
            Self::Peer(peer) => peer.choice().name(),
            Self::Bare(_) => BARE.to_owned(),
        }
    }

    fn process(&self) -> u32 {
        match self {
            Self::Peer(peer) => peer.process(),
            Self::Bare(bare) => bare.process(),
        }
    }

    /// Its addresses for plain HTTP and for TLS.
    fn addresses(&self) -> (SocketAddr, SocketAddr) {
        match self {
            Self::Peer(peer) => (peer.address(), peer.secure_address()),
            Self::Bare(bare) => (bare.plain, bare.secure),
        }
    }
}

/// One turn of a proxy.
#[derive(Debug, Serialize)]
struct Turn {
    proxy: String,
    workers: usize,
    case: &'static str,
    round: usize,
    /// The load at full speed.
    load: Load,
    /// CPU time of the proxy per request at full speed, in microseconds.
    user_us: f64,
    system_us: f64,
    /// The load at the fixed rate.
    paced: Option<Load>,
    stolen: Steal,
}

impl Turn {
    fn cpu_us(&self) -> f64 {
        self.user_us + self.system_us
    }
}

/// A run.
#[derive(Debug, Default, Serialize)]
struct Report {
    setup: Setup,
    turns: Vec<Turn>,
    counts: Vec<Row>,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured, or at smoke size when Tidegate failed a request or a count is too high.
pub async fn run(mut args: Args) -> anyhow::Result<()> {
    let smoke = args.size == Size::Smoke;
    if smoke {
        (args.rounds, args.seconds, args.count_requests) = (1, 1, 300);
        if args.cases.is_empty() && !args.counts {
            let cases = ["h1-small", "h1-post-64k", "h1-to-https-small", "tls-small", "h2-small", "grpc-small"];
            args.cases = cases.map(Into::into).into();
        }
    }
    let (choices, left_out) = choose(&args.peers)?;
    args.size.complete(&left_out)?;
    let tools = [("wrk", "--version"), ("h2load", "--version")];
    let tools = tools.map(|(tool, flag)| version(tool, flag).with_context(|| format!("{tool} is not installed")));
    let mut report = Report { setup: Setup::new(&choices, left_out), ..Report::default() };
    for tool in tools {
        report.setup.versions.push(tool.context("bench/setup installs it")?);
    }
    if args.counts {
        counts::measure(&args, &choices, &mut report).await?;
    } else {
        turns(&args, &choices, &mut report).await?;
    }
    args.output.tell(&report, table::print)?;
    match (smoke, args.counts) {
        (true, true) => counts::check(&report.counts),
        (true, false) => unharmed(&report.turns),
        (false, _) => Ok(()),
    }
}

async fn turns(args: &Args, choices: &[Choice], report: &mut Report) -> anyhow::Result<()> {
    let cases: Vec<Case> = match &args.cases[..] {
        [] => CASES.into(),
        names => names.iter().filter_map(|name| Case::named(name)).collect(),
    };
    let worker_counts =
        if args.worker_counts.is_empty() { vec![args.peers.workers()] } else { args.worker_counts.clone() };
    let progress =
        Progress::new(worker_counts.len() * args.rounds * cases.len() * (choices.len() + usize::from(!args.no_bare)));
    let cores = Cores::share(worker_counts.iter().copied().max().unwrap_or(1))?;
    let upstream = Upstream::start(cores.upstream()).await?;
    report.setup.on(&cores);
    for workers in worker_counts {
        let contestants = contestants(args, workers, &cores, choices, &upstream).await?;
        for round in 1..=args.rounds {
            for case in &cases {
                // A bare Pingora has one upstream, which speaks HTTP/1.1.
                let fit =
                    |contestant: &&Contestant| case.endpoint_is_plain() || matches!(contestant, Contestant::Peer(_));
                for contestant in contestants.iter().filter(fit) {
                    progress.say(format!("round {round}: {}, {}, {workers} workers", case.name, contestant.name()));
                    let taken = undisturbed(args.size, async || turn(contestant, case, args).await);
                    let (spent, stolen) = taken.await?;
                    let Spent { load, user_us, system_us, paced } = spent;
                    let (proxy, case) = (contestant.name(), case.name);
                    report.turns.push(Turn { proxy, workers, case, round, load, user_us, system_us, paced, stolen });
                }
            }
        }
    }
    progress.finish();
    Ok(())
}

async fn contestants(
    args: &Args,
    workers: usize,
    cores: &Cores,
    choices: &[Choice],
    upstream: &Upstream,
) -> anyhow::Result<Vec<Contestant>> {
    let (peers, share) = (args.peers.with_workers(workers), cores.proxy(workers));
    let routes = [
        Route::new(SECURE, Target::Own),
        Route::new(H2C, Target::H2c),
        Route::new(HTTPS, Target::Https),
        Route::new(STREAMED, Target::Grpc),
    ];
    let mut contestants = Vec::new();
    for choice in choices {
        let peer = choice.start(&peers, share, upstream, &routes).await?;
        contestants.push(Contestant::Peer(peer));
    }
    if !args.no_bare {
        let words = ["pingora", "--threads", &workers.to_string()].map(str::to_owned);
        contestants.push(Contestant::Bare(Box::new(Running::start(&words, share, upstream.http, &[]).await?)));
    }
    Ok(contestants)
}

/// The resources used in one turn.
#[derive(Debug)]
struct Spent {
    load: Load,
    user_us: f64,
    system_us: f64,
    paced: Option<Load>,
}

async fn turn(contestant: &Contestant, case: &Case, args: &Args) -> anyhow::Result<Spent> {
    let (plain, secure) = contestant.addresses();
    let (ask, process, duration) = (case.ask(plain, secure), contestant.process(), Duration::from_secs(args.seconds));
    let connections = case.connections(args.load.connections);
    let before = usage(process);
    let load = saturated(case, &ask, duration, &args.load).await?;
    let after = usage(process);
    let paced =
        if case.paced { Some(h2load(&ask, Amount::Paced(duration, args.rate), connections).await?) } else { None };
    let logged = match contestant {
        // The log is emptied also because it would fill the disk.
        Contestant::Peer(peer) => Some((peer.choice().work, peer.take_log().await?)),
        Contestant::Bare(_) => None,
    };
    let requests = load.requests + paced.map_or(0, |load| load.requests);
    // A machine with other work at the same time may be too slow to write everything.
    let least = if args.size == Size::Smoke { requests / 2 } else { requests };
    alike(logged, least).with_context(|| format!("{}, {}", contestant.name(), case.name))?;
    #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let each =
        |of: fn(&Usage) -> Duration| of(&after).saturating_sub(of(&before)).as_secs_f64() * 1e6 / load.requests as f64;
    let (user_us, system_us) = (each(|usage| usage.user), each(|usage| usage.system));
    Ok(Spent { load, user_us, system_us, paced })
}

/// The number of lines that proxies may buffer before they write them.
const GATHERED: u64 = 400;

/// Checks by the access log that the required work was done: at least this number of lines.
fn alike(logged: Option<(Work, u64)>, least: u64) -> anyhow::Result<()> {
    match logged {
        Some((Work::Same, lines)) => {
            ensure!(lines + GATHERED >= least, "{lines} lines in the log of {least} requests")
        }
        Some((Work::Bare, lines)) => ensure!(lines == 0, "{lines} lines in the log of a proxy without one"),
        None => {}
    }
    Ok(())
}

fn unharmed(turns: &[Turn]) -> anyhow::Result<()> {
    let ours: Vec<&Turn> = turns.iter().filter(|turn| turn.proxy.starts_with(Kind::Tidegate.name())).collect();
    ensure!(!ours.is_empty(), "Tidegate had no turn");
    for turn in ours {
        let failures = turn.load.failures() + turn.paced.map_or(0, |load| load.failures());
        ensure!(failures == 0, "{failures} requests failed: {turn:?}");
    }
    Ok(())
}
