//! Units, which are compiled independently. All kinds of units implement one trait, and the code that treats them alike
//! (compiling, the audit, changes, history, metrics) goes over the one list at the end of this file.

use std::collections::BTreeSet;
use std::fmt;
use std::iter::empty;
use std::ops::Bound::{self, Excluded, Unbounded};

use serde::{Serialize, Serializer};
use tidegate_config::model::{BackendKey, BindKey, ScopeId, SnapshotParts, VirtualHost};
use tidegate_config::object::{ObjectName, ObjectRef};

use super::{Compiled, Inputs, Pass};
use crate::attachment::Attachment;
use crate::topology::Topology;

/// One kind of units.
pub(super) trait UnitKind {
    /// The key of a unit.
    type Key: Clone + Ord + fmt::Debug;
    /// The compiled form, before it is stored.
    type Output;
    /// The value of the label `unit` in metrics.
    const LABEL: &'static str;
    /// Whether its units determine the routes, as opposed to the endpoints. Only these are held by a freeze or a
    /// rollback.
    const ROUTING: bool;

    /// The first of its units after another one, or of all: those in the inputs, and those in `compiled`. The cost is
    /// logarithmic.
    fn after(last: Option<&Self::Key>, inputs: Inputs<'_>, compiled: &Compiled) -> Option<Self::Key>;

    /// The objects that a unit is made of, which get a finding if it cannot be compiled.
    fn owners_of(inputs: Inputs<'_>, key: &Self::Key) -> Vec<ObjectRef>;

    /// Compiles a unit. Pure.
    fn make(inputs: Inputs<'_>, compiled: &Compiled, key: &Self::Key) -> Self::Output;

    /// Stores the unit and its findings. Returns `true` if its part of a snapshot has changed.
    fn put(compiled: &mut Compiled, key: &Self::Key, made: Self::Output, pass: &mut Pass<'_>) -> bool;

    /// Returns `true` if the serving part is the compiled one.
    fn serves(key: &Self::Key, compiled: &Compiled, serving: &SnapshotParts) -> bool;

    /// Units that have a part in `one` and none in `other`. Walks through all of them only if their numbers differ.
    fn only_in(one: &SnapshotParts, other: &SnapshotParts) -> Vec<Self::Key>;

    /// The units with a part in `one` that is not the same in `other`, if they determine routes. Walks through all of
    /// them.
    fn changed_between(one: &SnapshotParts, other: &SnapshotParts) -> Vec<Self::Key>;

    /// The cost of keeping a part of a snapshot, in routes.
    fn weight(_key: &Self::Key, _parts: &SnapshotParts) -> usize {
        0
    }

    /// The units that two attachments of an object make different.
    fn differing(object: &ObjectRef, before: &Attachment, after: &Attachment) -> Vec<Self::Key>;

    /// The objects whose routes need the unit, by which the slow lane ranks it. None for a unit that goes first,
    /// because others depend on it or because there are few of them.
    fn dependent_objects<'t>(
        _key: &'t Self::Key,
        _topology: &'t Topology,
    ) -> Box<dyn Iterator<Item = &'t ObjectRef> + 't> {
        Box::new(empty())
    }

    /// The Services that an attachment uses for the requests or the connections of a unit.
    fn services_in<'a>(_key: &Self::Key, _attachment: &'a Attachment) -> BTreeSet<&'a ObjectName> {
        BTreeSet::new()
    }

    /// The Services that a unit uses, by the attachments now and as it was compiled.
    fn services(_key: &Self::Key, _topology: &Topology, _parts: &SnapshotParts) -> BTreeSet<ObjectName> {
        BTreeSet::new()
    }

    /// The Service ports that the units in a snapshot use, with duplicates.
    fn backends_in(_parts: &SnapshotParts) -> Vec<BackendKey> {
        Vec::new()
    }

    /// Forgets the state kept for a unit, which allows compiling it from the changes of its inputs alone.
    fn invalidate(_key: &Self::Key, _compiled: &mut Compiled) {}

    /// Writes the name of a unit for people.
    fn describe(key: &Self::Key, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// The range after this key, or of everything.
pub(super) fn beyond<T>(last: Option<&T>) -> (Bound<&T>, Bound<&T>) {
    (last.map_or(Unbounded, Excluded), Unbounded)
}

/// Defines the enum of all units and the functions over all of them.
macro_rules! units {
    ($($(#[$doc:meta])* $unit:ident($key:ty) = $kind:ty,)*) => {
        /// A unit, which is compiled independently. In their order, units come before those that depend on them.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Unit {
            $($(#[$doc])* $unit($key),)*
        }

        impl Unit {
            /// The labels of all kinds of units, as of [`Unit::label`].
            pub(crate) const LABELS: &'static [&'static str] = &[$(<$kind as UnitKind>::LABEL),*];

            /// The kind of the unit, as in the label `unit` of metrics.
            #[must_use]
            pub const fn label(&self) -> &'static str {
                match self {
                    $(Self::$unit(_) => <$kind as UnitKind>::LABEL,)*
                }
            }

            /// Whether the unit determines routes, as opposed to endpoints.
            #[must_use]
            pub const fn routing(&self) -> bool {
                match self {
                    $(Self::$unit(_) => <$kind as UnitKind>::ROUTING,)*
                }
            }

            /// The first unit after another one, or of all; `None` after the last. Includes those that only the inputs
            /// or only `compiled` contain, so that stale units are found as well.
            pub(crate) fn after(last: Option<&Self>, inputs: Inputs<'_>, compiled: &Compiled) -> Option<Self> {
                let mut passed = last.is_none();
                let mut found: Option<Self> = None;
                $(
                    if found.is_none() {
                        let last = match last {
                            Some(Self::$unit(last)) => {
                                passed = true;
                                Some(last)
                            }
                            _ => None,
                        };
                        if passed {
                            found = <$kind as UnitKind>::after(last, inputs, compiled).map(Self::$unit);
                        }
                    }
                )*
                let reported = compiled.findings.by_unit().range::<Self, _>(beyond(last)).next().map(|(unit, _)| unit);
                match (found, reported) {
                    (Some(found), Some(reported)) => Some(found.min(reported.clone())),
                    (found, reported) => found.or_else(|| reported.cloned()),
                }
            }

            /// Compiles and stores the unit. Returns `true` if its part of a snapshot has changed.
            pub(super) fn compile(&self, compiled: &mut Compiled, inputs: Inputs<'_>, pass: &mut Pass<'_>) -> bool {
                match self {
                    $(Self::$unit(key) => compiled.unit::<$kind>(self, key, inputs, pass),)*
                }
            }

            /// Returns `true` if the serving part is the compiled one.
            pub(crate) fn serves(&self, compiled: &Compiled, serving: &SnapshotParts) -> bool {
                match self {
                    $(Self::$unit(key) => <$kind as UnitKind>::serves(key, compiled, serving),)*
                }
            }

            /// The units that determine routes and have a part in `one` that is not the same in `other`.
            #[must_use]
            pub fn changed_between(one: &SnapshotParts, other: &SnapshotParts) -> Vec<Self> {
                let mut units = Vec::new();
                $(if <$kind as UnitKind>::ROUTING {
                    units.extend(<$kind as UnitKind>::changed_between(one, other).into_iter().map(Self::$unit));
                })*
                units
            }

            /// The units that have a part in `one` and none in `other`.
            pub(crate) fn only_in(one: &SnapshotParts, other: &SnapshotParts) -> Vec<Self> {
                let mut units = Vec::new();
                $(units.extend(<$kind as UnitKind>::only_in(one, other).into_iter().map(Self::$unit));)*
                units
            }

            /// The units that two attachments of an object make different, in ascending order.
            pub(crate) fn differing(object: &ObjectRef, before: &Attachment, after: &Attachment) -> BTreeSet<Self> {
                let mut units = BTreeSet::new();
                $(units.extend(<$kind as UnitKind>::differing(object, before, after).into_iter().map(Self::$unit));)*
                units
            }

            /// The objects whose routes need the unit; none for a unit that the slow lane takes first.
            pub(crate) fn dependent_objects<'t>(
                &'t self,
                topology: &'t Topology,
            ) -> Box<dyn Iterator<Item = &'t ObjectRef> + 't> {
                match self {
                    $(Self::$unit(key) => <$kind as UnitKind>::dependent_objects(key, topology),)*
                }
            }

            /// The Services that an attachment uses for the requests or the connections of the unit.
            pub(crate) fn services_in<'a>(&self, attachment: &'a Attachment) -> BTreeSet<&'a ObjectName> {
                match self {
                    $(Self::$unit(key) => <$kind as UnitKind>::services_in(key, attachment),)*
                }
            }

            /// The Services that the unit uses, by the attachments now and as it was compiled.
            pub(crate) fn services(&self, topology: &Topology, parts: &SnapshotParts) -> BTreeSet<ObjectName> {
                match self {
                    $(Self::$unit(key) => <$kind as UnitKind>::services(key, topology, parts),)*
                }
            }

            /// The Service ports that the units in a snapshot use.
            pub(crate) fn backends_in(parts: &SnapshotParts) -> BTreeSet<BackendKey> {
                let mut backends = BTreeSet::new();
                $(backends.extend(<$kind as UnitKind>::backends_in(parts));)*
                backends
            }

            /// Makes the next compilation of the unit use all of its inputs.
            pub(super) fn invalidate(&self, compiled: &mut Compiled) {
                match self {
                    $(Self::$unit(key) => <$kind as UnitKind>::invalidate(key, compiled),)*
                }
            }

            /// The cost of keeping the unit's part of a snapshot, in routes.
            pub(crate) fn weight(&self, parts: &SnapshotParts) -> usize {
                match self {
                    $(Self::$unit(key) => <$kind as UnitKind>::weight(key, parts),)*
                }
            }
        }

        impl fmt::Display for Unit {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$unit(key) => <$kind as UnitKind>::describe(key, f),)*
                }
            }
        }
    };
}

units! {
    /// The policies of the paths through an object.
    Policies(ObjectRef) = super::policies::Policies,
    /// The verdict on an object, and its own findings.
    Object(ObjectRef) = super::report::Reports,
    /// A socket that objects claim, with its listeners.
    Bind(BindKey) = super::binds::Binds,
    /// The routes and certificates of a virtual host.
    Host(VirtualHost) = super::host::Hosts,
    /// The stream of connections for a host of a listener, which are passed on as bytes.
    Stream(VirtualHost) = super::streams::Streams,
    /// The endpoints of a Service.
    Service(ObjectName) = super::backends::Services,
    /// Settings that the routes of a scope share.
    Scope(ScopeId) = super::scopes::Scopes,
    /// Settings for every route and every handshake.
    Globals(()) = super::globals::GlobalSettings,
}

impl Unit {
    /// The host, if the unit is one.
    #[must_use]
    pub const fn host(&self) -> Option<&VirtualHost> {
        if let Self::Host(host) = self { Some(host) } else { None }
    }

    /// The object, if the unit is one.
    #[must_use]
    pub const fn object(&self) -> Option<&ObjectRef> {
        if let Self::Object(object) = self { Some(object) } else { None }
    }
}

impl Serialize for Unit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
