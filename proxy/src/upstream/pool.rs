//! The connection pool of a traffic thread: idle upstream connections by endpoint and TLS settings.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::connection::{Connection, ConnectionKey as Key};
use super::idle_order::IdleOrder;

/// An idle connection.
struct Idle {
    connection: Connection,
    /// Whether its last response had no body, which an endpoint may send nevertheless, a moment later.
    bodiless: bool,
    since: Instant,
    /// Its number in the order of idle connections.
    number: u64,
}

/// By endpoint, the last ones at the end.
type ByEndpoint = HashMap<Key, Vec<Idle>, foldhash::fast::RandomState>;

#[derive(Default)]
struct Pool {
    idle: ByEndpoint,
    count: usize,
    order: IdleOrder,
}

impl Pool {
    /// Closes the longest idle connection.
    fn evict(&mut self) {
        let Self { idle, count, order } = self;
        order.close_first(|endpoint, number| {
            let list = idle.get_mut(endpoint);
            let Some(list) = list.filter(|list| list.first().is_some_and(|idle| idle.number == number)) else {
                return false;
            };
            list.remove(0);
            *count -= 1;
            true
        });
    }
}

/// Returns `true` if the connection with this number is still in the pool.
fn holds(idle: &ByEndpoint, endpoint: &Key, number: u64) -> bool {
    idle.get(endpoint).is_some_and(|list| list.binary_search_by_key(&number, |idle| idle.number).is_ok())
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// The most recently used connection to an endpoint that is alive.
pub(crate) fn take(endpoint: &Key) -> Option<Connection> {
    POOL.with_borrow_mut(|pool| {
        let Pool { idle, count, .. } = pool;
        let list = idle.get_mut(endpoint)?;
        while let Some(Idle { mut connection, bodiless, .. }) = list.pop() {
            *count -= 1;
            if connection.lives() && (!bodiless || connection.is_silent()) {
                return Some(connection);
            }
        }
        None
    })
}

/// Puts a connection into the pool; beyond `max` the longest idle one is closed. `bodiless` if its last response had no
/// body.
pub(crate) fn put(endpoint: Key, connection: Connection, bodiless: bool, max: usize, now: Instant) {
    POOL.with_borrow_mut(|pool| {
        let Pool { idle, count, order } = pool;
        let number = order.add(endpoint.clone(), max, |endpoint, number| holds(idle, endpoint, number));
        idle.entry(endpoint).or_default().push(Idle { connection, bodiless, since: now, number });
        *count += 1;
        if pool.count > max {
            pool.evict();
        }
    });
}

/// Closes connections that are dead or have been idle for too long. The cost grows with the pool, so this is called
/// periodically.
pub(crate) fn sweep(limit: Duration, now: Instant) {
    POOL.with_borrow_mut(|pool| {
        pool.idle.retain(|_, list| {
            list.retain_mut(|idle| now.saturating_duration_since(idle.since) < limit && idle.connection.lives());
            !list.is_empty()
        });
        let Pool { idle, count, order } = pool;
        *count = idle.values().map(Vec::len).sum();
        order.tidy(|endpoint, number| holds(idle, endpoint, number));
    });
}

/// Closes all connections: they belong to the runtime that opened them.
pub(crate) fn clear() {
    POOL.take();
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tidegate_config::model::{AppProtocol, Endpoint, Target};
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::clock;
    use crate::sample_model::backend_key;
    use crate::upstream::connection::tests::plain;

    fn local(connection: &Connection) -> SocketAddr {
        let Connection::Plain(stream) = connection else { panic!("nobody speaks TLS here") };
        stream.local_addr().unwrap()
    }

    fn endpoint(port: u16) -> Key {
        let endpoint = Endpoint::tcp(([10, 0, 0, 1], port).into(), None);
        let target = Target { backend: backend_key("web"), protocol: AppProtocol::Http, tls: None, fixed: None };
        Key::new(&target, &endpoint, || panic!("nobody asks for a name"))
    }

    fn kept() -> usize {
        POOL.with_borrow(|pool| pool.count)
    }

    #[tokio::test]
    async fn the_last_used_connection_comes_first_and_a_closed_one_never() {
        let (id, now) = (endpoint(1), clock::now());
        let ((first, _far), (second, mut chatty), (third, gone)) = (plain().await, plain().await, plain().await);
        let address = local(&first);
        for stream in [first, second, third] {
            put(id.clone(), stream, false, 9, now);
        }
        drop(gone);
        chatty.write_all(b"x").await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(take(&endpoint(2)).is_none());
        assert_eq!(local(&take(&id).unwrap()), address);
        assert!(take(&id).is_none());
        assert_eq!(kept(), 0);
    }

    #[tokio::test]
    async fn bytes_after_a_bodiless_response_are_seen_before_the_reactor_reports_them() {
        let (id, now) = (endpoint(1), clock::now());
        for (bodiless, want) in [(true, false), (false, true)] {
            let (stream, far) = plain().await;
            put(id.clone(), stream, bodiless, 9, now);
            // Without an await in between, the runtime cannot poll its sockets.
            let far = far.into_std().unwrap();
            std::io::Write::write_all(&mut &far, b"x").unwrap();
            assert_eq!(take(&id).is_some(), want, "bodiless: {bodiless}");
        }
    }

    #[tokio::test]
    async fn the_longest_idle_connection_is_always_the_one_closed() {
        let now = clock::now();
        let (mut streams, mut far) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let (near, other) = plain().await;
            streams.push(near);
            far.push(other);
        }
        for port in 1..=3 {
            put(endpoint(port), streams.pop().unwrap(), false, 3, now);
        }
        // Taken and put back so often that the queue is tidied.
        for _ in 0..100 {
            for port in [1, 2] {
                let stream = take(&endpoint(port)).unwrap();
                put(endpoint(port), stream, false, 3, now);
            }
        }
        assert!(POOL.with_borrow(|pool| pool.order.len()) <= 8);
        put(endpoint(4), streams.pop().unwrap(), false, 3, now);
        assert!(take(&endpoint(3)).is_none(), "nobody has asked for it since");
        assert!([1, 2, 4].into_iter().all(|port| take(&endpoint(port)).is_some()));
        assert_eq!(kept(), 0);
    }

    #[tokio::test]
    async fn pooled_connections_have_a_limit_and_a_maximum_age() {
        let (id, now) = (endpoint(1), clock::now());
        let ((first, _a), (second, _b), (third, _c)) = (plain().await, plain().await, plain().await);
        let youngest = local(&third);
        put(endpoint(2), first, false, 2, now);
        put(id.clone(), second, false, 2, now + Duration::from_secs(1));
        put(id.clone(), third, false, 2, now + Duration::from_secs(30));
        assert_eq!(kept(), 2);
        assert!(take(&endpoint(2)).is_none());
        sweep(Duration::from_secs(59), now + Duration::from_secs(60));
        assert_eq!(kept(), 1);
        let left = take(&id).unwrap();
        assert_eq!(local(&left), youngest);
        put(id.clone(), left, false, 2, now);
        clear();
        assert!(take(&id).is_none());
    }
}
