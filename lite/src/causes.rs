//! The invalid fields of an object, in the words of the real server.

use serde_json::Value;

/// An invalid field of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) field: String,
    pub(crate) message: String,
}

/// The size of the texts of an object's errors from which on no more are collected. An error may show a whole list, and
/// each element of the list may have one.
const TEXTS_MAX_BYTES: usize = 1 << 20;

/// Collects the errors of an object, in the words of the real server. The second field is the size of their texts.
#[derive(Debug, Default)]
pub(crate) struct Causes(pub(crate) Vec<Cause>, usize);

impl Causes {
    /// Adds an error, unless there are too many already.
    pub(crate) fn push(&mut self, reason: &'static str, field: impl Into<String>, message: impl FnOnce() -> String) {
        if self.is_full() {
            return;
        }
        let cause = Cause { reason, field: field.into(), message: message() };
        self.1 += cause.field.len() + cause.message.len();
        self.0.push(cause);
    }

    /// Whether no more errors are collected.
    pub(crate) fn is_full(&self) -> bool {
        self.1 >= TEXTS_MAX_BYTES
    }

    pub(crate) fn required(&mut self, field: impl Into<String>, detail: &str) {
        let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        self.push("FieldValueRequired", field, || format!("Required value{detail}"));
    }

    pub(crate) fn invalid(&mut self, field: impl Into<String>, value: &Value, detail: &str) {
        self.push("FieldValueInvalid", field, || format!("Invalid value: {value}: {detail}"));
    }

    /// One cause for each complaint about a value.
    pub(crate) fn all(&mut self, field: &str, value: &Value, complaints: Vec<String>) {
        complaints.iter().for_each(|why| self.invalid(field, value, why));
    }

    pub(crate) fn immutable(&mut self, field: impl Into<String>, value: &Value) {
        self.invalid(field, value, "field is immutable");
    }

    pub(crate) fn forbidden(&mut self, field: impl Into<String>, detail: &str) {
        self.push("FieldValueForbidden", field, || format!("Forbidden: {detail}"));
    }

    pub(crate) fn too_long(&mut self, field: impl Into<String>, detail: &str) {
        self.push("FieldValueTooLong", field, || format!("Too long: {detail}"));
    }

    pub(crate) fn not_found(&mut self, field: impl Into<String>, value: &Value) {
        self.push("FieldValueNotFound", field, || format!("Not found: {value}"));
    }

    pub(crate) fn too_many(&mut self, field: impl Into<String>, count: usize, max: usize) {
        self.push("FieldValueTooMany", field, || format!("Too many: {count}: must have at most {max} items"));
    }

    pub(crate) fn duplicate(&mut self, field: impl Into<String>, value: &Value) {
        self.push("FieldValueDuplicate", field, || format!("Duplicate value: {value}"));
    }

    /// A value that the real server shows in a form of its own.
    pub(crate) fn unsupported_shown(&mut self, field: impl Into<String>, shown: &str, supported: &str) {
        self.push("FieldValueNotSupported", field, || {
            format!("Unsupported value: {shown}: supported values: {supported}")
        });
    }

    /// A duplicate that the real server shows in a form of its own.
    pub(crate) fn duplicate_shown(&mut self, field: impl Into<String>, shown: &str) {
        self.push("FieldValueDuplicate", field, || format!("Duplicate value: {shown}"));
    }

    pub(crate) fn unsupported(&mut self, field: impl Into<String>, value: &Value, supported: &[&str]) {
        self.push("FieldValueNotSupported", field, || {
            let supported: Vec<String> = supported.iter().map(|one| format!("\"{one}\"")).collect();
            format!("Unsupported value: {value}: supported values: {}", supported.join(", "))
        });
    }
}
