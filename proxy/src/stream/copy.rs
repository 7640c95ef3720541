//! Bytes of two connections, each copied to the other.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf, split};
use tokio::time::sleep;

use crate::clock;
use crate::observe::stream_metrics::Outcome;

/// Bytes that are read at a time, and so all that waits for a peer which takes nothing.
const PIECE: usize = 16 * 1024;

thread_local! {
    /// Where bytes are read to. What is read is moved on before anything else is read, so one place is enough for all connections.
    static SCRATCH: std::cell::RefCell<Box<[u8]>> = std::cell::RefCell::new(vec![0; PIECE].into());
}

/// Copies until both directions have ended, one of them fails, or there was no byte in either for so long; first what was read of the
/// client already. An end in one direction is passed on and leaves the other one open, as TCP does (RFC 9293, section 3.6).
///
/// Gives how it ended, and how many bytes went to the endpoint and back.
pub(crate) async fn both_ways<C, E>(
    client: &mut C,
    read: &[u8],
    endpoint: &mut E,
    idle: Duration,
) -> (Outcome, [u64; 2])
where
    C: AsyncRead + AsyncWrite + Unpin,
    E: AsyncRead + AsyncWrite + Unpin,
{
    let (from_client, to_client) = split(client);
    let (from_endpoint, to_endpoint) = split(endpoint);
    let moved =
        Moved { begun: clock::now(), last_ms: AtomicU64::new(0), up: AtomicU64::new(0), down: AtomicU64::new(0) };
    let up = one_way(from_client, to_endpoint, read, &moved, &moved.up);
    let down = one_way(from_endpoint, to_client, &[], &moved, &moved.down);
    let outcome = tokio::select! {
        both = async { tokio::try_join!(up, down) } => match both {
            Ok((End::Passed, End::Passed)) => Outcome::Closed,
            Ok(_) | Err(_) => Outcome::Reset,
        },
        () = moved.silence(idle) => Outcome::Idle,
    };
    (outcome, [moved.up.into_inner(), moved.down.into_inner()])
}

/// How one direction ended that did not fail.
enum End {
    /// By an end that was passed on.
    Passed,
    /// By a reader that takes nothing more. What it still has to say goes the other way.
    Unread,
}

/// What has been moved so far.
struct Moved {
    begun: Instant,
    /// When a byte was moved last, in milliseconds from the beginning.
    last_ms: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
}

impl Moved {
    fn note(&self) {
        let since = clock::now().saturating_duration_since(self.begun);
        self.last_ms.store(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Waits until nothing has been moved for so long.
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
    moved: &Moved,
    count: &AtomicU64,
) -> io::Result<End> {
    let mut piece = first.to_vec();
    loop {
        if !piece.is_empty() {
            moved.note();
            // What is encrypted on the way waits for a flush.
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

/// The next bytes; none at the end. They are only kept once there are any: most connections are silent most of the time.
fn poll_piece<R: AsyncRead>(from: &mut ReadHalf<R>, cx: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut into = ReadBuf::new(scratch);
        Pin::new(from).poll_read(cx, &mut into).map_ok(|()| into.filled().to_vec())
    })
}
