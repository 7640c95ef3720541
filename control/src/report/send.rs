//! One write to the API server and its result, for every kind of report.

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use kube::core::{Status, request};
use serde::de::DeserializeOwned;

use crate::backoff::retry_after;

/// The size limit of a response; objects are smaller (etcd, 1.5 MiB).
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// The pause for a busy server that does not request one.
const LATER: Duration = Duration::from_secs(1);

/// A request, or the error of building it.
pub(super) type Prepared = Result<http::Request<Vec<u8>>, request::Error>;

/// The reason why nothing was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NotWritten {
    /// An object of that name exists.
    Exists,
    /// The object has changed since it was read.
    Conflict,
    /// The object or its namespace does not exist, or is being deleted.
    Gone,
    /// The API server is busy and requests this pause.
    Throttled(Duration),
    /// The permission is missing.
    Forbidden(String),
    /// The API server rejects the request for another reason, and would do so again.
    Refused(String),
    /// There was no usable response.
    Failed(String),
}

impl NotWritten {
    /// The reason, for the log.
    pub(super) fn why(&self) -> &str {
        match self {
            Self::Exists => "it already exists",
            Self::Conflict => "another client has changed it",
            Self::Gone => "it is gone",
            Self::Throttled(_) => "the API server is busy",
            Self::Forbidden(why) | Self::Refused(why) | Self::Failed(why) => why,
        }
    }
}

/// The label `outcome` of the metrics of writes.
pub(super) const fn outcome<T>(result: &Result<T, NotWritten>) -> &'static str {
    match result {
        Ok(_) => "written",
        Err(NotWritten::Exists) => "exists",
        Err(NotWritten::Gone) => "gone",
        Err(NotWritten::Throttled(_)) => "throttled",
        Err(NotWritten::Forbidden(_) | NotWritten::Refused(_)) => "refused",
        Err(NotWritten::Conflict | NotWritten::Failed(_)) => "failed",
    }
}

/// Sends a write and parses the resulting object.
pub(super) async fn send<T: DeserializeOwned>(client: &kube::Client, request: Prepared) -> Result<T, NotWritten> {
    let request = request.map_err(|why| NotWritten::Refused(why.to_string()))?;
    let answer = client.send(request.map(Body::from)).await.map_err(|why| NotWritten::Failed(why.to_string()))?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let bytes = body.map_err(|why| NotWritten::Failed(why.to_string()))?.to_bytes();
    if head.status.is_success() {
        return serde_json::from_slice(&bytes).map_err(|why| NotWritten::Failed(why.to_string()));
    }
    // Proxies in between may answer in other formats.
    let status: Status = serde_json::from_slice(&bytes).unwrap_or_default();
    Err(refusal(head.status.as_u16(), &status, retry_after(&head.headers)))
}

fn refusal(code: u16, status: &Status, asked: Option<Duration>) -> NotWritten {
    let why = || format!("{code}: {}", status.message);
    let details = status.details.as_ref();
    let going = details.is_some_and(|it| it.causes.iter().any(|cause| cause.reason == "NamespaceTerminating"));
    let retry_after =
        details.map(|it| Duration::from_secs(u64::from(it.retry_after_seconds))).filter(|it| !it.is_zero());
    match code {
        404 => NotWritten::Gone,
        403 if going => NotWritten::Gone,
        403 => NotWritten::Forbidden(why()),
        409 if status.reason == "AlreadyExists" => NotWritten::Exists,
        409 => NotWritten::Conflict,
        429 => NotWritten::Throttled(asked.or(retry_after).unwrap_or(LATER)),
        // Other credentials, another version or more time may help.
        401 | 408 => NotWritten::Failed(why()),
        400..=499 => NotWritten::Refused(why()),
        _ => NotWritten::Failed(why()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: u16, body: &str, asked_s: Option<u64>, want: &NotWritten) {
        let status: Status = serde_json::from_str(body).unwrap_or_default();
        assert_eq!(refusal(code, &status, asked_s.map(Duration::from_secs)), *want);
    }

    #[test]
    fn refusals_are_classified() {
        let later = |seconds| NotWritten::Throttled(Duration::from_secs(seconds));
        let failed = |why: &str| NotWritten::Failed(why.to_owned());
        check(404, r#"{"reason":"NotFound","message":"no"}"#, None, &NotWritten::Gone);
        let going = r#"{"reason":"Forbidden","message":"no","details":{"causes":[{"reason":"NamespaceTerminating"}]}}"#;
        check(403, going, None, &NotWritten::Gone);
        check(403, r#"{"reason":"Forbidden","message":"no"}"#, None, &NotWritten::Forbidden("403: no".to_owned()));
        check(409, r#"{"reason":"AlreadyExists","message":"no"}"#, None, &NotWritten::Exists);
        check(409, r#"{"reason":"Conflict","message":"no"}"#, None, &NotWritten::Conflict);
        check(429, "Too many requests, please try again later.", Some(7), &later(7));
        check(429, r#"{"details":{"retryAfterSeconds":3}}"#, None, &later(3));
        check(429, r#"{"details":{"retryAfterSeconds":3}}"#, Some(7), &later(7));
        check(429, "", None, &later(1));
        check(422, r#"{"reason":"Invalid","message":"no"}"#, None, &NotWritten::Refused("422: no".to_owned()));
        check(401, r#"{"message":"no"}"#, None, &failed("401: no"));
        check(500, "<html>", None, &failed("500: "));
        check(302, "", None, &failed("302: "));
    }
}
