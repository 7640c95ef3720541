//! Holds gRPC streams open and uses them all the time, to see whether they break or their messages are late.

use std::net::SocketAddr;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::future::join_all;
use serde::Serialize;
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::PATIENCE;
use super::call::{Call, Connection};
use crate::clock::now;

/// The number of streams held at the same time, over one connection as gRPC clients do.
const STREAMS: usize = 4;
/// The interval of messages on a stream.
const PAUSE: Duration = Duration::from_millis(50);
/// A message that comes back more than this after it was due is late.
const LATE: Duration = Duration::from_millis(100);

/// The results of the streams.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Seen {
    /// Streams that were opened, or were to be: at the start, and one for each that broke.
    pub(crate) opened: u64,
    /// Streams that broke, or could not be opened.
    pub(crate) broken: u64,
    /// Messages that were due, whether there was a stream to send them on or not.
    pub(crate) due: u64,
    /// Due messages that came back too late.
    pub(crate) late: u64,
    /// Due messages that never came back.
    pub(crate) missed: u64,
    /// The error of the first broken stream.
    pub(crate) why: Option<String>,
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.opened += other.opened;
        self.broken += other.broken;
        self.due += other.due;
        self.late += other.late;
        self.missed += other.missed;
        self.why = self.why.take().or(other.why);
    }
}

/// Open streams.
#[derive(Debug)]
pub(crate) struct Held {
    place: Place,
    calls: Vec<Call>,
}

/// The address and host for streams.
#[derive(Clone, Copy, Debug)]
struct Place {
    address: SocketAddr,
    host: &'static str,
}

impl Place {
    /// Opens a stream over a connection of its own.
    async fn open(self) -> anyhow::Result<Call> {
        Connection::open(self.address, self.host).await?.call().await
    }
}

impl Held {
    /// Opens streams to a host over one connection.
    ///
    /// # Errors
    /// When one is refused.
    pub(crate) async fn open(address: SocketAddr, host: &'static str) -> anyhow::Result<Self> {
        let mut connection = Connection::open(address, host).await?;
        let mut calls = Vec::new();
        for _ in 0..STREAMS {
            calls.push(connection.call().await.context("a gRPC stream is refused")?);
        }
        Ok(Self { place: Place { address, host }, calls })
    }

    /// Sends messages at a fixed pace until told to stop, and opens another stream for each that breaks.
    pub(crate) async fn hold(self, stop: &CancellationToken) -> Seen {
        let streams = self.calls.into_iter().map(|call| hold(self.place, call, stop));
        let mut all = Seen::default();
        join_all(streams).await.into_iter().for_each(|seen| all += seen);
        all
    }
}

async fn hold(place: Place, call: Call, stop: &CancellationToken) -> Seen {
    let mut one = Stream { seen: Seen { opened: 1, ..Seen::default() }, begun: now(), until: None, sent: 0, back: 0 };
    let mut call = Ok(call);
    loop {
        let ended = match call {
            Ok(call) => one.exchange(call, stop).await,
            Err(why) => Err(why),
        };
        if let Err(why) = ended {
            one.seen.broken += 1;
            one.seen.why.get_or_insert_with(|| format!("{why:#}"));
        }
        if stop.is_cancelled() {
            return one.over();
        }
        sleep(PAUSE).await;
        one.seen.opened += 1;
        call = place.open().await;
    }
}

/// One stream, and those that replace it.
#[derive(Debug)]
struct Stream {
    seen: Seen,
    begun: Instant,
    /// The time at which it was told to stop.
    until: Option<Instant>,
    /// The number of the next message: earlier ones were sent, or could not be.
    sent: u64,
    /// Messages that came back.
    back: u64,
}

impl Stream {
    /// Messages that are due by now, or were when it was told to stop.
    #[allow(clippy::cast_possible_truncation, reason = "a few thousand")]
    fn due(&self) -> u64 {
        ((self.until.unwrap_or_else(now) - self.begun).as_micros() / PAUSE.as_micros()) as u64
    }

    /// The time at which a message is due.
    fn when(&self, number: u64) -> Instant {
        self.begun + PAUSE * u32::try_from(number + 1).unwrap_or(u32::MAX)
    }

    /// Sends messages when they are due, and ends the call when told to stop.
    async fn exchange(&mut self, mut call: Call, stop: &CancellationToken) -> anyhow::Result<()> {
        // Messages that were due while there was no stream are not sent later.
        self.sent = self.sent.max(self.due());
        let mut next = self.sent;
        while !stop.is_cancelled() {
            ensure!(next == self.sent || now() < self.when(next) + PATIENCE, "no echo in time");
            tokio::select! {
                number = call.next() => {
                    self.came(number?.context("it ended too early")?, next)?;
                    next += 1;
                }
                () = sleep_until(self.when(self.sent).into()) => self.send_due(&mut call)?,
                () = stop.cancelled() => {}
            }
        }
        self.until = Some(now());
        self.send_due(&mut call)?;
        call.finish()?;
        let ending = async {
            while let Some(number) = call.next().await? {
                self.came(number, next)?;
                next += 1;
            }
            ensure!(next == self.sent, "it ended before all had come back");
            Ok(())
        };
        timeout(PATIENCE, ending).await.context("no end in time")?
    }

    fn send_due(&mut self, call: &mut Call) -> anyhow::Result<()> {
        while self.sent < self.due() {
            call.send(self.sent)?;
            self.sent += 1;
        }
        Ok(())
    }

    /// The total results.
    fn over(mut self) -> Seen {
        self.until.get_or_insert_with(now);
        self.seen.due = self.due();
        self.seen.missed = self.seen.due - self.back;
        self.seen
    }

    fn came(&mut self, number: u64, next: u64) -> anyhow::Result<()> {
        ensure!(number == next, "message {number} came back instead of {next}");
        self.back += 1;
        self.seen.late += u64::from(now() > self.when(number) + LATE);
        Ok(())
    }
}
