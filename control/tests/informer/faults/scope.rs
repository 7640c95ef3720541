//! The collections of the loop in a case.

use std::sync::Arc;
use std::time::Duration;

use tidegate_config::object::Kind;
use tidegate_control::options::Secrets;

use super::super::fake_api::Seen;
use super::cluster::{CERTIFIED, NAMESPACE, Subject, kind_of, name_of};

/// The collections, and how they are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    /// Every collection, of the whole cluster.
    Everything,
    /// The collections of one namespace, and Secrets by name.
    SecretPoller,
}

impl Scope {
    pub(super) const ALL: [Self; 2] = [Self::Everything, Self::SecretPoller];

    /// The maximum number of reads of a Secret by name in a minute without faults.
    pub(super) const ROUTINE: u8 = 3;

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Everything => "the whole cluster",
            Self::SecretPoller => "one namespace and Secrets by name",
        }
    }

    pub(super) fn namespaces(self) -> Vec<Arc<str>> {
        match self {
            Self::Everything => Vec::new(),
            Self::SecretPoller => vec![NAMESPACE.into()],
        }
    }

    pub(super) const fn secrets(self) -> Secrets {
        match self {
            Self::Everything => Secrets::Watched,
            Self::SecretPoller => Secrets::Referenced { refresh: Duration::from_secs(60 / Self::ROUTINE as u64) },
        }
    }

    /// All subjects that a loop of this scope requests.
    pub(super) fn subjects(self) -> Vec<Subject> {
        let named = Kind::ALL.into_iter().flat_map(|kind| match (self, kind) {
            (Self::SecretPoller, Kind::Secret) => CERTIFIED.map(|name| (kind, Some(name.to_owned()))).to_vec(),
            _ => vec![(kind, None)],
        });
        named.collect()
    }

    /// Whether a loop of this scope may request this subject.
    pub(super) fn allows(self, seen: &Seen) -> bool {
        let (kind, in_one) = (kind_of(seen), seen.path.contains(&format!("/namespaces/{NAMESPACE}/")));
        match self {
            Self::Everything => !in_one && name_of(seen).is_none(),
            Self::SecretPoller => in_one == kind.namespaced() && name_of(seen).is_some() == (kind == Kind::Secret),
        }
    }
}
