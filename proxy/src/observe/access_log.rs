//! The access log: one line of JSON, or in a custom format, for each request or TCP connection. Each thread gathers
//! lines in a batch and puts it into a bounded queue, so that a line costs neither an allocation nor synchronisation; a
//! writer takes the batches and returns their buffers. If it is slow, lines are dropped and counted.

mod custom;
mod entry;
mod line;
mod sink;
mod stream_entry;

pub(crate) use entry::{Address, Entry};
pub use sink::AccessLogSink;
pub(crate) use stream_entry::StreamEntry;

use std::cell::RefCell;
use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use prometheus::IntCounter;
use tokio::sync::Notify;

/// The maximum time that a line waits in its thread's batch.
const TICK: Duration = Duration::from_millis(100);
/// The size of a full batch in bytes.
const BATCH_BYTES: usize = 32 * 1024;
/// The capacity of a buffer: a batch and its last line, unless that is a long one.
const BUFFER_BYTES: usize = BATCH_BYTES + 4 * 1024;
/// The maximum number of bytes of queued batches, of all threads.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// The maximum number of free buffers.
const SPARE_MAX: usize = 64;
/// How long closing the log waits for the writer.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

thread_local! {
    /// The batch of this thread.
    static BATCH: RefCell<Option<Batch>> = const { RefCell::new(None) };
    /// Notified when a batch of this thread has got its first line.
    static BEGUN: Arc<Notify> = Arc::default();
}

/// The producer side of the log. Dropping the last one closes the log.
#[derive(Debug)]
pub(crate) struct AccessLog {
    waiting: Option<Arc<Waiting>>,
    writer: Option<JoinHandle<()>>,
}

/// The state shared by the threads and the writer.
#[derive(Debug)]
struct Waiting {
    batches: ArrayQueue<Lines>,
    /// The memory of the queued batches in bytes.
    bytes: AtomicUsize,
    bytes_max: usize,
    /// The free buffers.
    spare: ArrayQueue<Vec<u8>>,
    closed: AtomicBool,
    dropped: IntCounter,
    writer: OnceLock<Thread>,
}

/// The bytes of lines, and their number.
#[derive(Debug, Default)]
struct Lines {
    bytes: Vec<u8>,
    count: u64,
}

/// The batch of a thread, and its log. Dropping it queues the lines.
#[derive(Debug)]
struct Batch {
    lines: Lines,
    waiting: Arc<Waiting>,
}

impl AccessLog {
    /// Opens the sink and starts its writer.
    ///
    /// # Errors
    /// If the file cannot be opened or the thread cannot be started.
    pub(crate) fn open(sink: &AccessLogSink, dropped: IntCounter) -> io::Result<Self> {
        match sink {
            AccessLogSink::Off => Ok(Self { waiting: None, writer: None }),
            AccessLogSink::Stdout => Self::start(io::stdout(), WAITING_BYTES_MAX, dropped),
            AccessLogSink::File(path) => {
                let file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
                Self::start(file, WAITING_BYTES_MAX, dropped)
            }
        }
    }

    fn start(sink: impl Write + Send + 'static, bytes_max: usize, dropped: IntCounter) -> io::Result<Self> {
        let waiting = Arc::new(Waiting {
            batches: ArrayQueue::new((bytes_max / BUFFER_BYTES).max(1)),
            bytes: AtomicUsize::new(0),
            bytes_max,
            spare: ArrayQueue::new(SPARE_MAX),
            closed: AtomicBool::new(false),
            dropped,
            writer: OnceLock::new(),
        });
        let queue = Arc::clone(&waiting);
        let writer = thread::Builder::new().name("access-log".into()).spawn(move || write(&queue, sink))?;
        // Before the first batch can be queued.
        waiting.writer.get_or_init(|| writer.thread().clone());
        Ok(Self { waiting: Some(waiting), writer: Some(writer) })
    }

    /// Adds a line to the batch of this thread. It is dropped and counted if the queue is full, or if it cannot be
    /// written.
    pub(crate) fn put(&self, line: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) {
        let Some(waiting) = &self.waiting else { return };
        let put = BATCH.try_with(|batch| {
            let mut batch = batch.try_borrow_mut().ok()?;
            // The batch of another log is queued there when it is replaced.
            let batch = match &mut *batch {
                Some(batch) if Arc::ptr_eq(&batch.waiting, waiting) => batch,
                other => other.insert(Batch { lines: Lines::default(), waiting: Arc::clone(waiting) }),
            };
            batch.add(line)
        });
        if put.ok().flatten().is_none() {
            waiting.dropped.inc();
        }
    }

    /// Queues this thread's lines, even if the batch is not full.
    pub(crate) fn flush(&self) {
        let own = |batch: &mut Batch| self.waiting.as_ref().is_some_and(|own| Arc::ptr_eq(own, &batch.waiting));
        // A thread that is ending has queued them already.
        let taken = |batch: &RefCell<Option<Batch>>| batch.try_borrow_mut().ok()?.take_if(own);
        drop(BATCH.try_with(taken));
    }

    /// Queues this thread's lines in time. While the writer is behind, it would not write them any sooner, and the
    /// batch grows.
    pub(crate) async fn flush_in_time(&self) -> Infallible {
        let begun = BEGUN.with(Arc::clone);
        loop {
            begun.notified().await;
            tokio::time::sleep(TICK).await;
            while self.waiting.as_ref().is_some_and(|waiting| waiting.is_behind()) {
                tokio::time::sleep(TICK).await;
            }
            self.flush();
        }
    }
}

impl Batch {
    /// Adds a line, and queues the batch if it is full then.
    fn add(&mut self, line: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Option<()> {
        let Lines { bytes, count } = &mut self.lines;
        if bytes.capacity() == 0 {
            *bytes = self.waiting.spare.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES));
        }
        let before = bytes.len();
        if line(bytes).is_err() {
            bytes.truncate(before);
            return None;
        }
        *count += 1;
        if bytes.len() >= BATCH_BYTES {
            self.hand_over();
        } else if before == 0 {
            // A thread that is ending queues the batch when that is dropped.
            BEGUN.try_with(|begun| begun.notify_one()).ok();
        }
        Some(())
    }

    fn hand_over(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        if lines.count > 0 {
            self.waiting.take(lines);
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.hand_over();
    }
}

impl Waiting {
    /// Queues lines, or drops and counts them if the queue is full.
    fn take(&self, lines: Lines) {
        let (size, count) = (lines.bytes.capacity(), lines.count);
        if self.bytes.fetch_add(size, Ordering::Relaxed) + size > self.bytes_max || self.batches.push(lines).is_err() {
            self.bytes.fetch_sub(size, Ordering::Relaxed);
            self.dropped.inc_by(count);
        }
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    /// Returns `true` if the queue is half full.
    fn is_behind(&self) -> bool {
        self.batches.len() > self.batches.capacity() / 2
    }
}

/// Writes queued batches until the log is closed and empty. A failing sink loses the batch, not the log.
fn write(waiting: &Waiting, mut sink: impl Write) {
    loop {
        let closed = waiting.closed.load(Ordering::Acquire);
        if let Some(Lines { mut bytes, count }) = waiting.batches.pop() {
            if sink.write_all(&bytes).and_then(|()| sink.flush()).is_err() {
                waiting.dropped.inc_by(count);
            }
            waiting.bytes.fetch_sub(bytes.capacity(), Ordering::Relaxed);
            bytes.clear();
            if bytes.capacity() <= BUFFER_BYTES {
                // A surplus buffer is freed.
                waiting.spare.push(bytes).ok();
            }
        } else if closed {
            return;
        } else {
            thread::park();
        }
    }
}

impl Drop for AccessLog {
    /// Gives the writer time to write the queued lines; a stuck sink does not block the end of the process for long.
    fn drop(&mut self) {
        self.flush();
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

    /// A log whose sink blocks after `pieces` pieces.
    fn log(bytes_max: usize, pieces: usize) -> (AccessLog, Receiver<Vec<u8>>, IntCounter) {
        let (sender, receiver) = sync_channel(pieces);
        let dropped = IntCounter::new("dropped", "dropped").unwrap();
        (AccessLog::start(Channel(sender), bytes_max, dropped.clone()).unwrap(), receiver, dropped)
    }

    fn count(pieces: impl IntoIterator<Item = Vec<u8>>) -> u64 {
        pieces.into_iter().flatten().filter(|byte| *byte == b'\n').count() as u64
    }

    fn put(log: &AccessLog, lines: usize) {
        (0..lines).for_each(|_| log.put(|out| Entry::sample("/").write(None, out)));
    }

    #[test]
    fn lines_are_written_in_whole_batches_and_in_order() {
        let (log, received, dropped) = log(WAITING_BYTES_MAX, 64);
        let paths: Vec<String> = (0..100).map(|n| format!("/{n}")).collect();
        for path in &paths {
            log.put(|out| Entry::sample(path).write(None, out));
        }
        let first = received.recv().unwrap();
        assert!((BATCH_BYTES..BUFFER_BYTES).contains(&first.len()), "{}", first.len());
        assert!(received.recv_timeout(3 * TICK).is_err(), "the rest is no whole batch");
        log.flush();
        let all = [first, received.recv().unwrap()].concat();
        let seen = all.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let seen = seen.map(|line| serde_json::from_slice::<serde_json::Value>(line).unwrap()["path"].clone());
        assert_eq!(seen.collect::<Vec<_>>(), paths);
        assert_eq!(dropped.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_line_is_written_in_time() {
        let (log, received, _) = log(WAITING_BYTES_MAX, 64);
        let began = tokio::time::Instant::now();
        for _ in 0..3 {
            put(&log, 1);
            // This task puts the line and queues it.
            tokio::select! {
                _ = log.flush_in_time() => unreachable!(),
                () = tokio::time::sleep(TICK + Duration::from_millis(1)) => {}
            }
            assert_eq!(count([received.recv_timeout(CLOSE_DEADLINE).unwrap()]), 1);
        }
        assert!(began.elapsed() < 4 * TICK);
    }

    #[test]
    fn a_slow_writer_loses_lines_and_delays_nothing() {
        let (log, received, dropped) = log(8 * BUFFER_BYTES, 0);
        put(&log, 10_000);
        log.flush();
        // The writer may have taken no batch or one.
        let kept = 10_000 - dropped.get();
        let mut line = Vec::new();
        Entry::sample("/").write(None, &mut line).unwrap();
        let batch = (BATCH_BYTES / line.len()) as u64;
        assert!((8 * batch - 8..=9 * batch + 9).contains(&kept), "{kept} of {batch} a batch");
        let waiting = log.waiting.as_ref().unwrap();
        assert!(waiting.bytes.load(Ordering::Relaxed) <= 9 * BUFFER_BYTES);
        // The kept lines, and only those, are written.
        let reader = thread::spawn(move || count(received));
        drop(log);
        assert_eq!(reader.join().unwrap(), kept);
    }

    #[test]
    fn a_stuck_writer_does_not_delay_the_shutdown() {
        let (log, received, _) = log(WAITING_BYTES_MAX, 0);
        put(&log, 1000);
        let began = crate::clock::now();
        drop(log);
        assert!((CLOSE_DEADLINE..3 * CLOSE_DEADLINE).contains(&began.elapsed()));
        drop(received);
    }

    #[test]
    fn pending_lines_of_every_thread_are_written_at_shutdown() {
        let (log, received, dropped) = log(WAITING_BYTES_MAX, 4096);
        let log = Arc::new(log);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let log = Arc::clone(&log);
                thread::spawn(move || put(&log, 3000))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        put(&log, 7);
        drop(log);
        assert_eq!((count(received), dropped.get()), (12_007, 0));
    }

    #[test]
    fn two_logs_on_one_thread_do_not_mix_their_lines() {
        let (one, from_one, _) = log(WAITING_BYTES_MAX, 64);
        let (two, from_two, _) = log(WAITING_BYTES_MAX, 64);
        for lines in 1..4 {
            put(&one, lines);
            put(&two, 1);
        }
        drop(one);
        drop(two);
        assert_eq!((count(from_one), count(from_two)), (6, 3));
    }

    #[test]
    fn a_failing_sink_loses_only_its_lines() {
        let (log, received, dropped) = log(WAITING_BYTES_MAX, 1);
        drop(received);
        put(&log, 10);
        drop(log);
        assert_eq!(dropped.get(), 10);
    }

    #[test]
    fn in_steady_state_nothing_is_allocated() {
        // Nothing reads the pieces during the measurement, so the sink must have room for all.
        let (log, received, dropped) = log(WAITING_BYTES_MAX, 1024);
        put(&log, 5000);
        let allocated = allocation_counter::measure(|| {
            for _ in 0..20 {
                put(&log, 500);
                // The writer has time between the batches of real traffic too.
                while !log.waiting.as_ref().unwrap().batches.is_empty() {
                    thread::yield_now();
                }
            }
        });
        drop(log);
        assert_eq!((count(received), dropped.get()), (15_000, 0));
        // At most one more buffer for each batch that the writer returned late; a line has none of its own.
        assert!(allocated.count_total <= 20, "{} for 10,000 lines", allocated.count_total);
    }
}
