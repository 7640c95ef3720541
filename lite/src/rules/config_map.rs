//! ConfigMaps: keys, size and immutability.

use serde_json::{Map, Value};

use crate::causes::Causes;
use crate::names;

/// The maximum size of all values of a ConfigMap or Secret together, in bytes.
pub(super) const VALUES_MAX_BYTES: usize = 1024 * 1024;

const IMMUTABLE: &str = "field is immutable when `immutable` is set";

pub(super) fn validate(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    check_immutable(new, old, &["data", "binaryData"], causes);
    for field in ["data", "binaryData"] {
        for key in entries(new, field).map(|(key, _)| key) {
            let path = format!("{field}[{key}]");
            causes.all(&path, &key.as_str().into(), names::key(key));
            if field == "data" && new["binaryData"].get(key).is_some() {
                causes.invalid(path, &key.as_str().into(), "duplicate of key present in binaryData");
            }
        }
    }
    let texts = entries(new, "data").map(|(_, value)| value.as_str().map_or(0, str::len));
    let bytes: usize =
        texts.sum::<usize>() + entries(new, "binaryData").map(|(_, value)| decoded_bytes(value)).sum::<usize>();
    if bytes > VALUES_MAX_BYTES {
        causes.too_long("[]", "may not be more than 1048576 bytes");
    }
}

/// Reports changes of an object that was created, or later declared, to stay as it is.
pub(super) fn check_immutable(new: &Value, old: Option<&Value>, fields: &[&str], causes: &mut Causes) {
    let Some(old) = old.filter(|old| old["immutable"] == true) else { return };
    if new["immutable"] != true {
        causes.forbidden("immutable", IMMUTABLE);
    }
    let same = |field: &str| entries(new, field).eq(entries(old, field));
    for field in fields.iter().filter(|field| !same(field)) {
        causes.forbidden(*field, IMMUTABLE);
    }
}

pub(super) fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object[field].as_object().into_iter().flat_map(Map::iter)
}

/// The number of bytes that a text in base64 stands for.
pub(super) fn decoded_bytes(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.len() / 4 * 3 - text.bytes().rev().take_while(|one| *one == b'=').count().min(text.len() / 4)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::tests::{check_refused, outcome};

    #[test]
    fn keys_and_sizes_have_limits() {
        check_refused(
            "ConfigMap",
            json!({"data": {"..a": ""}}),
            None,
            "data[..a]: Invalid value: \"..a\": must not start with '..'",
        );
        check_refused(
            "ConfigMap",
            json!({"data": {"a": ""}, "binaryData": {"a": ""}}),
            None,
            "data[a]: Invalid value: \"a\": duplicate of key present in binaryData",
        );
        let halves = |text: usize, coded: usize| json!({"data": {"a": "x".repeat(text)}, "binaryData": {"b": "AAAA".repeat(coded / 3)}});
        assert!(outcome("ConfigMap", halves(VALUES_MAX_BYTES - 3, 3), None).is_ok());
        check_refused(
            "ConfigMap",
            halves(VALUES_MAX_BYTES - 3, 6),
            None,
            "[]: Too long: may not be more than 1048576 bytes",
        );
    }

    #[test]
    fn an_immutable_one_stays_as_it_is() {
        let old = json!({"immutable": true, "data": {"a": "1"}});
        assert!(
            outcome(
                "ConfigMap",
                json!({"immutable": true, "data": {"a": "1"}, "metadata": {"labels": {"a": "b"}}}),
                Some(&old)
            )
            .is_ok()
        );
        check_refused(
            "ConfigMap",
            json!({"data": {"a": "2"}}),
            Some(&old),
            &format!("[immutable: Forbidden: {IMMUTABLE}, data: Forbidden: {IMMUTABLE}]"),
        );
    }
}
