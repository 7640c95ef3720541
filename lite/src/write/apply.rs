//! Server-side apply of an object that may not exist yet.

use serde_json::Value;

use super::owners::{self, Tracking};
use super::{Checked, Edit, Target, Validation, WriteOptions, admit, create, update};
use crate::apply;
use crate::failure::Failure;
use crate::json;
use crate::json::Fault;
use crate::kind::Subresource;
use crate::scale;
use crate::store::State;

/// A manager's configuration, and whether it overrides other owners.
pub(crate) struct Config {
    value: Value,
    force: bool,
}

impl Config {
    /// Reads a body of YAML, or of JSON, which is YAML too. Keys that are there twice are faults, or refused.
    pub(crate) fn parse(body: &[u8], force: bool, validation: Validation) -> Result<(Self, Vec<Fault>), Failure> {
        let refused = |why: &str| Failure::bad_request(format!("error decoding YAML: {why}"));
        let (value, twice) = match serde_json::from_slice(body) {
            Ok(value) => (value, json_keys_twice(body)),
            Err(_) => {
                let text = std::str::from_utf8(body).map_err(|_| refused("the body is not UTF-8"))?;
                yaml(text).map_err(|why| refused(&format!("error converting YAML to JSON: yaml: {why}")))?
            }
        };
        if validation == Validation::Strict && !twice.is_empty() {
            let lines = twice.join("\n  ");
            let why = format!("error converting YAML to JSON: yaml: unmarshal errors:\n  {lines}");
            return Err(Failure::bad_request(format!("error strict decoding YAML: {why}")));
        }
        if !value.is_object() {
            let why = json::not_an_object(&value);
            return Err(refused(&format!("error unmarshaling JSON: while decoding JSON: {why}")));
        }
        let faults = twice.into_iter().map(|text| Fault { path: String::new(), text }).collect();
        Ok((Self { value, force }, faults))
    }

    pub(super) fn value(&self) -> &Value {
        &self.value
    }

    /// The live object with the configuration applied, owners included.
    pub(super) fn applied(
        &self,
        target: &Target,
        live: Option<&Value>,
        options: &WriteOptions,
    ) -> Result<Value, Failure> {
        let config = if target.subresource == Some(Subresource::Scale) {
            // A Scale's replicas are those of its object; its manager owns those and nothing else.
            scale::applied(target.description(), live.unwrap_or(&Value::Null), &self.value)?;
            let kind = target.description();
            serde_json::json!({
                "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": target.key.name},
                "spec": {"replicas": self.value["spec"]["replicas"]},
            })
        } else {
            self.check(target)?;
            self.value.clone()
        };
        owners::as_writer(target, options, |node, writer| apply::apply(node, live, &config, self.force, writer))
    }

    /// Refuses a configuration of another version, or one that is not an object.
    fn check(&self, target: &Target) -> Result<(), Failure> {
        let expected = target.description().api_version();
        let given = self.value["apiVersion"].as_str().unwrap_or_default();
        if given != expected {
            let (group, kind) = (if given.contains('/') { "" } else { "/" }, &self.value["kind"]);
            let kind = kind.as_str().unwrap_or_default();
            return Err(Failure::bad_request(format!("invalid object type: {group}{given}, Kind={kind}")));
        }
        if !matches!(&self.value["metadata"], Value::Null | Value::Object(_)) {
            return Err(Failure::bad_request("metadata must be an object"));
        }
        Ok(())
    }
}

/// Keys that are there twice in JSON, as a reader of YAML says it.
fn json_keys_twice(body: &[u8]) -> Vec<String> {
    // In one line, as clients write it, the line is known.
    let line = if body.contains(&b'\n') { "" } else { "line 1: " };
    let key = |path: String| path.rsplit('.').next().unwrap_or_default().to_owned();
    json::twice(body).into_iter().map(|path| format!("{line}key \"{}\" already set in map", key(path))).collect()
}

/// Reads a body of YAML, one document.
pub(crate) fn read_yaml(body: &[u8]) -> Result<Value, Failure> {
    let text = std::str::from_utf8(body).map_err(|_| "the body is not UTF-8".to_owned());
    let read = text.and_then(|text| yaml(text).map_err(|why| format!("yaml: {why}")));
    read.map(|(value, _)| value)
        .map_err(|why| Failure::bad_request(format!("the object provided is unrecognized: {why}")))
}

/// Reads YAML. Gives the value, in which the last of two equal keys counts, and a complaint about the first such key.
fn yaml(text: &str) -> Result<(Value, Vec<String>), String> {
    match serde_saphyr::from_str::<Value>(text) {
        Ok(value) => Ok((value, Vec::new())),
        Err(why) => {
            let complaint = complaint(&why);
            let serde_saphyr::Error::DuplicateMappingKey { .. } = why.without_snippet() else {
                return Err(complaint);
            };
            let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins };
            let value = serde_saphyr::from_str_with_options(text, options).map_err(|why| self::complaint(&why))?;
            Ok((value, vec![complaint]))
        }
    }
}

/// The fault of a YAML text and its line, without the library's advice.
fn complaint(why: &serde_saphyr::Error) -> String {
    let line = why.location().map(|location| format!("line {}: ", location.line())).unwrap_or_default();
    if let serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } = why.without_snippet() {
        return format!("{line}key \"{key}\" already set in map");
    }
    let text = why.without_snippet().to_string();
    let plain = text.lines().next().unwrap_or_default();
    let plain = plain.split(" at line ").next().unwrap_or_default();
    format!("{line}{}", plain.split([';', '(']).next().unwrap_or_default().trim_end())
}

/// Checks an edit of an object, which an apply may create.
pub(crate) fn apply(state: &State, target: &Target, edit: &Edit, options: &WriteOptions) -> Result<Checked, Failure> {
    let Edit::Apply(config) = edit else {
        return update::edit(state, target, edit, options);
    };
    if state.get(&target.kind, &target.key).is_some() {
        return update::edit(state, target, edit, options);
    }
    let kind = target.description();
    if target.subresource.is_some() {
        return Err(Failure::not_found(kind, &target.key.name));
    }
    let uid = config.value["metadata"]["uid"].as_str().unwrap_or_default();
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(Failure::conflict(kind, &target.key.name, &why));
    }
    let mut object = config.applied(target, None, options)?;
    if object["metadata"]["name"].as_str().unwrap_or_default().is_empty() {
        let name = &target.key.name;
        let why = "was undeterminable: name must be provided";
        return Err(Failure::bad_request(format!("the name of the object ({name} based on URL) {why}")));
    }
    let warnings = admit::fit(kind, &mut object, options)?;
    admit::check_place(target, &mut object)?;
    let place = Target { key: crate::store::Key { name: String::new(), ..target.key.clone() }, ..target.clone() };
    create::insert(state, &place, object, options, &Tracking::Settled, warnings)
}
