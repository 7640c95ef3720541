//! `start`: the time from the start of a process to its first right response, with all of its routes.

use anyhow::Context as _;
use serde::Serialize;

use crate::cores::{Cores, Share};
use crate::peer::{self, Choice, Peer, Route, START_MAX, Target, choose, deis};
use crate::poll::until_right;
use crate::progress::Progress;
use crate::size::Size;
use crate::spread::Spread;
use crate::table::{Output, Setup, figure, spread, table};
use crate::upstream::Upstream;

/// Measures the time from the start of a process to its first right response.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The size of the measurement; a smoke run fails when a started proxy does not have all of its routes.
    #[arg(long, value_enum, default_value = "full")]
    size: Size,
    /// The number of routes, each with a Service and endpoint of its own; comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000")]
    routes: Vec<usize>,
    /// The number of applications of the Deis router with three domains each, in place of those routes; for Tidegate
    /// alone.
    #[arg(long, value_delimiter = ',', conflicts_with = "routes")]
    apps: Vec<usize>,
    /// Starts Tidegate alone, from its cluster cache on disk, after its API server has stopped.
    #[arg(long, conflicts_with = "apps")]
    cached: bool,
    /// The number of rounds; in each, every proxy is started once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    peers: peer::Args,
}

/// The routes at the start of a proxy.
struct Case {
    present: Vec<Route>,
    /// The number of applications with these hosts.
    apps: Option<usize>,
}

impl Case {
    fn routes(routes: usize) -> Self {
        Self { present: (0..routes).map(|i| Route::numbered(i, Target::Own)).collect(), apps: None }
    }

    fn apps(apps: usize) -> Self {
        Self { present: deis::routes(apps), apps: Some(apps) }
    }

    fn name(&self, choice: &Choice, cached: bool) -> String {
        let what = match self.apps {
            Some(_) => ", Deis",
            None if cached => ", cached",
            None => "",
        };
        choice.name() + what
    }

    async fn start(
        &self,
        choice: &Choice,
        args: &peer::Args,
        share: Share,
        upstream: &Upstream,
    ) -> anyhow::Result<Peer> {
        match self.apps {
            None => choice.start(args, share, upstream, &self.present).await,
            Some(apps) => choice.start_apps(args, share, upstream, apps).await,
        }
    }
}

/// A proxy that takes its turns.
struct Contestant {
    peer: Peer,
    row: Row,
    /// The error that took it out.
    failed: Option<anyhow::Error>,
}

/// One proxy with this number of routes.
#[derive(Debug, Serialize)]
struct Row {
    proxy: String,
    routes: usize,
    /// Seconds until the first right response of each host: the one that was created first, and the one that was
    /// created last.
    first_s: Vec<f64>,
    last_s: Vec<f64>,
}

/// A run.
#[derive(Debug, Serialize)]
struct Report {
    setup: Setup,
    rows: Vec<Row>,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured, no right response comes, or at smoke size when one of the routes has none.
pub async fn run(mut args: Args) -> anyhow::Result<()> {
    args.peers.apart = true;
    if args.size == Size::Smoke {
        args.rounds = 1;
        let few = if args.apps.is_empty() { &mut args.routes } else { &mut args.apps };
        *few = vec![200];
    }
    args.peers.cached = args.cached;
    if !args.apps.is_empty() || args.cached {
        args.peers.only_tidegate();
    }
    let (choices, left_out) = choose(&args.peers)?;
    args.size.complete(&left_out)?;
    let cores = Cores::share(args.peers.workers())?;
    let share = cores.proxy(args.peers.workers());
    let upstream = Upstream::start(cores.upstream()).await?;
    let cases: Vec<Case> = if args.apps.is_empty() {
        args.routes.iter().copied().map(Case::routes).collect()
    } else {
        args.apps.iter().copied().map(Case::apps).collect()
    };
    let progress = Progress::new(cases.len() * choices.len() * args.rounds);
    let mut report = Report { setup: Setup::new(&choices, left_out), rows: Vec::new() };
    report.setup.on(&cores);
    for case in cases {
        let (present, routes) = (&case.present, case.present.len());
        let mut contestants = Vec::new();
        for choice in &choices {
            match case.start(choice, &args.peers, share, &upstream).await {
                Ok(mut peer) => {
                    if args.cached {
                        peer.cut_off(routes).await?;
                    }
                    let proxy = case.name(choice, args.cached);
                    let row = Row { proxy, routes, first_s: Vec::new(), last_s: Vec::new() };
                    contestants.push(Contestant { peer, row, failed: None });
                }
                Err(why) => report.setup.miss(args.size, choice, routes, why)?,
            }
        }
        for round in 1..=args.rounds {
            for Contestant { peer, row, failed, .. } in &mut contestants {
                progress.say(format!("round {round}: {} with {routes} routes", row.proxy));
                if failed.is_none() {
                    *failed = restart(peer, present, row).await.err();
                }
            }
        }
        for Contestant { peer, row, failed } in contestants {
            if let Some(why) = failed {
                report.setup.miss(args.size, peer.choice(), routes, why)?;
                continue;
            }
            if args.size == Size::Smoke {
                peer.all_right(present).await?;
            }
            report.rows.push(row);
        }
    }
    progress.finish();
    args.output.tell(&report, print)
}

async fn restart(peer: &mut Peer, present: &[Route], row: &mut Row) -> anyhow::Result<()> {
    let begun = peer.restart().await?;
    let address = peer.address();
    let asked = async |route: Option<&Route>| until_right(address, &route.context("no routes")?.host, START_MAX).await;
    let (first, last) = tokio::try_join!(asked(present.first()), asked(present.last()))?;
    row.first_s.push((first.at - begun).as_secs_f64());
    row.last_s.push((last.at - begun).as_secs_f64());
    Ok(())
}

fn print(report: &Report) {
    report.setup.print();
    let seconds = |figures: &[f64]| spread(2, figures.iter().copied());
    let lines = report.rows.iter().map(|row| {
        let least =
            report.rows.iter().filter(|other| other.routes == row.routes).filter_map(|other| median(&other.last_s));
        let ratio = median(&row.last_s).zip(least.min_by(f64::total_cmp)).map(|(own, best)| own / best);
        vec![row.routes.to_string(), row.proxy.clone(), seconds(&row.first_s), seconds(&row.last_s), figure(ratio, 2)]
    });
    let header = ["routes", "proxy", "first host right after s", "last host right after s", "÷ best"];
    println!("{}", table(2, header, lines));
}

fn median(figures: &[f64]) -> Option<f64> {
    Spread::of(figures.iter().copied()).map(|spread| spread.median)
}
