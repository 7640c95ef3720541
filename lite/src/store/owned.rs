//! The dependents of each owner, so that a deletion need not read every object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Key, State};
use crate::kind::{KindId, StoreIndex};

/// The objects that name an owner, by the owner's uid.
#[derive(Default)]
pub(super) struct Owned(BTreeMap<String, BTreeSet<(StoreIndex, Key)>>);

impl Owned {
    /// Records a change of one object.
    pub(super) fn note(&mut self, place: StoreIndex, key: &Key, before: Option<&Value>, after: Option<&Value>) {
        for uid in before.into_iter().flat_map(owners) {
            let Some(owned) = self.0.get_mut(uid) else { continue };
            owned.remove(&(place, key.clone()));
            if owned.is_empty() {
                self.0.remove(uid);
            }
        }
        for uid in after.into_iter().flat_map(owners) {
            self.0.entry(uid.to_owned()).or_default().insert((place, key.clone()));
        }
    }

    /// Forgets the objects of places that are not kept.
    pub(super) fn retain(&mut self, keep: impl Fn(StoreIndex) -> bool) {
        self.0.retain(|_, owned| {
            owned.retain(|(place, _)| keep(*place));
            !owned.is_empty()
        });
    }
}

impl State {
    /// The objects that name this owner.
    pub(crate) fn owned_by(&self, uid: &str) -> Vec<(KindId, Key)> {
        let kind = |place: &StoreIndex| self.kinds.iter().find(|kind| kind.place() == *place).cloned();
        let owned = self.owned.0.get(uid).into_iter().flatten();
        owned.filter_map(|(place, key)| Some((kind(place)?, key.clone()))).collect()
    }
}

fn owners(object: &Value) -> impl Iterator<Item = &str> {
    let references = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    references.filter_map(|reference| reference["uid"].as_str())
}
