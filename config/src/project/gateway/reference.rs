//! References from one object to another, and the validation of names in them.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::finding::printable;
use crate::object::{Kind, ObjectName};
use crate::project::field::{InvalidValue, read};
use crate::project::raw_object::is_segment;
use crate::project::service::port_number;

/// The reason for an invalid port.
const NOT_A_PORT: &str = "is not between 1 and 65535";

/// A value that was written and cannot be read, where that differs from an absent one. A finding has the reason.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Unreadable;

/// A group and a kind, as in references.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupKind {
    /// A kind with a projection.
    Known(Kind),
    /// Any other.
    Other {
        /// The API group, empty for the core group.
        group: Arc<str>,
        /// The kind.
        kind: Arc<str>,
    },
}

impl GroupKind {
    /// The group, empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        match self {
            Self::Known(kind) => kind.group(),
            Self::Other { group, .. } => group,
        }
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::Known(kind) => kind.as_str(),
            Self::Other { kind, .. } => kind,
        }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self.group() {
            "" => Ok(()),
            group => write!(f, ".{group}"),
        }
    }
}

impl fmt::Debug for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A reference to another object. Whether it exists, and whether a ReferenceGrant permits the reference, is not known
/// here.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectReference {
    /// Its group and kind.
    pub kind: GroupKind,
    /// Its name and namespace; the default namespace is that of the referring object.
    pub name: ObjectName,
}

impl fmt::Display for ObjectReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

impl fmt::Debug for ObjectReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The form of a reference.
#[derive(Clone, Copy)]
pub(in crate::project) struct Form {
    /// The default of group and kind, each by itself; without a default both are required.
    default: Option<Kind>,
    /// Whether another namespace is allowed.
    elsewhere: bool,
}

impl Form {
    /// A reference with this kind as the default, in any namespace.
    pub(super) const fn of(kind: Kind) -> Self {
        Self { default: Some(kind), elsewhere: true }
    }

    /// A reference with a required kind, in any namespace.
    pub(super) const ANY: Self = Self { default: None, elsewhere: true };

    /// A reference with a required kind, in the same namespace.
    pub(in crate::project) const LOCAL: Self = Self { default: None, elsewhere: false };
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct ReferenceJson {
    group: Option<String>,
    kind: Option<String>,
    namespace: Option<Arc<str>>,
    name: Option<Arc<str>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct KindJson {
    group: Option<String>,
    kind: Option<String>,
}

/// Reads a reference to another object.
pub(in crate::project) fn reference(
    raw: &RawValue,
    field: &str,
    own: &ObjectName,
    form: Form,
) -> Result<ObjectReference, InvalidValue> {
    let json: ReferenceJson = read(raw, field)?;
    let kind = checked_kind(json.group, json.kind, field, form.default)?;
    let name = checked(json.name, field, "name", name)?;
    let name = match json.namespace.filter(|_| form.elsewhere) {
        Some(text) => ObjectName::new(checked(Some(text), field, "namespace", label)?, name),
        None => own.beside(name),
    };
    Ok(ObjectReference { kind, name })
}

/// Reads a group and a kind.
pub(super) fn group_kind(raw: &RawValue, field: &str, default_group: Option<Kind>) -> Result<GroupKind, InvalidValue> {
    let json: KindJson = read(raw, field)?;
    let group = json.group.or_else(|| default_group.map(|kind| kind.group().to_owned()));
    checked_kind(group, json.kind, field, None)
}

fn checked_kind(
    group: Option<String>,
    kind: Option<String>,
    field: &str,
    default: Option<Kind>,
) -> Result<GroupKind, InvalidValue> {
    let group = group.or_else(|| default.map(|kind| kind.group().to_owned()));
    let kind = kind.or_else(|| default.map(|kind| kind.as_str().to_owned()));
    let group = checked(group, field, "group", self::group)?;
    let kind = checked(kind, field, "kind", self::kind)?;
    Ok(match Kind::of(&group, &kind) {
        Some(known) => GroupKind::Known(known),
        None => GroupKind::Other { group: group.into(), kind: kind.into() },
    })
}

/// A required text that passes a check; `below` is its field below `field`.
pub(in crate::project) fn checked<T: AsRef<str>>(
    text: Option<T>,
    field: &str,
    below: &str,
    check: fn(&str) -> Result<(), &'static str>,
) -> Result<T, InvalidValue> {
    let fault = |value: &str, why: &str| InvalidValue {
        field: format!("{field}.{below}"),
        value: printable(value),
        why: why.to_owned(),
    };
    let text = text.ok_or_else(|| fault("", "is required but missing"))?;
    check(text.as_ref()).map_err(|why| fault(text.as_ref(), why))?;
    Ok(text)
}

/// A valid port number.
pub(super) fn port(number: i64, field: &str) -> Result<u16, InvalidValue> {
    let fault = || InvalidValue { field: field.to_owned(), value: number.to_string(), why: NOT_A_PORT.to_owned() };
    port_number(number).ok_or_else(fault)
}

/// Checks the name of an object.
pub(super) fn name(text: &str) -> Result<(), &'static str> {
    let fits = (1..=253).contains(&text.len()) && is_segment(text);
    if fits { Ok(()) } else { Err("is not a valid name of an object") }
}

/// Checks a namespace (RFC 1123, label).
pub(super) fn label(text: &str) -> Result<(), &'static str> {
    let inner = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let fits = (1..=63).contains(&text.len()) && inner && !text.starts_with('-') && !text.ends_with('-');
    if fits { Ok(()) } else { Err("is not a label of lower-case letters, digits and inner hyphens") }
}

/// Checks the name of a listener or rule: labels separated by dots.
pub(in crate::project) fn section(text: &str) -> Result<(), &'static str> {
    let fits = text.len() <= 253 && text.split('.').all(|part| !part.is_empty() && label_of_any_length(part));
    if fits { Ok(()) } else { Err("is not a name of lower-case letters, digits, and inner hyphens and dots") }
}

fn label_of_any_length(text: &str) -> bool {
    let inner = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    inner && !text.starts_with('-') && !text.ends_with('-')
}

fn group(text: &str) -> Result<(), &'static str> {
    if text.is_empty() || section(text).is_ok() { Ok(()) } else { Err("is not an API group") }
}

fn kind(text: &str) -> Result<(), &'static str> {
    let inner = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let first = text.starts_with(|mark: char| mark.is_ascii_alphabetic());
    if inner && first && text.len() <= 63 && !text.ends_with('-') { Ok(()) } else { Err("is not a kind") }
}
