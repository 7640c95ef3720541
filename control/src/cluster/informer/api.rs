//! Requests to the API server: timeouts, error responses, and the body in chunks.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderValue};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::Request;
use kube::core::params::{GetParams, ListParams, WatchParams};
use tidegate_config::object::Kind;
use tokio::time::timeout;

use super::failure::Failure;
use super::wire::Status;
use super::{Interest, Limits};
use crate::backoff::retry_after;
use crate::event::Collection;

/// The limit for reading the body of an error response, in bytes.
const REFUSAL_BYTES_MAX: usize = 16 << 10;

/// The limit for the message of a failure, in characters.
const WHY_LENGTH_MAX: usize = 240;

/// The collection of an informer in the API server.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) client: kube::Client,
    request: Request,
    pub(super) interest: Interest,
    pub(super) limits: Limits,
}

impl Api {
    pub(super) fn new(client: kube::Client, interest: Interest, limits: Limits) -> Self {
        let request = Request::new(interest.resource.path(interest.collection.namespace.as_deref()));
        Self { client, request, interest, limits }
    }

    pub(super) const fn collection(&self) -> &Collection {
        &self.interest.collection
    }

    pub(super) const fn kind(&self) -> Kind {
        self.interest.collection.kind
    }

    /// Requests one page of a list. Without a resourceVersion, the response is the current state and not from an older
    /// cache.
    pub(super) async fn page(&self, objects: u32, token: Option<String>) -> Result<Body, Failure> {
        let params = ListParams {
            label_selector: self.interest.label_selector.clone(),
            field_selector: self.interest.field_selector.clone(),
            limit: Some(objects),
            continue_token: token,
            ..ListParams::default()
        };
        self.send(self.request.list(&params)).await
    }

    /// Starts a watch for events after a resourceVersion.
    pub(super) async fn watch(&self, after: &str, lasting: Duration) -> Result<Body, Failure> {
        let params = WatchParams {
            label_selector: self.interest.label_selector.clone(),
            field_selector: self.interest.field_selector.clone(),
            // Zero would mean the server's default, which is at least half an hour.
            timeout: Some(u32::try_from(lasting.as_secs()).unwrap_or(u32::MAX).max(1)),
            bookmarks: true,
            send_initial_events: false,
        };
        self.send(self.request.watch(&params, after)).await
    }

    /// Reads one object. `None` if the server's Status says that no object has this name: a bare 404 may come from any
    /// proxy.
    pub(super) async fn object(&self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let mut body = match self.answer(self.request.get(name, &GetParams::default())).await? {
            Ok(body) => body,
            Err(refusal) if refusal.code == 404 && refusal.status.denies(name) => return Ok(None),
            Err(refusal) => return Err(refusal.into_failure()),
        };
        whole(&mut body, &self.limits).await.map(Some)
    }

    async fn send(&self, request: Result<http::Request<Vec<u8>>, kube::core::request::Error>) -> Result<Body, Failure> {
        self.answer(request).await?.map_err(ErrorResponse::into_failure)
    }

    async fn answer(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Result<Body, ErrorResponse>, Failure> {
        let request = request.map_err(|why| Failure::Broken { why: one_line(&why) })?;
        answer(&self.client, &self.limits, request).await
    }
}

/// Reads a document from the API server.
pub(super) async fn document(client: &kube::Client, limits: &Limits, path: &str) -> Result<Vec<u8>, Failure> {
    let request = http::Request::get(path).body(Vec::new());
    let request = request.map_err(|why| Failure::Broken { why: one_line(&why) })?;
    let mut body = answer(client, limits, request).await?.map_err(ErrorResponse::into_failure)?;
    whole(&mut body, limits).await
}

async fn whole(body: &mut Body, limits: &Limits) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    while let Some(chunk) = chunk(body, limits.list_stall).await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > limits.frame_bytes_max {
            return Err(Failure::FrameTooLong);
        }
    }
    Ok(bytes)
}

async fn answer(
    client: &kube::Client,
    limits: &Limits,
    request: http::Request<Vec<u8>>,
) -> Result<Result<Body, ErrorResponse>, Failure> {
    let mut request = request.map(Body::from);
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
    // A compressed watch may be delayed until a block is full, and compression would bypass the limits in bytes.
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let answer = timeout(limits.headers, client.send(request))
        .await
        .map_err(|_elapsed| Failure::NoHeaders)?
        .map_err(|why| Failure::Broken { why: one_line(&why) })?;
    let (head, body) = answer.into_parts();
    if head.status.is_success() {
        return Ok(Ok(body));
    }
    let (code, retry_after) = (head.status.as_u16(), retry_after(&head.headers));
    Ok(Err(ErrorResponse { code, status: refusal(body, limits).await, retry_after }))
}

/// Reads as much as possible of the Status in an error response; the status code suffices without it.
async fn refusal(mut body: Body, limits: &Limits) -> Status {
    let mut bytes = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = chunk(&mut body, limits.headers).await {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > REFUSAL_BYTES_MAX {
                break;
            }
        }
    };
    // A partial body is enough.
    let _in_time: bool = timeout(limits.headers, read).await.is_ok();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// A response with a status other than success.
struct ErrorResponse {
    code: u16,
    status: Status,
    retry_after: Option<Duration>,
}

impl ErrorResponse {
    fn into_failure(self) -> Failure {
        self.status.into_failure(self.code, self.retry_after)
    }
}

impl Status {
    /// Whether it says that no object has this name.
    fn denies(&self, name: &str) -> bool {
        let named = self.details.as_ref().and_then(|details| details.name.as_deref());
        self.reason.as_deref() == Some("NotFound") && named == Some(name)
    }

    /// The failure of a response with this Status.
    pub(super) fn into_failure(self, code: u16, header: Option<Duration>) -> Failure {
        let body = self.details.and_then(|details| details.retry_after_seconds);
        Failure::Refused {
            code,
            why: cut(&self.message.unwrap_or_else(|| "no message".to_owned())),
            retry_after: header.or(body.map(|seconds| Duration::from_secs(u64::from(seconds)))),
        }
    }
}

/// The next bytes of a body, or its end.
pub(super) async fn chunk(body: &mut Body, silence_max: Duration) -> Result<Option<Bytes>, Failure> {
    loop {
        match timeout(silence_max, body.frame()).await {
            Err(_elapsed) => return Err(Failure::Stalled),
            Ok(None) => return Ok(None),
            Ok(Some(Err(why))) => return Err(Failure::Broken { why: one_line(&why) }),
            // Trailers are ignored.
            Ok(Some(Ok(frame))) => {
                if let Ok(chunk) = frame.into_data() {
                    return Ok(Some(chunk));
                }
            }
        }
    }
}

/// An error and its causes in one line, without causes that the line already contains.
fn one_line(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        cause = error.source();
    }
    cut(&line)
}

fn cut(text: &str) -> String {
    text.chars().take(WHY_LENGTH_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_short_line() {
        let text = cut(&"a\nb".repeat(WHY_LENGTH_MAX));
        assert_eq!(text.chars().count(), WHY_LENGTH_MAX);
        assert!(text.starts_with("a ba b"));
    }
}
