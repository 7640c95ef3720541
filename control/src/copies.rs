//! Where the bytes of objects go besides: to whoever serves them again. They are handed over in the order in which the cluster tells them,
//! and by the one who hears them, so that nothing has to be kept for a reader that is slow.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_config::object::{Kind, ObjectName};
use tokio::sync::watch;

use crate::event::Source;
use crate::options::{Options, Secrets};
use crate::selection::sources;

/// Takes copies of what is told of subjects. Clones are one and the same.
pub struct Copies<S = Source>(Arc<Takers<S>>);

type Takers<S> = dyn Fn(&S) -> Taker + Send + Sync;

/// Takes copies of what is told of one subject, in order. Clones are one and the same.
#[derive(Clone)]
pub struct Taker {
    take: Arc<dyn Fn(Copied<'_>) -> Taken + Send + Sync>,
    last: watch::Sender<Taken>,
}

/// What a taker has of its subject after it was told something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// As much as it was told.
    Whole,
    /// Less: it had no room for all of it, or does not believe the last list. Another list is made after a while.
    Lacking,
}

impl Taker {
    /// A taker that calls this, which must not wait for anything.
    #[must_use]
    pub fn new(take: impl Fn(Copied<'_>) -> Taken + Send + Sync + 'static) -> Self {
        Self { take: Arc::new(take), last: watch::Sender::new(Taken::Whole) }
    }

    /// A taker of nothing.
    #[must_use]
    pub fn of_nothing() -> Self {
        Self::new(|_| Taken::Whole)
    }

    /// Hands over what was told.
    pub fn take(&self, copied: Copied<'_>) {
        let taken = (self.take)(copied);
        self.last.send_if_modified(|last| std::mem::replace(last, taken) != taken);
    }

    /// Whether it lacks something, and when that changes.
    pub(crate) fn taken(&self) -> watch::Receiver<Taken> {
        self.last.subscribe()
    }
}

impl fmt::Debug for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taker").field("last", &*self.last.borrow()).finish_non_exhaustive()
    }
}

/// What is told of a source.
#[derive(Debug)]
pub enum Copied<'a> {
    /// A list begins.
    ListBegins,
    /// An item of it.
    Listed {
        /// Which object it is.
        name: &'a ObjectName,
        /// Its JSON.
        raw: &'a [u8],
    },
    /// It failed.
    ListFailed,
    /// It is over.
    ListDone {
        /// The resourceVersion up to which everything has been told with it.
        reached: &'a str,
        /// Whether it names everything.
        complete: bool,
        /// Whether it is as new as whatever watches told while it was made.
        wins: bool,
    },
    /// A watch told of an object.
    Told {
        /// Which object it is.
        name: &'a ObjectName,
        /// Its JSON; of one that is gone, its last state.
        raw: &'a [u8],
        /// Whether it is gone.
        gone: bool,
    },
    /// A watch has nothing more to tell up to this resourceVersion.
    Reached(&'a str),
    /// The cluster does not have the kind any more, or nobody reads it.
    Unserved,
}

/// The kinds that are read in all namespaces, whole or as far as routing needs them, by lists and watches. ConfigMaps are not among them:
/// routing reads one entry of a few, and what else stands in all of them may be anybody's secret.
#[must_use]
pub fn served_kinds(options: &Options) -> BTreeSet<Kind> {
    let everywhere = sources(&[], options).into_iter().filter(|source| source.namespace.is_none());
    everywhere
        .map(|source| source.kind)
        .filter(|kind| *kind != Kind::Secret || options.secrets == Secrets::Watched)
        .filter(|kind| *kind != Kind::ConfigMap)
        .collect()
}

impl<S> Copies<S> {
    /// Hands what is told of a subject to the taker that this gives for it.
    #[must_use]
    pub fn to(takers: impl Fn(&S) -> Taker + Send + Sync + 'static) -> Self {
        Self(Arc::new(takers))
    }

    /// Who takes what is told of a subject.
    pub(crate) fn of(&self, subject: &S) -> Taker {
        (self.0)(subject)
    }

    /// Hands over what was kept over a restart, as a list would tell it.
    pub(crate) fn restore(&self, subject: &S, objects: &[(ObjectName, Bytes)], version: &str) {
        let taker = self.of(subject);
        taker.take(Copied::ListBegins);
        for (name, raw) in objects {
            taker.take(Copied::Listed { name, raw });
        }
        taker.take(Copied::ListDone { reached: version, complete: true, wins: true });
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
