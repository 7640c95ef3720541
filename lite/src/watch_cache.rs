//! A server fed from another one: kinds that the process reads anyway are served here, under the same versions, for
//! reads and watches. It never sends a request itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::kind::{ExpectedKind, KindId, WatchCacheKind};
use crate::lite::Lite;
use crate::store::{Key, ListEnd, Object};

/// The limits of a watch cache: its memory, and the deletions it accepts at once.
#[derive(Clone, Copy, Debug)]
pub struct WatchCacheLimits {
    /// The maximum size of all objects as JSON, in bytes. A kind that would exceed it is not served. The history of
    /// each kind takes up to an eighth of it in addition.
    pub bytes_max: usize,
    /// The share of a kind that a list may remove; a list that removes more is believed when the next one agrees.
    pub unconfirmed_removals_share: f64,
    /// The number of objects that may be removed at once, whatever their share, as long as some are left.
    pub unconfirmed_removals_count: usize,
}

/// The input of one kind of a watch cache. Events must be in the order of the upstream server.
#[derive(Clone)]
pub struct Feed {
    lite: Lite,
    kind: KindId,
    limits: WatchCacheLimits,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// The figures of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// The number of objects.
    pub objects: usize,
    /// The size of their JSON, in bytes.
    pub bytes: usize,
    /// The number of open watches.
    pub watches: usize,
}

impl Lite {
    /// Creates a watch cache of these kinds, which are unknown until fed, and the feed of each, by group and plural.
    #[must_use]
    pub fn watch_cache(kinds: &[WatchCacheKind], limits: WatchCacheLimits) -> (Self, BTreeMap<(String, String), Feed>) {
        let lite = Self::fed();
        let feed = |kind: &WatchCacheKind| ((kind.group.clone(), kind.plural.clone()), lite.follow(kind, limits));
        let feeds = kinds.iter().map(feed).collect();
        (lite, feeds)
    }

    /// Serves one kind more, or one that is served already. A new one is unknown until fed.
    #[must_use]
    pub fn follow(&self, kind: &WatchCacheKind, limits: WatchCacheLimits) -> Feed {
        let kind = self.store().write(|state| state.follow(kind, limits.bytes_max));
        Feed { lite: self.clone(), kind, limits }
    }

    /// The kinds of which it is not known yet whether the upstream server has them, in place of the earlier ones: until
    /// they are known, requests for them are answered 429 instead of 404, and so are the discovery documents that would
    /// lack them. A kind that is served already needs no mention.
    pub fn expect(&self, kinds: Vec<ExpectedKind>) {
        self.store().expect(kinds);
    }

    /// Where a kind that is served already is told of.
    #[must_use]
    pub fn followed(&self, kind: &WatchCacheKind, limits: WatchCacheLimits) -> Option<Feed> {
        let kind = self.store().read().kinds().find(&kind.group, &kind.version, &kind.plural)?;
        Some(Feed { lite: self.clone(), kind, limits })
    }

    /// The stored objects of each kind of a watch cache, by group and plural.
    #[must_use]
    pub fn figures(&self) -> Vec<((String, String), Figures)> {
        let kinds = self.store().read().kinds().clone();
        let of = |kind: &KindId| {
            ((kind.description().group.clone(), kind.description().plural.clone()), figures(self, kind))
        };
        kinds.iter().map(of).collect()
    }
}

impl Feed {
    /// A list begins. Until it is done, the previous state stays.
    pub fn list_begins(&self) {
        self.lite.store().write(|state| state.list_begins(&self.kind));
    }

    /// An item of the list, as JSON. An item that is not an object with a version is skipped.
    pub fn listed(&self, namespace: &str, name: &str, raw: &[u8]) {
        if let Some((json, version)) = self.form(raw) {
            self.lite.store().write(|state| state.listed(&self.kind, key(namespace, name), json, version));
        }
    }

    /// The list failed.
    pub fn list_failed(&self) {
        self.lite.store().write(|state| state.list_failed(&self.kind));
    }

    /// The list is over, and everything is known up to a version. `complete` means that it names every object, `wins`
    /// that it is at least as new as all watch events since it began.
    pub fn list_done(&self, reached: &str, complete: bool, wins: bool) {
        let Some(reached) = number(reached) else { return self.list_failed() };
        let removals = (self.limits.unconfirmed_removals_share, self.limits.unconfirmed_removals_count);
        let (end, at) = (ListEnd { reached, complete, wins, removals }, self.lite.now().since_start);
        self.lite.store().write(|state| state.list_done(&self.kind, end, at));
    }

    /// An event of a watch: an object, or its last state if it is `gone`.
    pub fn event(&self, namespace: &str, name: &str, raw: &[u8], gone: bool) {
        if let Some((json, version)) = self.form(raw) {
            let (object, at) = (Arc::new(Object::raw(json, version)), self.lite.now().since_start);
            self.lite.store().write(|state| state.event(&self.kind, key(namespace, name), gone, object, at));
        }
    }

    /// A watch has no more events up to this version.
    pub fn reached(&self, version: &str) {
        if let Some(version) = number(version) {
            self.lite.store().write(|state| state.reached(&self.kind, version));
        }
    }

    /// The upstream server no longer has the kind: neither does this one, and its watches end.
    pub fn unserved(&self) {
        self.lite.store().write(|state| state.unfollow(&self.kind));
    }

    /// Whether another list is needed: the kind exceeds the memory limit, or its last list removed so much that another
    /// one has to confirm it.
    #[must_use]
    pub fn lacks(&self) -> bool {
        self.lite.store().read().lacks(&self.kind)
    }

    /// The current figures.
    #[must_use]
    pub fn figures(&self) -> Figures {
        figures(&self.lite, &self.kind)
    }

    /// The JSON of an object with `kind` and `apiVersion`, which list items lack, and its version.
    fn form(&self, raw: &[u8]) -> Option<(Bytes, u64)> {
        let fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(raw).ok()?;
        let metadata: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(fields.get("metadata")?.get()).ok()?;
        let version: String = serde_json::from_str(metadata.get("resourceVersion")?.get()).ok()?;
        let version = number(&version)?;
        if fields.contains_key("kind") && fields.contains_key("apiVersion") {
            return Some((Bytes::copy_from_slice(raw), version));
        }
        let description = self.kind.description();
        let mut form = format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\"", description.kind, description.api_version());
        for (name, value) in fields.iter().filter(|(name, _)| !matches!(&***name, "kind" | "apiVersion")) {
            form.push(',');
            form.push_str(&serde_json::to_string(name).ok()?);
            form.push(':');
            form.push_str(value.get());
        }
        form.push('}');
        Some((form.into(), version))
    }
}

fn figures(lite: &Lite, kind: &KindId) -> Figures {
    let (objects, bytes, watches) = lite.store().read().figures(kind);
    Figures { objects, bytes, watches }
}

fn key(namespace: &str, name: &str) -> Key {
    Key { namespace: namespace.to_owned(), name: name.to_owned() }
}

/// Parses a version. Versions are numbers from 1 on (Kubernetes, "Resource versions"); an object with any other cannot
/// be served.
fn number(version: &str) -> Option<u64> {
    version.parse().ok().filter(|version| *version > 0)
}
