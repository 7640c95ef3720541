//! JSON as Go reads it: fields that are there twice, and the words for texts that are no JSON.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The maximum number of fields that are reported for one text.
const TWICE_MAX: usize = 64;

/// The size of paths from which on no more are collected. One of them may be as long as a whole text.
const PATHS_MAX_BYTES: usize = 1 << 20;

/// Paths to report. The second field is their size.
#[derive(Debug, Default)]
pub(crate) struct Paths(pub(crate) Vec<String>, usize);

impl Paths {
    /// Adds a path, unless there are too many already.
    pub(crate) fn push(&mut self, path: &str) {
        if self.1 < PATHS_MAX_BYTES {
            self.1 += path.len();
            self.0.push(path.to_owned());
        }
    }
}

/// The paths of fields that one object of a text has twice, such as `spec.ports[0].port`. A text that is no JSON has
/// none.
pub(crate) fn twice(text: &[u8]) -> Vec<String> {
    let mut search = Search::default();
    // Other faults of the text are reported by the readers of its value.
    drop(FieldSearch(&mut search).deserialize(&mut serde_json::Deserializer::from_slice(text)));
    search.found
}

/// A fault of a request's text, apart from those of its object.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// The field that is there twice; empty if the fault is another one.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Fault {
    /// The faults of fields that are there twice in a JSON text.
    pub(crate) fn twice(text: &[u8]) -> Vec<Self> {
        let fault = |path: String| Self { text: format!("duplicate field \"{path}\""), path };
        twice(text).into_iter().map(fault).collect()
    }
}

#[derive(Default)]
struct Search {
    path: String,
    found: Vec<String>,
}

/// The value at the path of a search.
struct FieldSearch<'a>(&'a mut Search);

impl<'de> DeserializeSeed<'de> for FieldSearch<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<(), D::Error> {
        text.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldSearch<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let length = self.0.path.len();
        for nth in 0_usize.. {
            self.0.path.push_str(&format!("[{nth}]"));
            let more = list.next_element_seed(FieldSearch(self.0))?;
            self.0.path.truncate(length);
            if more.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (length, mut seen) = (self.0.path.len(), BTreeSet::new());
        while let Some(key) = map.next_key::<String>()? {
            if length > 0 {
                self.0.path.push('.');
            }
            self.0.path.push_str(&key);
            if !seen.insert(key) && self.0.found.len() < TWICE_MAX && !self.0.found.contains(&self.0.path) {
                self.0.found.push(self.0.path.clone());
            }
            map.next_value_seed(FieldSearch(self.0))?;
            self.0.path.truncate(length);
        }
        Ok(())
    }
}

/// The words of Go's decoder for a text that is no JSON. They hold at most one character of it.
pub(crate) fn complaint(text: &[u8], why: &serde_json::Error) -> String {
    if why.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let line = text.split(|one| *one == b'\n').nth(why.line().saturating_sub(1)).unwrap_or_default();
    let one = line.get(why.column().saturating_sub(1)).copied().unwrap_or_default();
    format!("invalid character {:?} looking for beginning of value", char::from(one))
}

/// The word for a value in the messages of a Go decoder.
pub(crate) fn go_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The words for a value that is not the one object that is expected.
pub(crate) fn not_an_object(value: &Value) -> String {
    format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", go_name(value))
}

/// A value as Go prints it: `map[a:1 b:[x y]]`.
pub(crate) fn go_print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("[{}]", list.iter().map(go_print).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", go_print(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(twice(text.as_bytes()), expected);
    }

    #[test]
    fn every_duplicate_field_is_found() {
        check(r#"{"a": 1, "b": {"a": null, "c": [true, 1.5, "x"]}}"#, &[]);
        check(r#"{"a": 1, "a": 2, "a": 3}"#, &["a"]);
        check(
            r#"{"spec": {"ports": [{}, {"port": 1, "port": 2}], "x": {"y": 1, "y": {}}}}"#,
            &["spec.ports[1].port", "spec.x.y"],
        );
        check(r#"[{"op": "add", "op": "add"}]"#, &["[0].op"]);
        check(r#"{"a": 1, "a": 2"#, &["a"]);
        check("words", &[]);
    }

    #[test]
    fn values_are_printed_as_in_go() {
        assert_eq!(go_print(&json!({"b": [1, "x", null], "a": {"c": true}})), "map[a:map[c:true] b:[1 x <nil>]]");
    }
}
