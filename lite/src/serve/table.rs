//! Tables for people, as `kubectl get` asks for them.

use serde_json::{Value, json};

use super::{columns, form};
use crate::clock;
use crate::kind::Kind;

/// A Table of objects. `include` is the request's `includeObject`: None, Metadata or Object.
pub(super) fn of<'a>(
    kind: &Kind,
    objects: impl Iterator<Item = &'a Value>,
    version: &str,
    include: &str,
    unix_seconds: u64,
) -> Value {
    let columns = columns::of(kind);
    let definition = |title: &str, format: &str, priority: u8| json!({"name": title, "type": "string", "format": format, "description": "", "priority": priority});
    let mut definitions = vec![definition("Name", "name", 0)];
    definitions.extend(columns.iter().filter(|one| one.priority == 0).map(|one| definition(one.title, "", 0)));
    definitions.push(definition("Age", "", 0));
    definitions
        .extend(columns.iter().filter(|one| one.priority != 0).map(|one| definition(one.title, "", one.priority)));
    let rows = objects.map(|object| {
        let mut cells = vec![object["metadata"]["name"].clone()];
        cells.extend(columns.iter().filter(|one| one.priority == 0).map(|one| (one.cell)(object).into()));
        cells.push(age(object, unix_seconds).into());
        cells.extend(columns.iter().filter(|one| one.priority != 0).map(|one| (one.cell)(object).into()));
        let shown = match include {
            "None" => Value::Null,
            "Object" => object.clone(),
            _ => form::metadata(object),
        };
        json!({"cells": cells, "object": shown})
    });
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": version},
        "rows": rows.collect::<Vec<_>>(), "columnDefinitions": definitions,
    })
}

/// An age in the largest unit that leaves two digits of meaning.
fn age(object: &Value, unix_seconds: u64) -> String {
    let Some(created) = object["metadata"]["creationTimestamp"].as_str().and_then(clock::seconds) else {
        return "<unknown>".into();
    };
    let age = unix_seconds.saturating_sub(created);
    let (minutes, hours, days) = (age / 60, age / 3_600, age / 86_400);
    match age {
        0..120 => format!("{age}s"),
        120..600 if age % 60 != 0 => format!("{minutes}m{}s", age % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if minutes % 60 != 0 => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        _ => format!("{days}d"),
    }
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
