//! The parts of the list/watch protocol that the informer itself reads; objects stay slices of their bytes.
//!
//! Everything is lenient except for errors that would look like deletions: a list must have its resourceVersion and its
//! items.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// One page of a list (`<Kind>List`) without its items.
#[derive(Deserialize)]
pub(super) struct Page {
    pub(super) metadata: PageMeta,
    /// `null` is an empty list, as Go writes one; a body without the field is not a list.
    #[serde(rename = "items", deserialize_with = "null_is_empty")]
    _items: Vec<IgnoredAny>,
}

/// `metadata` of a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMeta {
    #[serde(default)]
    pub(super) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(super) token: Option<String>,
}

/// One line of a watch.
#[derive(Deserialize)]
pub(super) struct WatchFrame<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) what: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

/// The object of a BOOKMARK: only its resourceVersion matters.
#[derive(Deserialize)]
pub(super) struct BookmarkObject {
    pub(super) metadata: BookmarkMeta,
}

/// `metadata` of a bookmark.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BookmarkMeta {
    pub(super) resource_version: String,
}

/// `v1` Status: the body of an error response and the object of an ERROR event.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Status {
    pub(super) code: Option<u16>,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) details: Option<StatusDetails>,
}

/// `details` of a Status.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StatusDetails {
    pub(super) name: Option<String>,
    pub(super) retry_after_seconds: Option<u32>,
}

fn null_is_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IgnoredAny>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expected: bool) {
        assert_eq!(serde_json::from_str::<Page>(body).is_ok(), expected, "{body}");
    }

    #[test]
    fn only_a_valid_list_is_accepted() {
        check(r#"{"metadata":{"resourceVersion":"1"},"items":[{},{}]}"#, true);
        check(r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#, true);
        check(r#"{"metadata":{"resourceVersion":"1"},"items":null}"#, true);
        check(r#"{"metadata":{"resourceVersion":"1"}}"#, false);
        check(r#"{"kind":"Status","metadata":{},"status":"Failure"}"#, false);
        check(r#"{"metadata":{"resourceVersion":"1"},"items":[{},{"#, false);
        check("<html>", false);
    }
}
