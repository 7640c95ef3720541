//! One value that is made of files, and its checks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{Mutex, watch};
use tokio::task::{JoinHandle, spawn_blocking};
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
    /// Held during a check.
    last: Mutex<Last<T>>,
}

type Outcome<T> = Result<(T, Vec<u8>), String>;

/// The last read of files. There is one at a time, so no earlier one replaces the value of a later one, and files that
/// hang take one thread.
struct Last<T> {
    /// The digest of the files that gave the value.
    digest: Vec<u8>,
    /// A read that has not ended, which may be that of an earlier check.
    running: Option<JoinHandle<Outcome<T>>>,
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
            last: Mutex::new(Last { digest: reads.finish(), running: None }),
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
    /// Waits for the read that runs, or for a new one. `None` if it hangs: it goes on.
    async fn read(&self, last: &mut Last<T>) -> Option<Outcome<T>> {
        let read = last.running.get_or_insert_with(|| {
            let load = Arc::clone(&self.load);
            spawn_blocking(move || {
                let mut reads = Reads::begin();
                load(&mut reads).map(|value| (value, reads.finish()))
            })
        });
        let ended = timeout(READ_TIMEOUT, read).await.ok()?;
        last.running = None;
        Some(ended.unwrap_or_else(|_panic| Err("reading the files failed".to_owned())))
    }

    /// Uses the result of a read. Returns `true` if the files had changed.
    fn put(&self, last: &mut Last<T>, (value, digest): (T, Vec<u8>)) -> bool {
        let changed = last.digest != digest;
        if changed {
            last.digest = digest;
            self.value.send_replace(Arc::new(value));
        }
        changed
    }

    /// Reads the files as they are now, and returns whether they had changed.
    async fn check_now(&self, last: &mut Last<T>) -> Result<bool, String> {
        let hangs = || format!("reading the files took more than {} s", READ_TIMEOUT.as_secs());
        if last.running.is_some() {
            // It began before this check, so the files may have changed since.
            if let Ok(read) = self.read(last).await.ok_or_else(hangs)? {
                let changed = self.put(last, read);
                self.reports.good(changed);
            }
        }
        let mut outcome = self.read(last).await.ok_or_else(hangs)?;
        if outcome.is_err() {
            sleep(SECOND_ATTEMPT_AFTER).await;
            outcome = self.read(last).await.ok_or_else(hangs)?;
        }
        Ok(self.put(last, outcome?))
    }
}

impl<T: Send + Sync + 'static> Checked for Files<T> {
    fn check(self: Arc<Self>) -> BoxFuture<'static, ()> {
        let check = async move {
            match self.check_now(&mut *self.last.lock().await).await {
                Ok(changed) => self.reports.good(changed),
                Err(why) => self.reports.bad(&why),
            }
        };
        check.boxed()
    }
}

#[cfg(test)]
mod tests;
