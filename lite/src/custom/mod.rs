//! Custom kinds: one version of a kind, as its CustomResourceDefinition describes it.

mod cel;
mod columns;
mod format;
mod model;
mod path;
mod replicas;
mod schema;

use std::sync::Arc;

use serde_json::{Map, Value, json};

pub(crate) use self::columns::Column;
pub(crate) use self::model::{List, Schema, Type};
pub(crate) use self::path::Path;
use self::replicas::ReplicaPaths;
use crate::causes::Causes;

/// Reads the schema of a version of a definition, and reports its faults.
pub(crate) fn read_schema(version: &Value, field: &str, causes: &mut Causes) -> Schema {
    schema::read(&version["schema"]["openAPIV3Schema"], field, causes)
}

/// Brings an object from outside into its form: fields unknown to its schema are dropped and reported, and absent
/// fields have its default.
///
/// # Errors
/// Reports values that cannot be read at all.
pub(crate) fn fit(schema: &Schema, object: &mut Value) -> Result<Vec<String>, String> {
    schema::normalise(object);
    let mut unknown = schema::coerce(schema, object)?;
    unknown.extend(schema::prune(schema, object));
    schema::fill(schema, object);
    unknown.sort();
    Ok(unknown)
}

/// The content of a version of a definition, besides the names.
#[derive(Debug)]
pub(crate) struct Custom {
    /// `group/version` of the stored objects.
    pub(crate) storage: String,
    /// Different for every specification that a definition has had.
    pub(crate) revision: String,
    /// Where objects have their replicas, if they can be scaled.
    pub(crate) scale: Option<ReplicaPaths>,
    /// The columns printed after the names of objects.
    pub(crate) columns: Vec<Column>,
    /// The allowed content of objects.
    pub(crate) schema: Arc<Schema>,
    /// `openAPIV3Schema` as it was given.
    source: Value,
}

impl Custom {
    /// Reads a version of a definition that has passed the checks of `rules::definition`.
    pub(crate) fn read(version: &Value, storage: &str, revision: &str) -> Self {
        Self {
            storage: storage.to_owned(),
            revision: revision.to_owned(),
            columns: Column::read(version),
            // It was checked before; an invalid one was refused.
            schema: Arc::new(read_schema(version, "", &mut Causes::default())),
            scale: ReplicaPaths::read(&version["subresources"]["scale"]),
            source: version["schema"]["openAPIV3Schema"].clone(),
        }
    }

    /// Complains of an object that does not fit its schema.
    pub(crate) fn check(&self, object: &Value, old: Option<&Value>, causes: &mut Causes) {
        schema::validate(&self.schema, object, old, causes);
        if !schema::blocks(causes) {
            cel::run(&self.schema, object, old, causes);
        } else if self.schema.has_rules {
            let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            causes.invalid("<nil>", &Value::Null, why);
        }
    }

    /// Fills in the defaults of an object that already has its form.
    pub(crate) fn fill(&self, object: &mut Value) {
        schema::fill(&self.schema, object);
    }

    /// Drops the fields that this version does not have from a stored object of any version, and fills in defaults of
    /// absent fields.
    pub(crate) fn convert(&self, object: &mut Value) {
        drop(schema::prune(&self.schema, object));
        schema::fill(&self.schema, object);
    }

    /// The schema as OpenAPI shows it, with the fields that every object has. `metadata` names the type of those.
    pub(crate) fn openapi(&self, metadata: &str) -> Value {
        const VERSION: &str = "APIVersion defines the versioned schema of this representation of an object.";
        const KIND: &str = "Kind is a string value representing the REST resource this object represents.";
        let mut schema = self.source.clone();
        if !schema.is_object() {
            schema = json!({"type": "object"});
        }
        if !schema["properties"].is_object() {
            schema["properties"] = Value::Object(Map::new());
        }
        schema["properties"]["apiVersion"] = json!({"type": "string", "description": VERSION});
        schema["properties"]["kind"] = json!({"type": "string", "description": KIND});
        schema["properties"]["metadata"] = json!({
            "description": "Standard object's metadata.",
            "allOf": [{"$ref": format!("#/components/schemas/{metadata}")}],
        });
        schema
    }
}
