//! Builds lists of conditions.

use std::fmt;

use tidegate_config::project::gateway::{Condition, ObjectReference, Text, Unreadable};

/// The reason and the message of a condition that reports a problem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConditionReason {
    /// The reason, in one word.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
}

impl ConditionReason {
    /// A fault with this reason and message.
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// A reference in messages.
pub(crate) fn named<T: fmt::Display>(reference: &Result<T, Unreadable>) -> String {
    reference.as_ref().map_or_else(|_| "an unreadable reference".to_owned(), T::to_string)
}

/// The fault of a field that refers to parameters: Tidegate supports none.
pub(crate) fn parameters(field: &str, reference: &Result<ObjectReference, Unreadable>) -> ConditionReason {
    ConditionReason::new(
        "InvalidParameters",
        format!("{field} refers to {}, and Tidegate supports no parameters", named(reference)),
    )
}

/// The conditions of one object or listener, with one observed generation.
pub(crate) struct Conditions {
    generation: i64,
    list: Vec<Condition>,
}

impl Conditions {
    /// An empty list for this generation.
    pub(crate) const fn about(generation: i64) -> Self {
        Self { generation, list: Vec::new() }
    }

    /// Adds a condition with any status.
    pub(crate) fn put(
        &mut self,
        kind: &'static str,
        status: &'static str,
        reason: &'static str,
        message: impl Into<Text>,
    ) {
        let (kind, status, reason) = (kind.into(), status.into(), reason.into());
        let condition =
            Condition { kind, status, reason, message: message.into(), observed_generation: self.generation };
        self.list.push(condition);
    }

    /// Adds a condition with the status `True` and `good` as its reason, or with the status `False` for a fault.
    pub(crate) fn judge(&mut self, kind: &'static str, good: &'static str, fault: Option<&ConditionReason>) {
        match fault {
            None => self.put(kind, "True", good, ""),
            Some(fault) => self.put(kind, "False", fault.reason, fault.message.clone()),
        }
    }

    /// The conditions, in the order of their types.
    pub(crate) fn into_list(mut self) -> Vec<Condition> {
        self.list.sort_unstable();
        self.list
    }
}
