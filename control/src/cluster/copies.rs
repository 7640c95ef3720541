//! Copies of objects for the server of the cached API. They are passed on in the order of the cluster's events by the
//! receiving task, so that no queue is needed for a slow reader.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_config::object::{Kind, ObjectName};
use tokio::sync::watch;

use crate::cluster::selection::collections;
use crate::event::Collection;
use crate::options::{Options, Secrets};

/// The copies of all subjects. Clones share the takers.
pub struct Copies<S = Collection>(Arc<CopySubscribers<S>>);

type CopySubscribers<S> = dyn Fn(&S) -> CopySubscriber + Send + Sync;

/// Receives the copies of one subject, in order. Clones share the state.
#[derive(Clone)]
pub struct CopySubscriber {
    take: Arc<dyn Fn(CopyEvent<'_>) -> CopyState + Send + Sync>,
    last: watch::Sender<CopyState>,
}

/// The completeness of a taker's copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyState {
    /// Everything was taken.
    Whole,
    /// Something is missing: it had no space, or does not accept the last list. Another list is made after a while.
    Lacking,
}

impl CopySubscriber {
    /// A taker that calls this function, which must not block.
    #[must_use]
    pub fn new(take: impl Fn(CopyEvent<'_>) -> CopyState + Send + Sync + 'static) -> Self {
        Self { take: Arc::new(take), last: watch::Sender::new(CopyState::Whole) }
    }

    /// A taker that ignores everything.
    #[must_use]
    pub fn of_nothing() -> Self {
        Self::new(|_| CopyState::Whole)
    }

    /// Passes on a copy.
    pub fn take(&self, copied: CopyEvent<'_>) {
        let taken = (self.take)(copied);
        self.last.send_if_modified(|last| std::mem::replace(last, taken) != taken);
    }

    /// The completeness of the taker's copy, with updates.
    pub(crate) fn taken(&self) -> watch::Receiver<CopyState> {
        self.last.subscribe()
    }
}

impl fmt::Debug for CopySubscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopySubscriber").field("last", &*self.last.borrow()).finish_non_exhaustive()
    }
}

/// An event of a collection.
#[derive(Debug)]
pub enum CopyEvent<'a> {
    /// A list begins.
    ListBegins,
    /// An item of the list.
    Listed {
        /// The name of the object.
        name: &'a ObjectName,
        /// Its JSON.
        raw: &'a [u8],
    },
    /// The list failed.
    ListFailed,
    /// The list is complete.
    ListDone {
        /// The resourceVersion of the list.
        reached: &'a str,
        /// Whether it has every object.
        complete: bool,
        /// Whether it takes precedence over events of watches that arrived during it.
        wins: bool,
    },
    /// An event of a watch.
    Changed {
        /// The name of the object.
        name: &'a ObjectName,
        /// Its JSON; for a deletion, the last state.
        raw: &'a [u8],
        /// Whether it was deleted.
        gone: bool,
    },
    /// A bookmark: a watch has no more events up to this resourceVersion.
    Reached(&'a str),
    /// The cluster no longer serves the kind, or the kind is no longer read.
    Unserved,
}

/// The kinds that are listed and watched in all namespaces, as complete objects or as far as routing needs them.
/// ConfigMaps are not among them: routing reads one entry of a few, and the others may be confidential.
#[must_use]
pub fn served_kinds(options: &Options) -> BTreeSet<Kind> {
    let everywhere = collections(&[], options).into_iter().filter(|collection| collection.namespace.is_none());
    everywhere
        .map(|collection| collection.kind)
        .filter(|kind| *kind != Kind::Secret || options.secrets == Secrets::Watched)
        .filter(|kind| *kind != Kind::ConfigMap)
        .collect()
}

impl<S> Copies<S> {
    /// Passes the events of a subject to the taker that this function returns for it.
    #[must_use]
    pub fn to(takers: impl Fn(&S) -> CopySubscriber + Send + Sync + 'static) -> Self {
        Self(Arc::new(takers))
    }

    /// The taker of a subject.
    pub(crate) fn of(&self, subject: &S) -> CopySubscriber {
        (self.0)(subject)
    }

    /// Passes on restored objects as a list.
    pub(crate) fn restore(&self, subject: &S, objects: &[(ObjectName, Bytes)], version: &str) {
        let taker = self.of(subject);
        taker.take(CopyEvent::ListBegins);
        for (name, raw) in objects {
            taker.take(CopyEvent::Listed { name, raw });
        }
        taker.take(CopyEvent::ListDone { reached: version, complete: true, wins: true });
    }
}

impl<S> Clone for Copies<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> fmt::Debug for Copies<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").finish_non_exhaustive()
    }
}
