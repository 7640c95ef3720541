//! Cross-origin requests (CORS), as filters configure them.

use std::sync::Arc;

use http::HeaderName;
use serde::Deserialize;
use serde_json::value::RawValue;

pub use crate::model::{AnyOr, Cors, OriginPattern};
use crate::project::field::{FindingList, InvalidValue, read};

/// The maximum number of origins, or of header names, in one list.
const ENTRIES_MAX: usize = 64;
/// The maximum number of methods.
const METHODS_MAX: usize = 9;
/// The default of `maxAge` in seconds.
const MAX_AGE_S: u32 = 5;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct CorsJson<'a> {
    #[serde(borrow)]
    allow_origins: Option<Vec<&'a RawValue>>,
    allow_credentials: Option<bool>,
    #[serde(borrow)]
    allow_methods: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    allow_headers: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    expose_headers: Option<Vec<&'a RawValue>>,
    max_age: Option<i64>,
}

/// Reads a CORS filter. An entry that cannot be read allows nothing, nor does a star beside other entries, except among
/// exposed headers, where the API permits it.
pub(super) fn cors(raw: &RawValue, field: &str, findings: &mut FindingList) -> Result<Cors, InvalidValue> {
    let json: CorsJson<'_> = read(raw, field)?;
    let mut lists = Lists { field, findings };
    let header = |text: &str| HeaderName::from_bytes(text.as_bytes()).map_err(|_| "is not the name of a header");
    let cors = Cors {
        origins: lists.read(json.allow_origins, ENTRIES_MAX, "allowOrigins", OriginPattern::parse),
        credentials: json.allow_credentials.unwrap_or_default(),
        methods: lists.read(json.allow_methods, METHODS_MAX, "allowMethods", method),
        headers: lists.read(json.allow_headers, ENTRIES_MAX, "allowHeaders", header),
        exposed: lists.read(json.expose_headers, ENTRIES_MAX, "exposeHeaders", header),
        max_age_s: MAX_AGE_S,
    };
    let max_age_s = match json.max_age.map(|number| (u32::try_from(number), number)) {
        None => MAX_AGE_S,
        Some((Ok(seconds @ 1..), _)) => seconds,
        Some((_, number)) => {
            findings.ignored(&format!("{field}.maxAge"), &number.to_string(), "is not a number of seconds from 1");
            MAX_AGE_S
        }
    };
    Ok(Cors { max_age_s, ..cors })
}

struct Lists<'l> {
    field: &'l str,
    findings: &'l mut FindingList,
}

impl Lists<'_> {
    fn read<T>(
        &mut self,
        list: Option<Vec<&RawValue>>,
        limit: usize,
        below: &str,
        parse: impl Fn(&str) -> Result<T, &'static str>,
    ) -> AnyOr<T> {
        let alone = below == "exposeHeaders" || list.as_ref().is_some_and(|list| list.len() == 1);
        let mut entries = Vec::new();
        for (field, raw) in self.findings.entries(list, limit, &format!("{}.{below}", self.field)) {
            let Some(text) = self.findings.entry::<String>(raw, &field) else { continue };
            match parse(&text) {
                _ if text == "*" && alone => return AnyOr::Any,
                _ if text == "*" => self.findings.dropped(&field, &text, "cannot be combined with other entries"),
                Ok(entry) => entries.push(entry),
                Err(why) => self.findings.dropped(&field, &text, why),
            }
        }
        AnyOr::These(entries.into())
    }
}

fn method(text: &str) -> Result<Arc<str>, &'static str> {
    match text {
        "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE" | "PATCH" => Ok(text.into()),
        _ => Err("is not a method of the API"),
    }
}
