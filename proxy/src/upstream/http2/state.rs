//! The state of a connection to an HTTP/2 endpoint: whether it takes requests, and whether the endpoint sends anything.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock;
use crate::upstream::connection::Connection;

/// The bytes that a connection reads before other tasks have their turn. h2 keeps decoded heads until their requests
/// take them, and a byte can be a field.
const TURN_BYTES: usize = 16 * 1024;

/// The time in which an endpoint has to send something after a request was given to its connection, if that ends
/// without a response: otherwise the connection gets no further requests. The endpoint's host may be gone.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// The state of a connection, shared with its task, which must not keep it open.
#[derive(Debug)]
pub(super) struct State {
    /// Whether it takes no further requests.
    is_over: AtomicBool,
    begun: Instant,
    /// Since when it has requests without a word of the endpoint, in milliseconds from `begun`; 0 if it has none.
    waits_ms: AtomicU64,
    /// When the endpoint last sent something, in milliseconds from `begun`.
    heard_ms: AtomicU64,
}

impl State {
    pub(super) const fn new(begun: Instant) -> Self {
        let [waits_ms, heard_ms] = [const { AtomicU64::new(0) }; 2];
        Self { is_over: AtomicBool::new(false), begun, waits_ms, heard_ms }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// It takes no further requests.
    pub(super) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// The time in milliseconds since the beginning, at least 1.
    fn ms(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.begun).as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// A request is given to the connection. Returns the time for [`Self::left`].
    pub(super) fn asked(&self, now: Instant) -> u64 {
        let now = self.ms(now);
        // It fails if there was a request before.
        self.waits_ms.compare_exchange(0, now, Relaxed, Relaxed).ok();
        now
    }

    /// The endpoint has sent something.
    fn frame_arrived(&self, now: Instant) {
        let now = self.ms(now);
        self.heard_ms.store(now, Relaxed);
        if self.waits_ms.load(Relaxed) != 0 {
            self.waits_ms.store(now, Relaxed);
        }
    }

    /// A request has ended. If the endpoint has sent nothing for too long, the connection takes no further ones.
    /// `was_last` if it has no others.
    pub(super) fn left(&self, asked: u64, was_last: bool, now: Instant) {
        let waits = self.waits_ms.load(Relaxed);
        if waits > 0 && u128::from(self.ms(now).saturating_sub(waits)) >= SILENCE_MAX.as_millis() {
            self.end();
        } else if was_last && self.heard_ms.load(Relaxed) >= asked {
            self.waits_ms.store(0, Relaxed);
        }
    }
}

/// Marks a connection as over, also if its task panics.
pub(super) struct OverOnDrop(Arc<State>);

impl OverOnDrop {
    pub(super) fn new(state: &Arc<State>) -> Self {
        Self(Arc::clone(state))
    }
}

impl Drop for OverOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A connection that lets other tasks have their turn, and notes that the endpoint has sent something.
pub(super) struct Yielding {
    stream: Connection,
    state: Arc<State>,
    /// The bytes that may be read before.
    left: usize,
}

impl Yielding {
    pub(super) const fn new(stream: Connection, state: Arc<State>) -> Self {
        Self { stream, state, left: TURN_BYTES }
    }
}

impl AsyncRead for Yielding {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.left == 0 {
            this.left = TURN_BYTES;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = into.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, into))?;
        this.state.frame_arrived(clock::now());
        this.left = this.left.saturating_sub(into.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Yielding {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::upstream::connection::tests::plain;

    enum Step {
        Asked,
        FrameArrived,
        Left,
    }
    use Step::{Asked, FrameArrived, Left};

    /// Requests, one at a time, and bytes of the endpoint, at so many milliseconds.
    #[track_caller]
    fn check(steps: &[(u64, Step)], is_over: bool) {
        let (begun, mut asked) = (clock::now(), 0);
        let state = State::new(begun);
        for (ms, step) in steps {
            let now = begun + Duration::from_millis(*ms);
            match step {
                Asked => asked = state.asked(now),
                FrameArrived => state.frame_arrived(now),
                Left => state.left(asked, true, now),
            }
        }
        assert_eq!(state.is_over(), is_over);
    }

    #[test]
    fn a_connection_ends_after_a_second_of_silence_with_a_request() {
        check(&[(5_000, Asked), (5_999, Left)], false);
        check(&[(5_000, Asked), (6_000, Left)], true);
        check(&[(5_000, Asked), (5_500, FrameArrived), (6_000, Left)], false);
        check(&[(5_000, Asked), (5_500, FrameArrived), (6_500, Left)], true);
    }

    #[test]
    fn silence_adds_up_over_requests_that_end_sooner() {
        check(&[(5_000, Asked), (5_300, Left), (5_900, Asked), (6_000, Left)], true);
        check(&[(5_000, Asked), (5_100, FrameArrived), (5_300, Left), (9_000, Asked), (9_100, Left)], false);
    }

    #[tokio::test]
    async fn a_connection_pauses_after_the_bytes_of_a_turn() {
        const ROOM: usize = 1024;
        let (stream, mut endpoint) = plain().await;
        endpoint.write_all(&[b'x'; TURN_BYTES + ROOM]).await.unwrap();
        let state = Arc::new(State::new(clock::now()));
        let mut yielding = Yielding::new(stream, state);
        let (mut storage, mut read) = ([0; 2 * ROOM], 0);
        while yielding.left > 0 {
            // The bytes that the buffer has already are not of this connection.
            let mut into = ReadBuf::new(&mut storage);
            into.advance(ROOM);
            poll_fn(|cx| Pin::new(&mut yielding).poll_read(cx, &mut into)).await.unwrap();
            read += into.filled().len() - ROOM;
            assert_eq!(yielding.left, TURN_BYTES.saturating_sub(read));
        }
        let mut pauses = 0;
        let mut into = ReadBuf::new(&mut storage);
        let further = poll_fn(|cx| {
            let polled = Pin::new(&mut yielding).poll_read(cx, &mut into);
            pauses += usize::from(polled.is_pending());
            polled
        });
        further.await.unwrap();
        assert_eq!((pauses, into.filled().len()), (1, TURN_BYTES + ROOM - read));
    }
}
