//! The logs of containers: the programs that run them write lines, and the `log` subresource of their Pods reads them.
//! Each run of a container has a bounded ring of its own; the previous run can still be read. Readers never block a
//! writer.

mod ring;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use self::ring::{Read, Ring};
use crate::clock::Clock;

/// The identity of a container: namespace, Pod, container.
pub(crate) type LogKey = (String, String, String);

/// The logs of all running containers.
#[derive(Debug)]
pub(crate) struct Logs {
    all: watch::Sender<BTreeMap<LogKey, Runs>>,
    /// Signals every follower to end.
    closing: watch::Sender<()>,
}

/// The readable runs of a container.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    pub(crate) current: Option<Run>,
    pub(crate) previous: Option<Run>,
}

/// The log of one run.
#[derive(Clone, Debug)]
pub(crate) struct Run(watch::Receiver<Ring>);

/// The log of one container. It can be read until this is dropped.
pub struct ContainerLog {
    logs: Arc<Logs>,
    key: LogKey,
    clock: Clock,
}

/// Writes the log of one run of a container; the run is over for its followers when the last clone is dropped.
#[derive(Clone)]
pub struct LogWriter {
    ring: Arc<watch::Sender<Ring>>,
    clock: Clock,
}

/// The selection of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) follow: bool,
    pub(crate) timestamps: bool,
    /// The maximum number of last lines.
    pub(crate) tail: Option<u64>,
    /// The earliest time, in nanoseconds since 1970.
    pub(crate) since: Option<u128>,
    /// The maximum number of bytes in all.
    pub(crate) bytes_max: Option<u64>,
}

impl Logs {
    pub(crate) fn new() -> Self {
        Self { all: watch::Sender::default(), closing: watch::Sender::new(()) }
    }

    pub(crate) fn open(self: &Arc<Self>, key: LogKey, clock: Clock) -> ContainerLog {
        self.all.send_modify(|all| drop(all.insert(key.clone(), Runs::default())));
        ContainerLog { logs: Arc::clone(self), key, clock }
    }

    /// Returns `None` if there is no such container.
    pub(crate) fn of(&self, key: &LogKey) -> Option<Runs> {
        self.all.borrow().get(key).cloned()
    }

    /// Ends every follower, after the lines that it has received.
    pub(crate) fn close(&self) {
        self.closing.send_replace(());
    }

    pub(crate) fn closing(&self) -> watch::Receiver<()> {
        self.closing.subscribe()
    }
}

impl ContainerLog {
    /// Begins a run: the current run becomes the previous one.
    pub fn begin(&self) -> LogWriter {
        let ring = watch::Sender::new(Ring::default());
        let run = Run(ring.subscribe());
        self.logs.all.send_modify(|all| {
            let runs = all.entry(self.key.clone()).or_default();
            runs.previous = runs.current.replace(run);
        });
        LogWriter { ring: Arc::new(ring), clock: self.clock }
    }
}

impl Drop for ContainerLog {
    fn drop(&mut self) {
        self.logs.all.send_modify(|all| drop(all.remove(&self.key)));
    }
}

impl LogWriter {
    /// Adds a line, without its end. A longer one than 16 KiB is cut into several, as container runtimes do; the oldest
    /// lines are dropped when there are more than 8,192 or more than 512 KiB of them.
    pub fn line(&self, text: &[u8]) {
        let now = self.clock.now().unix.as_nanos();
        self.ring.send_modify(|ring| ring.push(now, text));
    }
}

impl Run {
    /// All selected lines.
    pub(crate) fn read(&self, wanted: &Wanted) -> Bytes {
        let ring = self.0.borrow();
        let mut cursor = ring.cursor(wanted);
        let mut all = Vec::new();
        while let Read::Lines(lines) = ring.read(&mut cursor) {
            all.extend_from_slice(&lines);
        }
        all.into()
    }

    /// The same piece by piece, followed by new lines, until the run is over, the limit is reached or the reader is so
    /// slow that it would miss lines.
    pub(crate) fn follow(
        self,
        wanted: &Wanted,
        mut closing: watch::Receiver<()>,
    ) -> impl futures::Stream<Item = Bytes> + Send + use<> {
        closing.mark_unchanged();
        let cursor = self.0.borrow().cursor(wanted);
        futures::stream::unfold((self, cursor, closing), async |(mut run, mut cursor, mut closing)| {
            loop {
                let read = run.0.borrow_and_update().read(&mut cursor);
                match read {
                    Read::Lines(lines) => return Some((lines, (run, cursor, closing))),
                    Read::Over => return None,
                    Read::Nothing => tokio::select! {
                        _ = closing.changed() => return None,
                        changed = run.0.changed() => {
                            // A writer may add a line and be dropped between the read and here.
                            if changed.is_err() && !run.0.borrow().has_more(&cursor) {
                                return None;
                            }
                        }
                    },
                }
            }
        })
    }
}

impl fmt::Debug for ContainerLog {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("ContainerLog").field(&self.key).finish()
    }
}

/// Does not show the lines, which may hold anything.
impl fmt::Debug for LogWriter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LogWriter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;

    fn logs() -> (Arc<Logs>, ContainerLog, LogKey) {
        let key = ("shop".to_owned(), "web-1".to_owned(), "web".to_owned());
        let logs = Arc::new(Logs::new());
        let log = logs.open(key.clone(), Clock::start());
        (logs, log, key)
    }

    #[test]
    fn the_previous_run_can_be_read_until_the_container_is_gone() {
        let (logs, log, key) = logs();
        log.begin().line(b"first");
        let second = log.begin();
        second.line(b"second");
        let runs = logs.of(&key).unwrap();
        let read = |run: &Option<Run>| run.as_ref().unwrap().read(&Wanted::default());
        assert_eq!((read(&runs.previous), read(&runs.current)), ("first\n".into(), "second\n".into()));
        drop(log);
        assert!(logs.of(&key).is_none());
    }

    #[tokio::test]
    async fn a_follower_gets_every_line_and_ends_with_the_run() {
        let (logs, log, key) = logs();
        let writer = log.begin();
        writer.line(b"a");
        let run = logs.of(&key).unwrap().current.unwrap();
        let mut lines = std::pin::pin!(run.follow(&Wanted { follow: true, ..Wanted::default() }, logs.closing()));
        assert_eq!(lines.next().await.unwrap(), "a\n");
        writer.line(b"b");
        drop(writer);
        assert_eq!(lines.next().await.unwrap(), "b\n");
        assert_eq!(lines.next().await, None);
    }

    #[tokio::test]
    async fn a_follower_that_would_miss_lines_is_ended() {
        let (logs, log, key) = logs();
        let writer = log.begin();
        writer.line(b"a");
        let run = logs.of(&key).unwrap().current.unwrap();
        let mut lines = std::pin::pin!(run.follow(&Wanted { follow: true, ..Wanted::default() }, logs.closing()));
        assert_eq!(lines.next().await.unwrap(), "a\n");
        for _ in 0..=ring::LINES_MAX {
            writer.line(b"b");
        }
        assert_eq!(lines.next().await, None);
    }

    #[tokio::test]
    async fn followers_end_when_the_server_does() {
        let (logs, log, key) = logs();
        let _writer = log.begin();
        let run = logs.of(&key).unwrap().current.unwrap();
        let mut lines = std::pin::pin!(run.follow(&Wanted { follow: true, ..Wanted::default() }, logs.closing()));
        let (ended, ()) = tokio::join!(lines.next(), async { logs.close() });
        assert_eq!(ended, None);
    }
}
