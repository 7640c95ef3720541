//! The access log: one JSON line a request, on a stream of its own. Requests leave their lines in a bounded queue and
//! never wait; a thread takes them from it in batches. When it is slow, lines are dropped and counted.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use crossbeam_queue::ArrayQueue;
use prometheus::IntCounter;
use serde::{Serialize, Serializer};
use tidegate_config::object::ObjectRef;

/// Lines are written at least this often.
const TICK: Duration = Duration::from_millis(100);
/// Bytes that are written at once.
const BATCH_BYTES: usize = 32 * 1024;
/// Bytes that may wait, whatever the number of lines.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// How long the end of the log waits for lines to be written.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

/// Where the access log goes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum AccessLogSink {
    /// Nowhere.
    Off,
    /// The standard output.
    #[default]
    Stdout,
    /// The end of this file, which is created where it does not exist.
    File(PathBuf),
}

/// What a line says of its request. Durations are milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Entry<'a> {
    #[serde(serialize_with = "rfc3339")]
    pub(crate) time: SystemTime,
    pub(crate) request_id: &'a str,
    pub(crate) client: Option<IpAddr>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) method: &'a str,
    pub(crate) scheme: &'a str,
    pub(crate) host: &'a str,
    /// The target as sent: path and query.
    pub(crate) path: &'a str,
    pub(crate) protocol: &'a str,
    pub(crate) status: u16,
    pub(crate) bytes_in: usize,
    pub(crate) bytes_out: usize,
    pub(crate) duration_ms: f64,
    pub(crate) upstream: Option<SocketAddr>,
    pub(crate) upstream_connect_ms: Option<f64>,
    pub(crate) upstream_first_byte_ms: Option<f64>,
    pub(crate) tries: usize,
    pub(crate) object: Option<&'a ObjectRef>,
    pub(crate) field: Option<&'a str>,
    pub(crate) listener: Option<&'a str>,
    pub(crate) tls: Option<&'a str>,
    pub(crate) user_agent: &'a str,
    pub(crate) referer: &'a str,
    /// Why no endpoint answered.
    pub(crate) reason: Option<&'a str>,
    pub(crate) generation: u64,
}

fn rfc3339<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_rfc3339_millis(*time))
}

/// Milliseconds to three places.
pub(crate) fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// The end of the log where requests leave their lines. The last one to go closes the log.
#[derive(Debug)]
pub(crate) struct AccessLog {
    waiting: Option<Arc<Waiting>>,
    dropped: IntCounter,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Waiting {
    lines: ArrayQueue<Vec<u8>>,
    bytes: AtomicUsize,
    closed: AtomicBool,
}

impl AccessLog {
    /// Opens the sink and starts its writer.
    ///
    /// # Errors
    /// When the file cannot be opened or no thread be started.
    pub(crate) fn open(sink: &AccessLogSink, lines_max: usize, dropped: IntCounter) -> io::Result<Self> {
        match sink {
            AccessLogSink::Off => Ok(Self { waiting: None, dropped, writer: None }),
            AccessLogSink::Stdout => Self::start(io::stdout(), lines_max, dropped),
            AccessLogSink::File(path) => {
                let file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
                Self::start(file, lines_max, dropped)
            }
        }
    }

    fn start(sink: impl Write + Send + 'static, lines_max: usize, dropped: IntCounter) -> io::Result<Self> {
        let lines = ArrayQueue::new(lines_max.max(1));
        let waiting = Arc::new(Waiting { lines, bytes: AtomicUsize::new(0), closed: AtomicBool::new(false) });
        let (queue, lost) = (Arc::clone(&waiting), dropped.clone());
        let writer = thread::Builder::new().name("access-log".into()).spawn(move || write(&queue, sink, &lost))?;
        Ok(Self { waiting: Some(waiting), dropped, writer: Some(writer) })
    }

    /// Leaves a line; dropped and counted when too many wait.
    pub(crate) fn put(&self, entry: &Entry<'_>) {
        let Some(waiting) = &self.waiting else { return };
        let mut line = Vec::with_capacity(512);
        if serde_json::to_writer(&mut line, entry).is_err() {
            return self.dropped.inc();
        }
        line.push(b'\n');
        let length = line.len();
        if waiting.bytes.fetch_add(length, Ordering::Relaxed) + length > WAITING_BYTES_MAX
            || waiting.lines.push(line).is_err()
        {
            waiting.bytes.fetch_sub(length, Ordering::Relaxed);
            self.dropped.inc();
        }
        if let Some(writer) = &self.writer
            && waiting.lines.len() == waiting.lines.capacity() / 2
        {
            writer.thread().unpark();
        }
    }
}

/// Writes what waits, batch by batch, until the log is closed and empty. A sink that fails costs the batch, not the log.
fn write(waiting: &Waiting, mut sink: impl Write, lost: &IntCounter) {
    let mut batch = Vec::with_capacity(2 * BATCH_BYTES);
    loop {
        let closed = waiting.closed.load(Ordering::Acquire);
        let mut lines = 0;
        while batch.len() < BATCH_BYTES
            && let Some(line) = waiting.lines.pop()
        {
            waiting.bytes.fetch_sub(line.len(), Ordering::Relaxed);
            batch.extend_from_slice(&line);
            lines += 1;
        }
        if lines > 0 {
            if sink.write_all(&batch).and_then(|()| sink.flush()).is_err() {
                lost.inc_by(lines);
            }
            batch.clear();
        } else if closed {
            return;
        } else {
            thread::park_timeout(TICK);
        }
    }
}

impl Drop for AccessLog {
    /// Gives the writer a moment to write what still waits; a sink that is stuck does not hold up the end of the process.
    fn drop(&mut self) {
        let (Some(waiting), Some(writer)) = (&self.waiting, self.writer.take()) else { return };
        waiting.closed.store(true, Ordering::Release);
        let end = crate::clock::now() + CLOSE_DEADLINE;
        while !writer.is_finished() && crate::clock::now() < end {
            writer.thread().unpark();
            thread::park_timeout(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    struct Channel(SyncSender<Vec<u8>>);

    impl Write for Channel {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map(|()| bytes.len()).map_err(io::Error::other)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn entry(path: &str) -> Entry<'_> {
        Entry {
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            request_id: "id",
            client: Some([192, 0, 2, 1].into()),
            peer: None,
            method: "GET",
            scheme: "http",
            host: "a.test",
            path,
            protocol: "HTTP/1.1",
            status: 200,
            bytes_in: 0,
            bytes_out: 5,
            duration_ms: milliseconds(Duration::from_micros(1_234)),
            upstream: None,
            upstream_connect_ms: None,
            upstream_first_byte_ms: None,
            tries: 0,
            object: None,
            field: None,
            listener: None,
            tls: None,
            user_agent: "",
            referer: "",
            reason: None,
            generation: 7,
        }
    }

    fn log(lines_max: usize, pieces: usize) -> (AccessLog, Receiver<Vec<u8>>) {
        let (sender, receiver) = sync_channel(pieces);
        let dropped = IntCounter::new("dropped", "dropped").unwrap();
        (AccessLog::start(Channel(sender), lines_max, dropped).unwrap(), receiver)
    }

    #[test]
    fn a_line_is_one_json_object() {
        let (log, received) = log(16, 16);
        log.put(&entry("/a\"\n\u{7f}b"));
        drop(log);
        let text = String::from_utf8(received.iter().flatten().collect()).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["time"], "2023-11-14T22:13:20.123Z");
        assert_eq!(line["path"], "/a\"\n\u{7f}b");
        assert_eq!((line["duration_ms"].as_f64(), line["generation"].as_u64()), (Some(1.234), Some(7)));
    }

    #[test]
    fn a_slow_writer_costs_lines_and_never_time() {
        // A sink that takes one batch and then blocks until the receiver is gone.
        let (log, received) = log(64, 0);
        for _ in 0..1000 {
            log.put(&entry("/"));
        }
        // Between nothing taken yet and one whole batch taken.
        let lost = log.dropped.get();
        assert!((1000 - 64 - 256..=1000 - 64).contains(&lost), "{lost}");
        drop(received);
    }

    #[test]
    fn what_waits_is_written_before_the_end() {
        let (log, received) = log(4096, 4096);
        for _ in 0..3000 {
            log.put(&entry("/"));
        }
        let lost = log.dropped.get();
        drop(log);
        let text = received.iter().flatten().filter(|byte| *byte == b'\n').count();
        assert_eq!((text, lost), (3000, 0));
    }
}
