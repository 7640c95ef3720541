//! The differences of a model from the one before it, and their causes.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use tidegate_config::model::Generation;
use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use crate::command::Command;
use crate::compile::{ChangedUnits, Unit};
use crate::sample::{SHOWN_MAX, Sample};

impl Sample<Cause> {
    /// Adds a cause. Beyond the maximum, causes of routes stay: endpoints may change hundreds of times meanwhile.
    pub(crate) fn note(&mut self, cause: Cause) {
        self.total += 1;
        if self.first.len() >= SHOWN_MAX {
            if cause.of_endpoints() {
                return;
            }
            let Some(index) = self.first.iter().rposition(Cause::of_endpoints) else { return };
            self.first.remove(index);
        }
        self.first.push(cause);
    }

    /// Adds later causes.
    pub(super) fn note_all(&mut self, later: Self) {
        self.total += later.total - later.first.len();
        later.first.into_iter().for_each(|cause| self.note(cause));
    }
}

/// The cause of a publication.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Cause {
    /// An object was created or changed.
    Changed {
        /// The object.
        object: ObjectRef,
        /// Its `metadata.resourceVersion` then.
        resource_version: Arc<str>,
    },
    /// An object is gone.
    Deleted {
        /// The object.
        object: ObjectRef,
    },
    /// A kind was listed for the first time, after objects had been attached without it.
    Listed {
        /// The kind.
        listed: Kind,
    },
    /// A DNS name of an ExternalName Service has other addresses.
    Resolved {
        /// The name.
        name: Arc<str>,
    },
    /// The keys of an issuer of tokens have changed, or whether they can be fetched.
    Fetched {
        /// The URL of the keys or of the issuer.
        url: Arc<str>,
    },
    /// The CustomResourceDefinition of a kind has another release, or was created or deleted.
    Defined {
        /// The kind.
        defined: Kind,
    },
    /// A host or a stream no longer waits for the Services or the endpoints of its new routes.
    Settled {
        /// The host, or the stream of its connections.
        unit: Unit,
    },
    /// The endpoints of a Service are no longer needed for held routes.
    Released {
        /// The Service.
        service: ObjectName,
    },
    /// An audit found drift.
    Drifted {
        /// The unit.
        unit: Unit,
    },
    /// The API server has other sockets, which objects must not use.
    ApiServer,
    /// The data plane cannot open a socket, or can again.
    BindFailures,
    /// The objects listed at the start of the control loop.
    Started,
    /// An operator's command.
    Commanded {
        /// The command.
        command: Command,
    },
}

impl Cause {
    /// The object that changed, if the cause is one.
    #[must_use]
    pub const fn object(&self) -> Option<&ObjectRef> {
        match self {
            Self::Changed { object, .. } | Self::Deleted { object } => Some(object),
            Self::Listed { .. }
            | Self::Resolved { .. }
            | Self::Fetched { .. }
            | Self::Defined { .. }
            | Self::Settled { .. }
            | Self::Released { .. }
            | Self::Drifted { .. }
            | Self::ApiServer
            | Self::BindFailures
            | Self::Started
            | Self::Commanded { .. } => None,
        }
    }

    /// Returns `true` if it changes endpoints and no routes.
    const fn of_endpoints(&self) -> bool {
        match self {
            Self::Changed { object, .. } | Self::Deleted { object } => matches!(object.kind, Kind::EndpointSlice),
            Self::Resolved { .. } | Self::Released { .. } | Self::ApiServer => true,
            Self::Listed { .. }
            | Self::Fetched { .. }
            | Self::Defined { .. }
            | Self::Settled { .. }
            | Self::Drifted { .. }
            | Self::BindFailures
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
            Self::Fetched { url } => write!(f, "the keys of {url}"),
            Self::Defined { defined } => write!(f, "the definition of {defined} has changed"),
            Self::Settled { unit } => write!(f, "the end of the wait of {unit}"),
            Self::Released { service } => write!(f, "no held route leads to Service {service} any more"),
            Self::Drifted { unit } => write!(f, "{unit} had drifted"),
            Self::ApiServer => f.write_str("the API server has other addresses"),
            Self::BindFailures => f.write_str("a socket could not be opened, or was opened after a failure"),
            Self::Started => f.write_str("start of the control loop"),
            Self::Commanded { command } => write!(f, "an operator's {command}"),
        }
    }
}

/// The differences of a model from the one before it, and their causes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// The causes.
    pub causes: Sample<Cause>,
    /// The changed units.
    #[serde(flatten)]
    pub units: ChangedUnits,
}

impl Changes {
    /// No differences yet, with this cause.
    pub(crate) fn of(cause: Cause) -> Self {
        Self { causes: Sample { first: vec![cause], total: 1 }, ..Self::default() }
    }

    /// Returns `true` if the whole model must be compared with the one before it to find the differences: after a
    /// command, a restart of the loop, or drift.
    pub(super) fn whole(&self) -> bool {
        let whole = |cause: &Cause| matches!(cause, Cause::Commanded { .. } | Cause::Started | Cause::Drifted { .. });
        self.causes.first.iter().any(whole)
    }

    /// Removes the changes of endpoints, and returns them with the causes.
    pub(crate) fn take_endpoints(&mut self) -> Self {
        Self { causes: self.causes.clone(), units: self.units.take_endpoints() }
    }

    /// Adds later changes.
    pub(crate) fn append(&mut self, later: Self) {
        self.causes.note_all(later.causes);
        self.units.append(later.units);
    }
}

/// One publication, or several consecutive ones that changed the endpoints of one Service.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Publication {
    /// The generation of the snapshot.
    pub generation: Generation,
    /// The time, in seconds since the Unix epoch.
    #[serde(serialize_with = "seconds")]
    pub at: SystemTime,
    /// The differences from the publication before it.
    #[serde(flatten)]
    pub changes: Changes,
    /// The generation whose routes it has, if an operator holds one.
    pub held: Option<Generation>,
    /// The publications that this entry stands for, if they are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coalesced: Option<Coalesced>,
}

/// Publications that are recorded as one entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Coalesced {
    /// The first of them.
    pub first: Generation,
    /// The time of the first, in seconds since the Unix epoch.
    #[serde(serialize_with = "seconds")]
    pub since: SystemTime,
    /// Their number.
    pub publications: usize,
}

fn seconds<S: serde::Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    serializer.serialize_f64(since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Causes in this order, endpoints by lower-case names and routes by capitals. Checks those that are recorded.
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
    fn endpoint_changes_do_not_displace_the_causes_of_routes() {
        check("abC", "abC");
        check("abcdefghijK", "abcdefgK");
        check("ABcdefghiJkL", "ABcdefJL");
        check("ABCDEFGHIJ", "ABCDEFGH");
        check("ABCDEFGHi", "ABCDEFGH");
    }
}
