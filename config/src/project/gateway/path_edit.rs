//! Redirects and rewrites of filters.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::hostname::precise_hostname;
use super::reference::port;
use crate::finding::printable;
pub use crate::model::Scheme;
use crate::model::{Filter, PathRewrite, normalize};
use crate::project::field::{InvalidValue, read};

/// The maximum length of a path in bytes.
const PATH_BYTES_MAX: usize = 1024;
/// The default status of a redirect.
const STATUS: i64 = 302;

/// `requestRedirect`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestRedirect {
    /// The scheme; `None` for that of the request.
    pub scheme: Option<Scheme>,
    /// The host; `None` for that of the request.
    pub host: Option<Arc<str>>,
    /// The port; `None` for that of the scheme if that is given, else for that of the listener.
    pub port: Option<u16>,
    /// The path; `None` for that of the request.
    pub path: Option<PathRewrite>,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct RedirectJson {
    scheme: Option<String>,
    hostname: Option<String>,
    path: Option<PathJson>,
    port: Option<i64>,
    status_code: Option<i64>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct RewriteJson {
    hostname: Option<String>,
    path: Option<PathJson>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct PathJson {
    #[serde(rename = "type")]
    kind: Option<String>,
    replace_full_path: Option<String>,
    replace_prefix_match: Option<String>,
}

fn fault(field: String, value: &str, why: impl Into<String>) -> InvalidValue {
    InvalidValue { field, value: printable(value), why: why.into() }
}

/// Reads a redirect filter.
pub(super) fn redirect(raw: &RawValue, field: &str) -> Result<RequestRedirect, InvalidValue> {
    let json: RedirectJson = read(raw, field)?;
    let scheme = json.scheme.map(|text| {
        Scheme::parse(&text).ok_or_else(|| fault(format!("{field}.scheme"), &text, "is neither http nor https"))
    });
    let status = json.status_code.unwrap_or(STATUS);
    let status = match (u16::try_from(status), status) {
        (Ok(code), 301 | 302 | 303 | 307 | 308) => code,
        _ => {
            let why = "is not 301, 302, 303, 307 or 308";
            return Err(fault(format!("{field}.statusCode"), &status.to_string(), why));
        }
    };
    Ok(RequestRedirect {
        scheme: scheme.transpose()?,
        host: host(json.hostname, field)?,
        port: json.port.map(|number| port(number, &format!("{field}.port"))).transpose()?,
        path: json.path.map(|json| path(json, &format!("{field}.path"))).transpose()?,
        status,
    })
}

/// Reads a rewrite filter: of the host, of the path, or of both.
pub(super) fn rewrite(raw: &RawValue, field: &str) -> Result<Vec<Filter>, InvalidValue> {
    let json: RewriteJson = read(raw, field)?;
    let host = host(json.hostname, field)?.map(Filter::Host);
    let path = json.path.map(|json| path(json, &format!("{field}.path"))).transpose()?.map(Filter::Path);
    Ok(host.into_iter().chain(path).collect())
}

fn host(text: Option<String>, field: &str) -> Result<Option<Arc<str>>, InvalidValue> {
    let host = text.map(|text| precise_hostname(&text).map_err(|why| fault(format!("{field}.hostname"), &text, why)));
    host.transpose()
}

fn path(json: PathJson, field: &str) -> Result<PathRewrite, InvalidValue> {
    let missing = |below: &str| fault(format!("{field}.{below}"), "", "is missing, and its type requires it");
    match json.kind.as_deref() {
        Some("ReplaceFullPath") => {
            let text = json.replace_full_path.ok_or_else(|| missing("replaceFullPath"))?;
            let text = if text.is_empty() { "/".to_owned() } else { text };
            replacement(&text, &format!("{field}.replaceFullPath")).map(PathRewrite::Full)
        }
        Some("ReplacePrefixMatch") => {
            let text = json.replace_prefix_match.ok_or_else(|| missing("replacePrefixMatch"))?;
            if text.is_empty() {
                return Ok(PathRewrite::Prefix(Arc::default()));
            }
            replacement(&text, &format!("{field}.replacePrefixMatch")).map(PathRewrite::Prefix)
        }
        kind => {
            let why = "is neither ReplaceFullPath nor ReplacePrefixMatch";
            Err(fault(format!("{field}.type"), kind.unwrap_or_default(), why))
        }
    }
}

/// A path that can occur in a request: without query and fragment, and without characters that must be encoded.
fn replacement(text: &str, field: &str) -> Result<Arc<str>, InvalidValue> {
    if text.len() > PATH_BYTES_MAX {
        return Err(fault(field.to_owned(), text, format!("is longer than {PATH_BYTES_MAX} bytes")));
    }
    let plain = text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'?' | b'#' | b'"' | b'<' | b'>' | b'\\'));
    if !plain || normalize(text).is_none_or(|path| path.had_dot_segments) {
        return Err(fault(field.to_owned(), text, "is not a valid request path"));
    }
    Ok(text.into())
}
