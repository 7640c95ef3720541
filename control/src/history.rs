//! What was published and why: a journal, and the generations whose routes can be taken back.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use tidegate_config::model::{Generation, HostPattern, SnapshotParts};
use tidegate_config::object::{ObjectName, ObjectRef};

use crate::command::Command;
use crate::compile::Unit;

/// What of a list is written down: a relist may change thousands of things at once.
const SHOWN_MAX: usize = 8;
/// Publications that the journal remembers.
const JOURNAL_MAX: usize = 10_000;
/// Generations whose routes can be taken back.
const KEPT_MAX: usize = 300;
/// Routes that those generations hold and the newest one does not; at about a kilobyte each.
const ROUTES_MAX: usize = 50_000;

/// The first few of some things, and how many there are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Sample<T> {
    /// The first few, in the order in which they came.
    pub first: Vec<T>,
    /// How many there are in all.
    pub total: usize,
}

impl<T> Default for Sample<T> {
    fn default() -> Self {
        Self { first: Vec::new(), total: 0 }
    }
}

impl<T> Sample<T> {
    /// Adds one; it is made only where it is shown.
    pub(crate) fn add(&mut self, make: impl FnOnce() -> T) {
        self.total += 1;
        if self.first.len() < SHOWN_MAX {
            self.first.push(make());
        }
    }

    fn append(&mut self, other: Self) {
        self.total += other.total;
        self.first.extend(other.first.into_iter().take(SHOWN_MAX.saturating_sub(self.first.len())));
    }
}

/// Why something was published.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Cause {
    /// An object was created or changed.
    Changed {
        /// Which.
        object: ObjectRef,
        /// Its `metadata.resourceVersion` then; `None` where it is looked at again because its class is known now.
        resource_version: Option<Arc<str>>,
    },
    /// An object is gone.
    Deleted {
        /// Which.
        object: ObjectRef,
    },
    /// A DNS name that an ExternalName Service leads to has other addresses.
    Resolved {
        /// The name.
        name: Arc<str>,
    },
    /// A host no longer waits for the Service or the endpoints that its new routes lead to.
    Settled {
        /// The host.
        host: HostPattern,
    },
    /// The endpoints of a Service need no longer be followed for routes that were held.
    Released {
        /// The Service.
        service: ObjectName,
    },
    /// An audit found it otherwise than it should be.
    Drifted {
        /// What.
        unit: Unit,
    },
    /// Everything that was listed, when the control loop had begun.
    Started,
    /// An operator's command.
    Commanded {
        /// Which.
        command: Command,
    },
}

impl Cause {
    /// An object that waited to be compiled, and its resourceVersion or that it is gone; where neither is known, it waited
    /// because its class had become known.
    pub(crate) fn of(object: ObjectRef, arrived: Option<Option<Arc<str>>>) -> Self {
        match arrived {
            Some(None) => Self::Deleted { object },
            Some(resource_version) => Self::Changed { object, resource_version },
            None => Self::Changed { object, resource_version: None },
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { object, resource_version: Some(version) } => {
                write!(f, "{object} at resourceVersion {version}")
            }
            Self::Changed { object, resource_version: None } => write!(f, "{object}, whose class is known now"),
            Self::Deleted { object } => write!(f, "{object} is gone"),
            Self::Resolved { name } => write!(f, "{name} has other addresses"),
            Self::Settled { host } => write!(f, "what {host} waited for"),
            Self::Released { service } => write!(f, "no held route leads to Service {service} any more"),
            Self::Drifted { unit } => write!(f, "{unit} had drifted"),
            Self::Started => f.write_str("start of the control loop"),
            Self::Commanded { command } => write!(f, "an operator's {command}"),
        }
    }
}

/// How one model differs from the one before it, and why.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// Why.
    pub causes: Sample<Cause>,
    /// Hosts whose routes or certificates differ.
    pub hosts: Sample<HostPattern>,
    /// Services whose endpoints differ.
    pub services: Sample<ObjectName>,
    /// Whether the default certificate differs.
    pub default_certificate: bool,
    /// Routes that were there before and no longer are, as these objects: what keeping the model before costs.
    #[serde(skip)]
    pub(crate) replaced: usize,
}

impl Changes {
    /// None yet, for this cause.
    pub(crate) fn of(cause: Cause) -> Self {
        Self { causes: Sample { first: vec![cause], total: 1 }, ..Self::default() }
    }

    /// Whether routes or certificates differ.
    #[must_use]
    pub const fn routes(&self) -> bool {
        self.hosts.total > 0 || self.default_certificate
    }

    /// Whether endpoints differ.
    #[must_use]
    pub const fn endpoints(&self) -> bool {
        self.services.total > 0
    }

    /// Takes away what concerns endpoints, with its causes.
    pub(crate) fn take_endpoints(&mut self) -> Self {
        let causes = self.causes.clone();
        Self { causes, services: std::mem::take(&mut self.services), ..Self::default() }
    }

    /// Adds what came later.
    pub(crate) fn append(&mut self, later: Self) {
        self.causes.append(later.causes);
        self.hosts.append(later.hosts);
        self.services.append(later.services);
        self.default_certificate |= later.default_certificate;
        self.replaced += later.replaced;
    }
}

/// One publication.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Publication {
    /// The snapshot's number.
    pub generation: Generation,
    /// When, in seconds since the Unix epoch.
    #[serde(serialize_with = "seconds")]
    pub at: SystemTime,
    /// How it differs from the one before it.
    #[serde(flatten)]
    pub changes: Changes,
    /// The generation whose routes it has, where an operator holds one.
    pub held: Option<Generation>,
}

fn seconds<S: serde::Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    serializer.serialize_f64(since.as_secs_f64())
}

/// Publications of the past, and routes that can be taken back. Bounded in number and in what the routes take of memory.
#[derive(Debug, Default)]
pub struct History {
    journal: VecDeque<Publication>,
    kept: VecDeque<Kept>,
}

/// A model that can be gone back to.
#[derive(Debug)]
struct Kept {
    generation: Generation,
    parts: SnapshotParts,
    /// Routes that are in it and no longer in the one after it.
    replaced: usize,
}

impl History {
    /// Writes a publication down. Its parts are kept where its routes are others than before: models share what is equal in
    /// them. What a model alone holds is counted when another one replaces it; a command may bring back routes that
    /// are counted already, and counts nothing.
    pub fn record(&mut self, publication: Publication, parts: &SnapshotParts) {
        let whole = |cause: &Cause| matches!(cause, Cause::Commanded { .. } | Cause::Started);
        if publication.changes.routes() || publication.changes.causes.first.iter().any(whole) {
            if let Some(before) = self.kept.back_mut() {
                before.replaced = publication.changes.replaced;
            }
            self.kept.push_back(Kept { generation: publication.generation, parts: parts.clone(), replaced: 0 });
            while self.kept.len() > 1 && (self.kept.len() > KEPT_MAX || self.routes() > ROUTES_MAX) {
                self.kept.pop_front();
            }
        }
        self.journal.push_back(publication);
        while self.journal.len() > JOURNAL_MAX {
            self.journal.pop_front();
        }
    }

    /// The latest publications, at most so many, the newest last; with a host, those that may have changed it.
    #[must_use]
    pub fn latest(&self, last: usize, host: Option<&str>) -> Vec<Publication> {
        let concerns = |publication: &&Publication| {
            let Sample { first, total } = &publication.changes.hosts;
            host.is_none_or(|host| *total > first.len() || first.iter().any(|shown| shown.to_string() == host))
        };
        let mut latest: Vec<Publication> = self.journal.iter().rev().filter(concerns).take(last).cloned().collect();
        latest.reverse();
        latest
    }

    /// Generations that can be gone back to: the oldest and the newest.
    #[must_use]
    pub fn range(&self) -> Option<(Generation, Generation)> {
        Some((self.kept.front()?.generation, self.journal.back()?.generation))
    }

    /// The routes that a generation had; `None` where they are not kept. Between two generations of which the routes are kept,
    /// only endpoints changed, so that each has those of the one before it.
    #[must_use]
    pub fn parts(&self, generation: Generation) -> Option<&SnapshotParts> {
        self.range().filter(|(_, newest)| generation <= *newest)?;
        self.kept.iter().rev().find(|kept| kept.generation <= generation).map(|kept| &kept.parts)
    }

    fn routes(&self) -> usize {
        self.kept.iter().map(|kept| kept.replaced).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_config::model::HostRoutes;

    use super::*;

    fn host(name: &str) -> HostPattern {
        HostPattern::Exact(name.into())
    }

    /// A publication of one host or, without a name, of endpoints.
    fn publication(generation: u64, name: Option<&str>, replaced: usize) -> (Publication, SnapshotParts) {
        let mut changes = Changes { replaced, ..Changes::default() };
        let mut parts = SnapshotParts::default();
        match name {
            None => changes.services.add(|| ObjectName::new("shop", "cart")),
            Some(name) => {
                changes.hosts.add(|| host(name));
                parts.hosts.insert(&host(name), Arc::new(HostRoutes::new(host(name), Vec::new(), None)));
            }
        }
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(generation);
        (Publication { generation: Generation(generation), at, changes, held: None }, parts)
    }

    fn record(history: &mut History, generation: u64, name: Option<&str>, replaced: usize) {
        let (publication, parts) = publication(generation, name, replaced);
        history.record(publication, &parts);
    }

    /// Whose routes are gone back to.
    #[track_caller]
    fn check(history: &History, generation: u64, want: Option<&str>) {
        let parts = history.parts(Generation(generation));
        let names =
            parts.map(|parts| parts.hosts.iter().map(|(host, _)| host.to_string()).collect::<Vec<_>>().join(" "));
        assert_eq!(names.as_deref(), want, "{generation}");
    }

    #[test]
    fn a_generation_has_the_routes_of_the_last_one_that_changed_any() {
        let mut history = History::default();
        for (generation, name) in [(3, Some("a")), (4, None), (5, Some("b")), (6, None)] {
            record(&mut history, generation, name, 0);
        }
        for (generation, want) in [(2, None), (3, Some("a")), (4, Some("a")), (5, Some("b")), (6, Some("b")), (7, None)]
        {
            check(&history, generation, want);
        }
        assert_eq!(history.range(), Some((Generation(3), Generation(6))));
    }

    #[test]
    fn what_is_kept_has_bounds_in_number_and_in_routes() {
        let mut history = History::default();
        for generation in 1..=KEPT_MAX as u64 + 5 {
            record(&mut history, generation, Some("a"), 1);
        }
        assert_eq!(history.range(), Some((Generation(6), Generation(305))));
        // It replaces nearly all that the kept ones may hold: of the others only so many stay.
        record(&mut history, 306, Some("a"), ROUTES_MAX - 2);
        assert_eq!(history.range(), Some((Generation(303), Generation(306))));
        record(&mut history, 307, Some("a"), ROUTES_MAX + 1);
        assert_eq!(history.range(), Some((Generation(307), Generation(307))), "the newest stays whatever it costs");
        for generation in 308..=JOURNAL_MAX as u64 + 320 {
            record(&mut history, generation, None, 0);
        }
        assert_eq!(history.journal.len(), JOURNAL_MAX);
        check(&history, 9000, Some("a"));
    }

    #[test]
    fn the_publications_of_a_host_are_found() {
        let mut history = History::default();
        for (generation, name) in [(1, Some("a")), (2, None), (3, Some("b")), (4, Some("a"))] {
            record(&mut history, generation, name, 0);
        }
        let (mut many, parts) = publication(5, Some("c"), 0);
        (0..SHOWN_MAX + 1).for_each(|_| many.changes.hosts.add(|| host("d")));
        history.record(many, &parts);
        let latest = |last, host: Option<&str>| -> Vec<u64> {
            history.latest(last, host).iter().map(|publication| publication.generation.0).collect()
        };
        assert_eq!(latest(9, None), [1, 2, 3, 4, 5]);
        assert_eq!(latest(2, None), [4, 5]);
        assert_eq!(latest(9, Some("a")), [1, 4, 5], "the fifth may have changed it");
        assert_eq!(latest(2, Some("a")), [4, 5]);
        assert_eq!(latest(9, Some("b")), [3, 5]);
    }
}
