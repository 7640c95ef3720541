//! The form of objects in a response: whole, as rows of a table, or only their metadata.

use http::HeaderMap;
use http::header::ACCEPT;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::kind::Kind;
use crate::serve::table;

/// The first supported form that a request accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Whole,
    Table,
    Metadata,
}

impl Form {
    /// Reads the Accept headers. If no form is supported, the result is 406.
    pub(super) fn accepted(headers: &HeaderMap) -> Result<Self, Failure> {
        let mut any = false;
        for entry in entries(headers) {
            any = true;
            let (media, parameters) = entry.split_once(';').unwrap_or((entry, ""));
            if !matches!(media.trim(), "application/json" | "*/*" | "application/*") {
                continue;
            }
            let parameter =
                |name: &str| parameters.split(';').find_map(|one| one.trim().strip_prefix(name)?.strip_prefix('='));
            match (parameter("as"), parameter("v"), parameter("g")) {
                (None, _, _) => return Ok(Self::Whole),
                (Some("Table"), Some("v1"), Some("meta.k8s.io")) => return Ok(Self::Table),
                (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("v1"), Some("meta.k8s.io")) => {
                    return Ok(Self::Metadata);
                }
                _ => {}
            }
        }
        if any { Err(Failure::not_acceptable()) } else { Ok(Self::Whole) }
    }

    /// One object in this form. In a table it is the only row.
    pub(super) fn one(self, kind: &Kind, object: &Value, include: &str, unix_seconds: u64) -> Value {
        match self {
            Self::Whole => object.clone(),
            Self::Metadata => metadata(object),
            Self::Table => {
                let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                table::of(kind, std::iter::once(object), version, include, unix_seconds)
            }
        }
    }
}

/// The parts of all Accept headers.
pub(super) fn entries(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|entry| !entry.is_empty())
}

/// An object reduced to its metadata.
pub(super) fn metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &str, expected: Option<Form>) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        assert_eq!(Form::accepted(&headers).ok(), expected, "{accept}");
    }

    #[test]
    fn the_first_form_we_know_wins() {
        check("*/*", Some(Form::Whole));
        check("application/json", Some(Form::Whole));
        check("application/vnd.kubernetes.protobuf,application/json", Some(Form::Whole));
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            Some(Form::Table),
        );
        check(
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
            Some(Form::Metadata),
        );
        check("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Some(Form::Whole));
        check("application/vnd.kubernetes.protobuf", None);
        check("application/json;as=Table;v=v9;g=meta.k8s.io", None);
        assert_eq!(Form::accepted(&HeaderMap::new()).ok(), Some(Form::Whole));
    }
}
