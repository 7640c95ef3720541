//! RFC 6902, within limits: a short patch can copy an object into itself until it exceeds all memory.

use json_patch::PatchOperation;
use serde_json::Value;

use crate::failure::Failure;

/// The maximum number of operations of one patch.
const OPERATIONS_MAX: usize = 1_000;
/// The maximum number of copy operations of one patch.
const COPIES_MAX: usize = 100;
/// The maximum nesting of values after any operation. A request body can have 127 levels.
const DEPTH_MAX: usize = 256;
/// The maximum size of an object after any copy, as JSON.
const SIZE_MAX_BYTES: usize = 3 * 1024 * 1024;

/// The object after the patch.
pub(super) fn apply(patch: &json_patch::Patch, mut object: Value) -> Result<Value, Failure> {
    let operations = &patch.0;
    if operations.len() > OPERATIONS_MAX {
        let count = operations.len();
        let message = format!("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}");
        return Err(Failure::too_much(message));
    }
    let copies = operations.iter().filter(|one| matches!(one, PatchOperation::Copy(_))).count();
    if copies > COPIES_MAX {
        return Err(Failure::too_much(format!("a JSON patch may copy at most {COPIES_MAX} times, got {copies}")));
    }
    for operation in operations {
        json_patch::patch(&mut object, std::slice::from_ref(operation)).map_err(|why| {
            let message = "the server rejected our request due to an error in our request";
            Failure::unprocessable(format!("{message}: {why}"))
        })?;
        let copied = matches!(operation, PatchOperation::Copy(_));
        if !matches!(operation, PatchOperation::Test(_) | PatchOperation::Remove(_)) && !fits(&object, DEPTH_MAX) {
            return Err(Failure::too_much(format!("a JSON patch may not nest values deeper than {DEPTH_MAX}")));
        }
        if copied && object.to_string().len() > SIZE_MAX_BYTES {
            return Err(Failure::too_large(SIZE_MAX_BYTES));
        }
    }
    Ok(object)
}

/// Returns `true` if values are nested at most this deep.
fn fits(value: &Value, depth: usize) -> bool {
    match value {
        Value::Object(map) => depth > 0 && map.values().all(|below| fits(below, depth - 1)),
        Value::Array(list) => depth > 0 && list.iter().all(|below| fits(below, depth - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
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
        check(&add, 1_000, Ok(()));
        check(&add, 1_001, Err(413));
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
