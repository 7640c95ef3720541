//! Logs with a sink that a test reads, or does not.

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
fn lines_after_a_loss_are_written_whole() {
    const LATER: usize = 3000;
    let (log, received, dropped) = log(8 * BUFFER_BYTES, 0);
    put(&log, 10_000);
    log.flush();
    let lost = dropped.get();
    assert_ne!(lost, 0);
    let reader = thread::spawn(move || received.into_iter().flatten().collect::<Vec<u8>>());
    let waiting = Arc::clone(log.waiting.as_ref().unwrap());
    let give_up = crate::clock::now() + 10 * CLOSE_DEADLINE;
    for number in 0..LATER {
        // The writer has caught up before the first line, and is not far behind the others.
        while number % 50 == 0 && waiting.bytes.load(Ordering::Relaxed) > 0 {
            assert!(crate::clock::now() < give_up, "the writer is stuck");
            thread::yield_now();
        }
        log.put(|out| Entry::sample(&format!("/later/{number}")).write(None, out));
    }
    drop(log);
    let written = reader.join().unwrap();
    let lines = written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let paths = lines.map(|line| serde_json::from_slice::<serde_json::Value>(line).unwrap()["path"].clone());
    let later: Vec<_> = paths.filter(|path| path != "/").collect();
    assert_eq!(later, (0..LATER).map(|number| format!("/later/{number}")).collect::<Vec<_>>());
    assert_eq!((dropped.get(), count([written])), (lost, 10_000 - lost + LATER as u64));
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
