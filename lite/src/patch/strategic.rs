//! The strategic merge: like a merge patch, but lists are joined by the keys of the table of fields, with directives
//! (`$patch`, `$retainKeys`, `$deleteFromPrimitiveList/…`, `$setElementOrder/…`) for everything else.

use serde_json::{Map, Value};

use crate::fields::schema::{Join, Shape};

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_PREFIX: &str = "$deleteFromPrimitiveList/";
const ORDER_PREFIX: &str = "$setElementOrder/";

/// Merges `patch` into `original`. The error says why the patch cannot be applied.
pub(super) fn merge(original: Value, patch: &Value, shape: &Shape) -> Result<Value, String> {
    let Value::Object(patch) = patch else { return Ok(patch.clone()) };
    let mut merged = if let Value::Object(map) = original { map } else { Map::new() };
    match patch.get(PATCH).map(|directive| directive.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => {
            let replaced = patch.iter().filter(|(key, _)| *key != PATCH);
            return Ok(Value::Object(replaced.map(|(key, value)| (key.clone(), value.clone())).collect()));
        }
        Some("delete") => return Ok(Value::Object(Map::new())),
        Some(other) => return Err(format!("unknown patch type: {other}")),
    }
    if let Some(keep) = patch.get(RETAIN).and_then(Value::as_array) {
        merged.retain(|key, _| keep.iter().any(|kept| kept == key));
    }
    for (name, values) in directives(patch, DELETE_PREFIX) {
        if let Some(Value::Array(list)) = merged.get_mut(name) {
            list.retain(|one| !values.contains(one));
        }
    }
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        let below = shape.below(key);
        match value {
            Value::Null => drop(merged.remove(key)),
            Value::Object(_) => {
                let value = merge(merged.remove(key).unwrap_or_default(), value, below)?;
                merged.insert(key.clone(), value);
            }
            Value::Array(patch) => {
                let list = merge_list(merged.remove(key), patch, below)?;
                merged.insert(key.clone(), list.into());
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) => drop(merged.insert(key.clone(), value.clone())),
        }
    }
    for (name, order) in directives(patch, ORDER_PREFIX) {
        if let Some(Value::Array(list)) = merged.get_mut(name) {
            *list = arrange(std::mem::take(list), order, shape.below(name).join());
        }
    }
    Ok(Value::Object(merged))
}

/// The lists in directives of one sort, by field.
fn directives<'a>(
    patch: &'a Map<String, Value>,
    prefix: &'static str,
) -> impl Iterator<Item = (&'a str, &'a Vec<Value>)> {
    patch.iter().filter_map(move |(key, value)| Some((key.strip_prefix(prefix)?, value.as_array()?)))
}

fn merge_list(original: Option<Value>, patch: &[Value], shape: &Shape) -> Result<Vec<Value>, String> {
    let original = if let Some(Value::Array(list)) = original { list } else { Vec::new() };
    match shape.join() {
        Join::Replace => Ok(patch.to_vec()),
        Join::Set => {
            let mut merged = original;
            for one in patch {
                if !merged.contains(one) {
                    merged.push(one.clone());
                }
            }
            Ok(merged)
        }
        Join::ByKey(key) => merge_by_key(original, patch, key, shape.element()),
    }
}

fn merge_by_key(original: Vec<Value>, patch: &[Value], key: &str, shape: &Shape) -> Result<Vec<Value>, String> {
    let replace = patch.iter().any(|one| one[PATCH] == "replace");
    let mut merged = if replace { Vec::new() } else { original };
    for one in patch.iter().filter(|one| one[PATCH] != "replace") {
        let Some(value) = one.get(key) else {
            return Err(format!("map: {one} does not contain declared merge key: {key}"));
        };
        if one[PATCH] == "delete" {
            merged.retain(|old| old.get(key) != Some(value));
            continue;
        }
        match same(&merged, one, key) {
            Some(nth) => merged[nth] = merge(std::mem::take(&mut merged[nth]), one, shape)?,
            None => merged.push(merge(Value::Null, one, shape)?),
        }
    }
    Ok(merged)
}

/// The element that a patch's element refers to. Ports with the same number are told apart by their protocol.
fn same(list: &[Value], one: &Value, key: &str) -> Option<usize> {
    let same_key = |old: &&Value| old.get(key) == one.get(key);
    let exact = list.iter().position(|old| same_key(&old) && old.get("protocol") == one.get("protocol"));
    exact.or_else(|| {
        let first = list.iter().position(|old| same_key(&old))?;
        // A patch with another protocol than all of these adds a port.
        let (old, new) = (list[first].get("protocol"), one.get("protocol"));
        let adds = key == "port" && new.is_some() && old.is_some_and(|old| Some(old) != new);
        (!adds).then_some(first)
    })
}

/// Orders the elements in `order`; the others keep their place among the existing ones.
fn arrange(list: Vec<Value>, order: &[Value], join: Join) -> Vec<Value> {
    let identity = |one: &Value| match join {
        Join::ByKey(key) => one.get(key).cloned().unwrap_or_default(),
        Join::Set | Join::Replace => one.clone(),
    };
    let rank = |one: &Value| order.iter().position(|named| identity(named) == identity(one));
    let mut named = Vec::new();
    let mut others = Vec::new();
    for (nth, one) in list.into_iter().enumerate() {
        match rank(&one) {
            Some(rank) => named.push((rank, nth, one)),
            None => others.push((nth, one)),
        }
    }
    named.sort_by_key(|(rank, nth, _)| (*rank, *nth));
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    while let (Some((_, at, _)), Some((other_at, _))) = (named.peek(), others.peek()) {
        let named_first = at < other_at;
        arranged.extend(if named_first {
            named.next().map(|(_, _, one)| one)
        } else {
            others.next().map(|(_, one)| one)
        });
    }
    arranged.extend(named.map(|(_, _, one)| one));
    arranged.extend(others.map(|(_, one)| one));
    arranged
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fields::schema::Retain;

    #[track_caller]
    fn check(of: &'static str, original: Value, patch: Value, expected: Value) {
        assert_eq!(merge(original, &patch, &Shape::Named(of, Retain::All)).unwrap(), expected);
    }

    #[test]
    fn maps_merge_and_null_removes() {
        let original = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
        check(
            "Service",
            original,
            json!({"metadata": {"labels": {"a": null, "c": "3"}}}),
            json!({"metadata": {"labels": {"b": "2", "c": "3"}}}),
        );
        check("Service", json!({}), json!({"metadata": {"labels": {"a": null}}}), json!({"metadata": {"labels": {}}}));
    }

    #[test]
    fn service_ports_join_by_number_and_protocol() {
        let original = json!({"ports": [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]});
        check(
            "ServiceSpec",
            original.clone(),
            json!({"ports": [{"port": 53, "protocol": "UDP", "name": "dns"}]}),
            json!({"ports": [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP", "name": "dns"}]}),
        );
        check(
            "ServiceSpec",
            json!({"ports": [{"port": 53, "protocol": "TCP"}]}),
            json!({"ports": [{"port": 53, "protocol": "UDP"}]}),
            original,
        );
        check(
            "ServiceSpec",
            json!({"ports": [{"port": 80, "protocol": "TCP"}]}),
            json!({"ports": [{"port": 80, "name": "web"}]}),
            json!({"ports": [{"port": 80, "protocol": "TCP", "name": "web"}]}),
        );
    }

    #[test]
    fn containers_and_their_variables_join_by_name() {
        let original =
            json!({"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]});
        let patch = json!({"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}, {"name": "b", "$patch": "delete"}]});
        check(
            "PodSpec",
            original,
            patch,
            json!({"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}]}),
        );
    }

    #[test]
    fn directives_replace_retain_and_delete() {
        check(
            "ServiceSpec",
            json!({"ports": [{"port": 1}]}),
            json!({"ports": [{"$patch": "replace"}, {"port": 2}]}),
            json!({"ports": [{"port": 2}]}),
        );
        check(
            "ServiceSpec",
            json!({"selector": {"a": "b"}}),
            json!({"selector": {"$patch": "replace", "c": "d"}}),
            json!({"selector": {"c": "d"}}),
        );
        check(
            "ServiceSpec",
            json!({"selector": {"a": "b"}}),
            json!({"selector": {"$patch": "delete"}}),
            json!({"selector": {}}),
        );
        check(
            "DeploymentSpec",
            json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}),
            json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}),
            json!({"strategy": {"type": "Recreate"}}),
        );
        check(
            "ObjectMeta",
            json!({"finalizers": ["a", "b"]}),
            json!({"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["b", "c"]}),
            json!({"finalizers": ["b", "c"]}),
        );
    }

    #[test]
    fn the_order_of_elements_can_be_set() {
        let original = json!({"containers": [{"name": "a"}, {"name": "server"}, {"name": "b"}]});
        let patch = json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}], "containers": [{"name": "c"}]});
        let merged = merge(original, &patch, &Shape::Named("PodSpec", Retain::All)).unwrap();
        let names: Vec<&str> =
            merged["containers"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["server", "c", "b", "a"]);
        check(
            "ObjectMeta",
            json!({"finalizers": ["a", "b"]}),
            json!({"$setElementOrder/finalizers": ["b", "a"]}),
            json!({"finalizers": ["b", "a"]}),
        );
    }

    #[test]
    fn ingress_rules_are_one_value() {
        check(
            "IngressSpec",
            json!({"rules": [{"host": "a"}, {"host": "b"}]}),
            json!({"rules": [{"host": "c"}]}),
            json!({"rules": [{"host": "c"}]}),
        );
    }

    #[test]
    fn nonsense_is_refused() {
        let shape = Shape::Named("PodSpec", Retain::All);
        assert!(merge(json!({}), &json!({"containers": [{"image": "x"}]}), &shape).is_err());
        assert!(merge(json!({}), &json!({"$patch": "what"}), &shape).is_err());
    }
}
