//! Applies events to World and queues the objects that have changed.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use tidegate_config::model::auth::{KeySet, KeySource};
use tidegate_config::object::ObjectRef;
use tidegate_config::project::{Object, Projected, SecretTexts};

use super::Reconciler;
use crate::attachment::Key;
use crate::event::{Collection, Event};
use crate::history::Cause;
use crate::queue::Lane;
use crate::world::Applied;

impl Reconciler {
    /// Applies an event to World. Returns a collection that must be listed again to confirm its last list.
    pub fn observe(&mut self, event: Event, now: Instant) -> Option<Collection> {
        match event {
            Event::Applied { projected, received } => self.apply(*projected, Lane::Fast, received),
            Event::Deleted { object, received, .. } => self.delete(object, Lane::Fast, received),
            Event::Listed { collection, objects, complete, received, .. } => {
                return self.list(collection, objects, complete, received);
            }
            Event::Unserved { collection, received } => self.unserved(&collection, received),
            Event::Unreadable { collection, received, .. } => {
                if self.listing.unreadable(&collection, received) {
                    self.pending_reports().look_again();
                }
            }
            Event::Unlisted { collection } => {
                self.listing.appears(&collection);
                self.model.world.unlisted.insert(collection);
            }
            Event::Defined { kind, release, received } => {
                if self.model.world.define(kind, release) {
                    let classes = self.model.topology.dependents(&Key::Definitions).cloned().collect();
                    self.refresh_dependents(&classes, Cause::Defined { defined: kind }, Lane::Slow, received);
                }
            }
            Event::Resumed { collection, received, .. } => self.synced(&collection, received),
            Event::Resolved { name, addresses } => {
                // An answer may arrive after its name was dropped; kept, it would be stale when the name is wanted
                // again.
                if self.names.contains(&name) && self.model.world.resolve(Arc::clone(&name), addresses) {
                    self.resolved(&name, now);
                }
            }
            Event::KeySet { source, fetched } => {
                // As above.
                if self.key_sources.contains(&source) && self.model.world.fetch(source.clone(), fetched) {
                    let cause = Cause::Fetched { url: Arc::clone(source.url()) };
                    let policies = self.model.topology.dependents(&Key::KeySet(Box::new(source))).cloned().collect();
                    self.refresh_dependents(&policies, cause, Lane::Fast, now);
                }
            }
            Event::ApiServer { sockets } => {
                self.model.world.api_server = sockets;
                let dependents = self.model.topology.dependents(&Key::ApiServer).cloned().collect();
                self.refresh_dependents(&dependents, Cause::ApiServer, Lane::Slow, now);
                self.recheck_endpoint_addresses(now);
            }
            Event::BindFailures { sockets } => {
                let before = std::mem::replace(&mut self.model.world.unopened, sockets);
                let gateways = self.model.topology.with_changed_sockets(&before, &self.model.world.unopened);
                self.refresh_dependents(&gateways, Cause::BindFailures, Lane::Fast, now);
            }
            Event::Failing { collection, denied, .. } => self.listing.fails(collection, denied, now),
            Event::Watching { collection } => self.listing.recovers(&collection, now),
            Event::Bookmark { .. } => {}
        }
        None
    }

    /// Applies the state of a collection from before a restart, with its time in seconds since the epoch: it serves
    /// until the collection is listed or its watch is resumed. To be called before the first event.
    pub fn restore(&mut self, collection: &Collection, objects: Vec<Projected>, as_of_s: u64, now: Instant) {
        for projected in objects {
            self.apply(projected, Lane::Slow, now);
        }
        self.listing.restores(collection.clone(), as_of_s, now);
        self.model.world.unlisted.remove(collection);
    }

    /// Applies the resolved DNS names and the keys of issuers from before a restart.
    pub fn restore_followed(
        &mut self,
        names: impl IntoIterator<Item = (Arc<str>, Box<[IpAddr]>)>,
        key_sets: impl IntoIterator<Item = (KeySource, Arc<KeySet>)>,
    ) {
        for (name, addresses) in names {
            self.model.world.resolve(name, Ok(addresses));
        }
        for (source, keys) in key_sets {
            self.model.world.fetch(source, Ok(keys));
        }
    }

    fn apply(&mut self, mut projected: Projected, lane: Lane, received: Instant) {
        if let Some(Object::Secret(secret)) = &mut projected.object
            && self.model.options.sources.kuadrant.is_none()
        {
            // Only rules of policies read them.
            Arc::make_mut(secret).texts = SecretTexts::default();
        }
        let (key, version) = (projected.meta.object.clone(), Arc::clone(&projected.meta.resource_version));
        self.reporting.observe(&projected);
        self.gateway_services.observe(&projected);
        let secret = self.model.secret(&key).cloned();
        let Applied { changed, displaced } = self.model.world.apply(projected);
        let cause = Cause::Changed { object: key.clone(), resource_version: version };
        let policies = self.model.accepting(&key, secret.as_ref());
        self.refresh_dependents(&policies, cause.clone(), lane, received);
        for loser in displaced {
            self.changed(&loser, cause.clone(), lane, received);
        }
        if changed {
            self.changed(&key, cause, lane, received);
        }
    }

    fn delete(&mut self, object: ObjectRef, lane: Lane, received: Instant) {
        self.reporting.gone(&object);
        self.gateway_services.gone(&object, &self.model.world);
        let secret = self.model.secret(&object).cloned();
        let Applied { changed, displaced } = self.model.world.delete(&object);
        let cause = Cause::Deleted { object: object.clone() };
        let policies = self.model.accepting(&object, secret.as_ref());
        self.refresh_dependents(&policies, cause.clone(), lane, received);
        for other in displaced {
            self.changed(&other, cause.clone(), lane, received);
        }
        if changed {
            self.changed(&object, cause, lane, received);
        }
    }

    /// Applies a list: its objects exist; if it is complete, all others of the collection are gone.
    fn list(
        &mut self,
        collection: Collection,
        objects: Vec<Projected>,
        complete: bool,
        received: Instant,
    ) -> Option<Collection> {
        let mut gone: BTreeSet<ObjectRef> = self.listing.names_of(&collection, &self.model.world).cloned().collect();
        // Counted before anything is added: a list from another cluster would otherwise make up for missing objects
        // with its own.
        let known = gone.len();
        for projected in objects {
            gone.remove(&projected.meta.object);
            self.apply(projected, Lane::Slow, received);
        }
        if complete {
            if self.listing.must_be_confirmed(&collection, (gone.len(), known), &self.model.options.pace) {
                return Some(collection);
            }
            gone.into_iter().for_each(|object| self.delete(object, Lane::Slow, received));
        }
        self.synced(&collection, received);
        None
    }

    /// The API server does not serve this kind: nothing waits for it, and its objects are gone.
    fn unserved(&mut self, collection: &Collection, received: Instant) {
        let gone: Vec<ObjectRef> = self.listing.names_of(collection, &self.model.world).cloned().collect();
        gone.into_iter().for_each(|object| self.delete(object, Lane::Slow, received));
        self.listing.unserved(collection, received);
        self.synced(collection, received);
    }

    /// A collection has been listed.
    fn synced(&mut self, collection: &Collection, received: Instant) {
        let restored = self.listing.restored_as_of_s(collection).is_some();
        let first = self.listing.synced(collection, received);
        let unlisted = self.model.world.unlisted.remove(collection);
        // Restored objects are attached already; those that have changed since are queued one by one.
        if unlisted || first && !restored {
            let dependents = self.model.topology.dependents_of_kind(collection.kind).cloned().collect();
            self.refresh_dependents(&dependents, Cause::Listed { listed: collection.kind }, Lane::Slow, received);
        }
        if first {
            // Reports that waited for this collection can be written now.
            self.pending_reports().look_again();
        }
    }
}
