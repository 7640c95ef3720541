//! Lists whose elements differ: sets, and maps by the fields that are their keys.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::causes::Causes;
use crate::custom::model::{List, Schema};

/// Complains about elements that are there twice.
pub(super) fn check(schema: &Schema, list: &[Value], path: &str, causes: &mut Causes) {
    match &schema.list {
        List::Atomic => {}
        List::Set => {
            for nth in repeated(list.iter().map(Value::to_string)) {
                causes.duplicate(format!("{path}[{nth}]"), &list[nth]);
            }
        }
        List::Map(keys) => {
            if let Some(nth) = list.iter().position(|one| !one.is_object() && !one.is_null()) {
                let why = "must be an object for an array of list-type map";
                return causes.invalid(format!("{path}[{nth}]"), &list[nth], why);
            }
            let key = |element: &Value| -> Value {
                let fields = keys.iter().filter_map(|key| Some((key.clone(), element.get(key)?.clone())));
                Value::Object(fields.collect::<Map<_, _>>())
            };
            for nth in repeated(list.iter().map(|element| key(element).to_string())) {
                causes.duplicate(format!("{path}[{nth}]"), &key(&list[nth]));
            }
        }
    }
}

/// The places at which something is for the second time.
fn repeated(texts: impl Iterator<Item = String>) -> Vec<usize> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for (nth, text) in texts.enumerate() {
        let times = times.entry(text).or_default();
        *times += 1;
        if *times == 2 {
            found.push(nth);
        }
    }
    found
}
