//! The parts that rules with calls of servers have in common.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::value::{PROPERTIES_MAX, check_length, too_long};
use crate::model::auth::{CALL_TIMEOUT, CallServer};
use crate::project::field::{InvalidValue, read};
use crate::project::kuadrant::fields::Fields;
use crate::project::kuadrant::policy::fault;

/// The maximum length of a URL in bytes.
pub(super) const URL_BYTES_MAX: usize = 2048;
/// The longest time for a call in milliseconds.
const TIMEOUT_MS_MAX: i64 = 60_000;
/// The maximum length in bytes of a text in a list.
const TEXT_BYTES_MAX: usize = 1024;

/// A Secret that a rule reads, in the namespace of the policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RuleSecret {
    /// `credentialsRef`: the entries `clientID` and `clientSecret` of the Secret of this name.
    Client(Arc<str>),
    /// `sharedSecretRef` or `clientSecretRef`: one entry.
    Entry {
        /// The name of the Secret.
        secret: Arc<str>,
        /// The name of the entry.
        key: Arc<str>,
    },
}

impl RuleSecret {
    /// The name of the Secret.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        match self {
            Self::Client(name) | Self::Entry { secret: name, .. } => name,
        }
    }
}

/// `timeout` in milliseconds. As in Kuadrant, 0 is the default.
pub(super) fn timeout(fields: &mut Fields<'_>) -> Result<Duration, InvalidValue> {
    let field = fields.at("timeout");
    let Some(number) = fields.value::<i64>("timeout")?.filter(|number| *number != 0) else { return Ok(CALL_TIMEOUT) };
    let in_range = (1..=TIMEOUT_MS_MAX).contains(&number).then_some(number);
    match in_range.and_then(|number| u64::try_from(number).ok()) {
        Some(number) => Ok(Duration::from_millis(number)),
        None => {
            let why = format!("is not a number of milliseconds up to {TIMEOUT_MS_MAX}");
            Err(fault(&field, &number.to_string(), &why))
        }
    }
}

/// The name of a Secret.
pub(super) fn secret_name(fields: &mut Fields<'_>) -> Result<Arc<str>, InvalidValue> {
    let (name, field) = (fields.required::<String>("name")?, fields.at("name"));
    check_length(&name, &field)?;
    Ok(name.into())
}

/// An entry of a Secret.
pub(super) fn secret_entry(raw: &RawValue, field: &str) -> Result<RuleSecret, InvalidValue> {
    let mut fields = Fields::read(raw, field)?;
    let secret = secret_name(&mut fields)?;
    let key = fields.required::<String>("key")?;
    check_length(&key, &fields.at("key"))?;
    fields.end()?;
    Ok(RuleSecret::Entry { secret, key: key.into() })
}

/// Texts in a list.
pub(super) fn texts(fields: &mut Fields<'_>, name: &str) -> Result<Box<[Arc<str>]>, InvalidValue> {
    let field = fields.at(name);
    let list: Vec<String> = fields.value(name)?.unwrap_or_default();
    if list.len() > PROPERTIES_MAX {
        let why = format!("exceed the limit of {PROPERTIES_MAX}");
        return Err(fault(&field, &format!("{} entries", list.len()), &why));
    }
    if let Some(long) = list.iter().find(|text| text.len() > TEXT_BYTES_MAX) {
        return Err(too_long(&field, long.len(), TEXT_BYTES_MAX));
    }
    Ok(list.into_iter().map(Into::into).collect())
}

/// The server and the path of a URL.
pub(super) fn server_of(text: &str, field: &str) -> Result<(CallServer, Arc<str>), InvalidValue> {
    check_url_length(text, field)?;
    CallServer::of_url(text).map_err(|why| fault(field, text, why))
}

pub(super) fn check_url_length(text: &str, field: &str) -> Result<(), InvalidValue> {
    if text.len() > URL_BYTES_MAX {
        return Err(too_long(field, text.len(), URL_BYTES_MAX));
    }
    Ok(())
}

/// Texts, each with its name.
type TextsByName = Box<[(Arc<str>, Arc<str>)]>;

/// Texts by name.
pub(super) fn texts_by_name(fields: &mut Fields<'_>, name: &str) -> Result<TextsByName, InvalidValue> {
    let field = fields.at(name);
    let Some(raw) = fields.take(name) else { return Ok(Box::default()) };
    let all: BTreeMap<String, String> = read(raw, &field)?;
    if all.len() > PROPERTIES_MAX {
        let why = format!("exceed the limit of {PROPERTIES_MAX}");
        return Err(fault(&field, &format!("{} entries", all.len()), &why));
    }
    for (name, text) in &all {
        check_length(name, &field)?;
        if text.len() > TEXT_BYTES_MAX {
            return Err(too_long(&field, text.len(), TEXT_BYTES_MAX));
        }
    }
    Ok(all.into_iter().map(|(name, text)| (name.into(), text.into())).collect())
}
