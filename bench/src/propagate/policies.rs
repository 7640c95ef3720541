//! The same for policies: a limit of a Gateway, a listener, a route or a rule that lets every request pass refuses all
//! of them from one write to the next.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::timeout;

use super::{Args, BUDGET, One, Row, begin, milliseconds, table};
use crate::clock::{now, timed_async};
use crate::limits::UNREACHED;
use crate::peer::{Choice, Peer, PolicyTarget, Route, Target};
use crate::poll::{until, until_right};
use crate::progress::Progress;
use crate::size::Size;
use crate::spread::sorted;

/// The status of a request that a limit refuses.
const REFUSED: u16 = 429;

/// Runs the command for policies.
pub(super) async fn run(mut args: Args) -> anyhow::Result<()> {
    args.peers.only_tidegate();
    args.peers.only_gateway();
    if args.size == Size::Smoke {
        (args.routes, args.writes) = (vec![100], 20);
    }
    let (choices, cores, upstream, mut report) = begin(&args).await?;
    let progress = Progress::new(args.routes.len() * choices.len() * args.writes);
    for routes in &args.routes {
        for choice in &choices {
            let present: Vec<Route> = (0..*routes).map(|i| Route::numbered(i, Target::Right)).collect();
            let share = cores.proxy(args.peers.workers());
            let (peer, start) = timed_async(choice.start(&args.peers, share, &upstream, &present)).await;
            let measured = measure(&peer?, &present, args.writes, &progress).await?;
            report.rows.extend(measured.into_iter().map(|measured| measured.into_row(choice, *routes, start)));
        }
    }
    progress.finish();
    args.output.tell(&report, table::print)
}

/// The writes of the policy of one target.
struct Measured {
    level: &'static str,
    target: PolicyTarget,
    /// A host whose requests it limits.
    host: String,
    right_ms: Vec<f64>,
    write_ms: Vec<f64>,
    gap_max: Duration,
}

impl Measured {
    fn new(level: &'static str, target: PolicyTarget, host: &str) -> Self {
        let (right_ms, write_ms, gap_max) = (Vec::new(), Vec::new(), Duration::ZERO);
        Self { level, target, host: host.to_owned(), right_ms, write_ms, gap_max }
    }

    fn into_row(self, choice: &Choice, routes: usize, start: Duration) -> Row {
        let peer = format!("{}, policy of {}", choice.name(), self.level);
        let (right_ms, write_ms) = (sorted(self.right_ms), sorted(self.write_ms));
        Row { peer, right_ms, write_ms, gap_max_ms: milliseconds(self.gap_max), ..Row::new(choice, routes, start) }
    }
}

async fn measure(peer: &Peer, present: &[Route], writes: usize, progress: &Progress) -> anyhow::Result<Vec<Measured>> {
    let [first, .., last] = present else { anyhow::bail!("two routes at least are measured") };
    let mut all = vec![
        Measured::new("the Gateway", PolicyTarget::Gateway, &last.host),
        Measured::new("a listener", PolicyTarget::Listener("http".to_owned()), &last.host),
        Measured::new("a route", PolicyTarget::Route(first.host.clone()), &first.host),
        Measured::new("a rule", PolicyTarget::Rule(first.host.clone()), &first.host),
    ];
    let policies = peer.policies()?;
    for measured in &all {
        policies.create(&measured.target, UNREACHED).await?;
    }
    for write in 0..writes {
        for measured in &mut all {
            progress.say(format!("write {write}: the policy of {} with {} routes", measured.level, present.len()));
            let one = timeout(BUDGET, one(peer, measured)).await;
            let One { right, write, gap_max } = one.with_context(|| measured.level)??;
            measured.right_ms.push(milliseconds(right));
            measured.write_ms.push(milliseconds(write));
            measured.gap_max = measured.gap_max.max(gap_max);
        }
    }
    Ok(all)
}

/// Has a policy refuse all requests while its host is polled, and has it let them pass again.
async fn one(peer: &Peer, Measured { target, host, .. }: &Measured) -> anyhow::Result<One> {
    let (policies, address) = (peer.policies()?, peer.address());
    until_right(address, host, BUDGET).await?;
    let begin = now();
    let asking = until(address, host, BUDGET, |status| status == REFUSED);
    let (right, (written, write)) = tokio::join!(asking, timed_async(policies.change(target, 0)));
    written?;
    let right = right?;
    policies.change(target, UNREACHED).await?;
    Ok(One { right: right.at - begin, write, gap_max: right.gap_max })
}
