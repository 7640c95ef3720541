//! A small cluster with a history that follows from a seed: what each kind holds at each of its versions can be said by everybody.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use serde_json::json;
use tidegate_config::object::{Kind, ObjectName};
use tidegate_control::{KeptSource, Source};

/// The kinds of it. Secrets are sealed.
pub(crate) const KINDS: [Kind; 3] = [Kind::Ingress, Kind::Service, Kind::Secret];
/// Objects of a kind.
const OBJECTS: u64 = 12;

/// What one kind holds, by name: a number for each object's content.
pub(crate) type State = BTreeMap<String, u64>;

/// What happened at a version.
pub(crate) struct Happened {
    pub(crate) name: String,
    /// The content from then on; `None` when the object is gone.
    pub(crate) content: Option<u64>,
}

/// One kind of the cluster.
#[derive(Clone, Copy)]
pub(crate) struct Model {
    pub(crate) seed: u64,
    pub(crate) kind: Kind,
}

impl Model {
    /// What happened at a version, from 1.
    pub(crate) fn at(self, version: u64) -> Happened {
        let mut chance = Rng::with_seed(self.seed ^ (self.kind as u64) << 56 ^ version.wrapping_mul(0x9e37_79b9));
        let name = format!("object-{}", chance.u64(..OBJECTS));
        // Few contents, so that some come back.
        let content = (chance.u64(..5) > 0).then(|| chance.u64(..4));
        Happened { name, content }
    }

    /// What it holds at a version.
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

    pub(crate) fn source(self) -> Source {
        Source { kind: self.kind, namespace: None }
    }

    pub(crate) fn kept(self) -> KeptSource {
        KeptSource { source: self.source(), selection: "all".to_owned(), listed: true, whole: false }
    }
}

/// An object as the API server sends it. Its content is in its uid, which is kept as it is.
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
