//! The idle connections of a traffic thread to endpoints in plain text, kept by endpoint: what the Service is called through
//! which a pod was found makes no difference to a connection without TLS. The address is part of the key, for the endpoint's
//! identity is made of text that tenants write.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidegate_config::model::EndpointId;
use tokio::net::TcpStream;

/// What connections are kept by.
type Key = (SocketAddr, EndpointId);

/// An idle connection.
#[derive(Debug)]
struct Idle {
    stream: TcpStream,
    since: Instant,
}

#[derive(Debug, Default)]
struct Pool {
    idle: HashMap<Key, Vec<Idle>, foldhash::fast::RandomState>,
    count: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// The connection to an endpoint that was used last and still lives.
pub(crate) fn take(endpoint: Key) -> Option<TcpStream> {
    POOL.with_borrow_mut(|pool| {
        let Pool { idle, count } = pool;
        let list = idle.get_mut(&endpoint)?;
        while let Some(Idle { stream, .. }) = list.pop() {
            *count -= 1;
            if lives(&stream) {
                return Some(stream);
            }
        }
        None
    })
}

/// Keeps a connection; of more than `max`, the one that has been idle for longest goes.
pub(crate) fn put(endpoint: Key, stream: TcpStream, max: usize, now: Instant) {
    POOL.with_borrow_mut(|pool| {
        pool.count += 1;
        pool.idle.entry(endpoint).or_default().push(Idle { stream, since: now });
        if pool.count > max {
            let oldest = pool.idle.values_mut().filter(|list| !list.is_empty()).min_by_key(|list| list[0].since);
            if let Some(list) = oldest {
                list.remove(0);
                pool.count -= 1;
            }
        }
    });
}

/// Lets go what has died or has been idle for too long. The work grows with what is kept, so this is for now and then.
pub(crate) fn sweep(limit: Duration, now: Instant) {
    POOL.with_borrow_mut(|pool| {
        pool.idle.retain(|_, list| {
            list.retain(|idle| now.saturating_duration_since(idle.since) < limit && lives(&idle.stream));
            !list.is_empty()
        });
        pool.count = pool.idle.values().map(Vec::len).sum();
    });
}

/// Lets go everything: a connection stays with the runtime that opened it.
pub(crate) fn clear() {
    POOL.take();
}

/// Whether nothing was heard of it: an endpoint that speaks unasked is closing, or confused. Without an event on the socket
/// this asks no kernel.
fn lives(stream: &TcpStream) -> bool {
    stream.try_read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::Endpoint;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::clock;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    fn endpoint(port: u16) -> Key {
        let endpoint = Endpoint::new(([10, 0, 0, 1], port).into(), None);
        (endpoint.address, endpoint.id)
    }

    fn kept() -> usize {
        POOL.with_borrow(|pool| pool.count)
    }

    #[tokio::test]
    async fn the_one_used_last_comes_first_and_the_dead_never() {
        let (id, now) = (endpoint(1), clock::now());
        let ((first, _far), (second, mut chatty), (third, gone)) = (pair().await, pair().await, pair().await);
        let address = first.local_addr().unwrap();
        for stream in [first, second, third] {
            put(id, stream, 9, now);
        }
        drop(gone);
        chatty.write_all(b"x").await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(take(endpoint(2)).is_none());
        assert_eq!(take(id).unwrap().local_addr().unwrap(), address);
        assert!(take(id).is_none());
        assert_eq!(kept(), 0);
    }

    #[tokio::test]
    async fn what_is_kept_has_a_limit_and_an_age() {
        let (id, now) = (endpoint(1), clock::now());
        let ((first, _a), (second, _b), (third, _c)) = (pair().await, pair().await, pair().await);
        let youngest = third.local_addr().unwrap();
        put(endpoint(2), first, 2, now);
        put(id, second, 2, now + Duration::from_secs(1));
        put(id, third, 2, now + Duration::from_secs(30));
        assert_eq!(kept(), 2);
        assert!(take(endpoint(2)).is_none());
        sweep(Duration::from_secs(50), now + Duration::from_secs(60));
        assert_eq!(kept(), 1);
        let left = take(id).unwrap();
        assert_eq!(left.local_addr().unwrap(), youngest);
        put(id, left, 2, now);
        clear();
        assert!(take(id).is_none());
    }
}
