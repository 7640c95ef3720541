//! One value that is made of files, and its checks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{Mutex, watch};
use tokio::time::{sleep, timeout};

use super::read::Reads;
use super::{Following, Reports};

/// The pause before a second attempt: files that belong together may be replaced one after the other.
const SECOND_ATTEMPT_AFTER: Duration = Duration::from_millis(250);
/// The time for reading the files, which may be on a file system that no longer answers.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The newest good value of some files. Clones share it.
pub struct Followed<T> {
    files: Arc<Files<T>>,
}

impl<T> Clone for Followed<T> {
    fn clone(&self) -> Self {
        Self { files: Arc::clone(&self.files) }
    }
}

/// Does not show the value, which may be a secret.
impl<T> fmt::Debug for Followed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Followed")
    }
}

type Load<T> = dyn Fn(&mut Reads) -> Result<T, String> + Send + Sync;

/// The files with their value.
struct Files<T> {
    load: Arc<Load<T>>,
    value: watch::Sender<Arc<T>>,
    reports: Reports,
    /// Whether there are any, at the first reading.
    exist: bool,
    /// The digest of the files that gave the value. Held during a check, so that no earlier read replaces a later one.
    digest: Mutex<Vec<u8>>,
}

/// Files that are checked from time to time, whatever their value is.
pub(super) trait Checked: Send + Sync {
    fn check(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

impl<T: Send + Sync + 'static> Followed<T> {
    /// Reads the files of a source for the first time, and follows them. The source names them in metrics and the log.
    /// `load` reads all of them, by way of [`Reads`] alone, and checks them.
    ///
    /// # Errors
    /// If they cannot be used now.
    pub fn open<E: fmt::Display>(
        following: &Following,
        source: &'static str,
        load: impl Fn(&mut Reads) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        let mut reads = Reads::begin();
        let value = watch::Sender::new(Arc::new(load(&mut reads)?));
        let files = Arc::new(Files {
            load: Arc::new(move |reads: &mut Reads| load(reads).map_err(|why| why.to_string())),
            value,
            reports: following.reports(source),
            exist: reads.files() > 0,
            digest: Mutex::new(reads.finish()),
        });
        following.add(Arc::clone(&files) as Arc<dyn Checked>);
        Ok(Self { files })
    }

    /// The newest good value.
    #[must_use]
    pub fn current(&self) -> Arc<T> {
        Arc::clone(&self.files.value.borrow())
    }

    /// Returns `true` if there is nothing to follow: the value is made of no file.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        !self.files.exist
    }

    /// The newest good value, now and later.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<T>> {
        self.files.value.subscribe()
    }

    /// Reads the files now.
    pub async fn check(&self) {
        Arc::clone(&self.files).check().await;
    }
}

impl<T: Send + Sync + 'static> Files<T> {
    /// The value of the files as they are now, and their digest.
    async fn read(&self) -> Result<(T, Vec<u8>), String> {
        let load = Arc::clone(&self.load);
        let read = tokio::task::spawn_blocking(move || {
            let mut reads = Reads::begin();
            load(&mut reads).map(|value| (value, reads.finish()))
        });
        match timeout(READ_TIMEOUT, read).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_panic)) => Err("reading the files failed".to_owned()),
            Err(_elapsed) => Err(format!("reading the files took more than {} s", READ_TIMEOUT.as_secs())),
        }
    }
}

impl<T: Send + Sync + 'static> Checked for Files<T> {
    fn check(self: Arc<Self>) -> BoxFuture<'static, ()> {
        let check = async move {
            let mut digest = self.digest.lock().await;
            let mut outcome = self.read().await;
            if outcome.is_err() {
                sleep(SECOND_ATTEMPT_AFTER).await;
                outcome = self.read().await;
            }
            match outcome {
                Ok((value, seen)) => {
                    let changed = seen != *digest;
                    if changed {
                        *digest = seen;
                        self.value.send_replace(Arc::new(value));
                    }
                    self.reports.good(changed);
                }
                Err(why) => self.reports.bad(&why),
            }
        };
        check.boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_read_that_hangs_leaves_the_last_good_content_in_use() {
        let (release, first) = (Arc::new(OnceLock::new()), AtomicBool::new(true));
        let released = Arc::clone(&release);
        let load = move |_: &mut Reads| {
            if !first.swap(false, Relaxed) {
                released.wait();
            }
            Ok::<_, String>(1)
        };
        let followed = Followed::open(&Following::new().unwrap(), "test", load).unwrap();
        let passing = async {
            for _ in 0..60 {
                tokio::task::yield_now().await;
                advance(Duration::from_millis(250)).await;
            }
            "time has passed"
        };
        let checked = async {
            followed.check().await;
            "the check has ended"
        };
        // Both attempts are over after little more than twice the timeout of one.
        let (checked, passing) = (std::pin::pin!(checked), std::pin::pin!(passing));
        let first = futures::future::select(checked, passing).await;
        assert_eq!(first.factor_first().0, "the check has ended");
        assert_eq!(*followed.current(), 1);
        release.set(()).unwrap();
    }
}
