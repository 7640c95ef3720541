//! Writes that a watch cache forwards to its upstream server, under the credentials of their sender and never under
//! those of the feed.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, RETRY_AFTER, UPGRADE, USER_AGENT, WARNING};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};

use super::body::LiteBody;
use super::path;
use crate::failure::Failure;

/// Request headers that are forwarded. The user of a proxy in front (`X-Remote-User`) is not among them.
const REQUEST_HEADERS: [HeaderName; 4] = [AUTHORIZATION, ACCEPT, CONTENT_TYPE, USER_AGENT];
/// The prefix of the impersonation headers, which act within the user's own rights.
const IMPERSONATE: &str = "impersonate-";
/// Response headers that are passed back.
const RESPONSE_HEADERS: [HeaderName; 3] = [CONTENT_TYPE, WARNING, RETRY_AFTER];

/// Sends requests to the upstream server of a watch cache. It must not add credentials of its own.
#[derive(Clone)]
pub struct WriteForwarder(Arc<Sending>);

type Sending = dyn Fn(Request<Bytes>) -> BoxFuture<'static, Result<Response<Bytes>, ForwardError>> + Send + Sync;

/// The reason why there is no response to a forwarded request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForwardError {
    /// It did not reach the server.
    Unreachable,
    /// It is unknown whether the server acted on it.
    Unanswered,
}

impl WriteForwarder {
    /// Sends requests through this function.
    #[must_use]
    pub fn to(
        send: impl Fn(Request<Bytes>) -> BoxFuture<'static, Result<Response<Bytes>, ForwardError>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(send))
    }

    /// Returns `true` for requests to forward: all except reads. A path that cannot be read is refused later.
    pub(super) fn takes(parts: &Parts) -> bool {
        let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&parts.method);
        let objects = |path: Cow<'_, str>| path.starts_with("/api/") || path.starts_with("/apis/");
        !reads && path::decoded(parts.uri.path()).is_none_or(objects)
    }

    /// Forwards a request, and returns its response.
    pub(super) async fn forward(&self, parts: &Parts, body: &Bytes) -> Result<Response<LiteBody>, Failure> {
        if !bears_a_token(&parts.headers) {
            return Err(Failure::no_token());
        }
        if parts.headers.contains_key(UPGRADE) || path::decoded(parts.uri.path()).is_none() {
            return Err(Failure::method_not_allowed());
        }
        let mut request = Request::new(body.clone());
        *request.method_mut() = parts.method.clone();
        // The path and the query are forwarded as they are; the upstream server interprets them.
        let target = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        *request.uri_mut() = target.parse().map_err(|_| Failure::bad_request("the path cannot be forwarded"))?;
        let asked = |name: &HeaderName| REQUEST_HEADERS.contains(name) || name.as_str().starts_with(IMPERSONATE);
        copy(&parts.headers, request.headers_mut(), asked);
        let answer = (self.0)(request).await.map_err(|why| match why {
            ForwardError::Unreachable => Failure::upstream_away(),
            ForwardError::Unanswered => Failure::upstream_silent(),
        })?;
        let (head, body) = answer.into_parts();
        let mut response = Response::new(LiteBody::whole(body));
        *response.status_mut() = head.status;
        copy(&head.headers, response.headers_mut(), |name| RESPONSE_HEADERS.contains(name));
        Ok(response)
    }
}

impl fmt::Debug for WriteForwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteForwarder").finish_non_exhaustive()
    }
}

fn copy(from: &HeaderMap, to: &mut HeaderMap, which: impl Fn(&HeaderName) -> bool) {
    for (name, value) in from.iter().filter(|(name, _)| which(name)) {
        to.append(name.clone(), value.clone());
    }
}

fn bears_a_token(headers: &HeaderMap) -> bool {
    let mut given = headers.get_all(AUTHORIZATION).iter().map(|value| value.to_str().unwrap_or_default());
    let (first, second) = (given.next(), given.next());
    let token =
        first.and_then(|given| given.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    second.is_none() && token.is_some_and(|(_, token)| !token.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use http::StatusCode;

    use super::*;

    #[track_caller]
    fn check_taken(method: &str, path: &str, want: bool) {
        let (parts, ()) = Request::builder().method(method).uri(path).body(()).unwrap().into_parts();
        assert_eq!(WriteForwarder::takes(&parts), want, "{method} {path}");
    }

    #[test]
    fn writes_of_objects_are_forwarded() {
        check_taken("POST", "/api/v1/namespaces/shop/pods", true);
        check_taken("DELETE", "/apis/apps/v1/namespaces/shop/deployments/web?dryRun=All", true);
        check_taken("PATCH", "/api/v1/nodes/one", true);
        check_taken("GET", "/api/v1/pods", false);
        check_taken("HEAD", "/api/v1/pods", false);
        check_taken("POST", "/metrics", false);
        check_taken("POST", "/api", false);
        check_taken("POST", "/%61pi/v1/pods", true);
        check_taken("POST", "/x/%2e%2e/api/v1/pods", true);
        check_taken("GET", "/api/v1/%2e%2e/x", false);
    }

    /// The forwarded parts of a request with these headers, or the status of the refusal.
    async fn sent(path: &str, headers: &[(&str, &str)]) -> Result<Vec<String>, u16> {
        let (sender, receiver) = channel();
        let forwarder = WriteForwarder::to(move |request| {
            let names = request.headers().keys().map(ToString::to_string);
            sender.send([request.uri().to_string()].into_iter().chain(names).collect()).unwrap();
            Box::pin(async { Ok(Response::builder().status(201).header("set-cookie", "a").body("{}".into()).unwrap()) })
        });
        let mut request = Request::builder().method("POST").uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let answer = forwarder.forward(&parts, &Bytes::new()).await.map_err(|failure| failure.code.as_u16())?;
        assert_eq!((answer.status(), answer.headers().len()), (StatusCode::CREATED, 0));
        Ok(receiver.recv().unwrap())
    }

    #[tokio::test]
    async fn the_upstream_server_gets_the_client_s_token_and_no_impersonation_headers() {
        let token = ("authorization", "Bearer abc");
        let more = [
            ("x-remote-user", "admin"),
            ("cookie", "a"),
            ("content-type", "application/json"),
            ("impersonate-user", "b"),
        ];
        let headers: Vec<_> = [token].into_iter().chain(more).collect();
        let want = ["/api/v1/pods?dryRun=All", "authorization", "content-type", "impersonate-user"];
        let mut got = sent("/api/v1/pods?dryRun=All", &headers).await.unwrap();
        got[1..].sort();
        assert_eq!(got, want);
    }

    #[tokio::test]
    async fn a_client_without_a_token_of_its_own_cannot_write() {
        for headers in [&[][..], &[("authorization", "Bearer ")], &[("authorization", "Basic YTpi")]] {
            assert_eq!(sent("/api/v1/pods", headers).await, Err(401), "{headers:?}");
        }
        let two = [("authorization", "Bearer a"), ("authorization", "Bearer b")];
        assert_eq!(sent("/api/v1/pods", &two).await, Err(401));
    }

    #[tokio::test]
    async fn no_other_path_is_forwarded_and_no_connection_is_upgraded() {
        let token = ("authorization", "Bearer abc");
        for path in [
            "/api/../metrics",
            "/api/v1/%2e%2e/x",
            "/api/v1/%2E./x",
            "/api/v1/%252e%252e/x",
            "/api/v1/..%2fx",
            "/api/v1/a%5c..%5cx",
        ] {
            assert_eq!(sent(path, &[token]).await, Err(405), "{path}");
        }
        assert_eq!(sent("/api/v1/namespaces/a/pods/b/exec", &[token, ("upgrade", "websocket")]).await, Err(405));
    }
}
