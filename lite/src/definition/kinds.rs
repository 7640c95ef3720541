//! A CustomResourceDefinition becomes kinds. The definition has passed the checks of `rules::definition`.

use serde_json::Value;

use super::Names;
use crate::custom::Custom;
use crate::kind::{Form, Kind, KindId, Precedence, Scope, StoreIndex, Subresource, Writes, group_version};

/// The served versions of a definition, by the names that were accepted. Their objects are at `place`.
pub(crate) fn kinds(definition: &Value, place: StoreIndex) -> Vec<KindId> {
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
            deprecation: deprecation(version, spec, &names.kind),
            form: Form::Custom(Custom::read(version, &storage, &revision)),
            writes: Writes::Made,
            place,
        })
    };
    versions().filter(|version| version["served"] == true).map(kind).collect()
}

/// The warning of a deprecated version: its own, or one that names the newest version of the definition that is better.
fn deprecation(version: &Value, spec: &Value, kind: &str) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(given) = version["deprecationWarning"].as_str() {
        return Some(given.to_owned());
    }
    let name = |version: &Value| group_version(&text(&spec["group"]), &text(&version["name"]));
    let rank = |version: &Value| Precedence::of(&text(&version["name"]));
    let versions = spec["versions"].as_array().into_iter().flatten();
    let better = versions.filter(|one| one["served"] == true && one["deprecated"] != true && rank(one) < rank(version));
    let advice = better.min_by_key(|one| rank(one)).map(|best| format!("; use {} {kind}", name(best)));
    Some(format!("{} {kind} is deprecated{}", name(version), advice.unwrap_or_default()))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(others: &[Value], expected: &str) {
        let version = json!({"name": "v1beta1", "served": true, "deprecated": true});
        let mut spec = json!({"group": "example.com", "versions": others});
        spec["versions"].as_array_mut().unwrap().push(version.clone());
        assert_eq!(deprecation(&version, &spec, "Boat").as_deref(), Some(expected));
    }

    #[test]
    fn a_deprecated_version_names_the_one_to_use() {
        let version = |name: &str, served: bool, deprecated: bool| json!({"name": name, "served": served, "deprecated": deprecated});
        let alone = "example.com/v1beta1 Boat is deprecated";
        check(&[], alone);
        check(&[version("v1alpha1", true, false)], alone);
        check(&[version("v1", false, false), version("v2", true, true)], alone);
        let better = [version("v1beta2", true, false), version("v1", true, false), version("v2beta1", true, false)];
        check(&better, &format!("{alone}; use example.com/v1 Boat"));
        let mut own = json!({"name": "v1", "deprecated": true, "deprecationWarning": "do not"});
        assert_eq!(deprecation(&own, &json!({}), "Boat").as_deref(), Some("do not"));
        own["deprecated"] = false.into();
        assert_eq!(deprecation(&own, &json!({}), "Boat"), None);
    }
}
