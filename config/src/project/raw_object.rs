//! One object as the API server sends it: its identity read, its other parts still raw. An item of a list has no
//! `apiVersion` and `kind`, so they are not read.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Meta;
use super::expressions::Compiling;
use super::field::{FindingList, InvalidValue, read, read_or_default};
use crate::object::{Kind, ObjectName, ObjectRef, Uid};

/// The reason why bytes do not identify an object. It has none of the bytes, which may be a Secret's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unidentified {
    /// They are not a JSON object.
    NotJson {
        /// The line of the first error, from 1.
        line: usize,
        /// The column of the first error, from 1.
        column: usize,
    },
    /// `metadata` is not an object, or its `namespace` not a text.
    NoMetadata,
    /// `metadata.name` is missing, empty or not a text.
    NoName,
    /// `metadata.name` or `metadata.namespace` is invalid: it is not a path segment.
    BadName,
    /// `metadata.resourceVersion` is missing, empty or not a text.
    NoVersion,
}

impl fmt::Display for Unidentified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson { line, column } => write!(f, "not a JSON object (line {line}, column {column})"),
            Self::NoMetadata => f.write_str("metadata cannot be read"),
            Self::NoName => f.write_str("no metadata.name"),
            Self::BadName => f.write_str("an invalid metadata.name or metadata.namespace"),
            Self::NoVersion => f.write_str("no metadata.resourceVersion"),
        }
    }
}

impl std::error::Error for Unidentified {}

/// The parts that are read, of every kind; others are skipped.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct Parts<'a> {
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    object_type: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    address_type: Option<&'a RawValue>,
    #[serde(borrow)]
    endpoints: Option<&'a RawValue>,
    #[serde(borrow)]
    ports: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    namespace: Option<&'a RawValue>,
    #[serde(borrow)]
    uid: Option<&'a RawValue>,
    #[serde(borrow)]
    resource_version: Option<&'a RawValue>,
    #[serde(borrow)]
    generation: Option<&'a RawValue>,
    #[serde(borrow)]
    creation_timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    deletion_timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    labels: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
    #[serde(borrow)]
    owner_references: Option<&'a RawValue>,
    #[serde(borrow)]
    finalizers: Option<&'a RawValue>,
}

/// An identified object and its raw parts.
pub(super) struct RawObject<'a> {
    /// Its identity.
    pub(super) meta: Meta,
    /// `spec`.
    pub(super) spec: Option<&'a RawValue>,
    /// `status`.
    pub(super) status: Option<&'a RawValue>,
    /// `type`.
    pub(super) object_type: Option<&'a RawValue>,
    /// `data` of a Secret. It must not get into any message.
    pub(super) data: Option<&'a RawValue>,
    /// `addressType` of an EndpointSlice.
    pub(super) address_type: Option<&'a RawValue>,
    /// `endpoints` of an EndpointSlice.
    pub(super) endpoints: Option<&'a RawValue>,
    /// `ports` of an EndpointSlice.
    pub(super) ports: Option<&'a RawValue>,
    /// `metadata.creationTimestamp`.
    pub(super) created: Option<&'a RawValue>,
    /// Whether it has `metadata.deletionTimestamp`: it is deleted when its finalizers have ended.
    pub(super) is_being_deleted: bool,
    /// `metadata.labels`.
    pub(super) labels: Option<&'a RawValue>,
    /// `metadata.ownerReferences`.
    pub(super) owners: Option<&'a RawValue>,
    finalizers: Option<&'a RawValue>,
    annotations: Option<&'a RawValue>,
    /// How its expressions are made.
    pub(super) compiling: Compiling<'a>,
}

/// Annotations by key, their values still raw.
pub(super) type Annotations<'a> = BTreeMap<String, &'a RawValue>;

impl<'a> RawObject<'a> {
    /// Reads the identity of an object.
    pub(super) fn identify(kind: Kind, bytes: &'a [u8]) -> Result<Self, Unidentified> {
        let parts: Parts<'a> = serde_json::from_slice(bytes)
            .map_err(|error| Unidentified::NotJson { line: error.line(), column: error.column() })?;
        let metadata: Metadata<'a> = parts.metadata.and_then(lenient).ok_or(Unidentified::NoMetadata)?;
        let name = metadata.name.and_then(text).ok_or(Unidentified::NoName)?;
        let resource_version = metadata.resource_version.and_then(text).ok_or(Unidentified::NoVersion)?;
        let namespace: Arc<str> = match metadata.namespace {
            Some(raw) if kind.namespaced() => shared(lenient(raw).ok_or(Unidentified::NoMetadata)?),
            Some(_) | None => Arc::default(),
        };
        if !is_segment(&name) || !is_segment(&namespace) {
            return Err(Unidentified::BadName);
        }
        let meta = Meta {
            object: ObjectRef::new(kind, ObjectName::new(namespace, name)),
            uid: metadata.uid.and_then(lenient::<&str>).and_then(Uid::parse),
            resource_version,
            generation: metadata.generation.and_then(lenient),
        };
        Ok(Self {
            meta,
            spec: parts.spec,
            status: parts.status,
            object_type: parts.object_type,
            data: parts.data,
            address_type: parts.address_type,
            endpoints: parts.endpoints,
            ports: parts.ports,
            created: metadata.creation_timestamp,
            is_being_deleted: metadata.deletion_timestamp.is_some(),
            labels: metadata.labels,
            owners: metadata.owner_references,
            finalizers: metadata.finalizers,
            annotations: metadata.annotations,
            compiling: Compiling::default(),
        })
    }

    /// Its namespace and name.
    pub(super) const fn name(&self) -> &ObjectName {
        &self.meta.object.name
    }

    /// The value of a label, if it can be read.
    pub(super) fn label(&self, key: &str) -> Option<String> {
        let labels: BTreeMap<String, &RawValue> = self.labels.and_then(lenient)?;
        labels.get(key).and_then(|raw| lenient(raw))
    }

    /// Whether `metadata.finalizers` names this one.
    pub(super) fn has_finalizer(&self, name: &str) -> bool {
        let finalizers: Vec<String> = self.finalizers.and_then(lenient).unwrap_or_default();
        finalizers.iter().any(|finalizer| finalizer == name)
    }

    /// `metadata.annotations`.
    pub(super) fn annotations(&self) -> Result<Annotations<'a>, InvalidValue> {
        read_or_default(self.annotations, "metadata.annotations")
    }
}

/// The creation time, in seconds since the Unix epoch. An object without one counts as the youngest, so that it wins
/// over no other.
pub(super) fn created_s(raw: Option<&RawValue>, findings: &mut FindingList) -> i64 {
    const FIELD: &str = "metadata.creationTimestamp";
    let Some(raw) = raw else { return i64::MAX };
    match read::<String>(raw, FIELD) {
        Ok(text) => match text.parse::<jiff::Timestamp>() {
            Ok(time) => return time.as_second(),
            Err(_) => findings.ignored(FIELD, &text, "is not a time of RFC 3339"),
        },
        Err(invalid) => findings.ignored(&invalid.field, &invalid.value, &invalid.why),
    }
    i64::MAX
}

/// The field name of an annotation.
pub(super) fn annotation_field(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

/// A namespace; the last one of this thread, if it is the same. Lists are in the order of namespaces, so the objects of
/// a namespace share its name.
fn shared(namespace: Arc<str>) -> Arc<str> {
    thread_local! {
        static LAST: RefCell<Arc<str>> = RefCell::default();
    }
    LAST.with_borrow_mut(|last| {
        if *last != namespace {
            *last = namespace;
        }
        Arc::clone(last)
    })
}

fn lenient<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// Returns `true` if a text can be a path segment, as names of every kind must (Kubernetes, `IsValidPathSegmentName`),
/// and has no control characters.
pub(super) fn is_segment(text: &str) -> bool {
    !matches!(text, "." | "..") && !text.contains(|mark: char| matches!(mark, '/' | '%') || mark.is_control())
}

fn text(raw: &RawValue) -> Option<Arc<str>> {
    lenient(raw).filter(|text: &Arc<str>| !text.is_empty())
}
