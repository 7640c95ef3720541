//! The edits of a response before it reaches the client, and the form of local replies.

use std::sync::Arc;

use arrayvec::ArrayVec;
use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER, SERVER, TRANSFER_ENCODING, UPGRADE, VARY,
    WWW_AUTHENTICATE,
};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use tidegate_config::model::{DirectResponse, Filter, HeaderEdits, ResponseScope};

use crate::http::edits::Edits;
use crate::http::names::{RATE_LIMIT, RATE_LIMIT_POLICY, SERVER_NAME, X_CORRELATION_ID, X_REQUEST_ID};
use crate::http::response::NOMINATIONS_MAX;
use crate::limit::LimitNotice;
use crate::reason::Reason;
use crate::request::grpc;
use crate::request::local_reply::{Content, LocalReply};
use crate::request::policy::PolicyOutcome;
use crate::request::reply_format::ReplyFormat;
use crate::request::request_id::RequestId;

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
static PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// The filters of a route, and then those of the request's share; with the outcome of the policies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filters<'a> {
    /// What the policies of the request have added to it.
    pub(crate) outcome: &'a PolicyOutcome,
    /// Those of the route.
    pub(crate) route: &'a [Filter],
    /// Those of the share.
    pub(crate) share: &'a [Filter],
    /// Whether the client came over TLS.
    pub(crate) secure: bool,
}

impl<'a> Filters<'a> {
    /// The filters, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a Filter> + use<'a> {
        self.route.iter().chain(self.share)
    }

    /// The edits of the filters for a response of this scope and status.
    fn of_response(&self, scope: ResponseScope, status: u16) -> impl Iterator<Item = &'a HeaderEdits> + use<'a> {
        let (secure, cors) = (self.secure, self.outcome.cors.as_deref());
        // The last CORS filter holds, in its place among the others.
        let mut cors_left = self.iter().filter(|filter| matches!(filter, Filter::Cors(_))).count();
        self.iter().filter_map(move |filter| match filter {
            Filter::Cors(_) => {
                cors_left -= 1;
                cors.filter(|_| cors_left == 0)
            }
            Filter::ResponseHeaders(own) if own.applies(scope, status, secure) => Some(&own.edits),
            Filter::ResponseHeaders(_)
            | Filter::RequestHeaders(_)
            | Filter::Path(_)
            | Filter::Host(_)
            | Filter::Mirror(_) => None,
        })
    }
}

/// The facts about the request and the edge for every response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyFacts<'a> {
    /// The id of the request.
    pub(crate) request_id: &'a RequestId,
    /// The correlation ids, if the route sends both to clients.
    pub(crate) correlation: Option<&'a HeaderValue>,
    /// The tightest limit of the request, if clients are told.
    pub(crate) limit: Option<&'a LimitNotice>,
    /// Whether responses without `Server` get one.
    pub(crate) server: bool,
    /// The form of local replies.
    pub(crate) form: ReplyFormat,
}

/// The head of an endpoint's response.
#[derive(Debug)]
pub(crate) struct Received<I> {
    /// The status.
    pub(crate) status: u16,
    /// The values of `Connection`.
    pub(crate) connection: I,
    /// Whether it has `Server`.
    pub(crate) has_server: bool,
}

/// Adds the edits: hop-by-hop headers of the endpoint are removed (RFC 9110 section 7.6.1), then the filters and the
/// grants apply. Headers that frame the body are left to the driver; a successful upgrade keeps its headers.
///
/// # Errors
/// [`Reason::UpstreamBroken`] if the endpoint lists more than [`NOMINATIONS_MAX`] headers in `Connection`.
pub(crate) fn response<'v>(
    filters: &Filters<'_>,
    labels: &ReplyFacts<'_>,
    received: Received<impl Iterator<Item = &'v [u8]>>,
    edits: &mut Edits,
) -> Result<(), Reason> {
    let Received { status, connection, has_server } = received;
    if status != 101 {
        nominated(connection, edits)?;
        edits.remove(CONNECTION);
        edits.remove(&KEEP_ALIVE);
        edits.remove(&PROXY_CONNECTION);
        edits.remove(UPGRADE);
    }
    if labels.server && !has_server {
        edits.set(SERVER, |out| out.extend_from_slice(SERVER_NAME.as_bytes()));
    }
    if let Some(ids) = labels.correlation {
        edits.set(&X_REQUEST_ID, |out| out.extend_from_slice(labels.request_id.as_str().as_bytes()));
        edits.set(&X_CORRELATION_ID, |out| out.extend_from_slice(ids.as_bytes()));
    }
    if let Some(limit) = labels.limit {
        edits.set(&RATE_LIMIT_POLICY, |out| limit.policy_field(out));
        edits.set(&RATE_LIMIT, |out| limit.state_field(out));
    }
    filters.of_response(ResponseScope::Proxied, status).for_each(|own| apply(own, edits));
    filters.outcome.grants.iter().for_each(|granted| apply(&granted.response, edits));
    Ok(())
}

/// Removes the headers that the endpoint lists in `Connection`, each once.
fn nominated<'v>(connection: impl Iterator<Item = &'v [u8]>, edits: &mut Edits) -> Result<(), Reason> {
    let mut names = ArrayVec::<&[u8], NOMINATIONS_MAX>::new();
    for word in connection.flat_map(|value| value.split(|b| *b == b',')).map(<[u8]>::trim_ascii) {
        let stays = [b"close".as_slice(), b"keep-alive", b"transfer-encoding", b"content-length"];
        let is_listed = |listed: &[&[u8]]| listed.iter().any(|name| name.eq_ignore_ascii_case(word));
        if is_listed(&stays) || is_listed(&names) {
            continue;
        }
        // An invalid name lists no header.
        let Ok(name) = HeaderName::from_bytes(word) else { continue };
        names.try_push(word).map_err(|_| Reason::UpstreamBroken)?;
        edits.remove(name);
    }
    Ok(())
}

/// Adds the edits of a filter.
pub(crate) fn apply(own: &HeaderEdits, edits: &mut Edits) {
    own.remove.iter().for_each(|name| edits.remove(name.clone()));
    own.set.iter().for_each(|(name, value)| edits.set(name.clone(), |out| out.extend_from_slice(value.as_bytes())));
    own.add.iter().for_each(|(name, value)| edits.add(name.clone(), value));
}

/// A local reply, ready to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rendered {
    /// Its status.
    pub(crate) status: u16,
    /// Its headers.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Its body; empty for HEAD, where its length is announced nevertheless (RFC 9110 section 9.3.2).
    pub(crate) body: Bytes,
}

/// Renders an answer: the direct response of the route; else status, reason and request id, so that a user can report
/// the request to the operator, in the form for the client. The filters and the grants apply last.
pub(crate) fn render(reply: &LocalReply, labels: &ReplyFacts<'_>, method: &str, filters: &Filters<'_>) -> Rendered {
    let status = reply.status;
    let is_grpc = labels.form == ReplyFormat::Grpc && status >= 400;
    let (mut headers, body) = match &reply.content {
        content if is_grpc => (trailers_only(status, reply.reason, content, labels), Bytes::new()),
        Content::Given(response) => ready(response),
        Content::Explained | Content::Redirect(_) | Content::Limited(_) | Content::Challenged(_) => {
            explained(reply, labels)
        }
    };
    // Neither has a body (RFC 9110 sections 15.3.5 and 15.4.5), and only a 304 may have the length.
    let bodiless = matches!(status, 204 | 304);
    if !bodiless {
        headers.push((CONTENT_LENGTH, HeaderValue::from(body.len())));
    }
    headers.extend(labels.server.then(|| (SERVER, HeaderValue::from_static(SERVER_NAME))));
    headers.extend(reply.location().map(|location| (LOCATION, location.clone())));
    headers.extend(reply.content.challenges().iter().map(|challenge| (WWW_AUTHENTICATE, challenge.clone())));
    headers.extend(reply.limit().map(|limit| (RETRY_AFTER, limit.retry_after())));
    headers.extend(labels.limit.into_iter().flat_map(limit_fields));
    headers.extend(reply.reason.is_overload().then(|| (RETRY_AFTER, HeaderValue::from_static("1"))));
    let unbacked =
        matches!(reply.reason, Reason::DirectResponse | Reason::InvalidBackend | Reason::NoEndpoints | Reason::NoRoute);
    let scope = if unbacked { ResponseScope::Every } else { ResponseScope::Backed };
    filters.of_response(scope, status).for_each(|own| edit(own, &mut headers, frames));
    // A service grants headers of the endpoint's response: its content is not that of this answer.
    filters.outcome.grants.iter().for_each(|granted| edit(&granted.response, &mut headers, describes));
    let body = if bodiless || method == "HEAD" { Bytes::new() } else { body };
    Rendered { status: if is_grpc { 200 } else { status }, headers, body }
}

/// Problem details (RFC 9457), with two members of our own: the reason and the id of the request.
#[derive(Serialize)]
struct Problem<'a> {
    title: &'a str,
    status: u16,
    reason: &'a str,
    request: &'a str,
}

/// Headers without the length, and the body.
type Parts = (Vec<(HeaderName, HeaderValue)>, Bytes);

fn ready(response: &Arc<DirectResponse>) -> Parts {
    let content_type = response.content_type.clone().map(|value| (CONTENT_TYPE, value));
    let others = response.headers.iter().filter(|(name, _)| !frames(name)).cloned();
    let headers = content_type.into_iter().chain(others).collect();
    (headers, Bytes::from_owner(Arc::clone(&response.body)))
}

/// The headers of a failure for a gRPC client: its status and the ids, and given headers with other names, such as a
/// challenge. Headers that describe the given body are left out with it, and so are those of another gRPC status.
fn trailers_only(
    status: u16,
    reason: Reason,
    content: &Content,
    labels: &ReplyFacts<'_>,
) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers: Vec<_> = grpc::fields(status, reason).into_iter().chain(ids(labels)).collect();
    let own = headers.len();
    let given = match content {
        Content::Given(response) => &*response.headers,
        Content::Explained | Content::Redirect(_) | Content::Limited(_) | Content::Challenged(_) => &[],
    };
    for (name, value) in given {
        if !describes(name) && headers.iter().take(own).all(|(set, _)| set != name) {
            headers.push((name.clone(), value.clone()));
        }
    }
    headers
}

fn explained(reply: &LocalReply, labels: &ReplyFacts<'_>) -> Parts {
    let (status, reason, request) = (reply.status, reply.reason.as_str(), labels.request_id.as_str());
    let title = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Unknown");
    let mut headers = Vec::with_capacity(8);
    let body = match labels.form {
        ReplyFormat::Json(media_type) if status >= 400 => {
            headers.push((CONTENT_TYPE, HeaderValue::from_static(media_type)));
            // A cache must not give it to clients that want text. The text is for everybody, and says nothing.
            headers.push((VARY, HeaderValue::from_static("accept")));
            let problem = Problem { title, status, reason, request };
            serde_json::to_string(&problem).unwrap_or_default() + "\n"
        }
        ReplyFormat::Text | ReplyFormat::Json(_) | ReplyFormat::Grpc => {
            headers.push((CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")));
            format!("{status} {title}\nreason: {reason}\nrequest: {request}\n")
        }
    };
    headers.extend(ids(labels));
    (headers, body.into())
}

/// The headers with the id of the request.
fn ids(labels: &ReplyFacts<'_>) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let own = HeaderValue::from_str(labels.request_id.as_str()).map(|id| (X_REQUEST_ID.clone(), id));
    own.into_iter().chain(labels.correlation.map(|ids| (X_CORRELATION_ID.clone(), ids.clone())))
}

/// The fields about the tightest limit.
fn limit_fields(limit: &LimitNotice) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let (mut policy, mut state) = (Vec::new(), Vec::new());
    limit.policy_field(&mut policy);
    limit.state_field(&mut state);
    let fields = [(&RATE_LIMIT_POLICY, policy), (&RATE_LIMIT, state)];
    // They are printed characters.
    fields.into_iter().filter_map(|(name, value)| Some((name.clone(), HeaderValue::try_from(value).ok()?)))
}

/// Returns `true` for headers that frame the body, which the driver writes.
fn frames(name: &HeaderName) -> bool {
    *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING
}

/// Whether a header is about the content of a message or about a gRPC status.
fn describes(name: &HeaderName) -> bool {
    frames(name) || name.as_str().starts_with("content-") || name.as_str().starts_with("grpc-")
}

/// Edits the headers of a local reply, except the kept ones.
fn edit(own: &HeaderEdits, headers: &mut Vec<(HeaderName, HeaderValue)>, is_kept: fn(&HeaderName) -> bool) {
    let removed = |name: &HeaderName| own.remove.contains(name) || own.set.iter().any(|(set, _)| set == name);
    headers.retain(|(name, _)| is_kept(name) || !removed(name));
    let new = own.set.iter().chain(&own.add).filter(|(name, _)| !is_kept(name));
    headers.extend(new.cloned());
}

#[cfg(test)]
mod tests;
