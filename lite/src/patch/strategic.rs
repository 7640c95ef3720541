//! The strategic merge: like a merge patch, but lists are joined by the keys of the table of fields, with directives
//! (`$patch`, `$retainKeys`, `$deleteFromPrimitiveList/…`, `$setElementOrder/…`) for everything else.

use std::collections::{BTreeSet, HashMap, HashSet};

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
        let keep: HashSet<&str> = keep.iter().filter_map(Value::as_str).collect();
        merged.retain(|key, _| keep.contains(key.as_str()));
    }
    for (name, values) in directives(patch, DELETE_PREFIX) {
        if let Some(Value::Array(list)) = merged.get_mut(name) {
            let values: HashSet<&Value> = values.iter().collect();
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
            let mut seen: HashSet<&Value> = original.iter().collect();
            let added: Vec<Value> = patch.iter().filter(|one| seen.insert(one)).cloned().collect();
            Ok(original.into_iter().chain(added).collect())
        }
        Join::ByKey(key) => merge_by_key(original, patch, key, shape.element()),
    }
}

fn merge_by_key(original: Vec<Value>, patch: &[Value], key: &str, shape: &Shape) -> Result<Vec<Value>, String> {
    let replace = patch.iter().any(|one| one[PATCH] == "replace");
    let mut merged = Keyed::new(if replace { Vec::new() } else { original }, key);
    for one in patch.iter().filter(|one| one[PATCH] != "replace") {
        let Some(value) = one.get(key) else {
            return Err(format!("map: {one} does not contain declared merge key: {key}"));
        };
        if one[PATCH] == "delete" {
            merged.remove_all(value);
            continue;
        }
        match merged.same(one) {
            Some(nth) => {
                let old = merged.take(nth);
                merged.put(nth, merge(old, one, shape)?);
            }
            None => merged.push(merge(Value::Null, one, shape)?),
        }
    }
    Ok(merged.list())
}

/// A list whose elements are found by their key.
struct Keyed<'a> {
    key: &'a str,
    /// `None` where an element was removed.
    elements: Vec<Option<Value>>,
    /// The places of the elements with a key, and with a key and a protocol.
    by_key: HashMap<Value, BTreeSet<usize>>,
    by_protocol: HashMap<(Value, Option<Value>), BTreeSet<usize>>,
}

impl<'a> Keyed<'a> {
    fn new(list: Vec<Value>, key: &'a str) -> Self {
        let mut keyed = Self { key, elements: Vec::new(), by_key: HashMap::new(), by_protocol: HashMap::new() };
        list.into_iter().for_each(|one| keyed.push(one));
        keyed
    }

    /// The element that a patch's element refers to. Ports with the same number are told apart by their protocol.
    fn same(&self, one: &Value) -> Option<usize> {
        let (key, protocol) = (one.get(self.key)?, one.get("protocol"));
        let first = |places: &BTreeSet<usize>| places.first().copied();
        if let Some(exact) = self.by_protocol.get(&(key.clone(), protocol.cloned())).and_then(first) {
            return Some(exact);
        }
        let first = self.by_key.get(key).and_then(first)?;
        // A patch with another protocol than all of these adds a port.
        let old = self.elements.get(first)?.as_ref()?.get("protocol");
        let adds = self.key == "port" && protocol.is_some() && old.is_some_and(|old| Some(old) != protocol);
        (!adds).then_some(first)
    }

    fn push(&mut self, one: Value) {
        self.elements.push(None);
        self.put(self.elements.len() - 1, one);
    }

    fn put(&mut self, nth: usize, one: Value) {
        if let Some(key) = one.get(self.key) {
            self.by_key.entry(key.clone()).or_default().insert(nth);
            self.by_protocol.entry((key.clone(), one.get("protocol").cloned())).or_default().insert(nth);
        }
        self.elements[nth] = Some(one);
    }

    fn take(&mut self, nth: usize) -> Value {
        let one = self.elements[nth].take().unwrap_or_default();
        if let Some(key) = one.get(self.key) {
            if let Some(places) = self.by_key.get_mut(key) {
                places.remove(&nth);
            }
            if let Some(places) = self.by_protocol.get_mut(&(key.clone(), one.get("protocol").cloned())) {
                places.remove(&nth);
            }
        }
        one
    }

    fn remove_all(&mut self, key: &Value) {
        for nth in self.by_key.get(key).cloned().unwrap_or_default() {
            drop(self.take(nth));
        }
    }

    fn list(self) -> Vec<Value> {
        self.elements.into_iter().flatten().collect()
    }
}

/// Orders the elements in `order`; the others keep their place among the existing ones.
fn arrange(list: Vec<Value>, order: &[Value], join: Join) -> Vec<Value> {
    let identity = |one: &Value| match join {
        Join::ByKey(key) => one.get(key).cloned().unwrap_or_default(),
        Join::Set | Join::Replace => one.clone(),
    };
    let mut ranks = HashMap::with_capacity(order.len());
    for (rank, named) in order.iter().enumerate() {
        ranks.entry(identity(named)).or_insert(rank);
    }
    let rank = |one: &Value| ranks.get(&identity(one)).copied();
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
