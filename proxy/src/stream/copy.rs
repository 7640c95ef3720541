//! Bytes of two connections, each copied to the other.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::sleep;

use crate::clock;
use crate::observe::stream_metrics::Outcome;

/// Bytes that are read at a time, and so all that waits for a peer which takes nothing.
const PIECE: usize = 16 * 1024;

/// Copies until both directions have ended, one of them fails, or there was no byte in either for so long. An end in one
/// direction is passed on and leaves the other one open, as TCP does (RFC 9293, section 3.6).
///
/// Gives how it ended, and how many bytes went to the endpoint and back.
pub(super) async fn both_ways(client: &mut TcpStream, endpoint: &mut TcpStream, idle: Duration) -> (Outcome, [u64; 2]) {
    let (from_client, to_client) = client.split();
    let (from_endpoint, to_endpoint) = endpoint.split();
    let moved =
        Moved { begun: clock::now(), last_ms: AtomicU64::new(0), up: AtomicU64::new(0), down: AtomicU64::new(0) };
    let up = one_way(from_client, to_endpoint, &moved, &moved.up);
    let down = one_way(from_endpoint, to_client, &moved, &moved.down);
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

async fn one_way(from: ReadHalf<'_>, mut to: WriteHalf<'_>, moved: &Moved, count: &AtomicU64) -> io::Result<End> {
    loop {
        from.readable().await?;
        // Taken only while there is something in it: most connections are silent most of the time.
        let mut piece = Vec::with_capacity(PIECE);
        match from.try_read_buf(&mut piece) {
            Ok(0) => return Ok(if to.shutdown().await.is_ok() { End::Passed } else { End::Unread }),
            Ok(read) => {
                moved.note();
                if to.write_all(&piece).await.is_err() {
                    return Ok(End::Unread);
                }
                moved.note();
                count.fetch_add(read as u64, Relaxed);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
