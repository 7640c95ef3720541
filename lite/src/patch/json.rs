//! RFC 6902, within limits: a short patch can copy an object into itself until it exceeds all memory.

use std::borrow::Cow;

use json_patch::{AddOperation, PatchOperation};
use serde_json::Value;

use crate::failure::Failure;

/// The maximum number of operations of one patch, as in the real server.
const OPERATIONS_MAX: usize = 10_000;
/// The maximum number of move operations of one patch.
const MOVES_MAX: usize = 1_000;
/// The maximum number of copy operations of one patch.
const COPIES_MAX: usize = 100;
/// The maximum nesting of values after any operation. A request body can have 127 levels.
const DEPTH_MAX: usize = 256;
/// The maximum work of one patch: list elements that its operations move up or down, and values within what they move
/// or copy.
const WORK_MAX: usize = 20_000_000;
/// The maximum size of an object after any copy, as JSON.
const SIZE_MAX_BYTES: usize = 3 * 1024 * 1024;

const REJECTED: &str = "the server rejected our request due to an error in our request";

/// Reads a patch.
pub(super) fn read(body: &[u8]) -> Result<json_patch::Patch, Failure> {
    let unreadable = |why: &str| Failure::bad_request(format!("error decoding patch: {why}"));
    let mut value: Value =
        serde_json::from_slice(body).map_err(|why| unreadable(&crate::json::complaint(body, &why)))?;
    let Value::Array(operations) = &mut value else {
        let given = crate::json::go_name(&value);
        return Err(unreadable(&format!(
            "json: cannot unmarshal {given} into Go value of type []handlers.jsonPatchOp"
        )));
    };
    for operation in operations {
        let given = crate::json::go_name(operation);
        let Value::Object(operation) = operation else {
            return Err(unreadable(&format!(
                "json: cannot unmarshal {given} into Go value of type handlers.jsonPatchOp"
            )));
        };
        for field in ["op", "path", "from"] {
            if let Some(other) = operation.get(field).filter(|value| !value.is_string() && !value.is_null()) {
                let given = crate::json::go_name(other);
                let why =
                    format!("json: cannot unmarshal {given} into Go struct field jsonPatchOp.{field} of type string");
                return Err(unreadable(&why));
            }
        }
        operation.entry("value").or_insert(Value::Null);
    }
    serde_json::from_value(value).map_err(|_| Failure::unprocessable(REJECTED))
}

/// Names fields of operations that a patch does not have.
pub(super) fn unknown_fields(body: &[u8]) -> Vec<String> {
    let Ok(Value::Array(operations)) = serde_json::from_slice(body) else { return Vec::new() };
    let fields = |(nth, operation): (usize, &Value)| {
        let names = operation.as_object().into_iter().flat_map(|operation| operation.keys());
        let names = names.filter(|name| !["op", "path", "from", "value"].contains(&name.as_str()));
        names.map(|name| format!("json patch unknown field \"[{nth}].{name}\"")).collect::<Vec<_>>()
    };
    operations.iter().enumerate().flat_map(fields).collect()
}

/// The object after the patch.
pub(super) fn apply(patch: &json_patch::Patch, mut object: Value) -> Result<Value, Failure> {
    let operations = &patch.0;
    if operations.len() > OPERATIONS_MAX {
        let count = operations.len();
        let message = format!("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}");
        return Err(Failure::too_much(message));
    }
    let (mut copies, mut moves) = (0, 0);
    for operation in operations {
        copies += usize::from(matches!(operation, PatchOperation::Copy(_)));
        moves += usize::from(matches!(operation, PatchOperation::Move(_)));
    }
    for (count, max, what) in [(copies, COPIES_MAX, "copy"), (moves, MOVES_MAX, "move")] {
        if count > max {
            return Err(Failure::too_much(format!("a JSON patch may {what} at most {max} times, got {count}")));
        }
    }
    let mut work = Work { left: WORK_MAX };
    for operation in operations {
        let operation = as_in_kubernetes(operation, &object);
        if !work.fits(&object, &operation) {
            return Err(Failure::too_much(format!("a JSON patch may not nest values deeper than {DEPTH_MAX}")));
        }
        work.shift(&object, &operation);
        if work.left == 0 {
            let why = "the operations of a JSON patch may not move more than 20,000,000 elements of lists and values";
            return Err(Failure::too_much(why));
        }
        json_patch::patch(&mut object, std::slice::from_ref(&*operation))
            .map_err(|why| Failure::unprocessable(format!("{REJECTED}: {why}")))?;
        if matches!(&*operation, PatchOperation::Copy(_)) && object.to_string().len() > SIZE_MAX_BYTES {
            return Err(Failure::too_large(SIZE_MAX_BYTES));
        }
    }
    Ok(object)
}

/// The real server adds the field of an object that it is to replace and that is not there.
fn as_in_kubernetes<'a>(operation: &'a PatchOperation, object: &Value) -> Cow<'a, PatchOperation> {
    let PatchOperation::Replace(replace) = operation else { return Cow::Borrowed(operation) };
    let path = replace.path.as_str();
    let parent = path.rfind('/').and_then(|at| object.pointer(&path[..at]));
    if object.pointer(path).is_none() && parent.is_some_and(Value::is_object) {
        let add = AddOperation { path: replace.path.clone(), value: replace.value.clone() };
        return Cow::Owned(PatchOperation::Add(add));
    }
    Cow::Borrowed(operation)
}

/// The work that a patch may still take.
struct Work {
    left: usize,
}

impl Work {
    fn take(&mut self, steps: usize) {
        self.left = self.left.saturating_sub(steps);
    }

    /// Returns `true` if no value is nested too deep after an operation: only an inserted value can be.
    fn fits(&mut self, object: &Value, operation: &PatchOperation) -> bool {
        let (path, value) = match operation {
            PatchOperation::Add(add) => (&add.path, Some(&add.value)),
            PatchOperation::Replace(replace) => (&replace.path, Some(&replace.value)),
            PatchOperation::Move(it) => (&it.path, object.pointer(it.from.as_str())),
            PatchOperation::Copy(it) => (&it.path, object.pointer(it.from.as_str())),
            PatchOperation::Remove(_) | PatchOperation::Test(_) => return true,
        };
        let above = path.as_str().matches('/').count();
        value.is_none_or(|value| above <= DEPTH_MAX && self.is_shallow(value, DEPTH_MAX - above))
    }

    /// Returns `true` if values are nested at most this deep. Does not go on once there is no work left.
    fn is_shallow(&mut self, value: &Value, depth: usize) -> bool {
        self.take(1);
        match value {
            _ if self.left == 0 => true,
            Value::Object(map) => depth > 0 && map.values().all(|below| self.is_shallow(below, depth - 1)),
            Value::Array(list) => depth > 0 && list.iter().all(|below| self.is_shallow(below, depth - 1)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }

    /// Counts the elements that come after one that is inserted into a list or removed from it.
    fn shift(&mut self, object: &Value, operation: &PatchOperation) {
        let (from, to) = match operation {
            PatchOperation::Add(it) => (None, Some(&it.path)),
            PatchOperation::Copy(it) => (None, Some(&it.path)),
            PatchOperation::Move(it) => (Some(&it.from), Some(&it.path)),
            PatchOperation::Remove(it) => (Some(&it.path), None),
            PatchOperation::Replace(_) | PatchOperation::Test(_) => (None, None),
        };
        for path in from.into_iter().chain(to) {
            let Some((list, place)) = path.as_str().rsplit_once('/') else { continue };
            let Some(list) = object.pointer(list).and_then(Value::as_array) else { continue };
            self.take(place.parse().map_or(0, |nth| list.len().saturating_sub(nth)));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(operation: &Value, times: usize, expected: Result<(), u16>) {
        let patch = serde_json::from_value(Value::Array(vec![operation.clone(); times])).unwrap();
        let object = json!({"a": {}, "b": {}, "t": "x".repeat(100)});
        assert_eq!(apply(&patch, object).map(drop).map_err(|failure| failure.code.as_u16()), expected);
    }

    #[test]
    fn a_patch_has_limits() {
        let add = json!({"op": "add", "path": "/a/x", "value": 1});
        check(&add, 10_000, Ok(()));
        check(&add, 10_001, Err(413));
        check(&json!({"op": "replace", "path": "/a/new", "value": 1}), 1, Ok(()));
        check(&json!({"op": "replace", "path": "/no/new", "value": 1}), 1, Err(422));
        let copy = json!({"op": "copy", "from": "", "path": "/a"});
        check(&copy, 5, Ok(()));
        check(&copy, 101, Err(413));
        check(&json!({"op": "copy", "from": "/b", "path": "/b/x"}), 90, Ok(()));
        let grow = [json!({"op": "copy", "from": "", "path": "/a"}), json!({"op": "copy", "from": "", "path": "/b"})];
        let patch = serde_json::from_value(Value::Array(grow.into_iter().cycle().take(40).collect())).unwrap();
        let refused = apply(&patch, json!({"t": "x".repeat(100)})).unwrap_err();
        assert_eq!(refused.code.as_u16(), 413);
    }

    #[test]
    fn work_has_a_limit() {
        let list = json!({"list": vec![0; 10_000]});
        let patch = |operation: Value, times| {
            serde_json::from_value::<json_patch::Patch>(Value::Array(vec![operation; times])).unwrap()
        };
        let code = |patch| apply(&patch, list.clone()).map(drop).map_err(|failure| failure.code.as_u16());
        assert_eq!(code(patch(json!({"op": "add", "path": "/list/-", "value": 1}), 10_000)), Ok(()));
        assert_eq!(code(patch(json!({"op": "add", "path": "/list/0", "value": 1}), 1_000)), Ok(()));
        assert_eq!(code(patch(json!({"op": "add", "path": "/list/0", "value": 1}), 10_000)), Err(413));
        assert_eq!(code(patch(json!({"op": "remove", "path": "/list/0"}), 10_000)), Err(413));
        let there = json!({"op": "move", "from": "/list", "path": "/other"});
        let back = json!({"op": "move", "from": "/other", "path": "/list"});
        let moves = Value::Array([there, back].into_iter().cycle().take(1_000).collect());
        let wide = json!({"list": vec![0; 30_000]});
        let refused = apply(&serde_json::from_value(moves).unwrap(), wide).unwrap_err();
        assert_eq!(refused.code.as_u16(), 413);
    }

    #[test]
    fn nesting_has_a_limit() {
        let moves = (0..400).flat_map(|_| {
            [
                json!({"op": "add", "path": "/x", "value": {}}),
                json!({"op": "move", "from": "/a", "path": "/x/a"}),
                json!({"op": "move", "from": "/x", "path": "/a"}),
            ]
        });
        let patch = serde_json::from_value(Value::Array(moves.take(999).collect())).unwrap();
        assert_eq!(apply(&patch, json!({"a": {}})).unwrap_err().code.as_u16(), 413);
    }
}
