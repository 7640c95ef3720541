//! Values in the three spellings of AuthPolicies.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderName;
use serde_json::value::RawValue;

use super::reader::RuleReader;
use crate::finding::printable;
use crate::model::auth::AuthValue;
use crate::model::{CONNECTION_HEADERS, Selector};
use crate::project::field::{InvalidValue, read};
use crate::project::kuadrant::fields::Fields;
use crate::project::kuadrant::policy::fault;

/// The maximum length of a constant in bytes, as JSON.
const CONSTANT_BYTES_MAX: usize = 8 << 10;
/// The maximum length of a selector in bytes.
const SELECTOR_BYTES_MAX: usize = 1024;
/// The maximum number of properties of an object that a rule makes, of headers, and of entries of a
/// list.
pub(super) const PROPERTIES_MAX: usize = 64;
/// The maximum length in bytes of the name of a header, a property, a parameter or a cookie.
pub(super) const NAME_BYTES_MAX: usize = 256;

/// Values by the names of what they are for.
type Named<K> = Box<[(K, AuthValue)]>;

impl RuleReader<'_> {
    /// A value in one of the spellings.
    pub(super) fn value(&mut self, raw: &RawValue, field: &str) -> Result<AuthValue, InvalidValue> {
        self.spelled(raw, field, &["value", "selector", "expression"])
    }

    /// A value that depends on the request.
    pub(super) fn request_value(&mut self, raw: &RawValue, field: &str) -> Result<AuthValue, InvalidValue> {
        self.spelled(raw, field, &["selector", "expression"])
    }

    fn spelled(&mut self, raw: &RawValue, field: &str, spellings: &[&'static str]) -> Result<AuthValue, InvalidValue> {
        let mut fields = Fields::read(raw, field)?;
        let (spelling, raw) = fields.one_of(spellings)?;
        let field = fields.at(spelling);
        fields.end()?;
        match spelling {
            "selector" => self.selector(&read::<String>(raw, &field)?, &field).map(AuthValue::Selector),
            "expression" => self.expressions.value(&read::<String>(raw, &field)?, &field).map(AuthValue::Expression),
            _ => {
                let length = raw.get().len();
                if length > CONSTANT_BYTES_MAX {
                    return Err(too_long(&field, length, CONSTANT_BYTES_MAX));
                }
                Ok(AuthValue::Constant(Arc::new(read(raw, &field)?)))
            }
        }
    }

    pub(super) fn selector(&self, source: &str, field: &str) -> Result<Selector, InvalidValue> {
        if source.len() > SELECTOR_BYTES_MAX {
            return Err(too_long(field, source.len(), SELECTOR_BYTES_MAX));
        }
        Selector::new(source).map_err(|why| fault(field, source, &format!("is not a usable selector ({why})")))
    }

    /// Values by name.
    pub(super) fn properties(&mut self, raw: Option<&RawValue>, field: &str) -> Result<Named<Arc<str>>, InvalidValue> {
        self.named(raw, field, |name, _| Ok(name.into()))
    }

    /// Values of headers by name.
    pub(super) fn headers(&mut self, raw: Option<&RawValue>, field: &str) -> Result<Named<HeaderName>, InvalidValue> {
        self.named(raw, field, header)
    }

    fn named<K>(
        &mut self,
        raw: Option<&RawValue>,
        field: &str,
        key: fn(&str, &str) -> Result<K, InvalidValue>,
    ) -> Result<Named<K>, InvalidValue> {
        let Some(raw) = raw else { return Ok(Box::default()) };
        let entries: BTreeMap<String, &RawValue> = read(raw, field)?;
        if entries.len() > PROPERTIES_MAX {
            let value = format!("{} entries", entries.len());
            return Err(fault(field, &value, &format!("exceed the limit of {PROPERTIES_MAX}")));
        }
        let entry = |(name, raw): (String, &RawValue)| {
            check_length(&name, field)?;
            let value = self.value(raw, &format!("{field}[{}]", printable(&name)))?;
            Ok((key(&name, field)?, value))
        };
        entries.into_iter().map(entry).collect()
    }
}

/// The name of a header that a rule may set.
pub(super) fn header(text: &str, field: &str) -> Result<HeaderName, InvalidValue> {
    check_length(text, field)?;
    let name =
        HeaderName::from_bytes(text.as_bytes()).map_err(|_| fault(field, text, "is not the name of a header"))?;
    let is_fixed = CONNECTION_HEADERS.contains(&name) || name == http::header::HOST;
    if is_fixed {
        return Err(fault(field, text, "is a header of the edge's connections, which no rule may change"));
    }
    Ok(name)
}

/// Checks the length of a name.
pub(super) fn check_length(name: &str, field: &str) -> Result<(), InvalidValue> {
    if (1..=NAME_BYTES_MAX).contains(&name.len()) {
        return Ok(());
    }
    Err(fault(field, name, &format!("is not a name of 1 to {NAME_BYTES_MAX} bytes")))
}

/// The length is told and not the text, which may be a secret.
pub(super) fn too_long(field: &str, length: usize, max: usize) -> InvalidValue {
    fault(field, &format!("{length} bytes"), &format!("exceed the limit of {max}"))
}
