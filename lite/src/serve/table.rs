//! Tables for people, as `kubectl get` requests them.

use serde_json::{Value, json};

use super::{columns, form};
use crate::clock;
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
    let columns = columns::of(kind);
    let definition = |title: &str, format: &str, priority: u8| json!({"name": title, "type": "string", "format": format, "description": "", "priority": priority});
    let mut definitions = vec![definition("Name", "name", 0)];
    definitions.extend(columns.iter().filter(|one| one.priority == 0).map(|one| definition(one.title, "", 0)));
    let made = columns::made(kind);
    definitions.push(definition(made, "", 0));
    definitions
        .extend(columns.iter().filter(|one| one.priority != 0).map(|one| definition(one.title, "", one.priority)));
    let rows = objects.map(|object| {
        let mut cells = vec![object["metadata"]["name"].clone()];
        cells.extend(columns.iter().filter(|one| one.priority == 0).map(|one| one.cell(object, unix_seconds).into()));
        cells.push(if made == "Age" {
            age(object, unix_seconds).into()
        } else {
            object["metadata"]["creationTimestamp"].clone()
        });
        cells.extend(columns.iter().filter(|one| one.priority != 0).map(|one| one.cell(object, unix_seconds).into()));
        row(cells, object, include)
    });
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

fn age(object: &Value, unix_seconds: u64) -> String {
    let Some(created) = object["metadata"]["creationTimestamp"].as_str().and_then(clock::seconds) else {
        return "<unknown>".into();
    };
    clock::age(unix_seconds.saturating_sub(created))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{KindId, Kinds};

    #[test]
    fn ages_are_short() {
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
        let table = of(kind.row(), std::iter::once(&service), "7", "None", 60);
        assert_eq!(
            table["rows"][0]["cells"],
            json!(["web", "NodePort", "10.96.0.1", "<none>", "80:30000/TCP", "60s", "<none>"])
        );
        assert_eq!(table["columnDefinitions"].as_array().unwrap().len(), 7);
    }

    #[test]
    fn every_kind_can_be_a_table() {
        for kind in Kinds::built_in().iter().map(KindId::row) {
            let empty = json!({"metadata": {"name": "x"}});
            assert_eq!(of(kind, std::iter::once(&empty), "1", "", 0)["rows"][0]["cells"][0], "x", "{}", kind.kind);
        }
    }
}
