//! The status of a route in a compact form: most routes are valid, and their conditions differ only in the parents,
//! which the projection already holds.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use tidegate_config::project::gateway::{OwnStatus, ParentRef, ParentStatus, WrittenRef};

use super::condition::{Conditions, Fault};

/// The compact status of a route. [`RouteStatus::written`] returns the full status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteStatus {
    /// `spec.parentRefs`.
    parents: Arc<[ParentRef]>,
    /// The observed generation of the route.
    generation: i64,
    /// The parents that are ours, by index, each with the reason if the route is not accepted there.
    joined: Box<[(usize, Option<Box<Fault>>)]>,
    /// The problems of the route itself; `None` if there are none.
    said: Option<Box<RouteConditions>>,
}

/// The problems of a route that are reported for every parent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RouteConditions {
    /// The reason why it is not accepted.
    pub(crate) refused: Option<Fault>,
    /// The first unusable reference.
    pub(crate) unresolved: Option<Fault>,
    /// The message about rules that are not in effect.
    pub(crate) partly: Option<String>,
    /// The message about other parts that are not in effect although it is accepted; usually empty.
    pub(crate) accepted: String,
}

impl RouteStatus {
    /// The status of a route of this generation, with these of its parents.
    pub(crate) fn new(
        parents: &Arc<[ParentRef]>,
        generation: i64,
        joined: Vec<(usize, Option<Fault>)>,
        said: RouteConditions,
    ) -> Self {
        let joined = joined.into_iter().map(|(place, fault)| (place, fault.map(Box::new))).collect();
        let said = (said != RouteConditions::default()).then(|| Box::new(said));
        Self { parents: Arc::clone(parents), generation, joined, said }
    }

    /// The full status, with the parents in order. Problems of the route itself are reported for every parent.
    #[must_use]
    pub fn written(&self) -> OwnStatus {
        let order = RouteConditions::default();
        let said = self.said.as_deref().unwrap_or(&order);
        let mut parents: Vec<ParentStatus> =
            self.joined().map(|(parent, fault)| self.of_parent(parent, fault, said)).collect();
        parents.sort_unstable();
        OwnStatus { parents, ..OwnStatus::default() }
    }

    /// The reasons why it is not accepted by the parents that `asked` selects.
    pub(crate) fn refusals(&self, asked: impl Fn(&ParentRef) -> bool) -> impl Iterator<Item = &Fault> {
        let refused = self.said.as_deref().and_then(|said| said.refused.as_ref());
        self.joined().filter(move |(parent, _)| asked(parent)).filter_map(move |(_, fault)| fault.or(refused))
    }

    fn joined(&self) -> impl Iterator<Item = (&ParentRef, Option<&Fault>)> {
        self.joined.iter().filter_map(|(place, fault)| Some((self.parents.get(*place)?, fault.as_deref())))
    }

    fn of_parent(&self, parent: &ParentRef, fault: Option<&Fault>, said: &RouteConditions) -> ParentStatus {
        let mut conditions = Conditions::about(self.generation);
        match fault.or(said.refused.as_ref()) {
            None => conditions.put("Accepted", "True", "Accepted", said.accepted.clone()),
            refused => conditions.judge("Accepted", "Accepted", refused),
        }
        conditions.judge("ResolvedRefs", "ResolvedRefs", said.unresolved.as_ref());
        if let Some(message) = said.partly.as_ref().filter(|_| fault.is_none() && said.refused.is_none()) {
            conditions.put("PartiallyInvalid", "True", "UnsupportedValue", message.clone());
        }
        ParentStatus { parent: written(parent), conditions: conditions.into_list() }
    }
}

impl Serialize for RouteStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written().serialize(serializer)
    }
}

/// A reference for the status.
fn written(parent: &ParentRef) -> WrittenRef {
    WrittenRef {
        group: parent.parent.kind.group().to_owned().into(),
        kind: parent.parent.kind.kind().to_owned().into(),
        namespace: Some(Arc::clone(&parent.parent.name.namespace)),
        name: Arc::clone(&parent.parent.name.name),
        section_name: parent.section.clone(),
        port: parent.port,
    }
}
