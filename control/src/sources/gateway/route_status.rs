//! What the status of a route says, in the form in which it is kept: most routes are in order, and then the text of their conditions is the
//! same but for the parents, which the projection holds already.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use tidegate_config::project::gateway::{OwnStatus, ParentRef, ParentStatus, WrittenRef};

use super::condition::{Conditions, Fault};

/// The status of a route. [`RouteStatus::written`] is what it says in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteStatus {
    /// `spec.parentRefs`.
    parents: Arc<[ParentRef]>,
    /// The generation of the route that it is about.
    generation: i64,
    /// Those of the parents that are ours, by their places, each with why it does not take the route.
    joined: Box<[(usize, Option<Box<Fault>>)]>,
    /// What is said of the route itself; `None` where that is in order.
    said: Option<Box<Said>>,
}

/// What a route's status says of the route itself, to every parent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Said {
    /// Why it is not accepted.
    pub(super) refused: Option<Fault>,
    /// The first reference that cannot be used.
    pub(super) unresolved: Option<Fault>,
    /// Which rules are not in effect.
    pub(super) partly: Option<String>,
    /// What else is not in effect, although it is accepted; most often nothing.
    pub(super) accepted: String,
}

impl RouteStatus {
    /// That of a route of this generation, with these of its parents.
    pub(super) fn new(
        parents: &Arc<[ParentRef]>,
        generation: i64,
        joined: Vec<(usize, Option<Fault>)>,
        said: Said,
    ) -> Self {
        let joined = joined.into_iter().map(|(place, fault)| (place, fault.map(Box::new))).collect();
        let said = (said != Said::default()).then(|| Box::new(said));
        Self { parents: Arc::clone(parents), generation, joined, said }
    }

    /// What is written, with the parents in order. A route that is wrong by itself is so for every parent.
    #[must_use]
    pub fn written(&self) -> OwnStatus {
        let order = Said::default();
        let said = self.said.as_deref().unwrap_or(&order);
        let mut parents: Vec<ParentStatus> =
            self.joined().map(|(parent, fault)| self.of_parent(parent, fault, said)).collect();
        parents.sort_unstable();
        OwnStatus { parents, ..OwnStatus::default() }
    }

    /// Why it is not accepted by those of its parents that `asked` picks.
    pub(crate) fn refusals(&self, asked: impl Fn(&ParentRef) -> bool) -> impl Iterator<Item = &Fault> {
        let refused = self.said.as_deref().and_then(|said| said.refused.as_ref());
        self.joined().filter(move |(parent, _)| asked(parent)).filter_map(move |(_, fault)| fault.or(refused))
    }

    fn joined(&self) -> impl Iterator<Item = (&ParentRef, Option<&Fault>)> {
        self.joined.iter().filter_map(|(place, fault)| Some((self.parents.get(*place)?, fault.as_deref())))
    }

    fn of_parent(&self, parent: &ParentRef, fault: Option<&Fault>, said: &Said) -> ParentStatus {
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

/// A reference as the status repeats it.
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
