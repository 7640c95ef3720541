//! Parsing of the fields of an object's JSON, each part on its own, so that a finding names the unreadable field, and
//! the other fields are not affected. The meaning of fields is not known here.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use serde_path_to_error::{Path, Segment};

use super::gateway::Unreadable;
use crate::finding::{Finding, Problem, printable};
use crate::object::ObjectRef;

/// The maximum number of findings kept of one object. If there are more, the last finding says so.
const FINDINGS_MAX: usize = 256;

/// A field whose JSON is not of the type that the API gives it.
#[derive(Debug)]
pub(super) struct InvalidValue {
    /// The field, such as `spec.rules[0].http.paths`.
    pub(super) field: String,
    /// The value, cut to a printable length.
    pub(super) value: String,
    /// A predicate that says why it cannot be read.
    pub(super) why: String,
}

/// Reads the value of a field.
pub(super) fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue, field: &str) -> Result<T, InvalidValue> {
    serde_json::from_str(raw.get()).map_err(|error| invalid_value::<T>(raw, field, &error))
}

/// Reads the value of a field. An absent value or null gives the default.
pub(super) fn read_or_default<'a, T: Deserialize<'a> + Default>(
    raw: Option<&'a RawValue>,
    field: &str,
) -> Result<T, InvalidValue> {
    raw.map_or_else(|| Ok(T::default()), |raw| read(raw, field))
}

/// Locates an error by parsing again with a record of the path, which would be too expensive for valid input.
fn invalid_value<'a, T: Deserialize<'a>>(raw: &'a RawValue, field: &str, error: &serde_json::Error) -> InvalidValue {
    let mut json = serde_json::Deserializer::from_str(raw.get());
    let path = serde_path_to_error::deserialize::<_, T>(&mut json).err().map(|error| error.path().clone());
    let value: Option<Value> = serde_json::from_str(raw.get()).ok();
    let value = value.as_ref().zip(path.as_ref()).and_then(|(value, path)| at(value, path));
    let below = path.map(|path| path.to_string()).filter(|path| path != ".").unwrap_or_default();
    let dot = if below.is_empty() || below.starts_with('[') { "" } else { "." };
    let why = in_words(&error.to_string());
    InvalidValue { field: format!("{field}{dot}{below}"), value: value.map_or_else(|| written(raw), shown), why }
}

/// The part of a parser's message that says what it expected, as a predicate. The part that quotes the value is left
/// out: the finding has it already.
fn in_words(message: &str) -> String {
    let Some((_, expected)) = message.rsplit_once(", expected ") else {
        return format!("cannot be read ({})", printable(message));
    };
    match expected.split_once(" at line ").map_or(expected, |(expected, _)| expected) {
        "a sequence" => "is not a list".to_owned(),
        "a map" => "is not an object".to_owned(),
        "i64" => "is not a whole number".to_owned(),
        expected => format!("is not {expected}"),
    }
}

fn at<'v>(value: &'v Value, path: &Path) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, segment| match segment {
        Segment::Seq { index } => value.get(index),
        Segment::Map { key } => value.get(key),
        Segment::Enum { .. } | Segment::Unknown => Some(value),
    })
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| printable(&value.to_string()), printable)
}

/// The JSON text of a value, cut to a printable length.
pub(super) fn written(raw: &RawValue) -> String {
    printable(raw.get())
}

/// The findings of one object while it is read.
#[derive(Debug)]
pub(super) struct FindingList {
    object: ObjectRef,
    findings: Vec<Finding>,
    left_out: usize,
}

impl FindingList {
    /// No findings yet.
    pub(super) const fn new(object: ObjectRef) -> Self {
        Self { object, findings: Vec::new(), left_out: 0 }
    }

    /// Returns `true` if there are no findings.
    pub(super) const fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// All findings, in the order of reading.
    pub(super) fn into_findings(mut self) -> Vec<Finding> {
        if self.left_out > 0 {
            let value = format!("{} more findings", self.left_out);
            let why = format!("exceed the limit of {FINDINGS_MAX} findings of one object");
            self.findings.push(Finding::new(self.object, "", Problem::RuleDropped { value, why }));
        }
        self.findings
    }

    fn add(&mut self, field: &str, problem: Problem) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding::new(self.object.clone(), field, problem));
        } else {
            self.left_out += 1;
        }
    }

    /// The whole object cannot be read.
    pub(super) fn unreadable(&mut self, invalid: &InvalidValue) {
        let why = format!("{:?} {}", invalid.value, invalid.why);
        self.add(&invalid.field, Problem::Unreadable { why });
    }

    /// A rule or an entry of a list is dropped.
    pub(super) fn dropped(&mut self, field: &str, value: &str, why: impl fmt::Display) {
        self.add(field, Problem::RuleDropped { value: printable(value), why: why.to_string() });
    }

    /// Like [`FindingList::dropped`], for a value of the wrong form.
    pub(super) fn invalid(&mut self, InvalidValue { field, value, why }: &InvalidValue) -> Unreadable {
        self.dropped(field, value, why);
        Unreadable
    }

    /// A setting is ignored, and its default applies.
    pub(super) fn ignored(&mut self, field: &str, value: &str, why: impl fmt::Display) {
        self.add(field, Problem::SettingIgnored { value: printable(value), why: why.to_string() });
    }

    /// A setting is valid and has no effect.
    pub(super) fn without_effect(&mut self, field: &str, value: &str, why: impl fmt::Display) {
        self.add(field, Problem::WithoutEffect { value: printable(value), why: why.to_string() });
    }

    /// A path is not the pattern that it looks like.
    pub(super) fn literal_path(&mut self, field: &str, path: &str) {
        self.add(field, Problem::PathLiteral { path: printable(path) });
    }

    /// The object asks for routes and has no usable host.
    pub(super) fn no_host(&mut self, field: &str, why: impl fmt::Display) {
        self.add(field, Problem::NoHost { why: why.to_string() });
    }

    /// An access restriction cannot be read, so all clients are refused.
    pub(super) fn closed(&mut self, field: &str, value: &str, why: impl fmt::Display) {
        self.add(field, Problem::FailedClosed { value: printable(value), why: why.to_string() });
    }

    /// A filter or a backend cannot be read, so the edge answers 500 in its place.
    pub(super) fn filter_or_backend_invalid(
        &mut self,
        InvalidValue { field, value, why }: &InvalidValue,
    ) -> Unreadable {
        self.add(field, Problem::FilterOrBackendInvalid { value: printable(value), why: why.clone() });
        Unreadable
    }

    /// A policy cannot be used.
    pub(super) fn policy_not_enforced(&mut self, InvalidValue { field, value, why }: &InvalidValue) {
        self.add(field, Problem::PolicyNotEnforced { value: printable(value), why: why.clone() });
    }

    /// A limit of a policy cannot be used.
    pub(super) fn limit_not_enforced(&mut self, InvalidValue { field, value, why }: &InvalidValue) {
        self.add(field, Problem::LimitNotEnforced { value: printable(value), why: why.clone() });
    }

    /// A rule of a policy that restricts access, or all of them, cannot be used.
    pub(super) fn access_closed(&mut self, InvalidValue { field, value, why }: &InvalidValue) {
        self.add(field, Problem::AccessClosed { value: printable(value), why: why.clone() });
    }

    /// The restriction of attached objects cannot be read, so none may attach.
    pub(super) fn attachment_refused(&mut self, field: &str, value: &str, why: impl fmt::Display) {
        self.add(field, Problem::AttachmentRefused { value: printable(value), why: why.to_string() });
    }

    /// The setting that requires TLS cannot be read, so TLS is required.
    pub(super) fn assumed(&mut self, field: &str, value: &str, why: impl fmt::Display) {
        self.add(field, Problem::RedirectAssumed { value: printable(value), why: why.to_string() });
    }

    /// A TLS entry, or a host of one, is not used.
    pub(super) fn unused(&mut self, field: &str, value: &str, why: impl fmt::Display) {
        self.add(field, Problem::TlsUnused { value: printable(value), why: why.to_string() });
    }

    /// The backend of a route cannot be used.
    pub(super) fn unusable(&mut self, field: &str, value: &str, why: impl fmt::Display) {
        self.add(field, Problem::BackendUnusable { value: printable(value), why: why.to_string() });
    }

    /// Reads one entry of a list, or drops it.
    pub(super) fn entry<'a, T: Deserialize<'a>>(&mut self, raw: &'a RawValue, field: &str) -> Option<T> {
        read(raw, field).map_err(|invalid| self.dropped(&invalid.field, &invalid.value, &invalid.why)).ok()
    }

    /// The entries of a list with their fields, up to a limit.
    pub(super) fn entries<'a>(
        &mut self,
        list: Option<Vec<&'a RawValue>>,
        limit: usize,
        field: &str,
    ) -> impl Iterator<Item = (String, &'a RawValue)> + use<'a> {
        let list = list.unwrap_or_default();
        self.check_limit(list.len(), limit, field);
        let field = field.to_owned();
        list.into_iter().take(limit).enumerate().map(move |(number, raw)| (format!("{field}[{number}]"), raw))
    }

    /// Adds a finding about entries beyond a limit, which are not read.
    fn check_limit(&mut self, length: usize, limit: usize, field: &str) {
        if let Some(more @ 1..) = length.checked_sub(limit) {
            let why = format!("exceed the limit of {limit}");
            self.dropped(&format!("{field}[{limit}]"), &format!("{more} more entries"), why);
        }
    }
}
