//! Reads objects in Kubernetes' protobuf form: kubectl's own `create` commands send it and do not fall back to JSON
//! after a refusal. Responses are always JSON. A field that the table of numbers does not name is refused, never
//! dropped.

mod numbers;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::clock;
use crate::failure::Failure;
use crate::fields::schema::{self, Shape};

/// The prefix of every body.
const MAGIC: &[u8] = b"k8s\0";
/// The maximum nesting of messages; far more than in any type here.
const DEPTH_MAX: usize = 32;

/// The encoding of a field.
#[derive(Clone, Copy)]
struct Field {
    name: &'static str,
    /// `true` if a zero is a value, not an absence.
    keeps_zero: bool,
    form: FieldForm,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldForm {
    Plain,
    Time,
    Bytes,
    Inlined,
}

type Fields = BTreeMap<u64, Field>;

static NUMBERS: LazyLock<BTreeMap<&'static str, Fields>> = LazyLock::new(|| {
    let lines = numbers::TABLE.lines().map(str::split_whitespace);
    lines.filter_map(|mut words| Some((words.next()?, words.filter_map(field).collect()))).collect()
});

fn field(word: &'static str) -> Option<(u64, Field)> {
    let (number, rest) = word.split_once(':')?;
    let name = rest.trim_matches(['*', '@', '!', '<']);
    let form = match (rest.ends_with('@'), rest.ends_with('!'), rest.starts_with('<')) {
        (true, ..) => FieldForm::Time,
        (_, true, _) => FieldForm::Bytes,
        (_, _, true) => FieldForm::Inlined,
        _ => FieldForm::Plain,
    };
    Some((number.parse().ok()?, Field { name, keeps_zero: rest.ends_with('*'), form }))
}

/// The reason why a body cannot be read.
enum Unreadable {
    /// It is not protobuf.
    Broken,
    /// It is protobuf, with a field unknown to this server.
    Unknown(String),
}

use Unreadable::{Broken, Unknown};

/// Reads a body whose object is of the type `of` into the equivalent JSON.
pub(super) fn decode(of: &'static str, body: &[u8]) -> Result<Value, Failure> {
    read(of, body).map_err(|why| match why {
        Broken => Failure::bad_request("the protobuf body of the request could not be read"),
        Unknown(what) => {
            let message = format!("this server does not know {what} in protobuf; send application/json");
            Failure::unsupported_media_type(message)
        }
    })
}

fn read(of: &'static str, body: &[u8]) -> Result<Value, Unreadable> {
    let mut envelope = Reader(body.strip_prefix(MAGIC).ok_or(Broken)?);
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    while let Some((number, wire)) = envelope.next()? {
        match (number, wire) {
            (1, Wire::Bytes(meta)) => {
                let mut meta = Reader(meta);
                while let Some((number, wire)) = meta.next()? {
                    match number {
                        1 => api_version = wire.text()?,
                        2 => kind = wire.text()?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let mut object = message(of, raw, 0)?;
    if of != "DeleteOptions" {
        object.insert("apiVersion".into(), api_version.into());
        object.insert("kind".into(), kind.into());
    }
    Ok(Value::Object(object))
}

fn message(of: &'static str, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, Unreadable> {
    if depth > DEPTH_MAX {
        return Err(Broken);
    }
    let mut object = Map::new();
    if bytes.is_empty() {
        return Ok(object);
    }
    let fields = NUMBERS.get(of).ok_or_else(|| Unknown(of.to_owned()))?;
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        let Some(field) = fields.get(&number) else {
            // The encoder writes absent fields too, as zeros, so a zero carries no information that could be lost.
            if wire.is_zero() {
                continue;
            }
            return Err(Unknown(format!("field {number} of {of}")));
        };
        if field.form == FieldForm::Inlined {
            object.extend(message(field.name, wire.bytes()?, depth + 1)?);
            continue;
        }
        match schema::field(of, field.name) {
            Shape::List(element, _) => {
                let element = value(element, field, wire, depth)?;
                if let Value::Array(list) = object.entry(field.name).or_insert_with(|| json!([])) {
                    list.push(element);
                }
            }
            Shape::Map(inner) => {
                let (key, element) = entry(inner, field, wire.bytes()?, depth)?;
                if let Value::Object(map) = object.entry(field.name).or_insert_with(|| json!({})) {
                    map.insert(key, element);
                }
            }
            shape @ (Shape::String
            | Shape::OneOf(_)
            | Shape::Int(_)
            | Shape::Formatted(_)
            | Shape::Bool
            | Shape::IntOrString
            | Shape::Any
            | Shape::Named(..)) => {
                let value = value(shape, field, wire, depth)?;
                if field.keeps_zero || !is_zero(&value) {
                    object.insert(field.name.to_owned(), value);
                }
            }
        }
    }
    Ok(object)
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}

/// One entry of a map: its key is field 1, its value field 2.
fn entry(inner: &Shape, field: &Field, bytes: &[u8], depth: usize) -> Result<(String, Value), Unreadable> {
    let (mut key, mut found) = (String::new(), Value::String(String::new()));
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => key = wire.text()?,
            2 => found = value(inner, field, wire, depth)?,
            _ => return Err(Broken),
        }
    }
    Ok((key, found))
}

fn value(shape: &Shape, field: &Field, wire: Wire<'_>, depth: usize) -> Result<Value, Unreadable> {
    match (field.form, shape) {
        (FieldForm::Time, _) => time(wire.bytes()?),
        (FieldForm::Bytes, _) => Ok(STANDARD.encode(wire.bytes()?).into()),
        (_, Shape::String | Shape::OneOf(_)) => Ok(wire.text()?.into()),
        (_, Shape::Int(_)) => Ok(wire.number()?.into()),
        (_, Shape::Bool) => Ok((wire.number()? != 0).into()),
        (_, Shape::IntOrString) => int_or_string(wire.bytes()?),
        (_, Shape::Named(of, _)) => Ok(Value::Object(message(of, wire.bytes()?, depth + 1)?)),
        (_, Shape::Any) if wire.bytes()?.is_empty() => Ok(json!({})),
        (_, Shape::Any | Shape::Formatted(_) | Shape::List(..) | Shape::Map(_)) => Err(Unknown(field.name.to_owned())),
    }
}

/// Seconds are field 1. The zero time is an empty message.
fn time(bytes: &[u8]) -> Result<Value, Unreadable> {
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        if number == 1 {
            let seconds = u64::try_from(wire.number()?).unwrap_or_default();
            return Ok(if seconds == 0 { Value::Null } else { clock::timestamp(seconds).into() });
        }
    }
    Ok(Value::Null)
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Unreadable> {
    let (mut is_text, mut number_value, mut text) = (false, 0, String::new());
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => is_text = wire.number()? == 1,
            2 => number_value = wire.number()?,
            3 => text = wire.text()?,
            _ => return Err(Broken),
        }
    }
    Ok(if is_text { text.into() } else { number_value.into() })
}

/// The value of a field on the wire.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    fn is_zero(self) -> bool {
        matches!(self, Self::Varint(0) | Self::Bytes([]))
    }

    fn bytes(self) -> Result<&'a [u8], Unreadable> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(Broken) }
    }

    fn text(self) -> Result<String, Unreadable> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Broken)
    }

    fn number(self) -> Result<i64, Unreadable> {
        // Negative numbers are written as their two's complement.
        if let Self::Varint(number) = self { Ok(number.cast_signed()) } else { Err(Broken) }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next field; `None` at the end.
    fn next(&mut self) -> Result<Option<(u64, Wire<'a>)>, Unreadable> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Broken)?;
                let (bytes, rest) = self.0.split_at_checked(length).ok_or(Broken)?;
                self.0 = rest;
                Wire::Bytes(bytes)
            }
            // No type here has a field of a fixed width.
            _ => return Err(Broken),
        };
        Ok(Some((tag >> 3, wire)))
    }

    fn varint(&mut self) -> Result<u64, Unreadable> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(Broken)?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        field.extend_from_slice(content);
        field
    }

    fn body(raw: &[u8]) -> Vec<u8> {
        let meta = [bytes(1, b"v1"), bytes(2, b"X")].concat();
        [MAGIC.to_vec(), bytes(1, &meta), bytes(2, raw)].concat()
    }

    #[track_caller]
    fn check(of: &'static str, raw: &[u8], expected: Value) {
        let mut found = decode(of, &body(raw)).unwrap();
        found.as_object_mut().unwrap().retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind"));
        assert_eq!(found, expected);
    }

    #[test]
    fn messages_become_json() {
        check("PodSpec", &[vec![11 << 3, 0], vec![0xc2, 0x01, 0]].concat(), json!({}));
        let metadata =
            [bytes(1, b"a"), bytes(2, b""), bytes(8, b""), bytes(11, &[bytes(1, b"k"), bytes(2, b"")].concat())]
                .concat();
        check(
            "Namespace",
            &[bytes(1, &metadata), bytes(2, b"")].concat(),
            json!({"metadata": {"name": "a", "labels": {"k": ""}}, "spec": {}}),
        );
        check("Secret", &bytes(2, &[bytes(1, b"p"), bytes(2, b"x")].concat()), json!({"data": {"p": "eA=="}}));
        check("IngressRule", &[bytes(1, b"h"), bytes(2, &bytes(1, b""))].concat(), json!({"host": "h", "http": {}}));
        let port = [vec![3 << 3, 80], bytes(4, &[1 << 3, 0, 2 << 3, 90]), vec![5 << 3, 0]].concat();
        check("ServiceSpec", &bytes(1, &port), json!({"ports": [{"port": 80, "targetPort": 90}]}));
        check("DeploymentSpec", &[1 << 3, 0, 5 << 3, 0], json!({"replicas": 0}));
    }

    #[track_caller]
    fn check_refused(body: &[u8], expected: u16) {
        assert_eq!(decode("Secret", body).unwrap_err().code.as_u16(), expected);
    }

    #[test]
    fn unreadable_messages_are_refused() {
        check_refused(b"", 400);
        check_refused(b"{}", 400);
        check_refused(&body(&[0xff; 12]), 400);
        check_refused(&body(&[2 << 3 | 2, 50, 1]), 400);
        check_refused(&body(&bytes(15, b"what")), 415);
    }

    #[test]
    fn every_field_has_a_shape() {
        for (of, fields) in NUMBERS.iter() {
            let known = schema::types().get(of).unwrap_or_else(|| panic!("{of} has no fields"));
            for field in fields.values().filter(|field| field.form != FieldForm::Inlined) {
                assert!(known.contains_key(field.name), "{of}.{}", field.name);
            }
        }
    }
}
