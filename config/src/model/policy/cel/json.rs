//! The values of `auth` in expressions, which are JSON.

use std::collections::HashMap;

use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt};
use cel::common::value::Val;
use serde_json::{Map, Number, Value};

use super::EvaluationError;

/// The maximum number of values in one that an expression refers to, itself included.
pub(super) const NODES_MAX: usize = 256;
/// The maximum length of all texts in it, in bytes.
pub(super) const BYTES_MAX: usize = 16 << 10;

/// The room that is left for a value.
struct Room {
    nodes: usize,
    bytes: usize,
}

/// The value in expressions, which borrows its texts; `None` if it is too large.
pub(super) fn to_cel(value: &Value) -> Option<Box<dyn Val + '_>> {
    Room { nodes: NODES_MAX, bytes: BYTES_MAX }.value(value)
}

impl Room {
    fn value<'v>(&mut self, value: &'v Value) -> Option<Box<dyn Val + 'v>> {
        self.nodes = self.nodes.checked_sub(1)?;
        Some(match value {
            Value::Null => Box::new(CelNull),
            Value::Bool(value) => Box::new(CelBool::from(*value)),
            Value::Number(number) => number_value(number)?,
            Value::String(text) => Box::new(self.text(text)?),
            Value::Array(list) => {
                let list: Option<Vec<_>> = list.iter().map(|one| self.value(one)).collect();
                Box::new(CelList::from(list?))
            }
            Value::Object(map) => {
                let entry = |(key, value): (&'v String, &'v Value)| {
                    Some((CelMapKey::String(self.text(key)?), self.value(value)?))
                };
                let map: Option<HashMap<_, _>> = map.iter().map(entry).collect();
                Box::new(CelMap::from(map?))
            }
        })
    }

    fn text<'v>(&mut self, text: &'v str) -> Option<CelString<'v>> {
        self.bytes = self.bytes.checked_sub(text.len())?;
        Some(CelString::from(text))
    }
}

fn number_value(number: &Number) -> Option<Box<dyn Val>> {
    match (number.as_i64(), number.as_u64()) {
        (Some(number), _) => Some(Box::new(CelInt::from(number))),
        (None, Some(number)) => Some(Box::new(CelUInt::from(number))),
        (None, None) => Some(Box::new(CelDouble::from(number.as_f64()?))),
    }
}

/// A result as JSON. Other keys of maps than texts become texts.
///
/// # Errors
/// If it is of a type that JSON does not have, such as a time.
pub(super) fn of_cel(value: &dyn Val) -> Result<Value, EvaluationError> {
    let unfit = || EvaluationError::failed("the result has no form in JSON");
    if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        return list.inner().iter().map(|one| of_cel(&**one)).collect();
    }
    if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        let entries = map.inner().iter().map(|(key, value)| {
            let key = match key {
                CelMapKey::Bool(key) => key.inner().to_string(),
                CelMapKey::Int(key) => key.inner().to_string(),
                CelMapKey::UInt(key) => key.inner().to_string(),
                CelMapKey::String(key) => key.inner().to_owned(),
            };
            Ok((key, of_cel(&**value)?))
        });
        return entries.collect::<Result<Map<String, Value>, _>>().map(Value::Object);
    }
    let scalar = (value.downcast_ref::<CelString<'_>>().map(|value| value.inner().into()))
        .or_else(|| value.downcast_ref::<CelBool>().map(|value| (*value.inner()).into()))
        .or_else(|| value.downcast_ref::<CelInt>().map(|value| (*value.inner()).into()))
        .or_else(|| value.downcast_ref::<CelUInt>().map(|value| (*value.inner()).into()))
        .or_else(|| value.downcast_ref::<CelNull>().map(|_| Value::Null));
    let double = || value.downcast_ref::<CelDouble>().and_then(|value| Number::from_f64(*value.inner()));
    scalar.or_else(|| double().map(Value::Number)).ok_or_else(unfit)
}
