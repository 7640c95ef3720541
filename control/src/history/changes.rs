//! How one model differs from the one before it, and why.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use tidegate_config::model::Generation;
use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use crate::command::Command;
use crate::compile::Unit;

/// What of a list is written down: a relist may change thousands of things at once.
pub(super) const SHOWN_MAX: usize = 8;

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

    pub(super) fn append(&mut self, other: Self) {
        self.total += other.total;
        self.first.extend(other.first.into_iter().take(SHOWN_MAX.saturating_sub(self.first.len())));
    }
}

impl Sample<Cause> {
    /// Adds a cause. Of more than are shown those of routes stay: endpoints may come and go by the hundreds meanwhile.
    pub(crate) fn note(&mut self, cause: Cause) {
        self.total += 1;
        if self.first.len() >= SHOWN_MAX {
            if cause.of_endpoints() {
                return;
            }
            let Some(place) = self.first.iter().rposition(Cause::of_endpoints) else { return };
            self.first.remove(place);
        }
        self.first.push(cause);
    }

    /// Adds those that came later.
    pub(super) fn note_all(&mut self, later: Self) {
        self.total += later.total - later.first.len();
        later.first.into_iter().for_each(|cause| self.note(cause));
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
        /// Its `metadata.resourceVersion` then.
        resource_version: Arc<str>,
    },
    /// An object is gone.
    Deleted {
        /// Which.
        object: ObjectRef,
    },
    /// A kind was listed for the first time that objects had been attached without.
    Listed {
        /// Which.
        listed: Kind,
    },
    /// A DNS name that an ExternalName Service leads to has other addresses.
    Resolved {
        /// The name.
        name: Arc<str>,
    },
    /// The definition of a kind is of another release, or has come or gone.
    Defined {
        /// The kind.
        defined: Kind,
    },
    /// A host no longer waits for the Service or the endpoints that its new routes lead to, or that its connections go to.
    Settled {
        /// The host, or the connections for it.
        unit: Unit,
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
    /// The API server is reached elsewhere, where no object may lead.
    ApiServer,
    /// Everything that was listed, when the control loop had begun.
    Started,
    /// An operator's command.
    Commanded {
        /// Which.
        command: Command,
    },
}

impl Cause {
    /// The object that changed, where one did.
    #[must_use]
    pub const fn object(&self) -> Option<&ObjectRef> {
        match self {
            Self::Changed { object, .. } | Self::Deleted { object } => Some(object),
            Self::Listed { .. }
            | Self::Resolved { .. }
            | Self::Defined { .. }
            | Self::Settled { .. }
            | Self::Released { .. }
            | Self::Drifted { .. }
            | Self::ApiServer
            | Self::Started
            | Self::Commanded { .. } => None,
        }
    }

    /// Whether it changes where Services are, and no route.
    const fn of_endpoints(&self) -> bool {
        match self {
            Self::Changed { object, .. } | Self::Deleted { object } => matches!(object.kind, Kind::EndpointSlice),
            Self::Resolved { .. } | Self::Released { .. } | Self::ApiServer => true,
            Self::Listed { .. }
            | Self::Defined { .. }
            | Self::Settled { .. }
            | Self::Drifted { .. }
            | Self::Started
            | Self::Commanded { .. } => false,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { object, resource_version } => write!(f, "{object} at resourceVersion {resource_version}"),
            Self::Listed { listed } => write!(f, "{listed} was listed for the first time"),
            Self::Deleted { object } => write!(f, "{object} is gone"),
            Self::Resolved { name } => write!(f, "{name} has other addresses"),
            Self::Defined { defined } => write!(f, "the definition of {defined} is another one"),
            Self::Settled { unit } => write!(f, "what {unit} waited for"),
            Self::Released { service } => write!(f, "no held route leads to Service {service} any more"),
            Self::Drifted { unit } => write!(f, "{unit} had drifted"),
            Self::ApiServer => f.write_str("the API server is reached elsewhere"),
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
    /// What differs of where requests go.
    pub routing: Sample<Unit>,
    /// What differs of where Services are.
    pub endpoints: Sample<Unit>,
    /// Routes that were there before and no longer are, as these objects: what keeping the model before costs.
    #[serde(skip)]
    pub(crate) replaced: usize,
    /// Routes that are there now and were not before, as these objects.
    #[serde(skip)]
    pub(crate) added: usize,
}

impl Changes {
    /// None yet, for this cause.
    pub(crate) fn of(cause: Cause) -> Self {
        Self { causes: Sample { first: vec![cause], total: 1 }, ..Self::default() }
    }

    /// Adds a unit that differs.
    pub(crate) fn add(&mut self, unit: Unit) {
        if unit.routing() { &mut self.routing } else { &mut self.endpoints }.add(|| unit);
    }

    /// Whether where requests go differs.
    #[must_use]
    pub const fn routes(&self) -> bool {
        self.routing.total > 0
    }

    /// Whether where Services are differs.
    #[must_use]
    pub const fn endpoints(&self) -> bool {
        self.endpoints.total > 0
    }

    /// Whether the causes are such that the model has to be held against the one before it to know what differs: what an
    /// operator brings back, what another life compiled, and what had drifted.
    pub(super) fn whole(&self) -> bool {
        let whole = |cause: &Cause| matches!(cause, Cause::Commanded { .. } | Cause::Started | Cause::Drifted { .. });
        self.causes.first.iter().any(whole)
    }

    /// Takes away what concerns endpoints, with its causes.
    pub(crate) fn take_endpoints(&mut self) -> Self {
        let causes = self.causes.clone();
        Self { causes, endpoints: std::mem::take(&mut self.endpoints), ..Self::default() }
    }

    /// Adds what came later.
    pub(crate) fn append(&mut self, later: Self) {
        self.causes.note_all(later.causes);
        self.routing.append(later.routing);
        self.endpoints.append(later.endpoints);
        self.replaced += later.replaced;
        self.added += later.added;
    }
}

/// One publication, or several in a row that changed the endpoints of one Service.
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
    /// The others that it stands for, where it is the last of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coalesced: Option<Coalesced>,
}

/// Publications that are written down as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Coalesced {
    /// The first of them.
    pub first: Generation,
    /// When that was, in seconds since the Unix epoch.
    #[serde(serialize_with = "seconds")]
    pub since: SystemTime,
    /// How many they are.
    pub publications: usize,
}

fn seconds<S: serde::Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    serializer.serialize_f64(since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Causes in this order, endpoints by lower-case names and routes by capitals; those that are shown.
    #[track_caller]
    fn check(causes: &str, want: &str) {
        let mut sample = Sample::default();
        for name in causes.chars() {
            let kind = if name.is_lowercase() { Kind::EndpointSlice } else { Kind::Ingress };
            sample.note(Cause::Deleted { object: ObjectRef::new(kind, ObjectName::new("shop", name.to_string())) });
        }
        let mut later = Sample::default();
        later.note_all(sample.clone());
        assert_eq!((sample.total, &later), (causes.len(), &sample));
        let shown = sample.first.iter().map(|cause| {
            let Cause::Deleted { object } = cause else { panic!("another cause: {cause}") };
            &*object.name.name
        });
        assert_eq!(shown.collect::<String>(), want);
    }

    #[test]
    fn causes_of_routes_stay_among_many_of_endpoints() {
        check("abC", "abC");
        check("abcdefghijK", "abcdefgK");
        check("ABcdefghiJkL", "ABcdefJL");
        check("ABCDEFGHIJ", "ABCDEFGH");
        check("ABCDEFGHi", "ABCDEFGH");
    }
}
