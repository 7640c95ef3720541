//! Events into World: what is another object now waits in the queue.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::Projected;

use super::Reconciler;
use crate::event::{Event, Source};
use crate::history::Cause;
use crate::queue::Lane;

impl Reconciler {
    /// Takes an event into World. Returns a source that has to be listed again before its last list is believed.
    pub fn observe(&mut self, event: Event, now: Instant) -> Option<Source> {
        match event {
            Event::Applied { projected, received } => self.apply(*projected, Lane::Fast, received),
            Event::Deleted { object, received, .. } => self.delete(object, Lane::Fast, received),
            Event::Listed { source, objects, complete, received, .. } => {
                return self.list(source, objects, complete, received);
            }
            Event::Unserved { source, received } => self.unserved(&source, received),
            Event::Defined { kind, release, received } => {
                if self.world.define(kind, release) {
                    self.defined(kind, received);
                }
            }
            Event::Resumed { source, received, .. } => self.synced(&source, received),
            Event::Resolved { name, addresses } => {
                // An answer may come after its name was given up; kept, it would be stale when the name comes back.
                if self.names.contains(&name) && self.world.resolve(Arc::clone(&name), addresses) {
                    self.resolved(&name, now);
                }
            }
            Event::ApiServer { sockets } => {
                self.world.api_server = sockets;
                self.guard(now);
            }
            Event::Failing { source, denied, .. } => self.listing.fails(source, denied, now),
            Event::Watching { source } => self.listing.recovers(&source, now),
            Event::Bookmark { .. } => {}
        }
        None
    }

    /// Takes what was kept of a source over a restart, as of a time in seconds since the epoch: it serves until the source is listed,
    /// or its watch goes on. To be called before anything is observed.
    pub fn restore(&mut self, source: &Source, objects: Vec<Projected>, as_of_s: u64, now: Instant) {
        for projected in objects {
            self.apply(projected, Lane::Slow, now);
        }
        self.listing.restores(source.clone(), as_of_s, now);
        self.know_classes(source.kind);
    }

    /// As of when a source is, in seconds since the epoch, where it is not known as it is now but as it was kept.
    #[must_use]
    pub fn restored_as_of_s(&self, source: &Source) -> Option<u64> {
        self.listing.restored(source)
    }

    /// Takes what DNS names led to before a restart.
    pub fn restore_names(&mut self, names: impl IntoIterator<Item = (Arc<str>, Box<[IpAddr]>)>) {
        for (name, addresses) in names {
            self.world.resolve(name, Ok(addresses));
        }
    }

    fn apply(&mut self, projected: Projected, lane: Lane, received: Instant) {
        let (key, version) = (projected.meta.object.clone(), Arc::clone(&projected.meta.resource_version));
        self.reporting.stands(&projected);
        self.making.stands(&projected);
        if self.world.apply(projected) {
            let cause = Cause::Changed { object: key.clone(), resource_version: version };
            self.changed(&key, cause, lane, received);
        }
    }

    fn delete(&mut self, object: ObjectRef, lane: Lane, received: Instant) {
        self.reporting.gone(&object);
        self.making.gone(&object, &self.world);
        if self.world.delete(&object) {
            self.changed(&object, Cause::Deleted { object: object.clone() }, lane, received);
        }
    }

    /// A list: what it names is there; then, if it is complete, what it does not name is gone.
    fn list(&mut self, source: Source, objects: Vec<Projected>, complete: bool, received: Instant) -> Option<Source> {
        let mut gone: BTreeSet<ObjectRef> = self.names_of(&source).cloned().collect();
        // Measured before anything is added: a list of another cluster would make up for what it lacks by objects of its own.
        let held = gone.len();
        for projected in objects {
            gone.remove(&projected.meta.object);
            self.apply(projected, Lane::Slow, received);
        }
        if complete {
            if self.doubtful(gone.len(), held) && self.doubted.insert(source.clone()) {
                return Some(source);
            }
            self.doubted.remove(&source);
            gone.into_iter().for_each(|object| self.delete(object, Lane::Slow, received));
        }
        self.synced(&source, received);
        None
    }

    /// The names of the objects that a source tells of: of those in all namespaces, the ones in a namespace with a source of its
    /// own are left to that.
    pub(crate) fn names_of<'a>(&'a self, source: &'a Source) -> impl Iterator<Item = &'a ObjectRef> {
        let apart = if source.namespace.is_none() { self.listing.namespaces_of(source.kind) } else { BTreeSet::new() };
        let names = self.world.names_of(source.kind, source.namespace.as_deref());
        names.filter(move |object| apart.is_empty() || !apart.contains(&object.name.namespace))
    }

    /// Whether the last list of a source has to be confirmed by the next one.
    pub(crate) fn doubts(&self, source: &Source) -> bool {
        self.doubted.contains(source)
    }

    /// A kind that the cluster does not have: nobody waits for it, and whatever was there of it is gone.
    fn unserved(&mut self, source: &Source, received: Instant) {
        let gone: Vec<ObjectRef> = self.names_of(source).cloned().collect();
        gone.into_iter().for_each(|object| self.delete(object, Lane::Slow, received));
        self.doubted.remove(source);
        self.listing.recovers(source, received);
        self.synced(source, received);
    }

    /// What there is of a source is known.
    fn synced(&mut self, source: &Source, received: Instant) {
        let restored = self.listing.restored(source).is_some();
        if !self.listing.synced(source, received) {
            return;
        }
        self.know_classes(source.kind);
        // What was restored has been attached as it is, and of what is different the objects are.
        if !restored {
            self.kind_listed(source.kind, received);
        }
        // What was not told for the want of it is to be told now.
        self.look_again();
    }

    /// More is known of a kind, which may be the one of classes.
    fn know_classes(&mut self, kind: Kind) {
        if kind != Kind::IngressClass {
            return;
        }
        let unknown = |source: &Source| source.kind == Kind::IngressClass && self.listing.unknown(source);
        self.world.classes_known = !self.unsynced().iter().any(unknown);
    }

    /// Whether a list that lacks so many of what is held has to be confirmed. A few may go unconfirmed, but never the last
    /// ones: one class may be all there is of its kind, and everything rests on it.
    #[allow(clippy::cast_precision_loss, reason = "a share of counts needs no more precision")]
    fn doubtful(&self, gone: usize, held: usize) -> bool {
        let pace = self.options.pace;
        gone as f64 > pace.sweep_share_max * held as f64 && (gone > pace.sweep_free || gone == held)
    }
}
