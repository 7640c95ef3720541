//! The head of a request for an HTTP/2 endpoint.

use std::net::SocketAddr;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, PROXY_AUTHORIZATION};
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{HeaderName, HeaderValue, Request, Uri, Version};
use pingora::Result;
use pingora::http::RequestHeader;
use pingora::proxy::{ProxyHttp, Session};
use tidegate_config::model::CONNECTION_HEADERS;

use crate::driver::pingora::context::RequestContext;
use crate::driver::pingora::failed::stop;
use crate::driver::pingora::proxy_http::PingoraDriver;
use crate::reason::Reason;

/// Further headers for the next hop of HTTP/1 alone.
const FOR_NEXT_HOP: [HeaderName; 2] = [PROXY_AUTHORIZATION, HeaderName::from_static("http2-settings")];

/// The request for an endpoint, with the edits of the steps.
///
/// # Errors
/// If the head cannot be sent over HTTP/2.
pub(super) async fn request(
    driver: &PingoraDriver,
    session: &mut Session,
    ctx: &mut RequestContext,
    (scheme, endpoint): (&'static str, SocketAddr),
) -> Result<Request<()>> {
    let mut head = session.req_header().clone();
    if head.version != Version::HTTP_2 {
        strip(&mut head).map_err(|reason| stop(ctx, reason))?;
    }
    head.set_version(Version::HTTP_2);
    driver.upstream_request_filter(session, &mut head, ctx).await?;
    let host = head.remove_header(&HOST);
    let uri = uri(&head, host.as_ref(), scheme, endpoint).ok_or_else(|| stop(ctx, Reason::Internal))?;
    let mut parts: Parts = head.into();
    parts.uri = uri;
    Ok(Request::from_parts(parts, ()))
}

/// Removes the headers of the client's connection, and those that it nominates.
fn strip(head: &mut RequestHeader) -> Result<(), Reason> {
    let mut nominated = Vec::new();
    for value in head.headers.get_all(CONNECTION) {
        for word in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
        {
            nominated.push(HeaderName::from_bytes(word).map_err(|_| Reason::MalformedRequest)?);
        }
    }
    nominated.iter().for_each(|name| drop(head.remove_header(name)));
    for name in CONNECTION_HEADERS.into_iter().chain(FOR_NEXT_HOP) {
        // This one is the endpoint's as well.
        if name != CONTENT_LENGTH {
            head.remove_header(&name);
        }
    }
    Ok(())
}

/// The target, with the authority from `Host`, or else from the target itself. The edits have left only a path, or an
/// asterisk, of one in absolute form. A request of HTTP/1.0 may have none, and gets the address of the endpoint.
fn uri(head: &RequestHeader, host: Option<&HeaderValue>, scheme: &'static str, endpoint: SocketAddr) -> Option<Uri> {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Scheme::try_from(scheme).ok();
    parts.authority = match host {
        Some(host) => Some(Authority::try_from(host.as_bytes()).ok()?),
        None => head.uri.authority().cloned().or_else(|| Authority::try_from(endpoint.to_string()).ok()),
    };
    parts.authority.as_ref().filter(|authority| !authority.as_str().contains('@'))?;
    parts.path_and_query = head.uri.path_and_query().cloned();
    Uri::from_parts(parts).ok()
}
