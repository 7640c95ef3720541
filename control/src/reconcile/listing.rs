//! What has to be listed before the first model, and before anything is told to the cluster.
//!
//! Routing makes no sense without Ingresses, Services and EndpointSlices. Where namespaces were named, though, one that goes takes
//! the right to read it along, and the others are not to wait for that: what the API server keeps denying in a namespace is
//! waited for no longer than a kind that routing can do without. Where nothing of a kind can be read it is waited for, however
//! long that takes: an API server that has just started denies everything for a moment, and an edge without any routes is not ready.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use tidegate_config::object::Kind;

use crate::event::Source;
use crate::options::Pace;

/// Which sources have been listed, and which fail.
#[derive(Debug)]
pub(super) struct Listing {
    /// The namespaces that have a source of a kind to themselves.
    namespaces: BTreeSet<(Kind, Arc<str>)>,
    /// Those that routing makes no sense without.
    required: BTreeSet<Source>,
    /// Those that have not been listed yet.
    unsynced: BTreeSet<Source>,
    /// Those of which what was kept over a restart of the process serves, each with the time as of which it is, in seconds since the
    /// epoch.
    restored: BTreeMap<Source, u64>,
    /// Those among them that the first model is made of. None is after the loop has started over: what a panic left of them may be
    /// half done.
    trusted: BTreeSet<Source>,
    /// Those that fail, as far as was told, and whether by being denied.
    failing: BTreeMap<Source, bool>,
    /// Since when none of the required ones is waited for.
    required_since: Option<Instant>,
}

impl Listing {
    /// Nothing has been listed yet.
    pub(super) fn new(sources: impl IntoIterator<Item = Source>) -> Self {
        let unsynced: BTreeSet<Source> = sources.into_iter().collect();
        let namespaces = unsynced.iter().filter_map(|it| Some((it.kind, it.namespace.clone()?))).collect();
        // Where no routes can come from, a Service has nothing but an address to tell. With Ingresses among the sources those are
        // read wherever routes may be; without, Services make the routes.
        let of = |kind| unsynced.iter().filter(move |source| source.kind == kind).map(|source| &source.namespace);
        let ingresses: BTreeSet<_> = of(Kind::Ingress).collect();
        let routed =
            if ingresses.is_empty() { of(Kind::EndpointSlice).chain(of(Kind::Service)).collect() } else { ingresses };
        // Of Deployments there is one at most, and every application depends on it.
        let is_required = |source: &&Source| {
            source.kind == Kind::Deployment || (required(source.kind) && routed.contains(&source.namespace))
        };
        let required = unsynced.iter().filter(is_required).cloned().collect();
        let (restored, trusted, failing) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { namespaces, required, unsynced, restored, trusted, failing, required_since: None }
    }

    /// The namespaces that have a source of a kind to themselves.
    pub(super) fn namespaces_of(&self, kind: Kind) -> BTreeSet<Arc<str>> {
        self.namespaces.iter().filter(|(of, _)| *of == kind).map(|(_, namespace)| Arc::clone(namespace)).collect()
    }

    /// Sources that have not been listed yet.
    pub(super) const fn unsynced(&self) -> &BTreeSet<Source> {
        &self.unsynced
    }

    /// A source fails, and whether by being denied.
    pub(super) fn fails(&mut self, source: Source, denied: bool, now: Instant) {
        self.failing.insert(source, denied);
        self.reckon(now);
    }

    /// A source does not fail any more.
    pub(super) fn recovers(&mut self, source: &Source, now: Instant) {
        self.failing.remove(source);
        self.reckon(now);
    }

    /// What there was of a source in an earlier life is known. The first model does not wait for it, but whatever is told to the
    /// cluster does.
    pub(super) fn restores(&mut self, source: Source, as_of_s: u64, now: Instant) {
        self.trusted.insert(source.clone());
        self.restored.insert(source, as_of_s);
        self.reckon(now);
    }

    /// What of this is still so in the next life of the loop: what was kept over a restart goes on to serve until it is listed.
    pub(super) fn still_serving(self, sources: impl IntoIterator<Item = Source>) -> Self {
        Self { restored: self.restored, ..Self::new(sources) }
    }

    /// As of when a source is, of which no more is known than what there was in an earlier life.
    pub(super) fn restored(&self, source: &Source) -> Option<u64> {
        self.restored.get(source).copied()
    }

    /// Whether nothing is known of a source.
    pub(super) fn unknown(&self, source: &Source) -> bool {
        self.unsynced.contains(source) && !self.trusted.contains(source)
    }

    /// Whether there is a source of which nothing is known.
    pub(super) fn any_unknown(&self) -> bool {
        self.unsynced.iter().any(|source| !self.trusted.contains(source))
    }

    /// What there is of a source is known. Gives whether it was not before.
    pub(super) fn synced(&mut self, source: &Source, now: Instant) -> bool {
        let first = self.unsynced.remove(source);
        self.restored.remove(source);
        self.trusted.remove(source);
        self.reckon(now);
        first
    }

    /// Whether something is not listed without which there is no first model.
    pub(super) fn waits(&self) -> bool {
        self.required.iter().any(|source| self.unknown(source) && !self.spared(source))
    }

    /// Until when the first model waits for what it can do without; `None` while it waits for more.
    pub(super) fn patience(&self, pace: &Pace) -> Option<Instant> {
        if !self.any_unknown() {
            return self.required_since;
        }
        let slow = self.comes(|_| true);
        let grace = match slow {
            // What is not kept, such as Secrets without a key, is worth a moment: the API server may be there.
            _ if !self.trusted.is_empty() => pace.optional_grace.min(pace.restored_grace),
            true => pace.optional_grace.max(pace.optional_slow_grace),
            false => pace.optional_grace,
        };
        self.required_since.map(|since| since + grace)
    }

    /// Whether any of these is still to be listed, and does not fail.
    pub(super) fn comes(&self, these: impl Fn(&Source) -> bool) -> bool {
        self.unsynced.iter().any(|source| these(source) && self.unknown(source) && !self.failing.contains_key(source))
    }

    /// Whether all is known but what is denied in namespaces of its own.
    pub(super) fn settled(&self) -> bool {
        self.unsynced.iter().all(|source| self.denied(source))
    }

    /// Whether all is known, of an object of this namespace.
    pub(super) fn settled_in(&self, namespace: &str) -> bool {
        self.unsynced.iter().all(|source| self.denied(source) && source.namespace.as_deref() != Some(namespace))
    }

    fn denied(&self, source: &Source) -> bool {
        source.namespace.is_some() && self.failing.get(source) == Some(&true)
    }

    /// Whether a required source is not waited for: it is denied, and another one of its kind is not.
    fn spared(&self, source: &Source) -> bool {
        let known = |other: &Source| other.kind == source.kind && !self.unknown(other);
        self.denied(source) && self.required.iter().any(known)
    }

    fn reckon(&mut self, now: Instant) {
        self.required_since = if self.waits() { None } else { self.required_since.or(Some(now)) };
    }
}

/// Whether routing makes no sense without a kind.
const fn required(kind: Kind) -> bool {
    matches!(kind, Kind::Ingress | Kind::Service | Kind::EndpointSlice)
}
