//! Matches of rules of HTTPRoutes.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::HeaderName;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::rules::REGULAR_EXPRESSION;
use crate::model::{Comparison, Conditions, Expression, Extent, PathMatch, RegexCase, Subject, TextMatch, ValueMatch};
use crate::project::expressions::Expressions;
use crate::project::field::{FindingList, InvalidValue, read};

/// The maximum length of one path in bytes.
const PATH_BYTES_MAX: usize = 1024;
/// The maximum length in bytes of one value of a header or query parameter.
const VALUE_BYTES_MAX: usize = 4096;
/// The maximum number of headers, and of query parameters, of one match.
const VALUES_MAX: usize = 16;
/// The comparison of an expression with a whole text.
pub(super) const fn whole(subject: Subject) -> Comparison {
    Comparison { subject, case: RegexCase::Sensitive, extent: Extent::Whole }
}

/// A match of requests. One of the matches of a rule must hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpMatch {
    /// Its path. Expressions must match all of it.
    pub path: PathMatch,
    /// Method, headers and query parameters.
    pub conditions: Conditions,
}

impl HttpMatch {
    /// Its expressions.
    pub(super) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.path.expression().into_iter().chain(self.conditions.expressions())
    }

    /// Like [`HttpMatch::expressions`], to replace them by equal ones.
    pub(in crate::project) fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expression> {
        self.path.expression_mut().into_iter().chain(self.conditions.expressions_mut())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct MatchJson<'a> {
    path: Option<PathJson>,
    #[serde(borrow)]
    headers: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    query_params: Option<Vec<&'a RawValue>>,
    method: Option<Arc<str>>,
}

#[derive(Deserialize, Default)]
#[serde(expecting = "an object")]
struct PathJson {
    #[serde(rename = "type")]
    kind: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct ValueJson {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<String>,
    value: Option<String>,
}

/// The match of a rule without matches: every request.
pub(super) fn every_request() -> HttpMatch {
    HttpMatch { path: PathMatch::Prefix(Arc::default()), conditions: Conditions::default() }
}

/// Reads a match, whole or not at all.
pub(super) fn http_match(
    raw: &RawValue,
    field: &str,
    expressions: &mut Expressions<'_>,
    findings: &mut FindingList,
) -> Result<HttpMatch, InvalidValue> {
    let json: MatchJson<'_> = read(raw, field)?;
    let path = path(json.path.unwrap_or_default(), field, expressions)?;
    let methods = json.method.into_iter().map(|text| method(text, field)).collect::<Result<_, _>>()?;
    let headers = values(json.headers, Named::Header, &format!("{field}.headers"), expressions, findings)?;
    let queries = values(json.query_params, Named::Query, &format!("{field}.queryParams"), expressions, findings)?;
    Ok(HttpMatch { path, conditions: Conditions { methods, headers, queries } })
}

fn path(json: PathJson, field: &str, expressions: &mut Expressions<'_>) -> Result<PathMatch, InvalidValue> {
    let text = json.value.unwrap_or_else(|| "/".to_owned());
    let fault =
        |below: &str, value: String, why: String| InvalidValue { field: format!("{field}.path.{below}"), value, why };
    if text.len() > PATH_BYTES_MAX {
        return Err(fault("value", text, format!("is longer than {PATH_BYTES_MAX} bytes")));
    }
    let path = match json.kind.as_deref() {
        None | Some("PathPrefix") => PathMatch::prefix(&text).map_err(str::to_owned),
        Some("Exact") => PathMatch::exact(&text).map_err(str::to_owned),
        Some(REGULAR_EXPRESSION) => expressions.compile(&text, whole(Subject::Path)).map(PathMatch::Regex),
        Some(kind) => {
            let why = "is not Exact, PathPrefix or RegularExpression".to_owned();
            return Err(fault("type", kind.to_owned(), why));
        }
    };
    path.map_err(|why| fault("value", text, why))
}

/// The methods of the API.
fn method(text: Arc<str>, field: &str) -> Result<Arc<str>, InvalidValue> {
    match &*text {
        "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE" | "PATCH" => Ok(text),
        _ => {
            let why = "is not a method of the API".to_owned();
            Err(InvalidValue { field: format!("{field}.method"), value: text.to_string(), why })
        }
    }
}

/// The kind of a named value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// A header: names are case-insensitive.
    Header,
    /// A query parameter: names are case-sensitive.
    Query,
}

/// Headers or query parameters. The first of equal names counts, as the API defines. If there are too many, the match
/// cannot be read: without the rest it would match more requests.
pub(super) fn values(
    list: Option<Vec<&RawValue>>,
    named: Named,
    field: &str,
    expressions: &mut Expressions<'_>,
    findings: &mut FindingList,
) -> Result<Box<[ValueMatch]>, InvalidValue> {
    let list = list.unwrap_or_default();
    if list.len() > VALUES_MAX {
        let why = format!("exceed the limit of {VALUES_MAX}");
        return Err(InvalidValue { field: field.to_owned(), value: format!("{} entries", list.len()), why });
    }
    let mut names = BTreeSet::new();
    let mut values = Vec::new();
    for (number, raw) in list.into_iter().enumerate() {
        let field = format!("{field}[{number}]");
        let value = value(raw, named, &field, expressions)?;
        if names.insert(Arc::clone(&value.name)) {
            values.push(value);
        } else {
            let why = "an earlier entry has the same name, and only the first counts";
            findings.without_effect(&format!("{field}.name"), &value.name, why);
        }
    }
    Ok(values.into())
}

fn value(
    raw: &RawValue,
    named: Named,
    field: &str,
    expressions: &mut Expressions<'_>,
) -> Result<ValueMatch, InvalidValue> {
    let json: ValueJson = read(raw, field)?;
    let fault = |below: &str, value: &str, why: String| InvalidValue {
        field: format!("{field}.{below}"),
        value: crate::finding::printable(value),
        why,
    };
    let text = json.name.unwrap_or_default();
    // The schema requires the names of parameters to be tokens too.
    let header = HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| fault("name", &text, "is not a name of letters, digits and !#$%&'*+-.^_`|~".to_owned()))?;
    let name: Arc<str> = match named {
        Named::Header => header.as_str().into(),
        Named::Query => text.into(),
    };
    let Some(text) = json.value.filter(|text| !text.is_empty()) else {
        return Err(fault("value", "", "is required but empty or missing".to_owned()));
    };
    if text.len() > VALUE_BYTES_MAX {
        return Err(fault("value", &text, format!("is longer than {VALUE_BYTES_MAX} bytes")));
    }
    let value = match json.kind.as_deref() {
        None | Some("Exact") => TextMatch::Exact(text.into()),
        Some(REGULAR_EXPRESSION) => {
            let expression = expressions.compile(&text, whole(Subject::Value));
            TextMatch::Regex(expression.map_err(|why| fault("value", &text, why))?)
        }
        Some(kind) => return Err(fault("type", kind, "is neither Exact nor RegularExpression".to_owned())),
    };
    Ok(ValueMatch { name, value })
}
