//! One socket of a bind: incoming datagrams, and the beginning and end of flows.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_config::model::{BindKey, EndpointId, Generation, Snapshot};
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::SCRATCH;
use super::endpoint::{ChosenEndpoint, choose};
use super::flow::{Flow, FlowKey, Flows, LocalFlow, Sent, carry};
use super::socket::{ClientSocket, Received};
use crate::budget::Cost;
use crate::clock;
use crate::connection::bind_end::{Ending, wait};
use crate::connection::idle::{self, Activity, ChargedTo, Entry};
use crate::driver::Traffic;
use crate::observe::datagram_metrics::{BindSeries, Dropped, FlowEnd};

/// The number of datagrams that are read before other sockets and flows of the thread have their turn.
const IN_A_ROW: usize = 64;

/// The interval at which the endpoints of flows are compared with the snapshot.
const CHECK: Duration = Duration::from_secs(1);

/// The pause after a failure to receive.
const PAUSE: Duration = Duration::from_millis(5);

/// The maximum number of flows tried for one datagram; the endpoint of each has refused it.
const TRIES_MAX: usize = 3;

struct Port {
    socket: Arc<ClientSocket>,
    bind: BindKey,
    traffic: Arc<Traffic>,
    series: Arc<BindSeries>,
    /// The flows of all threads.
    all: Arc<Flows>,
    tasks: JoinSet<()>,
    /// The flows of these tasks.
    flows: HashMap<Id, Owned, foldhash::fast::RandomState>,
    /// `true` while the bind drains.
    draining: watch::Sender<bool>,
    /// The generation of the snapshot with which the endpoints of all flows were compared.
    checked: Option<Generation>,
}

struct Owned {
    flow: Arc<Flow>,
    astray: Astray,
}

/// Since when the endpoint of a flow has not been one of the route's.
#[derive(Default)]
struct Astray(Option<Instant>);

impl Astray {
    /// Notes whether the endpoint is one of the route's. Returns `true` if it has not been for the grace period.
    fn is_over(&mut self, is_there: bool, now: Instant, grace: Duration) -> bool {
        if is_there {
            self.0 = None;
            return false;
        }
        now.saturating_duration_since(*self.0.get_or_insert(now)) >= grace
    }
}

/// Serves a bind until its end. While the bind drains, it begins no flow, lets the existing ones end and aborts those
/// left at the deadline; if the drain is cancelled, it continues. Returns the number of aborted flows.
pub(crate) async fn serve(
    socket: Arc<ClientSocket>,
    bind: BindKey,
    traffic: Arc<Traffic>,
    flows: Arc<Flows>,
    mut ending: Ending,
) -> usize {
    let mut port = Port {
        series: Arc::new(traffic.metrics.datagrams.bind(&bind)),
        socket: Arc::clone(&socket),
        bind,
        traffic,
        all: flows,
        tasks: JoinSet::new(),
        flows: HashMap::default(),
        draining: watch::Sender::new(false),
        checked: None,
    };
    let mut checks = interval(CHECK);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let until = *ending.borrow_and_update();
        port.drain(until.is_some());
        if until.is_some() && port.tasks.is_empty() {
            return 0;
        }
        tokio::select! {
            readable = socket.readable() => if let Err(error) = readable.and_then(|()| port.receive()) {
                port.traffic.metrics.accept_errors.inc();
                tracing::warn!(bind = %bind.address, %error, "cannot receive datagrams");
                sleep(PAUSE).await;
            },
            Some(ended) = port.tasks.join_next_with_id() => port.ended(&ended),
            _ = checks.tick(), if !port.flows.is_empty() => port.check(clock::now()),
            changed = ending.changed() => if changed.is_err() { break },
            () = wait(until) => break,
        }
    }
    let cut = port.tasks.len();
    port.traffic.metrics.cut.inc_by(cut as u64);
    port.tasks.shutdown().await;
    cut
}

impl Port {
    fn drain(&self, draining: bool) {
        self.draining.send_if_modified(|was| std::mem::replace(was, draining) != draining);
    }

    fn ended(&mut self, ended: &Result<(Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => *id,
            Err(error) => {
                if error.is_panic() {
                    self.traffic.metrics.panicked();
                }
                error.id()
            }
        };
        self.flows.remove(&id);
    }

    /// Reads the datagrams that have arrived, up to a limit.
    fn receive(&mut self) -> io::Result<()> {
        let socket = Arc::clone(&self.socket);
        SCRATCH.with_borrow_mut(|scratch| {
            for _ in 0..IN_A_ROW {
                match socket.receive(scratch) {
                    Ok(received) => self.pass(scratch.get(..received.len).unwrap_or_default(), received),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
    }

    fn pass(&mut self, bytes: &[u8], Received { client, local, .. }: Received) {
        let key = FlowKey { bind: self.bind, client, local };
        if let Err(why) = self.pass_on(bytes, key) {
            self.series.dropped(why);
        }
    }

    fn pass_on(&mut self, bytes: &[u8], key: FlowKey) -> Result<(), Dropped> {
        for _ in 0..TRIES_MAX {
            let flow = match self.all.get(&key) {
                Some(flow) => flow,
                None => self.begin(key)?,
            };
            match flow.up(bytes) {
                Sent::Passed => return Ok(()),
                Sent::Dropped => break,
                Sent::Refused => flow.refused(&self.traffic.shared.endpoints),
            }
        }
        Err(Dropped::Unsent)
    }

    /// Begins a flow: checks its client, chooses its endpoint and charges its budget.
    fn begin(&mut self, key: FlowKey) -> Result<Arc<Flow>, Dropped> {
        let traffic = Arc::clone(&self.traffic);
        if *self.draining.borrow() {
            return Err(Dropped::Draining);
        }
        if !self.is_answerable(&key) {
            return Err(Dropped::Source);
        }
        let snapshot = traffic.published.pin();
        let route = snapshot.stream(&self.bind).ok_or(Dropped::NoRoute)?;
        let client = traffic.flow_client(key.client.ip())?;
        let ChosenEndpoint { endpoint, socket, attempts } = choose(route, &snapshot, key.local, &traffic.shared)?;
        let now = clock::now();
        let activity = Activity::new(traffic.epoch, now);
        let series = traffic.shared.metrics.flows.flow(&self.bind, &route.origin.object);
        let flow = Flow::new(key, Arc::clone(route), (endpoint, socket), Arc::clone(&activity), series, now);
        let flow = Arc::new(flow.map_err(|_| Dropped::NoEndpoint)?);
        if !traffic.flow_room() {
            return Err(Dropped::Full);
        }
        let budget = &traffic.shared.flow_budget;
        if let Err(other) = self.all.enter(&flow) {
            budget.release();
            return Ok(other);
        }
        self.series.active.inc();
        let entry = Entry::new(ChargedTo::Flow(Arc::clone(budget)));
        let place = entry.place();
        let (series, traffic, all) = (Arc::clone(&self.series), Arc::clone(&self.traffic), Arc::clone(&self.all));
        let running = LocalFlow { flow: Arc::clone(&flow), attempts, _client: client, entry, series, traffic, all };
        let task = self.tasks.spawn(carry(running, Arc::clone(&self.socket), self.draining.subscribe()));
        self.flows.insert(task.id(), Owned { flow: Arc::clone(&flow), astray: Astray::default() });
        idle::register(place, activity, task, Cost::FLOW);
        Ok(flow)
    }

    /// Returns `true` if answers can be sent to the source of a datagram and do not lead back to the edge itself: two
    /// ends that answer every datagram would never stop.
    fn is_answerable(&self, key: &FlowKey) -> bool {
        let ip = key.client.ip().to_canonical();
        let is_host = !ip.is_unspecified() && !ip.is_multicast() && key.client.port() != 0;
        is_host && !self.traffic.shared.listening_udp.leads_back(key.client, Some(key.local))
    }

    /// Ends the flows whose endpoint has not been one of the route's for the grace period.
    fn check(&mut self, now: Instant) {
        let snapshot = self.traffic.published.pin();
        let is_astray = self.flows.values().any(|owned| owned.astray.0.is_some());
        if self.checked.replace(snapshot.generation()) == Some(snapshot.generation()) && !is_astray {
            return;
        }
        let Some(there) = endpoints(&snapshot, &self.bind) else {
            // Without a route, the addresses of its endpoints may be reused by other pods. Flows of a removed bind are
            // left to its drain.
            if snapshot.bind(&self.bind).is_some() {
                for owned in self.flows.values() {
                    owned.flow.over(FlowEnd::EndpointLeft);
                }
            }
            return;
        };
        let grace = self.traffic.options.drain.endpoint_grace;
        for owned in self.flows.values_mut() {
            if owned.astray.is_over(there.contains(&owned.flow.endpoint), now, grace) {
                owned.flow.over(FlowEnd::EndpointLeft);
            }
        }
    }
}

/// The endpoints for new flows of a bind; `None` for a bind without a route.
fn endpoints(snapshot: &Snapshot, bind: &BindKey) -> Option<BTreeSet<EndpointId>> {
    let shares = snapshot.stream(bind)?.backends.iter().filter(|share| share.weight > 0);
    let targets = shares.filter_map(|share| share.to.as_ref());
    let backends = targets.filter_map(|target| snapshot.backend(&target.backend));
    Some(backends.flat_map(|backend| backend.endpoints.iter().map(|endpoint| endpoint.id)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_comes_back_has_a_new_grace_period() {
        let (began, grace) = (clock::now(), Duration::from_secs(10));
        let mut astray = Astray::default();
        let mut check = |second: u64, is_there: bool, want: bool| {
            let now = began + Duration::from_secs(second);
            assert_eq!(astray.is_over(is_there, now, grace), want, "after {second} s");
        };
        check(0, true, false);
        check(1, false, false);
        check(9, false, false);
        check(10, true, false);
        check(30, true, false);
        check(31, false, false);
        check(40, false, false);
        check(41, false, true);
    }
}
