//! Responses: status, headers and body.

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

/// Adds one `Warning` header per text.
pub(super) fn warn(mut response: Response<LiteBody>, warnings: &[String]) -> Response<LiteBody> {
    for text in warnings {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        // A text with characters that a header cannot carry is left out: the field it names is unknown all the same.
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
    response
}
