//! The access log: one line of JSON, or in a custom format, for each request or TCP connection. Each thread gathers
//! lines in a batch and puts it into a bounded queue, so that a line costs neither an allocation nor synchronisation; a
//! writer takes the batches and returns their buffers. If it is slow, lines are dropped and counted.

mod custom;
mod entry;
mod line;
mod stream_entry;

pub(crate) use entry::{Address, Entry};
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

use crate::options::AccessLogSink;

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
mod tests;
