//! The admission of every object from outside: its kind is right, its fields fit, nulls are removed.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{Target, WriteOptions};
use crate::custom;
use crate::failure::Failure;
use crate::fields::fit;
use crate::json::Fault;
use crate::kind::{Form, Kind};

/// The treatment of unknown fields, and of fields that are there twice (`fieldValidation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Validation {
    Ignore,
    /// They are dropped with a warning. This is also the real server's default.
    #[default]
    Warn,
    Strict,
}

/// Texts for `Warning` headers.
pub(crate) type Warnings = Vec<String>;

/// The maximum number of warnings of one response; the rest is dropped.
const WARNINGS_MAX: usize = 16;

/// Why an object is not admitted.
pub(super) enum Unfit {
    Refused(Failure),
    /// It cannot be read, with the reason.
    Unreadable(String),
}

/// Checks the shape of an object and drops fields that its kind does not have.
pub(super) fn fit(kind: &Kind, object: &mut Value, options: &WriteOptions) -> Result<Warnings, Failure> {
    fit_text(kind, object, options).map_err(|why| match why {
        Unfit::Refused(failure) => failure,
        Unfit::Unreadable(why) => unreadable(kind, &why),
    })
}

/// The same, for callers with error messages of their own for unreadable text.
pub(super) fn fit_text(kind: &Kind, object: &mut Value, options: &WriteOptions) -> Result<Warnings, Unfit> {
    check_kind(kind, object).map_err(Unfit::Refused)?;
    let Form::BuiltIn(of) = kind.form else { return fit_custom(kind, object, options) };
    let found = fit::misfits(of, object);
    if let Some(why) = found.mistyped {
        return Err(Unfit::Unreadable(why));
    }
    let mut texts = unknown(&found.unknown, options)?;
    fit::settle(of, object);
    texts.extend(drop_twins(&mut object["metadata"]));
    drop_empty(&mut object["metadata"]);
    name_kind(kind, object);
    Ok(texts)
}

/// Treats the fields that a kind does not have, and the faults of the text: a refusal, warnings, or nothing.
fn unknown(paths: &[String], options: &WriteOptions) -> Result<Warnings, Unfit> {
    // The real server does not look into fields that are unknown.
    let is_within = |fault: &Fault| paths.iter().any(|path| fault.path.starts_with(path.as_str()));
    // There are few faults with a path, and any number of others.
    let is_read = |fault: &&Fault| fault.path.is_empty() || !is_within(fault);
    let faults = options.faults.iter().filter(is_read).map(|fault| fault.text.clone());
    let texts = faults.chain(paths.iter().map(|path| format!("unknown field \"{path}\"")));
    match options.validation {
        Validation::Strict => {
            let texts: Vec<String> = texts.collect();
            if texts.is_empty() {
                return Ok(Warnings::new());
            }
            Err(Unfit::Unreadable(format!("strict decoding error: {}", texts.join(", "))))
        }
        Validation::Warn => Ok(texts.take(WARNINGS_MAX).collect()),
        Validation::Ignore => Ok(Warnings::new()),
    }
}

fn unreadable(kind: &Kind, why: &str) -> Failure {
    let message = format!("{} in version \"{}\" cannot be handled as a {}: {why}", kind.kind, kind.version, kind.kind);
    Failure::bad_request(message)
}

/// Checks an object of a custom kind: its metadata is that of every object, and the rest follows its schema.
fn fit_custom(kind: &Kind, object: &mut Value, options: &WriteOptions) -> Result<Warnings, Unfit> {
    let found = fit::misfits("ObjectMeta", &object["metadata"]);
    if let Some(why) = found.mistyped {
        return Err(Unfit::Unreadable(why));
    }
    fit::settle("ObjectMeta", &mut object["metadata"]);
    drop_empty(&mut object["metadata"]);
    let mut paths: Vec<String> = found.unknown.iter().map(|path| format!("metadata.{path}")).collect();
    name_kind(kind, object);
    if let Some(custom) = kind.custom() {
        paths.extend(custom::fit(&custom.schema, object).map_err(Unfit::Unreadable)?);
    }
    paths.sort();
    unknown(&paths, options)
}

/// Sets the kind of an object, and drops metadata that this server does not have.
fn name_kind(kind: &Kind, object: &mut Value) {
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.clone().into();
    if object["metadata"].is_null() {
        object["metadata"] = Value::Object(Map::new());
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("selfLink");
    }
}

fn check_kind(kind: &Kind, object: &Value) -> Result<(), Failure> {
    if !object.is_object() {
        return Err(Failure::bad_request("couldn't get version/kind; json parse error: the body is not an object"));
    }
    if kind.custom().is_some() && object["kind"].as_str().is_none_or(str::is_empty) {
        let why =
            format!("the object provided is unrecognized (must be of type {}): Object 'Kind' is missing", kind.kind);
        return Err(Failure::bad_request(why));
    }
    let expected = kind.api_version();
    match object["apiVersion"].as_str() {
        Some(given) if !given.is_empty() && given != expected => {
            let message =
                format!("the API version in the data ({given}) does not match the expected API version ({expected})");
            return Err(Failure::bad_request(message));
        }
        _ => {}
    }
    match object["kind"].as_str() {
        Some(given) if !given.is_empty() && given != kind.kind => {
            let message = format!("the kind in the data ({given}) does not match the expected kind ({})", kind.kind);
            Err(Failure::bad_request(message))
        }
        _ => Ok(()),
    }
}

/// Checks that an object names the namespace and the name of its path, and fills them in.
pub(super) fn check_place(target: &Target, object: &mut Value) -> Result<(), Failure> {
    let key = &target.key;
    let metadata = &mut object["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    if !namespace.is_empty() && namespace != key.namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Failure::bad_request(message));
    }
    let name = metadata["name"].as_str().unwrap_or_default();
    if !key.name.is_empty() && name != key.name && !name.is_empty() {
        let message = format!("the name of the object ({name}) does not match the name on the URL ({})", key.name);
        return Err(Failure::bad_request(message));
    }
    if !key.name.is_empty() {
        metadata["name"] = key.name.clone().into();
    }
    if target.description().namespaced() {
        metadata["namespace"] = key.namespace.clone().into();
    }
    Ok(())
}

/// Drops owners that are named twice, with a warning.
fn drop_twins(metadata: &mut Value) -> Option<String> {
    let owners = metadata.get_mut("ownerReferences")?.as_array_mut()?;
    let (mut kept, mut named) = (HashSet::with_capacity(owners.len()), HashSet::new());
    let mut twins: Vec<String> = Vec::new();
    owners.retain(|owner| {
        if kept.insert(owner.clone()) {
            return true;
        }
        let uid = owner["uid"].as_str().unwrap_or_default();
        twins.extend(named.insert(uid.to_owned()).then(|| uid.to_owned()));
        false
    });
    (!twins.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twins.join(", ")
        )
    })
}

/// Lists and maps of the metadata that are empty are absent, as in the real server; clients compare the object that
/// they sent with the stored one.
fn drop_empty(metadata: &mut Value) {
    let Some(fields) = metadata.as_object_mut() else { return };
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty = match fields.get(field) {
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => false,
        };
        if empty {
            fields.remove(field);
        }
    }
}
