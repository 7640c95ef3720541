//! Request mirrors of filters.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::backend::{BackendRef, backend_ref};
use super::http_filter::InvalidFilter;
use crate::object::ObjectName;
use crate::project::field::{InvalidValue, read};

/// `requestMirror`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestMirror {
    /// The backend of the copies.
    pub to: BackendRef,
    /// The numerator of the fraction of mirrored requests.
    pub numerator: u32,
    /// The denominator, at least 1.
    pub denominator: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct MirrorJson<'a> {
    #[serde(borrow)]
    backend_ref: Option<&'a RawValue>,
    percent: Option<i64>,
    fraction: Option<FractionJson>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct FractionJson {
    numerator: i64,
    denominator: Option<i64>,
}

/// Reads a mirror.
pub(super) fn mirror(raw: &RawValue, field: &str, own: &ObjectName) -> Result<RequestMirror, InvalidFilter> {
    let json: MirrorJson<'_> = read(raw, field)?;
    let below = format!("{field}.backendRef");
    let to = match json.backend_ref {
        Some(raw) => backend_ref(raw, &below, own)?,
        None => return Err(fault(below, String::new(), "is required but missing").into()),
    };
    let (numerator, denominator, written) = match (json.percent, json.fraction) {
        (None, None) => (1, 1, "percent"),
        (Some(percent), None) => (percent, 100, "percent"),
        (None, Some(FractionJson { numerator, denominator })) => (numerator, denominator.unwrap_or(100), "fraction"),
        (Some(percent), Some(_)) => {
            let invalid = fault(format!("{field}.percent"), percent.to_string(), "cannot be combined with a fraction");
            return Err(InvalidFilter::incompatible(invalid));
        }
    };
    match (u32::try_from(numerator), u32::try_from(denominator)) {
        (Ok(numerator), Ok(denominator)) if denominator > 0 && numerator <= denominator => {
            Ok(RequestMirror { to, numerator, denominator })
        }
        _ => {
            let value = format!("{numerator}/{denominator}");
            Err(fault(format!("{field}.{written}"), value, "is not between 0 and 1").into())
        }
    }
}

fn fault(field: String, value: String, why: &str) -> InvalidValue {
    InvalidValue { field, value, why: why.to_owned() }
}
