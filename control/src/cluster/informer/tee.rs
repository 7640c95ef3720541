//! Passes the bytes of objects to the cache on disk and the server of copies, besides the events for the control loop.

use std::future::pending;
use std::sync::Arc;

use tidegate_config::object::ObjectName;

use crate::cluster::cache::Sink;
use crate::cluster::copies::{CopyEvent, CopyState, CopySubscriber};

/// The receivers, if they exist. Neither blocks.
#[derive(Clone, Default)]
pub(super) struct Tee {
    pub(super) sink: Option<Sink>,
    pub(super) copies: Option<CopySubscriber>,
}

impl Tee {
    pub(super) fn list_begins(&self) {
        if let Some(sink) = &self.sink {
            sink.list_begins();
        }
        self.copy(CopyEvent::ListBegins);
    }

    pub(super) fn listed(&self, name: &ObjectName, raw: &[u8]) {
        if let Some(sink) = &self.sink {
            sink.listed(name, raw);
        }
        self.copy(CopyEvent::Listed { name, raw });
    }

    pub(super) fn list_failed(&self) {
        if let Some(sink) = &self.sink {
            sink.list_failed();
        }
        self.copy(CopyEvent::ListFailed);
    }

    pub(super) fn list_done(&self, reached: &Arc<str>, complete: bool, wins: bool) {
        if let Some(sink) = &self.sink {
            sink.list_done(Arc::clone(reached), complete, wins);
        }
        self.copy(CopyEvent::ListDone { reached, complete, wins });
    }

    /// An event of a watch: the object, or with `gone` its last state.
    pub(super) fn event(&self, name: &ObjectName, raw: &[u8], gone: bool, reached: &Arc<str>) {
        if let Some(sink) = &self.sink {
            sink.event(name, (!gone).then_some(raw), Some(reached));
        }
        self.copy(CopyEvent::Changed { name, raw, gone });
    }

    pub(super) fn reached(&self, version: &Arc<str>) {
        if let Some(sink) = &self.sink {
            sink.reached(version);
        }
        self.copy(CopyEvent::Reached(version));
    }

    /// A list or a watch failed.
    pub(super) fn interrupted(&self) {
        if let Some(sink) = &self.sink {
            sink.interrupted();
        }
    }

    /// The server does not serve the kind; `sure` if that is known, and not only that the definition may not be read.
    pub(super) fn unserved(&self, sure: bool) {
        if let Some(sink) = self.sink.as_ref().filter(|_| sure) {
            sink.unserved();
        }
        self.copy(CopyEvent::Unserved);
    }

    /// Whether the server of copies lacks objects.
    pub(super) fn lacks(&self) -> bool {
        self.copies.as_ref().is_some_and(|taker| *taker.taken().borrow() == CopyState::Lacking)
    }

    /// Waits until the server of copies lacks objects.
    pub(super) async fn lacking(&self) {
        let Some(taker) = &self.copies else { return pending().await };
        // The sender exists, so this cannot fail.
        drop(taker.taken().wait_for(|taken| *taken == CopyState::Lacking).await);
    }

    fn copy(&self, copied: CopyEvent<'_>) {
        if let Some(taker) = &self.copies {
            taker.take(copied);
        }
    }
}
