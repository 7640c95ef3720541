//! Copies the bytes of two connections in both directions.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf, split};
use tokio::time::sleep;

use crate::clock;

/// The number of bytes read at a time, which is also the maximum buffered for a slow peer.
const PIECE: usize = 16 * 1024;

thread_local! {
    /// The read buffer. Its bytes are taken before the next read, so one buffer serves all connections.
    static SCRATCH: std::cell::RefCell<Box<[u8]>> = std::cell::RefCell::new(vec![0; PIECE].into());
}

/// The outcome of copying.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyEnd {
    /// Both sides closed the connection.
    Closed,
    /// One side reset it.
    Reset,
    /// No byte passed for the idle timeout.
    Idle,
}

/// Copies until both directions have ended, one of them fails, or the idle timeout expires; the bytes already read from
/// the client go first. An end in one direction is passed on and leaves the other one open, as in TCP (RFC 9293,
/// section 3.6).
///
/// Returns the outcome, and the numbers of bytes to the endpoint and back.
pub(crate) async fn both_ways<C, E>(
    client: &mut C,
    read: &[u8],
    endpoint: &mut E,
    idle: Duration,
) -> (CopyEnd, [u64; 2])
where
    C: AsyncRead + AsyncWrite + Unpin,
    E: AsyncRead + AsyncWrite + Unpin,
{
    let (from_client, to_client) = split(client);
    let (from_endpoint, to_endpoint) = split(endpoint);
    let moved = CopyProgress {
        begun: clock::now(),
        last_ms: AtomicU64::new(0),
        up: AtomicU64::new(0),
        down: AtomicU64::new(0),
    };
    let up = one_way(from_client, to_endpoint, read, &moved, &moved.up);
    let down = one_way(from_endpoint, to_client, &[], &moved, &moved.down);
    let outcome = tokio::select! {
        both = async { tokio::try_join!(up, down) } => match both {
            Ok((End::Passed, End::Passed)) => CopyEnd::Closed,
            Ok(_) | Err(_) => CopyEnd::Reset,
        },
        () = moved.silence(idle) => CopyEnd::Idle,
    };
    (outcome, [moved.up.into_inner(), moved.down.into_inner()])
}

/// The end of a direction without an error.
enum End {
    /// The end was passed on.
    Passed,
    /// The receiver takes no more bytes. It may still send in the other direction.
    Unread,
}

/// The progress.
struct CopyProgress {
    begun: Instant,
    /// The time of the last byte, in milliseconds from the beginning.
    last_ms: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
}

impl CopyProgress {
    fn note(&self) {
        let since = clock::now().saturating_duration_since(self.begun);
        self.last_ms.store(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Waits until no byte has passed for `idle`.
    async fn silence(&self, idle: Duration) {
        loop {
            let end = self.begun + Duration::from_millis(self.last_ms.load(Relaxed)) + idle;
            let left = end.saturating_duration_since(clock::now());
            if left.is_zero() {
                return;
            }
            sleep(left).await;
        }
    }
}

async fn one_way<R: AsyncRead, W: AsyncWrite>(
    mut from: ReadHalf<R>,
    mut to: WriteHalf<W>,
    first: &[u8],
    moved: &CopyProgress,
    count: &AtomicU64,
) -> io::Result<End> {
    let mut piece = first.to_vec();
    loop {
        if !piece.is_empty() {
            moved.note();
            // TLS needs a flush.
            if to.write_all(&piece).await.is_err() || to.flush().await.is_err() {
                return Ok(End::Unread);
            }
            moved.note();
            count.fetch_add(piece.len() as u64, Relaxed);
        }
        piece = std::future::poll_fn(|cx| poll_piece(&mut from, cx)).await?;
        if piece.is_empty() {
            return Ok(if to.shutdown().await.is_ok() { End::Passed } else { End::Unread });
        }
    }
}

/// The next bytes; empty at the end. They are allocated only when there are any, because most connections are mostly
/// idle.
fn poll_piece<R: AsyncRead>(from: &mut ReadHalf<R>, cx: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut into = ReadBuf::new(scratch);
        Pin::new(from).poll_read(cx, &mut into).map_ok(|()| into.filled().to_vec())
    })
}

#[cfg(test)]
mod tests {
    use futures::poll;
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    /// Writes to a side while the other one is not read, until neither the writer nor the copy continues. Returns the
    /// number of bytes that were taken.
    async fn taken(written: &mut DuplexStream, copying: impl Future<Output = (CopyEnd, [u64; 2])>) -> usize {
        let (mut copying, mut taken) = (std::pin::pin!(copying), 0);
        loop {
            assert!(poll!(copying.as_mut()).is_pending());
            match poll!(std::pin::pin!(written.write(&[0; 4096]))) {
                Poll::Ready(count) => taken += count.unwrap(),
                Poll::Pending => return taken,
            }
        }
    }

    #[tokio::test]
    async fn a_side_that_does_not_read_holds_the_other_back() {
        const BETWEEN: usize = 1024;
        let idle = Duration::from_secs(3600);
        let (mut client, mut from_client) = duplex(BETWEEN);
        let (mut to_endpoint, mut endpoint) = duplex(BETWEEN);
        // What is written and not read is in the streams of the test, or is the one piece that was read.
        let most = 2 * BETWEEN + PIECE;
        let up = taken(&mut client, both_ways(&mut from_client, &[], &mut to_endpoint, idle)).await;
        let down = taken(&mut endpoint, both_ways(&mut from_client, &[], &mut to_endpoint, idle)).await;
        assert!((BETWEEN..=most).contains(&up) && (BETWEEN..=most).contains(&down), "{up}, {down}");
    }
}
