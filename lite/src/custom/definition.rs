//! A CustomResourceDefinition becomes kinds. What is read here has passed the checks of `rules::definition`.

use std::sync::Arc;

use serde_json::Value;

use super::{Column, Custom, Names, read_schema};
use crate::failure::Causes;
use crate::kind::{Form, Kind, KindId, Place, Scope, Subresource, Writes, group_version};
use crate::scale::Paths;

/// The served versions of a definition, by the names that were accepted. Their objects are at `place`.
pub(crate) fn kinds(definition: &Value, place: Place) -> Vec<KindId> {
    let spec = &definition["spec"];
    let versions = || spec["versions"].as_array().into_iter().flatten();
    let group = text(&spec["group"]);
    let storage = versions().find(|version| version["storage"] == true).map(|version| text(&version["name"]));
    let storage = group_version(&group, &storage.unwrap_or_default());
    let metadata = &definition["metadata"];
    let revision = format!("{}.{}", text(&metadata["uid"]), metadata["generation"]);
    let names = Names::read(&definition["status"]["acceptedNames"]);
    let kind = |version: &Value| {
        KindId::new(Kind {
            group: group.clone(),
            version: text(&version["name"]),
            plural: names.plural.clone(),
            singular: names.singular.clone(),
            kind: names.kind.clone(),
            list_kind: names.list_kind.clone(),
            short: names.short.clone(),
            categories: names.categories.clone(),
            scope: if spec["scope"] == "Cluster" { Scope::Cluster } else { Scope::Namespaced },
            subresources: subresources(version),
            generation: true,
            fields: selectable(version),
            kept: None,
            question: false,
            deprecation: deprecation(version, &group, &names.kind),
            form: Form::Custom(custom(version, &storage, &revision)),
            writes: Writes::Made,
            place,
        })
    };
    versions().filter(|version| version["served"] == true).map(kind).collect()
}

fn custom(version: &Value, storage: &str, revision: &str) -> Custom {
    Custom {
        storage: storage.to_owned(),
        revision: revision.to_owned(),
        columns: Column::read(version),
        // It was checked before; what is wrong with it was refused.
        schema: Arc::new(read_schema(version, "", &mut Causes::default())),
        scale: Paths::read(&version["subresources"]["scale"]),
        source: version["schema"]["openAPIV3Schema"].clone(),
    }
}

/// The warning of a deprecated version.
fn deprecation(version: &Value, group: &str, kind: &str) -> Option<String> {
    let name = group_version(group, &text(&version["name"]));
    let given = version["deprecationWarning"].as_str().map(str::to_owned);
    let warning = || given.unwrap_or_else(|| format!("{name} {kind} is deprecated"));
    (version["deprecated"] == true).then(warning)
}

/// The fields that selectors may name: `.spec.color` as `spec.color`.
fn selectable(version: &Value) -> Vec<String> {
    let fields = version["selectableFields"].as_array().into_iter().flatten();
    fields.map(|field| text(&field["jsonPath"]).trim_start_matches('.').to_owned()).collect()
}

fn subresources(version: &Value) -> Vec<Subresource> {
    let has = |part: &Subresource| version["subresources"][part.name()].is_object();
    [Subresource::Status, Subresource::Scale].into_iter().filter(has).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
