//! The same for applications of the Deis router: writes for one of them, while nothing else changes and while the
//! router's Deployment moves all of them from one platform domain to another and back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Args, BUDGET, One, Report, Row, begin, milliseconds, table};
use crate::clock::{now, timed_async};
use crate::cores::Cores;
use crate::metrics::value;
use crate::peer::Choice;
use crate::peer::deis::{Apps, DOMAINS, PLATFORMS, Write, last_short_host};
use crate::poll::{until, until_right, wrong};
use crate::progress::Progress;
use crate::size::Size;
use crate::spread::sorted;
use crate::upstream::Upstream;

/// The number of writes of each kind until the platform domain comes to rest, or begins to move.
const BLOCK: usize = 20;
/// The interval of checks for the end of a move.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// The metric of the keys in the slow lane of the control loop.
const SLOW: &str = "tidegate_queue_depth{lane=\"slow\",name=\"routes\"}";

/// Runs the command for applications.
pub(super) async fn run(mut args: Args) -> anyhow::Result<()> {
    args.peers.only_tidegate();
    if args.size == Size::Smoke {
        (args.apps, args.writes) = (vec![100], 20);
    }
    let (choices, cores, upstream, mut report) = begin(&args).await?;
    let progress = Progress::new(args.apps.len() * choices.len() * args.writes * 2);
    for apps in &args.apps {
        for choice in &choices {
            measure(choice, *apps, &args, (&upstream, &cores), &mut report, &progress).await?;
        }
    }
    progress.finish();
    report.moves_ms = sorted(report.moves_ms);
    args.output.tell(&report, table::print)?;
    ensure!(!report.moves_ms.is_empty(), "the platform domain never came anywhere");
    Ok(())
}

async fn measure(
    choice: &Choice,
    apps: usize,
    args: &Args,
    (upstream, cores): (&Upstream, &Cores),
    report: &mut Report,
    progress: &Progress,
) -> anyhow::Result<()> {
    let share = cores.proxy(args.peers.workers());
    let (peer, start) = timed_async(choice.start_apps(&args.peers, share, upstream, apps)).await;
    let peer = peer?;
    let row = |write: Write, meanwhile: &str| {
        let peer = format!("{}, {}{meanwhile}", choice.name(), write.name());
        Row { peer, ..Row::new(choice, DOMAINS * apps, start) }
    };
    let mut quiet = Write::ALL.map(|write| row(write, ""));
    let mut moving = Write::ALL.map(|write| row(write, ", all moving"));
    let (objects, admin) = peer.apps()?;
    let address = peer.address();
    let mut number = 0;
    for begun in (0..args.writes).step_by(BLOCK) {
        for rows in [&mut quiet, &mut moving] {
            let moves = rows.first().is_some_and(|row| row.peer.ends_with("moving"));
            let moves = moves.then(|| Moves::begin(Arc::clone(objects), [address, admin], apps));
            for write in begun..args.writes.min(begun + BLOCK) {
                progress.say(format!("write {write} with {apps} applications"));
                for (kind, row) in Write::ALL.into_iter().zip(rows.iter_mut()) {
                    let one = timeout(BUDGET, one(objects, address, kind, (number, apps))).await;
                    let One { right, write, gap_max } = one.with_context(|| row.peer.clone())??;
                    row.right_ms.push(milliseconds(right));
                    row.write_ms.push(milliseconds(write));
                    row.gap_max_ms = row.gap_max_ms.max(milliseconds(gap_max));
                }
                number += 1;
            }
            if let Some(moves) = moves {
                report.moves_ms.extend(moves.end().await?);
            }
        }
    }
    for mut row in quiet.into_iter().chain(moving) {
        (row.right_ms, row.write_ms) = (sorted(row.right_ms), sorted(row.write_ms));
        report.rows.push(row);
    }
    Ok(())
}

/// Makes one write while its host is polled, and reverts it.
async fn one(objects: &Apps, address: SocketAddr, kind: Write, (number, apps): (usize, usize)) -> anyhow::Result<One> {
    let host = kind.host(number, apps);
    objects.prepare(kind, number, apps).await?;
    until(address, &host, BUDGET, |status| status != 200).await?;
    let begin = now();
    let asking = until_right(address, &host, BUDGET);
    let (right, (written, write)) = tokio::join!(asking, timed_async(objects.write(kind, number, apps)));
    written?;
    let right = right?;
    objects.undo(kind, number, apps).await?;
    Ok(One { right: right.at - begin, write, gap_max: right.gap_max })
}

/// The platform domain, which moves again as soon as a move is complete.
struct Moves {
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<Vec<f64>>>,
}

impl Moves {
    fn begin(objects: Arc<Apps>, [address, admin]: [SocketAddr; 2], apps: usize) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut took = Vec::new();
            // It ends where it was at the start.
            while !stopped.is_cancelled() {
                for domain in PLATFORMS.into_iter().rev() {
                    let begin = now();
                    objects.move_to(domain).await?;
                    let last = last_short_host(apps, domain);
                    // Polled hosts go first, so a right response says only that the move has begun.
                    while !wrong(address, vec![last.clone()]).await?.is_empty() || value(admin, SLOW).await? > 0.0 {
                        ensure!(now() - begin < BUDGET, "{last} is not right, or the slow lane is not empty");
                        sleep(LOOK_EVERY).await;
                    }
                    took.push(milliseconds(now() - begin));
                }
            }
            Ok(took)
        });
        Self { stop, task }
    }

    /// The duration of each move until all applications were moved.
    async fn end(self) -> anyhow::Result<Vec<f64>> {
        self.stop.cancel();
        self.task.await?
    }
}
