//! The order of writes. A thread of the runtime never waits for the lock of the state while a client's write is checked
//! or committed: whoever may meet one waits for its turn first.

use super::{State, Store};

impl Store {
    /// Reads the state as it is between commits; the check of a write may be going on.
    pub(crate) async fn look<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        let _none_commits = self.commits.read().await;
        read(&self.read())
    }

    /// Changes the state between the writes of clients.
    pub(crate) async fn between<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let _turn = self.turn.lock().await;
        let _none_reads = self.commits.write().await;
        self.write(act)
    }

    /// The same for a thread that is not of the runtime.
    pub(crate) fn between_blocking<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let _turn = self.turn.blocking_lock();
        self.commit(act)
    }

    /// Runs the write of a client on a thread of its own, one after the other: the threads that drive sockets and
    /// signals go on, however long its check takes, and so do reads. It goes on even if the caller no longer waits for
    /// it. `None` if it panicked.
    pub(crate) async fn apart<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let turn = self.turn.clone().lock_owned().await;
        let act = move || {
            let done = act();
            drop(turn);
            done
        };
        tokio::task::spawn_blocking(act).await.ok()
    }

    /// Changes the state as the last step of a write that runs [apart](Self::apart).
    pub(crate) fn commit<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let _none_reads = self.commits.blocking_write();
        self.write(act)
    }
}
