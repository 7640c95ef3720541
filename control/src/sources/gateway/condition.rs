//! Conditions, as they are put together.

use std::fmt;

use tidegate_config::project::gateway::{Condition, ObjectReference, Text, Unreadable};

/// Why a condition is not as it should be: a reason of the API, and a sentence for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The reason, in one word.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

impl Fault {
    /// A fault.
    pub(in crate::sources) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// A reference as messages name it.
pub(super) fn named<T: fmt::Display>(reference: &Result<T, Unreadable>) -> String {
    reference.as_ref().map_or_else(|_| "what cannot be read".to_owned(), T::to_string)
}

/// That a field refers to parameters: Tidegate takes none.
pub(super) fn parameters(field: &str, reference: &Result<ObjectReference, Unreadable>) -> Fault {
    Fault::new("InvalidParameters", format!("{field} names {}, and Tidegate takes no parameters", named(reference)))
}

/// The conditions of one object or listener, all about one generation.
pub(super) struct Conditions {
    generation: i64,
    list: Vec<Condition>,
}

impl Conditions {
    /// None yet, about this generation.
    pub(super) const fn about(generation: i64) -> Self {
        Self { generation, list: Vec::new() }
    }

    /// Adds one with any status.
    pub(super) fn put(
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

    /// Adds one that is true with `good` as its reason, unless there is a fault.
    pub(super) fn judge(&mut self, kind: &'static str, good: &'static str, fault: Option<&Fault>) {
        match fault {
            None => self.put(kind, "True", good, ""),
            Some(fault) => self.put(kind, "False", fault.reason, fault.message.clone()),
        }
    }

    /// All of them, in the order of their types.
    pub(super) fn into_list(mut self) -> Vec<Condition> {
        self.list.sort_unstable();
        self.list
    }
}
