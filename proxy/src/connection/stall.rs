//! How long a client may take nothing of what it is sent. Pingora bounds writes of bodies; heads, flushes and goodbyes
//! wait for ever, so the bound is here, below all of them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// The patience with one client. It begins anew with every piece that the client takes.
#[derive(Debug)]
pub(super) struct Stall {
    limit: Duration,
    over: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    /// Patience for so long.
    pub(super) const fn new(limit: Duration) -> Self {
        Self { limit, over: None }
    }

    /// What came of a write; [`io::ErrorKind::TimedOut`] when the last ones have come to nothing for too long.
    pub(super) fn bound<T>(&mut self, wrote: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.over = None;
            return wrote;
        }
        let limit = self.limit;
        ready!(self.over.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWrite, DuplexStream, duplex};

    use super::*;

    async fn write(stall: &mut Stall, stream: &mut DuplexStream) -> io::Result<usize> {
        poll_fn(|cx| stall.bound(Pin::new(&mut *stream).poll_write(cx, b"1234"), cx)).await
    }

    #[tokio::test(start_paused = true)]
    async fn every_piece_that_is_taken_begins_the_time_anew() {
        let mut stall = Stall::new(Duration::from_secs(60));
        let (mut server, mut client) = duplex(4);
        let slow = tokio::spawn(async move {
            for _ in 0..10 {
                sleep(Duration::from_secs(59)).await;
                client.read_exact(&mut [0; 4]).await.unwrap();
            }
            client
        });
        for _ in 0..11 {
            write(&mut stall, &mut server).await.unwrap();
        }
        let _client = slow.await.unwrap();
        let began = tokio::time::Instant::now();
        assert_eq!(write(&mut stall, &mut server).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), 60);
        // Whoever tries again at once is told at once.
        assert_eq!(write(&mut stall, &mut server).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), 60);
    }
}
