//! Tables for people, as `kubectl get` requests them.

use serde_json::{Value, json};

use super::{columns, form};
use crate::custom::{Column, Custom};
use crate::kind::Kind;

/// A Table of objects. `include` is the request's `includeObject`: None, Metadata or Object.
pub(super) fn of<'a>(
    kind: &Kind,
    objects: impl Iterator<Item = &'a Value>,
    version: &str,
    include: &str,
    unix_seconds: u64,
) -> Value {
    if let Some(custom) = kind.custom() {
        return of_custom(custom, objects, version, include, unix_seconds);
    }
    of_columns(&columns::of(kind), objects, version, include, unix_seconds)
}

/// The Table of a Scale.
pub(super) fn of_scale(scale: &Value, version: &str, include: &str, unix_seconds: u64) -> Value {
    of_columns(columns::of_scale(), std::iter::once(scale), version, include, unix_seconds)
}

fn of_columns<'a>(
    columns: &[columns::Column],
    objects: impl Iterator<Item = &'a Value>,
    version: &str,
    include: &str,
    unix_seconds: u64,
) -> Value {
    let definitions: Vec<Value> = columns.iter().map(columns::Column::definition).collect();
    let rows = objects
        .map(|object| row(columns.iter().map(|one| one.cell(object, unix_seconds).into()).collect(), object, include));
    table(version, &rows.collect::<Vec<_>>(), &definitions)
}

/// The columns are those of the definition, and their cells have types.
fn of_custom<'a>(
    custom: &Custom,
    objects: impl Iterator<Item = &'a Value>,
    version: &str,
    include: &str,
    unix_seconds: u64,
) -> Value {
    let name = json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0});
    let mut definitions = vec![name];
    definitions.extend(custom.columns.iter().map(Column::definition));
    let rows = objects.map(|object| {
        let mut cells = vec![object["metadata"]["name"].clone()];
        cells.extend(custom.columns.iter().map(|column| column.cell(object, unix_seconds)));
        row(cells, object, include)
    });
    table(version, &rows.collect::<Vec<_>>(), &definitions)
}

fn row(cells: Vec<Value>, object: &Value, include: &str) -> Value {
    let shown = match include {
        "None" => Value::Null,
        "Object" => object.clone(),
        _ => form::metadata(object),
    };
    json!({"cells": cells, "object": shown})
}

fn table(version: &str, rows: &[Value], definitions: &[Value]) -> Value {
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": version},
        "rows": rows, "columnDefinitions": definitions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{KindId, Kinds};

    #[test]
    fn ages_are_short() {
        let kind = &KindId::built_in("Namespace").unwrap();
        let age = |object: &Value, now| {
            of(kind.description(), std::iter::once(object), "", "None", now)["rows"][0]["cells"][2].clone()
        };
        let object = json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}});
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (125, "2m5s"),
            (660, "11m"),
            (11_100, "3h5m"),
            (100_000, "27h"),
            (900_000, "10d"),
            (365 * 86_400, "365d"),
            (800 * 86_400, "2y70d"),
            (3_000 * 86_400, "8y"),
        ] {
            assert_eq!(age(&object, seconds), expected);
        }
        assert_eq!(age(&json!({}), 5), "<unknown>");
    }

    #[test]
    fn a_service_is_a_row() {
        let kind = &KindId::built_in("Service").unwrap();
        let service = json!({
            "metadata": {"name": "web", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"type": "NodePort", "clusterIP": "10.96.0.1", "ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}]},
        });
        let table = of(kind.description(), std::iter::once(&service), "7", "None", 60);
        assert_eq!(
            table["rows"][0]["cells"],
            json!(["web", "NodePort", "10.96.0.1", "<none>", "80:30000/TCP", "60s", "<none>"])
        );
        assert_eq!(table["columnDefinitions"].as_array().unwrap().len(), 7);
    }

    #[test]
    fn every_kind_can_be_a_table() {
        for kind in Kinds::built_in().iter().map(KindId::description) {
            let empty = json!({"metadata": {"name": "x"}});
            let table = of(kind, std::iter::once(&empty), "1", "", 0);
            let columns = table["columnDefinitions"].as_array().unwrap().iter();
            let name = columns.clone().position(|column| column["format"] == "name").unwrap();
            assert_eq!(table["rows"][0]["cells"][name], "x", "{}", kind.kind);
            assert_eq!(table["rows"][0]["cells"].as_array().unwrap().len(), columns.len(), "{}", kind.kind);
        }
    }
}
