//! Selectors: the older spelling of references to attributes (a part of gjson's path syntax).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::super::super::condition::Head;
use super::super::Attributes;
use super::attribute::{Attribute, Named, Scalar};
use super::bounds;

/// The prefix under which selectors also find the attributes of a request.
const CONTEXT: &str = "context";

/// The name of an attribute of a request, or of a value below `auth`.
#[derive(Clone, Debug)]
pub struct Selector {
    source: Arc<str>,
    attribute: Attribute,
}

impl Selector {
    /// Reads a selector: names of fields with dots between them, where `\.` is a dot in a name. `request.…`, also as
    /// `context.request.http.…`, `source.…`, `destination.…`, `connection.…` and `auth.…` are known.
    ///
    /// # Errors
    /// Returns the reason why it cannot be used, for its author.
    pub fn new(source: &str) -> Result<Self, String> {
        if let Some(special) = source.chars().find(|one| "@|#*?{}[]!".contains(*one)) {
            return Err(format!("{special} is not understood in a selector: use an expression"));
        }
        let segments = segments(source);
        let is_index = |segment: &String| segment.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(index) = segments.iter().find(|segment| is_index(segment)) {
            return Err(format!("{index:?} is no name of a field: use an expression for elements of lists"));
        }
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let segments = match segments.as_slice() {
            [CONTEXT, "request", "http", rest @ ..] | [CONTEXT, "request", rest @ ..] => [&["request"], rest].concat(),
            [CONTEXT, rest @ ..] => rest.to_vec(),
            other => other.to_vec(),
        };
        // Names of headers are in lower case in the attributes of a request.
        let lower: Vec<String> = match segments.as_slice() {
            ["request", "headers", ..] => segments.iter().map(|one| one.to_ascii_lowercase()).collect(),
            _ => segments.iter().map(ToString::to_string).collect(),
        };
        match Attribute::named(&lower.iter().map(String::as_str).collect::<Vec<_>>()) {
            Named::Attribute(attribute) => Ok(Self { source: source.into(), attribute }),
            Named::Group | Named::Unknown => Err("there is no such attribute".to_owned()),
        }
    }

    /// The text of the selector.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The name of the header that it reads, in lower case, if it reads one.
    #[must_use]
    pub fn header(&self) -> Option<&str> {
        self.attribute.header().map(|name| &**name)
    }

    /// Returns `true` if it reads what this rule of metadata has fetched.
    #[must_use]
    pub fn reads_metadata(&self, rule: &str) -> bool {
        self.attribute.metadata().is_some_and(|read| read.is_none_or(|read| read == rule))
    }

    /// An upper limit of the steps of an evaluation, each of about 0.1 µs. The value is read, and scanned once.
    #[must_use]
    pub fn steps(&self) -> u32 {
        let is_json = matches!(self.attribute, Attribute::Auth(_));
        let scanned = if is_json { bounds::JSON_SCAN_STEPS } else { bounds::scan_steps(&self.attribute) };
        bounds::read_steps(&self.attribute) + scanned
    }

    /// The value for a request; `None` if it has none.
    pub fn json<H: Head + ?Sized>(&self, attributes: &Attributes<'_, H>) -> Option<Value> {
        if let Some(value) = self.attribute.json(attributes) {
            return Some(value.clone());
        }
        if let Some(text) = self.attribute.text(attributes) {
            return Some(text.into_owned().into());
        }
        self.attribute.scalar(attributes).map(|scalar| match scalar {
            Scalar::Int(number) => number.into(),
            Scalar::Bool(value) => value.into(),
            Scalar::Time(time) => chrono::DateTime::<chrono::Utc>::from(time).to_rfc3339().into(),
        })
    }

    /// The text of the value for a request: a text as it is, any other value as JSON; `None` if it has none, or null.
    pub fn text<'a, H: Head + ?Sized>(&self, attributes: &Attributes<'a, H>) -> Option<Cow<'a, str>> {
        match self.attribute.json(attributes) {
            Some(Value::String(text)) => Some(Cow::Borrowed(text)),
            Some(Value::Null) => None,
            Some(value) => Some(value.to_string().into()),
            None => self.attribute.text(attributes).or_else(|| Some(self.json(attributes)?.to_string().into())),
        }
    }

    /// The elements of the value, if it is a list.
    pub fn elements<'a, H: Head + ?Sized>(&self, attributes: &Attributes<'a, H>) -> Option<&'a [Value]> {
        self.attribute.json(attributes)?.as_array().map(Vec::as_slice)
    }
}

/// The names of the fields.
fn segments(source: &str) -> Vec<String> {
    let mut segments = vec![String::new()];
    let mut characters = source.chars();
    while let Some(character) = characters.next() {
        match (character, segments.last_mut()) {
            ('\\', Some(last)) => last.extend(characters.next()),
            ('.', _) => segments.push(String::new()),
            (character, Some(last)) => last.push(character),
            (_, None) => {}
        }
    }
    segments
}

/// Selectors with the same text are equal.
impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Selector {}

impl Serialize for Selector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.source)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}
