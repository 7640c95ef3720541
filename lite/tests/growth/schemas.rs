//! The lists of all kinds, found in the server's own OpenAPI documents.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use tidegate_lite::LiteService;

use super::work::Call;

/// The names of components whose texts have a form.
const FORMS: &[(&str, &str)] = &[
    ("Quantity", "1"),
    ("IntOrString", "1"),
    ("meta.v1.Time", "2020-01-01T00:00:00Z"),
    ("MicroTime", "2020-01-01T00:00:00.000000Z"),
];
const DEPTH_MAX: usize = 14;

/// A list of a kind: the path of the collection, and an object with the list at its place.
pub(crate) struct ListOfKind {
    pub(crate) path: String,
    /// The place, as `Pod.spec.containers`.
    pub(crate) name: String,
    kind: Value,
    /// The fields on the way, and whether each is a list.
    fields: Vec<(String, bool)>,
    element: Value,
    components: Map<String, Value>,
}

/// Every list of every kind. A type's list is there once, at the first place where the type is.
pub(crate) async fn all(service: &LiteService) -> Vec<ListOfKind> {
    let index = read(service, "/openapi/v3").await;
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for path in index["paths"].as_object().unwrap().keys() {
        let document = read(service, &format!("/openapi/v3/{path}")).await;
        let components = document["components"]["schemas"].as_object().unwrap();
        for (path, operations) in document["paths"].as_object().unwrap() {
            let post = &operations["post"];
            let Some(root) = post["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].as_str() else {
                continue;
            };
            let mut search = Search { components, seen: &mut seen, fields: Vec::new(), found: Vec::new() };
            search.visit(root, &json!({"$ref": root}));
            let kind = &post["x-kubernetes-group-version-kind"];
            found.extend(search.found.into_iter().map(|(fields, element)| {
                let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
                ListOfKind {
                    path: path.replace("{namespace}", "default"),
                    name: format!("{}.{}", kind["kind"].as_str().unwrap(), names.join(".")),
                    kind: kind.clone(),
                    fields,
                    element,
                    components: components.clone(),
                }
            }));
        }
    }
    found
}

async fn read(service: &LiteService, path: &str) -> Value {
    let (code, body) = Call::new("GET", path, &Value::Null).send(service).await;
    assert_eq!(code, 200, "{path}");
    serde_json::from_slice(&body).unwrap()
}

fn resolved<'a>(components: &'a Map<String, Value>, schema: &'a Value) -> (&'a str, &'a Value) {
    let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
    let name = reference.and_then(|reference| reference.rsplit('/').next());
    name.map_or(("", schema), |name| (name, &components[name]))
}

struct Search<'a> {
    components: &'a Map<String, Value>,
    /// The lists found so far: the type, and its field.
    seen: &'a mut BTreeSet<(String, String)>,
    fields: Vec<(String, bool)>,
    found: Vec<(Vec<(String, bool)>, Value)>,
}

impl Search<'_> {
    fn visit(&mut self, of: &str, schema: &Value) {
        let (_, schema) = resolved(self.components, schema);
        let Some(properties) = schema["properties"].as_object().filter(|_| self.fields.len() < DEPTH_MAX) else {
            return;
        };
        for (name, property) in properties {
            let (of_field, whole) = resolved(self.components, property);
            let is_list = whole["type"] == "array";
            if (is_list || whole["properties"].is_object()) && !self.seen.insert((of.to_owned(), name.clone())) {
                continue;
            }
            self.fields.push((name.clone(), is_list));
            if is_list {
                self.found.push((self.fields.clone(), whole["items"].clone()));
                let (of_element, _) = resolved(self.components, &whole["items"]);
                self.visit(of_element, &whole["items"]);
            } else {
                self.visit(of_field, whole);
            }
            self.fields.pop();
        }
    }
}

/// The size of the largest body of a measured request, in bytes; the server takes 3 MiB.
const BODY_BYTES_MAX: usize = 5 << 19;

impl ListOfKind {
    /// The greatest number of elements that fits into a request; in short lists the work of pairs would be
    /// little beside that of reading them.
    pub(crate) fn longest(&self) -> usize {
        let of_one = self.object(1_000).to_string().len() / 1_000 + 3;
        (BODY_BYTES_MAX / of_one).min(32_000)
    }

    /// An object whose list has so many elements, all different.
    pub(crate) fn object(&self, length: usize) -> Value {
        let list = (0..length).map(|nth| self.value(&self.element, nth, 0)).collect();
        let way = self.fields.iter().rev().enumerate();
        let mut object = way.fold(Value::Array(list), |below, (nth, (name, is_list))| {
            json!({name: if *is_list && nth > 0 { Value::Array(vec![below]) } else { below }})
        });
        let group = self.kind["group"].as_str().filter(|group| !group.is_empty()).map(|group| format!("{group}/"));
        object["apiVersion"] =
            format!("{}{}", group.unwrap_or_default(), self.kind["version"].as_str().unwrap()).into();
        object["kind"] = self.kind["kind"].clone();
        object["metadata"]["name"] = "x".into();
        object
    }

    /// A value that the schema allows, which is another one for each `nth`.
    fn value(&self, schema: &Value, nth: usize, depth: usize) -> Value {
        let (name, schema) = resolved(&self.components, schema);
        if let Some((_, form)) = FORMS.iter().find(|(of, _)| name.ends_with(of)) {
            return (*form).into();
        }
        match (schema["type"].as_str(), schema["format"].as_str()) {
            (Some("string"), Some("byte")) => "eA==".into(),
            (Some("string"), _) => format!("x{nth}").into(),
            (Some("integer" | "number"), _) => (nth + 1).into(),
            (Some("boolean"), _) => false.into(),
            (Some("array"), _) => json!([]),
            _ => {
                let fields = schema["properties"].as_object().into_iter().flatten().filter(|_| depth < 2);
                fields.map(|(name, below)| (name.clone(), self.value(below, nth, depth + 1))).collect()
            }
        }
    }
}
