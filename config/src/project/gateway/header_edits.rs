//! Header edits of filters.

use http::header::HOST;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::finding::printable;
use crate::model::{CONNECTION_HEADERS, HeaderEdits};
use crate::project::field::{FindingList, InvalidValue, read};

/// The maximum number of headers in one list.
const HEADERS_MAX: usize = 16;
/// The maximum length of a value in bytes.
const VALUE_BYTES_MAX: usize = 4096;

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct EditsJson {
    set: Option<Vec<HeaderJson>>,
    add: Option<Vec<HeaderJson>>,
    remove: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct HeaderJson {
    name: String,
    value: String,
}

/// Reads edits, whole or not at all.
pub(super) fn header_edits(
    raw: &RawValue,
    field: &str,
    findings: &mut FindingList,
) -> Result<HeaderEdits, InvalidValue> {
    let json: EditsJson = read(raw, field)?;
    let edits = HeaderEdits {
        remove: header_names(json.remove, HEADERS_MAX, &format!("{field}.remove"))?,
        set: headers(json.set, &format!("{field}.set"), findings)?,
        add: headers(json.add, &format!("{field}.add"), findings)?,
    };
    let [set, add] = [&edits.set, &edits.add].map(|list| list.iter().map(|(name, _)| name).collect::<Vec<_>>());
    for (below, names) in [("remove", edits.remove.iter().collect()), ("set", set), ("add", add)] {
        // A request has one Host, which may be another one, but neither none nor two.
        let is_fixed = |name: &&&HeaderName| CONNECTION_HEADERS.contains(name) || **name == HOST && below != "set";
        if let Some(name) = names.iter().find(is_fixed) {
            let why = "is a header of the edge's connections, which no filter may change".to_owned();
            return Err(InvalidValue { field: format!("{field}.{below}"), value: name.to_string(), why });
        }
    }
    Ok(edits)
}

/// Headers with values. The first of equal names counts, as the API defines.
fn headers(
    list: Option<Vec<HeaderJson>>,
    field: &str,
    findings: &mut FindingList,
) -> Result<Box<[(HeaderName, HeaderValue)]>, InvalidValue> {
    let list = within(list, HEADERS_MAX, field)?;
    let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::with_capacity(list.len());
    for (number, HeaderJson { name, value }) in list.into_iter().enumerate() {
        let field = format!("{field}[{number}]");
        let name = header_name(&name, &format!("{field}.name"))?;
        let fits = value.len() <= VALUE_BYTES_MAX;
        let value = HeaderValue::from_str(&value).ok().filter(|_| fits).ok_or_else(|| InvalidValue {
            field: format!("{field}.value"),
            value: printable(&value),
            why: format!("is not a value of at most {VALUE_BYTES_MAX} visible ASCII characters, spaces and tabs"),
        })?;
        if headers.iter().any(|(known, _)| *known == name) {
            let why = "an earlier entry has the same name, and only the first counts";
            findings.without_effect(&format!("{field}.name"), name.as_str(), why);
        } else {
            headers.push((name, value));
        }
    }
    Ok(headers.into())
}

/// Names of headers, each once.
pub(super) fn header_names(
    list: Option<Vec<String>>,
    limit: usize,
    field: &str,
) -> Result<Box<[HeaderName]>, InvalidValue> {
    let mut names: Vec<HeaderName> = Vec::new();
    for (number, text) in within(list, limit, field)?.into_iter().enumerate() {
        let name = header_name(&text, &format!("{field}[{number}]"))?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names.into())
}

fn header_name(text: &str, field: &str) -> Result<HeaderName, InvalidValue> {
    HeaderName::from_bytes(text.as_bytes()).ok().filter(|_| text.len() <= 256).ok_or_else(|| InvalidValue {
        field: field.to_owned(),
        value: printable(text),
        why: "is not the name of a header".to_owned(),
    })
}

/// A list within a limit.
pub(in crate::project) fn within<T>(list: Option<Vec<T>>, limit: usize, field: &str) -> Result<Vec<T>, InvalidValue> {
    let list = list.unwrap_or_default();
    if list.len() <= limit {
        return Ok(list);
    }
    let value = format!("{} entries", list.len());
    Err(InvalidValue { field: field.to_owned(), value, why: format!("exceed the limit of {limit}") })
}
