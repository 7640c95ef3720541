//! `attach --policies`: a start with policies at every level of a Gateway, and a change of one at each level, until all
//! statuses are right.

use std::mem::discriminant;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;
use tokio::time::timeout;

use super::statuses::{Counts, Statuses};
use super::{Case, Column, QUIET, count};
use crate::clock::now;
use crate::limits::UNREACHED;
use crate::peer::{Choice, Peer, Policies, PolicyTarget, Route, START_MAX};
use crate::poll::{until_right, wrong};

/// Every route has a policy, and every so many of them another one for its rule.
const RULE_EVERY: usize = 2;
/// The number of concurrent writes of policies.
const CONCURRENT: usize = 32;
/// The maximum time in which all statuses of a start are written.
const SETTLED_MAX: Duration = Duration::from_secs(300);

/// The figures of one round. Times of the start are in seconds from the start of the process, with all objects there
/// and no status in any.
#[derive(Debug, Serialize)]
pub(super) struct Turn {
    /// Policies of all levels.
    policies: usize,
    /// Until the first route gave a right response, and until every route had.
    first_s: f64,
    serves_s: f64,
    /// Until the last status of any object was written.
    statuses_s: f64,
    /// Writes of statuses until then.
    writes: Counts,
    /// Changes of one policy of each level: of the Gateway, a listener, a route and a rule.
    changes: Vec<Changed>,
    /// Lists after the start.
    lists: f64,
    /// Of another start, with all statuses right: until the first right response, and all writes of statuses.
    again_s: f64,
    again_writes: usize,
}

impl Turn {
    /// Fails unless a change of a policy wrote one status, and nothing was listed or written without need.
    pub(super) fn complete(&self) -> anyhow::Result<()> {
        ensure!(self.change_writes() == 1, "a change of one policy wrote more than its status: {self:?}");
        ensure!(self.lists == 0.0, "{} lists after the start: {self:?}", self.lists);
        ensure!(self.again_writes == 0, "another start wrote {} statuses: {self:?}", self.again_writes);
        ensure!(self.writes.policies == self.policies, "the status of a policy was written twice: {self:?}");
        Ok(())
    }

    /// The longest time of a change.
    fn change_s(&self) -> f64 {
        self.changes.iter().map(|change| change.took_s).fold(0.0, f64::max)
    }

    /// The most writes of statuses after a change.
    fn change_writes(&self) -> usize {
        self.changes.iter().map(|change| change.writes).max().unwrap_or_default()
    }
}

/// The targets of all policies: those of a Gateway, its listeners, all routes and some of their rules.
fn targets(listeners: Vec<String>, present: &[Route]) -> Vec<PolicyTarget> {
    let rules = present.iter().step_by(RULE_EVERY).map(|route| PolicyTarget::Rule(route.host.clone()));
    let routes = present.iter().map(|route| PolicyTarget::Route(route.host.clone()));
    let listeners = listeners.into_iter().map(PolicyTarget::Listener);
    std::iter::once(PolicyTarget::Gateway).chain(listeners).chain(routes).chain(rules).collect()
}

/// Starts it with everything there, changes a policy of each level, and starts it once more.
pub(super) async fn turn(choice: &Choice, case: &Case<'_>) -> anyhow::Result<Turn> {
    let mut peer = case.start(choice).await?;
    peer.pause().await?;
    let present = case.present();
    peer.put(&present).await?;
    let targets = targets(listeners(&peer).await?, &present);
    let policies = peer.policies()?;
    stream::iter(&targets)
        .map(|target| policies.create(target, UNREACHED))
        .buffer_unordered(CONCURRENT)
        .try_collect::<Vec<()>>()
        .await?;
    let mut statuses = Statuses::follow(&peer).await?;
    let begun = peer.restart().await?;
    let since = |at: Instant| (at - begun).as_secs_f64();
    let (address, first) = (peer.address(), &present.first().context("no routes")?.host);
    let serving = async {
        let first = until_right(address, first, START_MAX).await?;
        let mut left: Vec<String> = present.iter().map(|route| route.host.clone()).collect();
        while !left.is_empty() {
            left = wrong(address, left).await?;
        }
        anyhow::Ok((first.at, now()))
    };
    let settled = statuses.until(|it| {
        let Counts { routes, policies, .. } = it.settled();
        routes == case.routes && policies == targets.len() && it.attached() == case.attached()
    });
    let both = async { tokio::try_join!(serving, settled) };
    let ((first_at, serves_at), ()) = timeout(SETTLED_MAX, both).await.context("it does not settle")??;
    statuses.until_quiet(QUIET).await?;
    let statuses_at = statuses.last_written().any().context("no status was written")?;
    let (writes, listed) = (statuses.writes(), peer.lists().await?);
    let mut changes = Vec::new();
    for target in of_each_level(&targets) {
        changes.push(timeout(SETTLED_MAX, change(&policies, &mut statuses, target)).await??);
    }
    let lists = peer.lists().await? - listed;
    peer.pause().await?;
    let (before, again) = (statuses.writes().all(), peer.restart().await?);
    let again_s = (until_right(address, first, START_MAX).await?.at - again).as_secs_f64();
    statuses.until_quiet(QUIET).await?;
    Ok(Turn {
        policies: targets.len(),
        first_s: since(first_at),
        serves_s: since(serves_at),
        statuses_s: since(statuses_at),
        writes,
        changes,
        lists,
        again_s,
        again_writes: statuses.writes().all() - before,
    })
}

/// The names of the listeners of its Gateway.
async fn listeners(peer: &Peer) -> anyhow::Result<Vec<String>> {
    let (_, gateways) = peer.gateway_objects()?;
    let gateway = gateways.get("edge").await?;
    let listeners = gateway.data["spec"]["listeners"].as_array().context("it has no listeners")?;
    Ok(listeners.iter().filter_map(|listener| listener["name"].as_str().map(str::to_owned)).collect())
}

/// The first target of each level.
fn of_each_level(targets: &[PolicyTarget]) -> impl Iterator<Item = &PolicyTarget> {
    targets.chunk_by(|one, other| discriminant(one) == discriminant(other)).filter_map(<[PolicyTarget]>::first)
}

/// A change of one policy.
#[derive(Debug, Serialize)]
struct Changed {
    /// From the write until its status says so.
    took_s: f64,
    /// The writes of statuses, of any object, that followed.
    writes: usize,
}

/// Changes the policy of a target, and waits until its status is about that change.
async fn change(policies: &Policies, statuses: &mut Statuses, target: &PolicyTarget) -> anyhow::Result<Changed> {
    let name = target.policy();
    let (before, writes) = (statuses.policy_generation(&name), statuses.writes().all());
    let begun = now();
    policies.change(target, UNREACHED - 1).await?;
    statuses.until(|it| it.policy_generation(&name) > before && it.policy_is_settled(&name)).await?;
    statuses.until_quiet(QUIET).await?;
    let at = statuses.last_written().any().context("no status was written")?;
    Ok(Changed { took_s: (at - begun).as_secs_f64(), writes: statuses.writes().all() - writes })
}

pub(super) const COLUMNS: [Column<Turn>; 12] = [
    ("policies", |turn| count(turn.policies)),
    ("first route right s", |turn| turn.first_s),
    ("last route right s", |turn| turn.serves_s),
    ("last status s", |turn| turn.statuses_s),
    ("statuses of routes", |turn| count(turn.writes.routes)),
    ("of policies", |turn| count(turn.writes.policies)),
    ("of the Gateway", |turn| count(turn.writes.gateways)),
    ("one change ms", |turn| turn.change_s() * 1e3),
    ("writes for it", |turn| count(turn.change_writes())),
    ("lists after the start", |turn| turn.lists),
    ("another start: first route right s", |turn| turn.again_s),
    ("another start: writes", |turn| count(turn.again_writes)),
];
