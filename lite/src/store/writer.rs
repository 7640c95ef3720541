//! The thread that writes: it takes all changes that have come since its last transaction and makes them durable
//! together, so that many requests share the wait for the disk.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

use super::Store;
use super::journal::Taken;
use crate::disk::{DataDirError, Disk};

/// The pause before a failed transaction is retried.
const RETRY: Duration = Duration::from_secs(1);

/// A message to the thread.
pub(crate) enum Task {
    /// There are changes.
    Write,
    /// Write the remaining changes, and end.
    End,
}

/// The progress of the disk.
#[derive(Clone, Debug)]
struct Progress {
    /// Everything up to this version is durable.
    durable: u64,
    /// The last attempt, if it failed: its version, and the error.
    failed: Option<(u64, DataDirError)>,
}

/// A running thread. It ends with its handle, after it has written the remaining changes.
pub(crate) struct Writer {
    tasks: SyncSender<Task>,
    progress: watch::Receiver<Progress>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Writes the changes of a store from now on.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(disk: Disk, store: Arc<Store>) -> Result<Self, DataDirError> {
        // At most one task waits: the thread takes all changes with it.
        let (tasks, taken) = sync_channel(1);
        let durable = store.read().version();
        let (sender, progress) = watch::channel(Progress { durable, failed: None });
        store.write(|state| state.keep_journal(tasks.clone()));
        let run = move || run(&disk, &store, &taken, &sender);
        let thread = std::thread::Builder::new().name("lite-disk".to_owned()).spawn(run);
        let thread = thread.map_err(|why| DataDirError::Io(why.to_string()))?;
        Ok(Self { tasks, progress, thread: Some(thread) })
    }

    /// Waits until everything up to a version is durable.
    ///
    /// # Errors
    /// When it could not be written. The write is retried, but the caller should not rely on it.
    pub(crate) async fn durable(&self, version: u64) -> Result<(), DataDirError> {
        let mut progress = self.progress.clone();
        loop {
            {
                let now = progress.borrow_and_update();
                if now.durable >= version {
                    return Ok(());
                }
                if let Some((_, why)) = now.failed.as_ref().filter(|(attempted, _)| *attempted >= version) {
                    return Err(why.clone());
                }
            }
            if progress.changed().await.is_err() {
                return Err(DataDirError::Io("the thread that writes has ended".to_owned()));
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.tasks.send(Task::End);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn run(disk: &Disk, store: &Store, tasks: &Receiver<Task>, progress: &watch::Sender<Progress>) {
    let mut retry = false;
    loop {
        let task = if retry { tasks.recv_timeout(RETRY) } else { tasks.recv().map_err(RecvTimeoutError::from) };
        let ends = matches!(task, Ok(Task::End) | Err(RecvTimeoutError::Disconnected));
        let Some(batch) = store.between_blocking(|state| state.take_journal()).map(Taken::batch) else {
            if ends {
                return;
            }
            continue;
        };
        retry = match disk.commit(&batch) {
            Ok(()) => {
                progress.send_replace(Progress { durable: batch.version, failed: None });
                false
            }
            Err(why) => {
                tracing::error!(error = %why, "the objects cannot be written to disk; it is retried");
                progress.send_modify(|progress| progress.failed = Some((batch.version, why)));
                store.between_blocking(|state| state.give_back_journal(batch));
                true
            }
        };
        if ends {
            return;
        }
    }
}
