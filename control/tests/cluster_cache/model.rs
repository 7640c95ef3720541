//! A small cluster with a history that is determined by a seed: the content of each kind at each version can be
//! computed.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use serde_json::json;
use tidegate_config::object::{Kind, ObjectName};
use tidegate_control::{Collection, StoredCollection};

/// The kinds of the cluster. Secrets are encrypted.
pub(crate) const KINDS: [Kind; 3] = [Kind::Ingress, Kind::Service, Kind::Secret];
/// The number of objects of a kind.
const OBJECTS: u64 = 12;

/// The content of one kind by name: a number for each object.
pub(crate) type State = BTreeMap<String, u64>;

/// The event at a version.
pub(crate) struct Happened {
    pub(crate) name: String,
    /// The content from then on; `None` if the object is deleted.
    pub(crate) content: Option<u64>,
}

/// One kind of the cluster.
#[derive(Clone, Copy)]
pub(crate) struct Model {
    pub(crate) seed: u64,
    pub(crate) kind: Kind,
}

impl Model {
    /// The event of a version, from 1.
    pub(crate) fn at(self, version: u64) -> Happened {
        let mut rng = Rng::with_seed(self.seed ^ (self.kind as u64) << 56 ^ version.wrapping_mul(0x9e37_79b9));
        let name = format!("object-{}", rng.u64(..OBJECTS));
        // There are few contents, so that some recur.
        let content = (rng.u64(..5) > 0).then(|| rng.u64(..4));
        Happened { name, content }
    }

    /// The content at a version.
    pub(crate) fn state(self, version: u64) -> State {
        let mut state = State::new();
        for version in 1..=version {
            let Happened { name, content } = self.at(version);
            match content {
                Some(content) => drop(state.insert(name, content)),
                None => drop(state.remove(&name)),
            }
        }
        state
    }

    pub(crate) fn collection(self) -> Collection {
        Collection { kind: self.kind, namespace: None }
    }

    pub(crate) fn kept(self) -> StoredCollection {
        StoredCollection { collection: self.collection(), selection: "all".to_owned(), listed: true, whole: false }
    }
}

/// An object as the API server sends it. Its uid holds the content and is stored unchanged.
pub(crate) fn object(name: &str, content: u64, version: u64) -> Vec<u8> {
    let padding = "x".repeat(usize::try_from(content).unwrap() * 1500);
    let object = json!({
        "metadata": {
            "namespace": "shop", "name": name, "uid": uid(content), "resourceVersion": version.to_string(),
            "annotations": {"example.com/padding": padding},
            "managedFields": [{"manager": "test", "time": version}],
        },
    });
    object.to_string().into_bytes()
}

/// A content as a uid.
pub(crate) fn uid(content: u64) -> String {
    format!("00000000-0000-4000-8000-{content:012}")
}

pub(crate) fn object_name(name: &str) -> ObjectName {
    ObjectName::new("shop", name)
}

pub(crate) fn version(version: u64) -> Arc<str> {
    version.to_string().into()
}
