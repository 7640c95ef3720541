//! The status of a route in a compact form: most routes are valid, and their conditions differ only in the parents,
//! which the projection already holds.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use tidegate_config::project::gateway::{OwnStatus, ParentRef, ParentStatus, WrittenRef};

use super::condition::{ConditionReason, Conditions};

/// The compact status of a route. [`RouteStatus::written`] returns the full status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteStatus {
    /// `spec.parentRefs`.
    parents: Arc<[ParentRef]>,
    /// The observed generation of the route.
    generation: i64,
    /// The parents that are ours, by index, each with the reason if the route is not accepted there.
    joined: Box<[(usize, Option<Box<ConditionReason>>)]>,
    /// The problems of the route itself; `None` if there are none.
    outcome: Option<Box<RouteConditions>>,
}

/// The problems of a route that are reported for every parent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RouteConditions {
    /// The reason why it is not accepted.
    pub(crate) refused: Option<ConditionReason>,
    /// The first unusable reference.
    pub(crate) unresolved: Option<ConditionReason>,
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
        joined: Vec<(usize, Option<ConditionReason>)>,
        outcome: RouteConditions,
    ) -> Self {
        let joined = joined.into_iter().map(|(index, fault)| (index, fault.map(Box::new))).collect();
        let outcome = (outcome != RouteConditions::default()).then(|| Box::new(outcome));
        Self { parents: Arc::clone(parents), generation, joined, outcome }
    }

    /// The full status, with the parents in order. Problems of the route itself are reported for every parent.
    #[must_use]
    pub fn written(&self) -> OwnStatus {
        let order = RouteConditions::default();
        let outcome = self.outcome.as_deref().unwrap_or(&order);
        let mut parents: Vec<ParentStatus> =
            self.joined().map(|(parent, fault)| self.of_parent(parent, fault, outcome)).collect();
        parents.sort_unstable();
        OwnStatus { parents, ..OwnStatus::default() }
    }

    /// The reasons why it is not accepted by the parents that `asked` selects.
    pub(crate) fn refusals(&self, asked: impl Fn(&ParentRef) -> bool) -> impl Iterator<Item = &ConditionReason> {
        let refused = self.outcome.as_deref().and_then(|outcome| outcome.refused.as_ref());
        self.joined().filter(move |(parent, _)| asked(parent)).filter_map(move |(_, fault)| fault.or(refused))
    }

    fn joined(&self) -> impl Iterator<Item = (&ParentRef, Option<&ConditionReason>)> {
        self.joined.iter().filter_map(|(index, fault)| Some((self.parents.get(*index)?, fault.as_deref())))
    }

    fn of_parent(
        &self,
        parent: &ParentRef,
        fault: Option<&ConditionReason>,
        outcome: &RouteConditions,
    ) -> ParentStatus {
        let mut conditions = Conditions::about(self.generation);
        match fault.or(outcome.refused.as_ref()) {
            None => conditions.put("Accepted", "True", "Accepted", outcome.accepted.clone()),
            refused => conditions.judge("Accepted", "Accepted", refused),
        }
        conditions.judge("ResolvedRefs", "ResolvedRefs", outcome.unresolved.as_ref());
        if let Some(message) = outcome.partly.as_ref().filter(|_| fault.is_none() && outcome.refused.is_none()) {
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
