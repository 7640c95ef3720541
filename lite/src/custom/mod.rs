//! Custom kinds: what a CustomResourceDefinition says of one version of its kind.

mod cel;
mod columns;
mod definition;
mod names;
mod path;
mod schema;

use std::sync::Arc;

use serde_json::{Map, Value, json};

pub(crate) use self::columns::Column;
pub(crate) use self::definition::kinds;
pub(crate) use self::names::{Names, Used, condition, judge, set_condition};
pub(crate) use self::path::Path;
pub(crate) use self::schema::{List, Schema, Type};
use crate::failure::Causes;
use crate::kind::{Kind, KindId, Place, group_version};
use crate::scale::Paths;
use crate::store::Object;

/// Reads the schema of a version of a definition, and complains of what is wrong with it.
pub(crate) fn read_schema(version: &Value, field: &str, causes: &mut Causes) -> Schema {
    schema::read(&version["schema"]["openAPIV3Schema"], field, causes)
}

/// Complains of an object that does not fit its schema.
pub(crate) fn check(kind: &Kind, object: &Value, old: Option<&Value>, causes: &mut Causes) {
    let Some(custom) = kind.custom() else { return };
    schema::validate(&custom.schema, object, old, causes);
    if !schema::blocks(causes) {
        cel::run(&custom.schema, object, old, causes);
    } else if custom.schema.has_rules {
        let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        causes.invalid("<nil>", &Value::Null, why);
    }
}

/// Fills in what is absent of an object that already has its form.
pub(crate) fn fill(kind: &Kind, object: &mut Value) {
    if let Some(custom) = kind.custom() {
        schema::fill(&custom.schema, object);
    }
}

/// Brings an object from outside into its form: what its schema does not know is dropped and told, and what is absent has
/// its default.
///
/// # Errors
/// Says what cannot be read at all.
pub(crate) fn fit(schema: &Schema, object: &mut Value) -> Result<Vec<String>, String> {
    schema::normalise(object);
    let mut unknown = schema::coerce(schema, object)?;
    unknown.extend(schema::prune(schema, object));
    schema::fill(schema, object);
    unknown.sort();
    Ok(unknown)
}

/// The finalizer that holds a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// One definition as it is served.
pub(crate) struct Defined {
    pub(crate) uid: String,
    pub(crate) generation: u64,
    pub(crate) place: Place,
    /// One of each served version.
    pub(crate) kinds: Vec<KindId>,
}

/// What a version of a definition says beyond the names.
#[derive(Debug)]
pub(crate) struct Custom {
    /// `group/version` of what is stored.
    pub(crate) storage: String,
    /// Different for every specification that a definition has had.
    pub(crate) revision: String,
    /// Where objects have their replicas, if they can be scaled.
    pub(crate) scale: Option<Paths>,
    /// What is printed of objects after their names.
    pub(crate) columns: Vec<Column>,
    /// What objects may hold.
    pub(crate) schema: Arc<Schema>,
    /// `openAPIV3Schema` as it was given.
    source: Value,
}

impl Custom {
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

impl KindId {
    /// An object of this kind as it is kept: in the version that its definition names for storage.
    pub(crate) fn stored(&self, mut object: Value) -> Value {
        if let Some(custom) = self.row().custom() {
            object["apiVersion"] = custom.storage.clone().into();
        }
        object
    }

    /// A stored object as this version of the kind shows it.
    pub(crate) fn shown(&self, object: &Arc<Object>) -> Arc<Object> {
        let row = self.row();
        match row.custom() {
            Some(custom) if custom.storage != row.api_version() => {
                Arc::new(Object::new(self.read(object.value()), object.version()))
            }
            Some(_) | None => object.clone(),
        }
    }

    /// Whether stored objects are shown as they are.
    pub(crate) fn shows_stored(&self) -> bool {
        let row = self.row();
        row.custom().is_none_or(|custom| custom.storage == row.api_version())
    }

    /// An object of any version of a custom kind, read by this one. Versions differ in nothing but their schemas: the
    /// strategy of conversion is None.
    pub(crate) fn read(&self, object: &Value) -> Value {
        let row = self.row();
        let mut read = object.clone();
        read["apiVersion"] = group_version(&row.group, &row.version).into();
        if let Some(custom) = row.custom() {
            drop(schema::prune(&custom.schema, &mut read));
            schema::fill(&custom.schema, &mut read);
        }
        read
    }
}
