//! The schema of a definition becomes one to check objects with, or is refused.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

use crate::causes::Causes;
use crate::custom::cel;
use crate::custom::model::{Additional, Bound, Checks, List, Range, Schema, Type, Values};

/// Schemas within schemas.
const DEPTH_MAX: usize = 64;
/// Schemas in one definition's version.
const SCHEMAS_MAX: usize = 50_000;

/// The fields that a structural schema must not have.
const UNSUPPORTED: &[&str] = &["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

/// Fields that describe only the structure, and are therefore not allowed under `allOf`, `anyOf`, `oneOf` and `not`.
const STRUCTURE: &[(&str, &str)] = &[
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];

/// Reads the schema at `field` of a definition, and reports its faults.
pub(crate) fn read(schema: &Value, field: &str, causes: &mut Causes) -> Schema {
    let mut reader = Reader { causes, read: 0 };
    let read = reader.structure(schema, field, Level::Root, 0);
    if reader.read > SCHEMAS_MAX {
        let why = format!("must not have more than {SCHEMAS_MAX} schemas");
        reader.causes.forbidden(field, &why);
    }
    read
}

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Field,
    Item,
}

struct Reader<'a> {
    causes: &'a mut Causes,
    read: usize,
}

fn flag(schema: &Value, key: &str) -> bool {
    schema[key] == true
}

impl Reader<'_> {
    /// Counts a schema; `false` if there are too many, or it is too deep.
    fn enter(&mut self, field: &str, depth: usize) -> bool {
        self.read += 1;
        if depth > DEPTH_MAX {
            let why = format!("must not be nested deeper than {DEPTH_MAX} schemas");
            self.causes.forbidden(field, &why);
            return false;
        }
        self.read <= SCHEMAS_MAX
    }

    fn structure(&mut self, schema: &Value, field: &str, level: Level, depth: usize) -> Schema {
        if !self.enter(field, depth) {
            return Schema::default();
        }
        if !schema.is_object() {
            self.causes.invalid(field, schema, "must be a schema object");
            return Schema::default();
        }
        for key in UNSUPPORTED.iter().filter(|key| !schema[**key].is_null()) {
            self.causes.forbidden(format!("{field}.{key}"), &format!("{key} is not supported"));
        }
        let mut read = Schema {
            kind: self.kind(schema, field),
            int_or_string: flag(schema, "x-kubernetes-int-or-string"),
            nullable: flag(schema, "nullable"),
            preserve: flag(schema, "x-kubernetes-preserve-unknown-fields"),
            embedded: flag(schema, "x-kubernetes-embedded-resource"),
            default: schema.get("default").filter(|default| !default.is_null()).cloned(),
            atomic: schema["x-kubernetes-map-type"] == "atomic",
            checks: self.checks(schema, field, depth),
            ..Schema::default()
        };
        for (key, below) in schema["properties"].as_object().into_iter().flatten() {
            let field = format!("{field}.properties[{key}]");
            read.properties.insert(key.clone(), self.structure(below, &field, Level::Field, depth + 1));
        }
        match &schema["additionalProperties"] {
            Value::Bool(true) => read.additional = Some(Additional::Allowed),
            Value::Object(_) => {
                let below = &schema["additionalProperties"];
                let field = format!("{field}.additionalProperties");
                let below = self.structure(below, &field, Level::Field, depth + 1);
                read.additional = Some(Additional::Schema(Box::new(below)));
            }
            Value::Bool(false) | Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {}
        }
        if schema["items"].is_array() {
            self.causes.forbidden(format!("{field}.items"), "items must be a schema object and not an array");
        } else if !schema["items"].is_null() {
            let below = self.structure(&schema["items"], &format!("{field}.items"), Level::Item, depth + 1);
            read.items = Some(Box::new(below));
        }
        self.list(schema, &mut read, field);
        self.invariants(schema, &read, field, level);
        self.default(&read, &format!("{field}.default"));
        read.rules = cel::read(schema, &read, level == Level::Root, field, self.causes);
        read.has_rules = !read.rules.is_empty()
            || read.properties.values().any(|below| below.has_rules)
            || read.items.as_ref().is_some_and(|below| below.has_rules)
            || matches!(&read.additional, Some(Additional::Schema(below)) if below.has_rules);
        read
    }

    fn kind(&mut self, schema: &Value, field: &str) -> Option<Type> {
        let name = schema["type"].as_str().filter(|name| !name.is_empty())?;
        let kind = Type::parse(name);
        if kind.is_none() {
            let types = ["array", "boolean", "integer", "number", "object", "string"];
            self.causes.unsupported(format!("{field}.type"), &name.into(), &types);
        }
        kind
    }

    /// The rules for a structure as a whole.
    fn invariants(&mut self, schema: &Value, read: &Schema, field: &str, level: Level) {
        let causes = &mut self.causes;
        let kind = format!("{field}.type");
        if read.kind == Some(Type::Array) && read.items.is_none() && schema["items"].is_null() {
            causes.required(format!("{field}.items"), "must be specified");
        }
        if read.additional.is_some() && level == Level::Root {
            causes.forbidden(format!("{field}.additionalProperties"), "must not be used at the root");
        }
        if read.additional.is_some() && !read.properties.is_empty() {
            let why = "additionalProperties and properties are mutual exclusive";
            causes.forbidden(format!("{field}.additionalProperties"), why);
        }
        if flag(schema, "uniqueItems") {
            let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            causes.forbidden(format!("{field}.uniqueItems"), why);
        }
        if schema["x-kubernetes-preserve-unknown-fields"] == false {
            let field = format!("{field}.x-kubernetes-preserve-unknown-fields");
            causes.invalid(field, &false.into(), "must be true or undefined");
        }
        match (read.kind, level) {
            (Some(Type::Object), _) => {}
            (Some(_), Level::Root) => causes.invalid(&kind, &schema["type"], "must be object at the root"),
            (Some(_), _) if read.embedded => {
                let why = "must be object if x-kubernetes-embedded-resource is true";
                causes.invalid(&kind, &schema["type"], why);
            }
            (Some(_), _) => {}
            (None, _) if read.embedded => {
                causes.required(&kind, "must be object if x-kubernetes-embedded-resource is true");
            }
            (None, _) if read.int_or_string || read.preserve || !schema["type"].is_null() => {}
            (None, Level::Root) => causes.required(&kind, "must not be empty at the root"),
            (None, Level::Item) => causes.required(&kind, "must not be empty for specified array items"),
            (None, Level::Field) => causes.required(&kind, "must not be empty for specified object fields"),
        }
        if read.embedded && !read.preserve && read.properties.is_empty() {
            let why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
            causes.required(format!("{field}.properties"), why);
        }
        if level == Level::Root && read.nullable {
            causes.forbidden(format!("{field}.nullable"), "nullable cannot be true at the root");
        }
        if level == Level::Root {
            let metadata = schema["properties"]["metadata"].as_object().into_iter().flatten();
            let names = |value: &Value| {
                value.as_object().is_some_and(|names| names.keys().all(|key| key == "name" || key == "generateName"))
            };
            let more = |(key, value): (&String, &Value)| match key.as_str() {
                "type" | "description" => false,
                "properties" => !names(value),
                _ => true,
            };
            if metadata.into_iter().any(more) {
                let why =
                    "must not specify anything other than name and generateName, but metadata is implicitly specified";
                causes.forbidden(format!("{field}.properties[metadata]"), why);
            }
        }
    }

    /// A default must be valid by its own schema.
    fn default(&mut self, read: &Schema, field: &str) {
        let Some(default) = &read.default else { return };
        let mut filled = default.clone();
        if !super::prune(read, &mut filled).is_empty() {
            self.causes.invalid(field, default, "must not have unknown fields");
        }
        super::fill(read, &mut filled);
        let mut causes = Causes::default();
        super::check::check(read, &filled, "", &mut causes);
        for cause in causes.0 {
            // The default is a root of its own, so that the words name places within it.
            let field = match cause.field.as_str() {
                "" => field.to_owned(),
                "<nil>" => cause.field,
                below => format!("{field}.{below}"),
            };
            self.causes.push(cause.reason, field, || cause.message);
        }
    }

    fn list(&mut self, schema: &Value, read: &mut Schema, field: &str) {
        let keys_field = format!("{field}.x-kubernetes-list-map-keys");
        let causes = &mut self.causes;
        let keys: Vec<String> = texts(&schema["x-kubernetes-list-map-keys"]);
        let kind = &schema["x-kubernetes-list-type"];
        if !kind.is_null() && read.kind != Some(Type::Array) {
            let why = "must be array if x-kubernetes-list-type is specified";
            causes.invalid(format!("{field}.type"), &schema["type"], why);
        }
        if !keys.is_empty() && kind != "map" {
            let why = "must be map if x-kubernetes-list-map-keys is non-empty";
            if kind.is_null() {
                causes.required(format!("{field}.x-kubernetes-list-type"), why);
            } else {
                causes.invalid(format!("{field}.x-kubernetes-list-type"), kind, why);
            }
        }
        match kind.as_str() {
            None | Some("atomic") => {}
            Some("set") => {
                let whole = |items: &Schema| match items.kind {
                    Some(Type::Object) => items.atomic,
                    Some(Type::Array) => items.list == List::Atomic,
                    Some(Type::String | Type::Integer | Type::Number | Type::Boolean) | None => true,
                };
                if let Some(items) = read.items.as_deref().filter(|items| !whole(items)) {
                    let key = if items.kind == Some(Type::Object) { "map" } else { "list" };
                    let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
                    let field = format!("{field}.items.x-kubernetes-{key}-type");
                    causes.invalid(field, &schema["items"][format!("x-kubernetes-{key}-type")], why);
                }
                read.list = List::Set;
            }
            Some("map") => {
                if keys.is_empty() {
                    causes.required(&keys_field, "must not be empty if x-kubernetes-list-type is map");
                }
                let items = read.items.as_deref().filter(|items| items.kind == Some(Type::Object));
                if items.is_none() {
                    let why = "must be object if parent array's x-kubernetes-list-type is map";
                    causes.invalid(format!("{field}.items.type"), &schema["items"]["type"], why);
                }
                let required: BTreeSet<&String> = items.iter().flat_map(|items| &items.checks.required).collect();
                for key in &keys {
                    let Some(items) = items else { break };
                    let Some(below) = items.properties.get(key) else {
                        let why = "entries must all be names of item properties";
                        causes.invalid(&keys_field, &schema["x-kubernetes-list-map-keys"], why);
                        continue;
                    };
                    if below.default.is_none() && !required.contains(key) {
                        let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                        causes.required(format!("{field}.items.properties[{key}].default"), why);
                    }
                }
                read.list = List::Map(keys);
            }
            Some(_) => {
                causes.unsupported(format!("{field}.x-kubernetes-list-type"), kind, &["atomic", "set", "map"]);
            }
        }
    }

    /// A schema under `allOf`, `anyOf`, `oneOf` or `not`: checks of a structure that is described elsewhere.
    fn more(&mut self, schema: &Value, field: &str, depth: usize, typed: bool) -> Schema {
        if !self.enter(field, depth) {
            return Schema::default();
        }
        for (key, why) in STRUCTURE {
            if !schema[*key].is_null() && schema[*key] != false && !(typed && *key == "type") {
                self.causes.forbidden(format!("{field}.{key}"), why);
            }
        }
        let kind = if typed { self.kind(schema, field) } else { None };
        let mut read = Schema { kind, checks: self.checks(schema, field, depth), ..Schema::default() };
        for (key, below) in schema["properties"].as_object().into_iter().flatten() {
            let field = format!("{field}.properties[{key}]");
            read.properties.insert(key.clone(), self.more(below, &field, depth + 1, false));
        }
        if schema["items"].is_object() {
            read.items = Some(Box::new(self.more(&schema["items"], &format!("{field}.items"), depth + 1, false)));
        }
        read
    }

    fn checks(&mut self, schema: &Value, field: &str, depth: usize) -> Checks {
        let number = |key: &str| schema[key].as_u64();
        let range = |least: &str, most: &str| Range { least: number(least), most: number(most) };
        let bound = |key: &str, exclusive: &str| {
            schema[key].as_f64().map(|value| Bound { value, exclusive: flag(schema, exclusive) })
        };
        // A number or a string may be told so in two ways, which alone may name types.
        let either = flag(schema, "x-kubernetes-int-or-string");
        let mut many = |key: &str, typed: bool| -> Vec<Schema> {
            let list = schema[key].as_array().into_iter().flatten().enumerate();
            list.map(|(nth, one)| self.more(one, &format!("{field}.{key}[{nth}]"), depth + 1, typed)).collect()
        };
        let (all, any, one) = (many("allOf", false), many("anyOf", either), many("oneOf", false));
        let not = schema["not"]
            .is_object()
            .then(|| Box::new(self.more(&schema["not"], &format!("{field}.not"), depth + 1, false)));
        Checks {
            format: schema["format"].as_str().unwrap_or_default().to_owned(),
            pattern: self.pattern(schema, field),
            length: range("minLength", "maxLength"),
            items: range("minItems", "maxItems"),
            fields: range("minProperties", "maxProperties"),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: schema["multipleOf"].as_f64(),
            required: texts(&schema["required"]),
            values: schema["enum"]
                .as_array()
                .map(|list| Values { list: list.clone(), set: list.iter().cloned().collect() }),
            all,
            any,
            one,
            not,
        }
    }

    fn pattern(&mut self, schema: &Value, field: &str) -> Option<(String, Regex)> {
        let text = schema["pattern"].as_str().filter(|text| !text.is_empty())?;
        let built = cel::pattern(text).map_err(|why| {
            let why = format!("must be a valid regular expression, but isn't: {why}");
            self.causes.invalid(format!("{field}.pattern"), &text.into(), &why);
        });
        Some((text.to_owned(), built.ok()?))
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
