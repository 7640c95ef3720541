//! The write timeout and the minimum rate of a client that reads slowly. Pingora has timeouts for writes of bodies
//! only; heads, flushes and shutdowns would wait for ever, so these limits are below all of them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::alarm::Alarm;
use crate::budget::Budget;
use crate::clock;
use crate::connection::rate::RateMeter;
use crate::options::{ClientLimits, RateLimits};

/// The write timeout of one client, which restarts with every piece that the client takes, and its minimum rate.
#[derive(Debug)]
pub(crate) struct Stall {
    limit: Duration,
    rates: RateLimits,
    /// Decides whether the rate is enforced.
    budget: Arc<Budget>,
    over: Option<Pin<Box<Sleep>>>,
    /// The number of bytes that the client took.
    taken: u64,
    meter: RateMeter,
    alarm: Alarm,
}

impl Stall {
    /// Those of these limits.
    pub(crate) fn new(limits: &ClientLimits, budget: &Arc<Budget>) -> Self {
        Self {
            limit: limits.write_stall,
            rates: limits.rates,
            budget: Arc::clone(budget),
            over: None,
            taken: 0,
            meter: RateMeter::DEFAULT,
            alarm: Alarm::new(),
        }
    }

    /// Adds bytes that the client took.
    pub(crate) const fn took(&mut self, count: usize) {
        self.taken += count as u64;
    }

    /// The outcome of a write, or [`io::ErrorKind::TimedOut`] if the client has taken nothing for too long, or is
    /// slower than the minimum rate, if it `has_rate`.
    pub(crate) fn bound<T>(
        &mut self,
        wrote: Poll<io::Result<T>>,
        has_rate: bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.over = None;
            if self.meter.is_waiting() {
                self.alarm = Alarm::new();
                if has_rate {
                    self.meter.until(false, self.taken, &self.rates, &self.budget, clock::now());
                }
            }
            return wrote;
        }
        let limit = self.limit;
        let stalled = self.over.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx);
        if stalled.is_pending() {
            if !has_rate {
                return Poll::Pending;
            }
            ready!(self.poll_too_slow(cx));
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ready once the client must be disconnected because it is too slow.
    fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut now = clock::now();
        while let Some(at) = self.meter.until(true, self.taken, &self.rates, &self.budget, now) {
            if at <= now {
                return Poll::Ready(());
            }
            ready!(self.alarm.poll_at(at, cx));
            now = at;
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWrite, DuplexStream, duplex};

    use super::*;
    use crate::budget::BudgetLimits;
    use crate::options::Options;

    async fn write(stall: &mut Stall, stream: &mut DuplexStream) -> io::Result<usize> {
        poll_fn(|cx| stall.bound(Pin::new(&mut *stream).poll_write(cx, b"1234"), false, cx)).await
    }

    #[tokio::test(start_paused = true)]
    async fn every_piece_that_the_client_reads_restarts_the_timer() {
        let limits = ClientLimits { write_stall: Duration::from_secs(60), ..Options::default().client };
        let mut stall = Stall::new(&limits, &Arc::new(Budget::new(&BudgetLimits::default())));
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
        // A further attempt fails at once.
        assert_eq!(write(&mut stall, &mut server).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), 60);
    }
}
