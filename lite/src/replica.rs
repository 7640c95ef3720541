//! A server that is fed by another one: the kinds that somebody reads there anyway are served here, under the same versions, to be
//! read and watched. It never asks for anything itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::kind::{KindId, ReplicaKind};
use crate::lite::Lite;
use crate::store::{Key, ListEnd, Object};

/// What a replica may hold, and when it believes that much is gone.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaLimits {
    /// Bytes of JSON of all objects. A kind with which there are more is not served. The history of each kind takes up to an eighth of
    /// it besides.
    pub bytes_max: usize,
    /// A list that lacks more than this share of a kind is believed when the next one says the same.
    pub sweep_share_max: f64,
    /// So many may be gone at once, whatever their share, as long as some are left.
    pub sweep_free: usize,
}

/// Where one kind of a replica is told of. What is told must be in the order in which the other server tells it.
#[derive(Clone)]
pub struct Feed {
    lite: Lite,
    kind: KindId,
    limits: ReplicaLimits,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// What is held of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Its objects.
    pub objects: usize,
    /// What their JSON takes, in bytes.
    pub bytes: usize,
    /// Watches that are open.
    pub watches: usize,
}

impl Lite {
    /// A replica of these kinds, of which nothing is known yet, and where each is told of, by group and plural.
    #[must_use]
    pub fn replica(kinds: &[ReplicaKind], limits: ReplicaLimits) -> (Self, BTreeMap<(String, String), Feed>) {
        let lite = Self::fed();
        let feed = |kind: &ReplicaKind| ((kind.group.clone(), kind.plural.clone()), lite.follow(kind, limits));
        let feeds = kinds.iter().map(feed).collect();
        (lite, feeds)
    }

    /// Serves one kind more, or one that is served already. Nothing is known of a new one yet.
    #[must_use]
    pub fn follow(&self, kind: &ReplicaKind, limits: ReplicaLimits) -> Feed {
        let kind = self.store().write(|state| state.follow(kind, limits.bytes_max));
        Feed { lite: self.clone(), kind, limits }
    }

    /// Where a kind that is served already is told of.
    #[must_use]
    pub fn followed(&self, kind: &ReplicaKind, limits: ReplicaLimits) -> Option<Feed> {
        let kind = self.store().read().kinds().find(&kind.group, &kind.version, &kind.plural)?;
        Some(Feed { lite: self.clone(), kind, limits })
    }

    /// What a replica holds of each of its kinds, by group and plural.
    #[must_use]
    pub fn figures(&self) -> Vec<((String, String), Figures)> {
        let kinds = self.store().read().kinds().clone();
        let of = |kind: &KindId| ((kind.row().group.clone(), kind.row().plural.clone()), figures(self, kind));
        kinds.iter().map(of).collect()
    }
}

impl Feed {
    /// A list begins. Until it is done, what was known stays.
    pub fn list_begins(&self) {
        self.lite.store().write(|state| state.list_begins(&self.kind));
    }

    /// An item of the list, as JSON. One that is no object with a version is left out.
    pub fn listed(&self, namespace: &str, name: &str, raw: &[u8]) {
        if let Some((json, version)) = self.form(raw) {
            self.lite.store().write(|state| state.listed(&self.kind, key(namespace, name), json, version));
        }
    }

    /// The list failed.
    pub fn list_failed(&self) {
        self.lite.store().write(|state| state.list_failed(&self.kind));
    }

    /// The list is over, and with it everything is known up to a version. `complete` says that it names everything, `wins` that it is as
    /// new as whatever was told since it began.
    pub fn list_done(&self, reached: &str, complete: bool, wins: bool) {
        let Some(reached) = number(reached) else { return self.list_failed() };
        let sweep = (self.limits.sweep_share_max, self.limits.sweep_free);
        let (end, at) = (ListEnd { reached, complete, wins, sweep }, self.lite.now().since_start);
        self.lite.store().write(|state| state.list_done(&self.kind, end, at));
    }

    /// A watch told of an object, or, where it is `gone`, of its last state.
    pub fn told(&self, namespace: &str, name: &str, raw: &[u8], gone: bool) {
        if let Some((json, version)) = self.form(raw) {
            let (object, at) = (Arc::new(Object::raw(json, version)), self.lite.now().since_start);
            self.lite.store().write(|state| state.told(&self.kind, key(namespace, name), gone, object, at));
        }
    }

    /// A watch has nothing more to tell up to this version.
    pub fn reached(&self, version: &str) {
        if let Some(version) = number(version) {
            self.lite.store().write(|state| state.reached(&self.kind, version));
        }
    }

    /// The other server does not have the kind any more: neither does this one, and its watches end.
    pub fn unserved(&self) {
        self.lite.store().write(|state| state.unfollow(&self.kind));
    }

    /// What is held now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        figures(&self.lite, &self.kind)
    }

    /// The JSON of an object with `kind` and `apiVersion`, which the items of lists lack, and its version.
    fn form(&self, raw: &[u8]) -> Option<(Bytes, u64)> {
        let fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(raw).ok()?;
        let metadata: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(fields.get("metadata")?.get()).ok()?;
        let version: String = serde_json::from_str(metadata.get("resourceVersion")?.get()).ok()?;
        let version = number(&version)?;
        if fields.contains_key("kind") && fields.contains_key("apiVersion") {
            return Some((Bytes::copy_from_slice(raw), version));
        }
        let row = self.kind.row();
        let mut form = format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\"", row.kind, row.api_version());
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

/// Versions are numbers from 1 on (Kubernetes, "Resource versions"); what is none cannot be served.
fn number(version: &str) -> Option<u64> {
    version.parse().ok().filter(|version| *version > 0)
}
