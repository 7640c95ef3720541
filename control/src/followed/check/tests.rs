//! Files that hang, with the time of the runtime.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};

use tokio::time::{Instant, advance};
use tokio_util::sync::CancellationToken;

use super::*;

/// Followed files whose reads, from the second on, hang until the test gives them a text.
struct Hanging {
    followed: Followed<String>,
    give: Sender<&'static str>,
    begun: Arc<AtomicUsize>,
    _folder: tempfile::TempDir,
}

impl Hanging {
    fn open(following: &Following) -> Self {
        let (give, given) = channel();
        let (begun, folder) = (Arc::new(AtomicUsize::new(0)), tempfile::tempdir().unwrap());
        let (reads_begun, path) = (Arc::clone(&begun), folder.path().join("file"));
        std::fs::write(&path, "first").unwrap();
        // Only one read at a time may have it.
        let given = tokio::sync::Mutex::new(given);
        let load = move |reads: &mut Reads| {
            if reads_begun.fetch_add(1, Relaxed) > 0 {
                let text = given.try_lock().unwrap().recv().map_err(|_| "the test is over")?;
                std::fs::write(&path, text).unwrap();
            }
            reads.value(&path)
        };
        Self { followed: Followed::open(following, "test", load).unwrap(), give, begun, _folder: folder }
    }

    fn check(&self) -> tokio::task::JoinHandle<()> {
        let followed = self.followed.clone();
        tokio::spawn(async move { followed.check().await })
    }
}

/// Lets the time pass until a condition holds. While a thread reads, the time does not pass by itself.
async fn pass_until(mut holds: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        tokio::task::yield_now().await;
        advance(Duration::from_millis(50)).await;
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_read_that_hangs_leaves_the_last_good_content_in_use() {
    let hanging = Hanging::open(&Following::new().unwrap());
    let check = hanging.check();
    let took = pass_until(|| check.is_finished()).await;
    assert!(took < READ_TIMEOUT * 2, "{took:?}");
    assert_eq!(*hanging.followed.current(), "first");
}

#[tokio::test(start_paused = true)]
async fn files_that_hang_take_one_thread_and_are_used_when_they_come() {
    let hanging = Hanging::open(&Following::new().unwrap());
    for _ in 0..3 {
        let check = hanging.check();
        pass_until(|| check.is_finished()).await;
    }
    let mut value = hanging.followed.subscribe();
    hanging.give.send("late").unwrap();
    let check = hanging.check();
    value.changed().await.unwrap();
    assert_eq!(**value.borrow_and_update(), "late");
    // The check reads the files as they are now, too.
    hanging.give.send("now").unwrap();
    check.await.unwrap();
    assert_eq!(**value.borrow_and_update(), "now");
    assert_eq!(hanging.begun.load(Relaxed), 3, "the first reading, the one that hung, and the last one");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_hangs_delays_no_other() {
    let (following, stop) = (Following::new().unwrap(), CancellationToken::new());
    let hanging = Hanging::open(&following);
    let running = tokio::spawn(following.clone().run(stop.clone()));
    tokio::task::yield_now().await;
    // One that is added while the files are followed.
    let reads = watch::Sender::new(0);
    let (counted, mut reads) = (reads.clone(), reads.subscribe());
    let load = move |_: &mut Reads| {
        counted.send_modify(|reads| *reads += 1);
        Ok::<_, String>(())
    };
    let _other = Followed::open(&following, "other", load).unwrap();
    // The other source hangs from its first check on.
    pass_until(|| *reads.borrow_and_update() >= 6 && hanging.begun.load(Relaxed) >= 2).await;
    assert_eq!(hanging.begun.load(Relaxed), 2);
    drop(hanging);
    stop.cancel();
    running.await.unwrap();
}
