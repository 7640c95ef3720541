//! Responses: status, headers and body.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WARNING};
use http::{HeaderValue, Response, StatusCode};
use serde_json::Value;

use super::body::LiteBody;
use crate::failure::Failure;

const JSON: &str = "application/json";

/// A response with a complete body.
pub(super) fn with(code: StatusCode, content_type: &'static str, body: LiteBody) -> Response<LiteBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

pub(super) fn json(code: StatusCode, value: &Value) -> Response<LiteBody> {
    bytes(code, value.to_string())
}

/// JSON that is already serialized.
pub(super) fn bytes(code: StatusCode, body: impl Into<Bytes>) -> Response<LiteBody> {
    self::body(code, LiteBody::whole(body))
}

/// A JSON body.
pub(super) fn body(code: StatusCode, body: LiteBody) -> Response<LiteBody> {
    with(code, JSON, body)
}

pub(super) fn text(body: &'static str) -> Response<LiteBody> {
    with(StatusCode::OK, "text/plain; charset=utf-8", LiteBody::whole(body))
}

/// The response to a refused request.
pub(crate) fn failure(failure: &Failure) -> Response<LiteBody> {
    let mut response = json(failure.code, &failure.status());
    if let Some(seconds) = failure.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The number of characters of all warnings of a response beyond which each is cut.
const WARNINGS_MAX_CHARS: usize = 4096;
/// The number of characters of a warning that is cut.
const CUT_WARNING_CHARS: usize = 256;

/// Adds one `Warning` header per text.
pub(super) fn warn(mut response: Response<LiteBody>, warnings: &[String]) -> Response<LiteBody> {
    let mut seen = BTreeSet::new();
    let texts: Vec<&str> = warnings.iter().map(String::as_str).filter(|text| seen.insert(*text)).collect();
    let is_cut = texts.iter().map(|text| text.chars().count()).sum::<usize>() > WARNINGS_MAX_CHARS;
    let mut chars = 0;
    for text in texts {
        let text: String = text.chars().take(if is_cut { CUT_WARNING_CHARS } else { WARNINGS_MAX_CHARS }).collect();
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        // A text with characters that a header cannot carry is left out: the field it names is unknown all the same.
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
            response.headers_mut().append(WARNING, value);
        }
        chars += text.chars().count();
        if chars >= WARNINGS_MAX_CHARS {
            break;
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(warnings: &[String], expected: &[String]) {
        let response = warn(Response::new(LiteBody::whole("")), warnings);
        let sent: Vec<_> = response.headers().get_all(WARNING).iter().map(|text| text.to_str().unwrap()).collect();
        assert_eq!(sent, expected.iter().map(|text| format!("299 - \"{text}\"")).collect::<Vec<_>>());
    }

    #[test]
    fn warnings_have_room_in_headers() {
        check(&["a \"b\"".to_owned(), "c".to_owned(), "c".to_owned()], &["a \\\"b\\\"".to_owned(), "c".to_owned()]);
        check(&["a".repeat(4096)], &["a".repeat(4096)]);
        check(&["a".repeat(4097), "b".to_owned()], &["a".repeat(256), "b".to_owned()]);
        let many: Vec<String> = (0..100).map(|nth| format!("{nth:0>300}")).collect();
        check(&many, &many.iter().take(16).map(|text| text[..256].to_owned()).collect::<Vec<_>>());
    }
}
