//! `metadata.managedFields`: the owners of an object's fields, as the object carries them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fields::Fields;
use crate::clock;

/// The maximum number of updaters remembered by name; the fields of the oldest beyond that go to a common entry.
const UPDATERS_MAX: usize = 10;
/// The manager of the common entry.
const ANCIENT: &str = "ancient-changes";

/// The operation by which a manager came to own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// An owner of fields. One that applies is the same in every version of the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub(crate) operation: Operation,
    pub(crate) name: String,
    /// Empty for an apply.
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

/// The fields of a manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) fields: Fields,
    pub(crate) api_version: String,
    pub(crate) time: Option<String>,
}

/// All managers of an object.
pub(crate) type Managers = BTreeMap<Manager, Owned>;

/// Reads `managedFields`. Returns `None` if an entry is malformed.
pub(crate) fn decode(entries: &Value) -> Option<Managers> {
    match entries {
        Value::Null => Some(Managers::new()),
        Value::Array(entries) => entries.iter().map(decode_entry).collect(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => None,
    }
}

fn decode_entry(entry: &Value) -> Option<(Manager, Owned)> {
    let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let operation = match entry["operation"].as_str() {
        Some("Apply") => Operation::Apply,
        Some("Update") => Operation::Update,
        _ => return None,
    };
    if text("apiVersion").is_empty() || entry["fieldsType"] != "FieldsV1" {
        return None;
    }
    let fields = entry.get("fieldsV1").filter(|fields| !fields.is_null());
    let fields = fields.map_or_else(|| Some(Fields::default()), Fields::decode)?;
    let api_version = match operation {
        Operation::Apply => String::new(),
        Operation::Update => text("apiVersion"),
    };
    let manager = Manager { operation, name: text("manager"), api_version, subresource: text("subresource") };
    let time = entry["time"].as_str().map(str::to_owned);
    Some((manager, Owned { fields, api_version: text("apiVersion"), time }))
}

/// Writes `managedFields`, in the order of the real server. Returns `None` if no field has an owner.
pub(crate) fn encode(managers: &Managers) -> Option<Value> {
    let mut sorted: Vec<_> = managers.iter().collect();
    sorted.sort_by_key(|(manager, owned)| {
        let seconds = seconds(owned);
        (manager.operation, seconds, &manager.name, &owned.api_version, &manager.subresource)
    });
    let entries = sorted.into_iter().map(|(manager, owned)| {
        let mut entry = json!({
            "manager": manager.name, "operation": manager.operation.name(), "apiVersion": owned.api_version,
            "fieldsType": "FieldsV1", "fieldsV1": owned.fields.encode(),
        });
        if let Some(time) = &owned.time {
            entry["time"] = time.clone().into();
        }
        if !manager.subresource.is_empty() {
            entry["subresource"] = manager.subresource.clone().into();
        }
        entry
    });
    (!managers.is_empty()).then(|| Value::Array(entries.collect()))
}

fn seconds(owned: &Owned) -> u64 {
    owned.time.as_deref().and_then(clock::seconds).unwrap_or_default()
}

/// Merges the oldest of too many updaters.
pub(crate) fn cap(managers: &mut Managers) {
    let updaters = |managers: &Managers| -> Vec<Manager> {
        let mut found: Vec<_> = managers.iter().filter(|(one, _)| one.operation == Operation::Update).collect();
        found.sort_by_key(|(manager, owned)| (seconds(owned), *manager));
        found.into_iter().map(|(manager, _)| manager.clone()).collect()
    };
    let oldest = updaters(managers);
    let mut surplus = oldest.len().saturating_sub(UPDATERS_MAX);
    let mut firsts = BTreeMap::<String, Manager>::new();
    for manager in oldest {
        if surplus == 0 {
            return;
        }
        let version = manager.api_version.clone();
        let Some(first) = firsts.get(&version) else {
            // A single one is not merged: that would leave as many as before.
            firsts.insert(version, manager);
            continue;
        };
        let bucket = Manager { name: ANCIENT.to_owned(), subresource: String::new(), ..manager.clone() };
        if !managers.contains_key(&bucket)
            && let Some(owned) = managers.remove(first)
        {
            managers.insert(bucket.clone(), owned);
        }
        if let (Some(owned), Some(all)) = (managers.remove(&manager), managers.get_mut(&bucket)) {
            all.fields.extend(&owned.fields);
            (all.api_version, all.time) = (owned.api_version, owned.time);
            surplus -= 1;
        }
    }
}

/// `managedFields` without their times.
pub(crate) fn timeless(entries: &Value) -> Value {
    let mut entries = entries.clone();
    for entry in entries.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        entry.remove("time");
    }
    entries
}
