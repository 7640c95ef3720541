//! Connections to HTTP/2 endpoints, each for many requests at once: their limits, and the pool of a traffic thread. h2
//! handles the frames.

mod opening;
mod state;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::Reason as Reset;
use h2::client::{Builder, SendRequest};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout_at};

use super::connection::{Connection, ConnectionKey as Key};
use super::idle_order::IdleOrder;
use crate::clock;
use crate::http::response::HEAD_BYTES_MAX;
use crate::options::UpstreamLimits;
use crate::reason::Reason;
pub(crate) use opening::connect;
use state::{OverOnDrop, State, Yielding};

/// The number of response bytes that an endpoint may send on a stream before the client has taken them.
const STREAM_WINDOW_BYTES: u32 = 16 * 1024;

/// The number of request bytes of a stream that wait in h2 for the connection.
const SEND_BUFFER_BYTES: usize = 32 * 1024;

/// The minimum and maximum window of a connection (RFC 9113 sections 6.9.1 and 6.9.2).
const WINDOW_BYTES_LEAST: u32 = (1 << 16) - 1;
const WINDOW_BYTES_MOST: u32 = (1 << 31) - 1;

/// The maximum size of a decoded header list (RFC 9113 section 6.5.2), where each field counts 32 bytes more. Below it
/// the driver decides. Beyond it h2 resets the stream of a head, but only drops the further fields of trailers; hence
/// it is twice the limit of a head, so that no trailers that come near this limit lose any.
const HEADER_LIST_BYTES_MAX: u32 = 2 * HEAD_BYTES_MAX as u32;

/// The time in which a connection without requests that is no longer in the pool has to end.
const END_MAX: Duration = Duration::from_secs(1);

/// The streams that h2 remembers after they were reset, and for how long. Frames that are still on their way to other
/// reset streams count as errors, of which too many end the connection.
const RESET_STREAMS: (usize, Duration) = (1_000, Duration::from_secs(10));

/// An open connection.
#[derive(Debug)]
struct OpenConnection {
    key: Key,
    send: SendRequest<Bytes>,
    /// The number of its requests.
    streams: AtomicUsize,
    state: Arc<State>,
    /// Tells its task that there are no more requests for it.
    _last: oneshot::Sender<()>,
}

impl OpenConnection {
    fn is_over(&self) -> bool {
        self.state.is_over()
    }

    fn has_room(&self, streams_max: usize) -> bool {
        self.streams.load(Relaxed) < streams_max.min(self.send.current_max_send_streams())
    }
}

/// A place for one request on a connection.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    open: Arc<OpenConnection>,
    /// When it was given.
    asked: u64,
    pool_size: usize,
}

impl StreamSlot {
    fn new(open: Arc<OpenConnection>, limits: &UpstreamLimits) -> Self {
        open.streams.fetch_add(1, Relaxed);
        let asked = open.state.asked(clock::now());
        Self { asked, open, pool_size: limits.pool_size }
    }

    /// The handle for the request, once the connection can take it.
    ///
    /// # Errors
    /// If it takes no further requests.
    pub(crate) async fn ready(&self) -> Result<SendRequest<Bytes>, h2::Error> {
        self.open.send.clone().ready().await
    }

    /// Gives the connection no further requests.
    pub(crate) fn retire(&self) {
        self.open.state.end();
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let (now, was_last) = (clock::now(), self.open.streams.fetch_sub(1, Relaxed) == 1);
        self.open.state.left(self.asked, was_last, now);
        if was_last {
            // It fails when the thread ends.
            POOL.try_with(|pool| pool.borrow_mut().becomes_idle(&self.open, self.pool_size, now)).ok();
        }
    }
}

/// The time during which a connection has no requests.
#[derive(Clone, Copy, Debug)]
struct Idle {
    since: Instant,
    /// Its number in the order of idle connections.
    number: u64,
}

#[derive(Debug)]
struct Entry {
    open: Arc<OpenConnection>,
    idle: Option<Idle>,
}

/// By endpoint, the oldest first: it gets the next request, so that the others can end.
type ByEndpoint = HashMap<Key, Vec<Entry>, foldhash::fast::RandomState>;

#[derive(Default)]
struct Pool {
    open: ByEndpoint,
    idle_count: usize,
    order: IdleOrder,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

impl Pool {
    fn take(&mut self, key: &Key, limits: &UpstreamLimits) -> Option<StreamSlot> {
        let list = self.open.get_mut(key)?;
        let usable = |entry: &Entry| entry.open.is_over() || entry.open.has_room(limits.http2_streams_max);
        while let Some(at) = list.iter().position(usable) {
            let entry = &mut list[at];
            self.idle_count -= usize::from(entry.idle.take().is_some());
            if !entry.open.is_over() {
                return Some(StreamSlot::new(Arc::clone(&entry.open), limits));
            }
            list.remove(at);
        }
        None
    }

    /// Notes that a connection has no requests; beyond `max`, the one that has been idle for longest is closed.
    fn becomes_idle(&mut self, open: &Arc<OpenConnection>, max: usize, now: Instant) {
        let Some(list) = self.open.get_mut(&open.key) else { return };
        let Some(at) = list.iter().position(|entry| Arc::ptr_eq(&entry.open, open)) else { return };
        if open.is_over() {
            list.remove(at);
            return;
        }
        let number = self.order.add(open.key.clone(), max, |key, number| is_idle(&self.open, key, number));
        let Some(entry) = self.open.get_mut(&open.key).and_then(|list| list.get_mut(at)) else { return };
        entry.idle = Some(Idle { since: now, number });
        self.idle_count += 1;
        if self.idle_count > max {
            self.evict();
        }
    }

    /// Closes the connection that has been idle for longest.
    fn evict(&mut self) {
        let Self { open, idle_count, order } = self;
        order.close_first(|key, number| {
            let Some(list) = open.get_mut(key) else { return false };
            let Some(at) = list.iter().position(|entry| entry.is(number)) else { return false };
            list.remove(at);
            *idle_count -= 1;
            true
        });
    }
}

/// Returns `true` while it is idle with this number.
fn is_idle(open: &ByEndpoint, key: &Key, number: u64) -> bool {
    open.get(key).is_some_and(|list| list.iter().any(|entry| entry.is(number)))
}

impl Entry {
    /// Returns `true` while it is idle with this number.
    fn is(&self, number: u64) -> bool {
        self.idle.is_some_and(|idle| idle.number == number)
    }
}

/// Returns `true` if the endpoint says that it has not processed the request of a stream: with REFUSED_STREAM, or with
/// a GOAWAY that [excludes](is_excluded) the stream (RFC 9113 section 8.7).
pub(crate) fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote() && error.is_reset() && error.reason() == Some(Reset::REFUSED_STREAM) || is_excluded(error)
}

/// Returns `true` if a stream failed because the endpoint has announced the end of its connection with an earlier last
/// stream (RFC 9113 section 6.8), whatever its reason. The streams that it still processes have other errors in h2.
pub(crate) fn is_excluded(error: &h2::Error) -> bool {
    error.is_remote() && error.is_go_away()
}

/// A place on an open connection.
pub(crate) fn take(key: &Key, limits: &UpstreamLimits) -> Option<StreamSlot> {
    POOL.with_borrow_mut(|pool| pool.take(key, limits))
}

/// A place on a new connection, which later requests share.
///
/// # Errors
/// The reason why there is none.
async fn open(key: &Key, within: Duration, limits: &UpstreamLimits) -> Result<StreamSlot, Reason> {
    let open = establish(key, within, limits).await?;
    POOL.with_borrow_mut(|pool| {
        let entry = Entry { open: Arc::clone(&open), idle: None };
        pool.open.entry(key.clone()).or_default().push(entry);
    });
    Ok(StreamSlot::new(open, limits))
}

/// The only place on a new connection, which ends with its request.
///
/// # Errors
/// The reason why there is none.
pub(crate) async fn connect_alone(key: &Key, within: Duration, limits: &UpstreamLimits) -> Result<StreamSlot, Reason> {
    Ok(StreamSlot::new(establish(key, within, limits).await?, limits))
}

async fn establish(key: &Key, within: Duration, limits: &UpstreamLimits) -> Result<Arc<OpenConnection>, Reason> {
    let end = clock::now() + within;
    let stream = Connection::open(key, within, true).await?;
    let streams = u32::try_from(limits.http2_streams_max).unwrap_or(u32::MAX);
    // Room for all streams, so that slow clients do not block the other streams.
    let window = streams.saturating_mul(STREAM_WINDOW_BYTES).clamp(WINDOW_BYTES_LEAST, WINDOW_BYTES_MOST);
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_max_send_streams(limits.http2_streams_max)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(window)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .max_concurrent_reset_streams(RESET_STREAMS.0)
        .reset_stream_duration(RESET_STREAMS.1)
        .max_send_buffer_size(SEND_BUFFER_BYTES);
    let state = Arc::new(State::new(clock::now()));
    let handshake = timeout_at(end.into(), builder.handshake(Yielding::new(stream, Arc::clone(&state)))).await;
    let (send, connection) = handshake.map_err(|_| Reason::ConnectTimeout)?.map_err(|_| Reason::ConnectFailed)?;
    let (over_on_drop, (last, over)) = (OverOnDrop::new(&state), oneshot::channel::<()>());
    tokio::spawn(async move {
        let _ends = over_on_drop;
        tokio::select! {
            ended = connection => if let Err(error) = ended {
                tracing::debug!(%error, "a connection to an HTTP/2 endpoint ended");
            },
            // h2 waits for as long as the endpoint does not read.
            () = async {
                over.await.ok();
                sleep(END_MAX).await;
            } => {}
        }
    });
    Ok(Arc::new(OpenConnection { key: key.clone(), send, streams: AtomicUsize::new(0), state, _last: last }))
}

/// Closes connections that have been without requests for too long, and forgets those that have ended. The cost grows
/// with the pool, so this is called periodically.
pub(crate) fn sweep(limit: Duration, now: Instant) {
    POOL.with_borrow_mut(|pool| {
        let is_young = |idle: Idle| now.saturating_duration_since(idle.since) < limit;
        pool.open.retain(|_, list| {
            list.retain(|entry| !entry.open.is_over() && entry.idle.is_none_or(is_young));
            !list.is_empty()
        });
        let Pool { open, idle_count, order } = pool;
        *idle_count = open.values().flatten().filter(|entry| entry.idle.is_some()).count();
        order.tidy(|key, number| is_idle(open, key, number));
    });
}

/// Closes all connections: they belong to the runtime that opened them.
pub(crate) fn clear() {
    POOL.take();
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::{AppProtocol, Endpoint, Target};
    use tokio::net::TcpListener;
    use tokio::sync::watch;

    use super::*;
    use crate::options::Options;
    use crate::sample_model::backend_key;

    const WITHIN: Duration = Duration::from_secs(5);

    /// An endpoint that counts its open connections.
    async fn endpoint() -> (Key, watch::Receiver<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::tcp(listener.local_addr().unwrap(), None);
        let target = Target { backend: backend_key("web"), protocol: AppProtocol::H2c, tls: None, fixed: None };
        let (sender, open) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                sender.send_modify(|open| *open += 1);
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while connection.accept().await.is_some() {}
                    sender.send_modify(|open| *open -= 1);
                });
            }
        });
        (Key::new(&target, &endpoint, || panic!("nobody asks for a name")), open)
    }

    fn limits() -> UpstreamLimits {
        UpstreamLimits { http2_streams_max: 2, pool_size: 1, ..Options::default().upstream }
    }

    fn same(one: &StreamSlot, other: &StreamSlot) -> bool {
        Arc::ptr_eq(&one.open, &other.open)
    }

    async fn until(open: &mut watch::Receiver<usize>, count: usize) {
        tokio::time::timeout(WITHIN, open.wait_for(|open| *open == count)).await.expect("too many or few").unwrap();
    }

    #[tokio::test]
    async fn the_oldest_connection_with_room_is_used_and_few_are_kept_idle() {
        let ((key, mut open), limits) = (endpoint().await, limits());
        assert!(take(&key, &limits).is_none());
        let first = super::open(&key, WITHIN, &limits).await.unwrap();
        let second = take(&key, &limits).unwrap();
        assert!(same(&first, &second) && take(&key, &limits).is_none(), "two requests are its maximum");
        let other = super::open(&key, WITHIN, &limits).await.unwrap();
        let again = take(&key, &limits).unwrap();
        assert!(same(&other, &again));
        drop((second, again));
        let again = take(&key, &limits).unwrap();
        assert!(same(&first, &again));
        until(&mut open, 2).await;
        drop((first, again));
        drop(other);
        // The one that became idle first is closed.
        until(&mut open, 1).await;
        let kept = take(&key, &limits).unwrap();
        kept.ready().await.unwrap();
        drop(kept);
        sweep(Duration::ZERO, clock::now());
        until(&mut open, 0).await;
        assert!(take(&key, &limits).is_none());
    }

    #[tokio::test]
    async fn a_connection_for_one_request_ends_with_it() {
        let ((key, mut open), limits) = (endpoint().await, limits());
        let place = connect_alone(&key, WITHIN, &limits).await.unwrap();
        until(&mut open, 1).await;
        assert!(take(&key, &limits).is_none());
        drop(place);
        until(&mut open, 0).await;
    }

    #[tokio::test]
    async fn a_retired_connection_gets_no_further_request() {
        let ((key, mut open), limits) = (endpoint().await, limits());
        let place = super::open(&key, WITHIN, &limits).await.unwrap();
        place.retire();
        assert!(take(&key, &limits).is_none());
        until(&mut open, 1).await;
        drop(place);
        until(&mut open, 0).await;
    }
}
