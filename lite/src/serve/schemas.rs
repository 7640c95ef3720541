//! The schemas of built-in kinds, as Kubernetes publishes them with their descriptions (k8s-openapi). What those leave
//! out is added: how a strategic merge treats a field, and which values a text or number may have.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::fields::schema::{self, Join, Retain, Shape};
use crate::kind::{Describe, Form, Kind, describe};

/// Where references lead.
const COMPONENTS: &str = "#/components/schemas/";
/// The types that are a text or a number.
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";

/// The components of a document of OpenAPI v3, added kind by kind.
pub(super) struct Components {
    generator: SchemaGenerator,
    custom: Map<String, Value>,
}

impl Components {
    pub(super) fn new() -> Self {
        Self { generator: SchemaSettings::openapi3().into_generator(), custom: Map::new() }
    }

    /// Adds a kind and every type that it names, and gives the name of its component.
    pub(super) fn add(&mut self, kind: &Kind) -> String {
        match &kind.form {
            Form::BuiltIn(_) => match describe(&kind.group, &kind.kind) {
                Some(describe) => self.name(describe),
                // Of a kind of another server nothing is known but that it has objects.
                None => self.insert(kind, json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})),
            },
            Form::Custom(custom) => {
                let metadata = self.name(SchemaGenerator::subschema_for::<ObjectMeta>);
                self.insert(kind, custom.openapi(&metadata))
            }
        }
    }

    fn insert(&mut self, kind: &Kind, schema: Value) -> String {
        let reversed: Vec<&str> = kind.group.rsplit('.').filter(|part| !part.is_empty()).collect();
        let name = [&*reversed.join("."), &kind.version, &kind.kind]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(".");
        self.custom.insert(name.clone(), schema);
        name
    }

    fn name(&mut self, describe: Describe) -> String {
        let reference = describe(&mut self.generator);
        let reference = reference.get("$ref").and_then(Value::as_str).unwrap_or_default();
        reference.strip_prefix(COMPONENTS).unwrap_or(reference).to_owned()
    }

    /// All of them by name.
    pub(super) fn finish(mut self) -> Map<String, Value> {
        let mut all = self.generator.take_definitions(true);
        for (name, component) in &mut all {
            // Kubernetes' own schemas ask nobody for metadata; k8s-openapi does, for its types always have them.
            if let Some(Value::Array(required)) = component.get_mut("required") {
                required.retain(|field| field != "metadata");
                if required.is_empty() {
                    component.as_object_mut().and_then(|component| component.remove("required"));
                }
            }
            let Some(fields) = name.rsplit('.').next().and_then(|of| schema::types().get(of)) else { continue };
            for (field, shape) in fields {
                if let Some(property) = component["properties"].get_mut(*field) {
                    tell_strategy(shape, property);
                    tell_values(shape, property);
                }
            }
        }
        for (name, other, format) in [(INT_OR_STRING, "integer", Some("int-or-string")), (QUANTITY, "number", None)] {
            if let Some(Value::Object(component)) = all.get_mut(name) {
                component.insert("oneOf".to_owned(), json!([{"type": other}, {"type": "string"}]));
                component.extend(format.map(|format| ("format".to_owned(), format.into())));
            }
        }
        all.append(&mut self.custom);
        all
    }
}

/// Says how a strategic merge treats a field.
fn tell_strategy(shape: &Shape, property: &mut Value) {
    let retains = |shape: &Shape| matches!(shape, Shape::Named(_, Retain::Named));
    let (strategy, key) = match shape.join() {
        Join::ByKey(key) if retains(shape.element()) => ("merge,retainKeys", Some(key)),
        Join::ByKey(key) => ("merge", Some(key)),
        Join::Set => ("merge", None),
        Join::Replace if retains(shape) => ("retainKeys", None),
        Join::Replace => return,
    };
    property["x-kubernetes-patch-strategy"] = strategy.into();
    if let Some(key) = key {
        property["x-kubernetes-patch-merge-key"] = key.into();
    }
}

/// Says which values a text may have, or each text of a list.
fn tell_values(shape: &Shape, property: &mut Value) {
    match shape {
        Shape::OneOf(values) => property["enum"] = values.as_slice().into(),
        Shape::List(element, _) if property["items"].is_object() => tell_values(element, &mut property["items"]),
        Shape::List(..)
        | Shape::String
        | Shape::Int(_)
        | Shape::Formatted(_)
        | Shape::Bool
        | Shape::IntOrString
        | Shape::Any
        | Shape::Map(_)
        | Shape::Named(..) => {}
    }
}
