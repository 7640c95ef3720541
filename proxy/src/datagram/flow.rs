//! One flow: the datagrams from a client to an address of the edge, and the answers of its endpoint. A flow keeps its
//! endpoint; the client's next flow may get another one.

use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use rustix::io::Errno;
use tidegate_config::model::{BindKey, EndpointId, StreamRoute};
use tokio::net::UdpSocket;
use tokio::sync::{Notify, watch};
use tokio::time::sleep_until;

use super::SCRATCH;
use super::socket::{self, ClientSocket};
use crate::clock;
use crate::connection::clients::FlowPermit;
use crate::connection::idle::{Activity, Entry};
use crate::driver::Traffic;
use crate::observe::access_log::StreamEntry;
use crate::observe::datagram_metrics::{BindSeries, Direction, Dropped, FlowEnd, FlowSeries};
use crate::upstream::attempt::Attempts;
use crate::upstream::endpoint_state::EndpointStates;

/// The number of answers that are passed on before the other flows of the thread have their turn.
const IN_A_ROW: usize = 32;

/// The identity of a flow: datagrams with equal keys belong to the same one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FlowKey {
    /// The bind that they came in over.
    pub(super) bind: BindKey,
    /// The client's address.
    pub(super) client: SocketAddr,
    /// The address that they came to.
    pub(super) local: IpAddr,
}

/// The flows of the process. They do not belong to a thread's socket: the kernel distributes datagrams over the sockets
/// of a bind by their addresses and the number of sockets, and when that number changes, a flow's datagrams come to
/// another socket.
#[derive(Debug)]
pub(crate) struct Flows(papaya::HashMap<FlowKey, Arc<Flow>, RandomState>);

/// The part of a flow that all threads use.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) key: FlowKey,
    pub(super) route: Arc<StreamRoute>,
    pub(super) endpoint: EndpointId,
    /// The endpoint's address.
    pub(super) address: SocketAddr,
    upstream: UdpSocket,
    pub(super) activity: Arc<Activity>,
    series: FlowSeries,
    began: Instant,
    passed: [DirectionCounters; 2],
    end: OnceLock<FlowEnd>,
    ended: Notify,
}

/// The counters of one direction.
#[derive(Debug, Default)]
struct DirectionCounters {
    datagrams: AtomicU64,
    bytes: AtomicU64,
}

/// The outcome of sending a datagram to an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// It was sent.
    Passed,
    /// It was not sent, and the flow continues.
    Dropped,
    /// It was not sent: the endpoint has refused an earlier one.
    Refused,
}

impl Default for Flows {
    fn default() -> Self {
        Self(papaya::HashMap::with_hasher(RandomState::default()))
    }
}

impl Flows {
    /// The flow of a key, unless it is over.
    pub(super) fn get(&self, key: &FlowKey) -> Option<Arc<Flow>> {
        self.0.pin().get(key).filter(|flow| !flow.is_over()).cloned()
    }

    /// Stores a flow under its key.
    ///
    /// # Errors
    /// The flow that another thread has stored in the meantime.
    pub(super) fn enter(&self, flow: &Arc<Flow>) -> Result<(), Arc<Flow>> {
        let flows = self.0.pin();
        loop {
            let Err(there) = flows.try_insert(flow.key, Arc::clone(flow)) else { return Ok(()) };
            if !there.current.is_over() {
                return Err(Arc::clone(there.current));
            }
            flows.remove_if(&flow.key, |_, other| Arc::ptr_eq(other, there.current)).ok();
        }
    }

    fn leave(&self, flow: &Arc<Flow>) {
        self.0.pin().remove_if(&flow.key, |_, other| Arc::ptr_eq(other, flow)).ok();
    }
}

impl Flow {
    /// A new flow.
    pub(super) fn new(
        key: FlowKey,
        route: Arc<StreamRoute>,
        (endpoint, upstream): (EndpointId, UdpSocket),
        activity: Arc<Activity>,
        series: FlowSeries,
        now: Instant,
    ) -> io::Result<Self> {
        Ok(Self {
            key,
            route,
            endpoint,
            address: upstream.peer_addr()?,
            upstream,
            activity,
            series,
            began: now,
            passed: Default::default(),
            end: OnceLock::new(),
            ended: Notify::new(),
        })
    }

    fn is_over(&self) -> bool {
        self.end.get().is_some()
    }

    /// Ends the flow. Returns `true` if it was not over yet. Its task cleans up.
    pub(super) fn over(&self, end: FlowEnd) -> bool {
        let first = self.end.set(end).is_ok();
        if first {
            self.ended.notify_one();
        }
        first
    }

    /// Ends the flow because its endpoint refused a datagram, so that the next flow goes to another endpoint.
    pub(super) fn refused(&self, states: &EndpointStates) {
        if self.over(FlowEnd::Refused) {
            let moment = states.moment(clock::now());
            states.peek(self.endpoint, |state| state.refused(moment));
        }
    }

    /// Sends a datagram to the endpoint.
    pub(super) fn up(&self, bytes: &[u8]) -> Sent {
        let sent = socket::send(&self.upstream, bytes);
        let sent = match sent {
            // The error belongs to an earlier datagram, which was too large for a part of the path; the kernel now
            // knows the path MTU.
            Err(error) if is_too_large(&error) => socket::send(&self.upstream, bytes),
            sent => sent,
        };
        match sent {
            Ok(()) => {
                self.note(Direction::Up, bytes.len());
                Sent::Passed
            }
            Err(error) if is_refusal(&error) => Sent::Refused,
            Err(_) => Sent::Dropped,
        }
    }

    fn note(&self, direction: Direction, bytes: usize) {
        self.activity.wait(clock::now());
        let passed = &self.passed[direction as usize];
        passed.datagrams.fetch_add(1, Relaxed);
        passed.bytes.fetch_add(bytes as u64, Relaxed);
        self.series.passed(direction, bytes);
    }
}

/// Returns `true` if the endpoint is unreachable, according to an ICMP message or the edge's own network.
fn is_refusal(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

fn is_too_large(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::MSGSIZE)
}

/// A flow in the thread that began it. Dropping it ends, counts and logs the flow.
pub(super) struct LocalFlow {
    pub(super) flow: Arc<Flow>,
    pub(super) attempts: Attempts,
    /// The flow's place among those of its client.
    pub(super) _client: Option<FlowPermit>,
    pub(super) entry: Entry,
    pub(super) series: Arc<BindSeries>,
    pub(super) traffic: Arc<Traffic>,
    pub(super) all: Arc<Flows>,
}

/// Passes answers to the client until the flow is over. When its bind drains, a shorter idle time applies.
pub(super) async fn carry(mut running: LocalFlow, socket: Arc<ClientSocket>, mut draining: watch::Receiver<bool>) {
    let flow = Arc::clone(&running.flow);
    let short = running.traffic.options.drain.flow_silence;
    tokio::select! {
        () = flow.ended.notified() => {}
        () = answers(&mut running, &socket) => flow.refused(&running.traffic.shared.endpoints),
        () = silence(&flow, short, &mut draining) => drop(flow.over(FlowEnd::Idle)),
    }
}

/// Passes answers on until the endpoint refuses a datagram.
async fn answers(running: &mut LocalFlow, socket: &ClientSocket) {
    let flow = Arc::clone(&running.flow);
    while flow.upstream.readable().await.is_ok() {
        for _ in 0..IN_A_ROW {
            let received = SCRATCH.with_borrow_mut(|scratch| {
                let len = flow.upstream.try_recv(scratch)?;
                running.down(scratch.get(..len).unwrap_or_default(), socket);
                Ok::<_, io::Error>(())
            });
            match received {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // See [`Flow::up`].
                Err(error) if is_too_large(&error) => {}
                Err(_) => return,
            }
        }
    }
}

/// Waits until no datagram has passed in either direction for long enough.
async fn silence(flow: &Flow, short: Duration, draining: &mut watch::Receiver<bool>) {
    loop {
        let is_draining = *draining.borrow_and_update();
        let limit = if is_draining { short.min(flow.route.idle_timeout) } else { flow.route.idle_timeout };
        let end = flow.activity.waited(limit);
        if end <= clock::now() {
            return;
        }
        tokio::select! {
            () = sleep_until(end.into()) => {}
            () = async {
                // Without a sender there are no further signals.
                if draining.changed().await.is_err() {
                    pending::<()>().await;
                }
            } => {}
        }
    }
}

impl LocalFlow {
    fn down(&mut self, bytes: &[u8], socket: &ClientSocket) {
        let FlowKey { client, local, .. } = self.flow.key;
        if self.attempts.last().is_some_and(|attempt| attempt.connect.is_none()) {
            // The first answer counts as the connection.
            self.attempts.connected(false, clock::now());
        }
        if socket.send(bytes, client, local).is_err() {
            return self.series.dropped(Dropped::Unsent);
        }
        self.flow.note(Direction::Down, bytes.len());
    }
}

impl Drop for LocalFlow {
    fn drop(&mut self) {
        // The task was aborted, unless the flow has ended by itself.
        let aborted = if self.entry.evicted() { FlowEnd::Evicted } else { FlowEnd::Cut };
        self.flow.over(aborted);
        self.all.leave(&self.flow);
        let end = self.flow.end.get().copied().unwrap_or(aborted);
        let flow = &self.flow;
        let FlowKey { bind, client, .. } = flow.key;
        self.series.active.dec();
        self.traffic.shared.metrics.flows.ended(&bind, &flow.route.origin.object, end);
        let [up, down] = &flow.passed;
        let bytes = [up, down].map(|way| way.bytes.load(Relaxed));
        tracing::debug!(peer = %client, bind = %bind.address, outcome = end.as_str(), ?bytes, "flow ended");
        // A custom log format has variables of requests, which a flow does not have.
        if self.traffic.published.pin().edge().log_format.is_some() {
            return;
        }
        let entry = StreamEntry {
            time: clock::wall(),
            protocol: "UDP",
            client,
            bind: bind.address,
            bytes_in: bytes[0],
            bytes_out: bytes[1],
            datagrams: Some([up, down].map(|way| way.datagrams.load(Relaxed))),
            duration: clock::now().saturating_duration_since(flow.began),
            upstream: Some(flow.address),
            object: Some(&flow.route.origin.object),
            outcome: end.as_str(),
        };
        self.traffic.shared.access_log.put(|out| entry.write(out));
    }
}
