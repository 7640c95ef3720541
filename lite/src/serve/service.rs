//! The tower service: reads the body within its limits and routes the request by its path.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::Value;
use tower::{BoxError, Service};

use super::body::LiteBody;
use super::form::{self, Form};
use super::forward_writes::WriteForwarder;
use super::query::{self, Query};
use super::route::{Document, Route, needs_containers};
use super::{answer, discovery, events, expected, logs, openapi, openapi_v2, protobuf, read, review, watch, writes};
use crate::failure::Failure;
use crate::json::Fault;
use crate::kind::{KindId, Kinds, Subresource, Writes};
use crate::lite::Lite;
use crate::store::Unready;
use crate::write::{self, Target};

/// The maximum size of a request body, as in the real server.
const BODY_MAX_BYTES: usize = 3 * 1024 * 1024;
/// The time that a request waits for a kind that is not known yet.
const READY_WAIT: Duration = Duration::from_secs(3);
/// The maximum time to receive a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Answers Kubernetes API requests from a [`Lite`]. Always ready; never fails: errors are responses.
#[derive(Clone)]
pub struct LiteService {
    lite: Lite,
    forward: Option<WriteForwarder>,
}

impl Lite {
    /// The server within the process: a tower service that needs no token and sets no limit on concurrent requests.
    pub fn service(&self) -> LiteService {
        LiteService::new(self.clone())
    }
}

impl LiteService {
    pub(crate) fn new(lite: Lite) -> Self {
        Self { lite, forward: None }
    }

    /// The same service, which forwards everything except reads.
    #[must_use]
    pub fn forwarding(mut self, forward: Option<WriteForwarder>) -> Self {
        self.forward = forward;
        self
    }
}

impl fmt::Debug for LiteService {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LiteService").field("lite", &self.lite).finish()
    }
}

impl<B> Service<Request<B>> for LiteService
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<LiteBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { lite, forward } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let forward = forward.filter(|_| WriteForwarder::takes(&parts));
            let answered = match (collect(body).await, forward) {
                (Ok(body), None) => respond(&lite, &parts, &body).await,
                (Ok(body), Some(forwarder)) => forwarder.forward(&parts, &body).await,
                (Err(failure), _) => Err(failure),
            };
            Ok(answered.unwrap_or_else(|failure| answer::failure(&failure)))
        })
    }
}

async fn collect<B>(body: B) -> Result<Bytes, Failure>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let limited = std::pin::pin!(Limited::new(body, BODY_MAX_BYTES));
    match tokio::time::timeout(BODY_TIMEOUT, limited.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(why)) if why.is::<LengthLimitError>() => Err(Failure::too_large(BODY_MAX_BYTES)),
        Ok(Err(_)) => Err(Failure::bad_request("the body of the request could not be read")),
        Err(_) => Err(Failure::bad_request("the body of the request took too long")),
    }
}

async fn respond(lite: &Lite, parts: &Parts, body: &Bytes) -> Result<Response<LiteBody>, Failure> {
    if parts.method == Method::GET {
        return match events::asked(parts, body) {
            Some((parts, _)) => look_up(lite, &parts).await.map(events::in_newer_form),
            None => look_up(lite, parts).await,
        };
    }
    let write = {
        let (lite, parts, body) = (lite.clone(), parts.clone(), body.clone());
        move || match events::asked(&parts, &body) {
            Some((parts, body)) => changed(&lite, &parts, &body).map(events::in_newer_form),
            None => changed(&lite, &parts, &body),
        }
    };
    let answer = lite.store().apart(write).await;
    let answer = answer.unwrap_or_else(|| Err(Failure::internal("the request could not be carried out")))?;
    lite.durable().await?;
    Ok(answer)
}

/// A request by its path and its query.
struct Asked {
    kinds: Kinds,
    route: Route,
    query: Query,
    /// The warning of a deprecated kind.
    deprecation: Option<String>,
}

impl Asked {
    fn parse(kinds: Kinds, parts: &Parts) -> Result<Self, Failure> {
        let path = parts.uri.path();
        let unknown = || if needs_containers(path) { Failure::no_containers() } else { Failure::no_resource() };
        let route = Route::parse(path, &kinds).ok_or_else(unknown)?;
        let mut query = Query::parse(parts.uri.query().unwrap_or_default())?;
        if query.manager.is_empty() && media_type(&parts.headers) != writes::APPLY {
            query.manager = program(&parts.headers);
        }
        let deprecation = route.kind().and_then(|kind| kind.description().deprecation.clone());
        Ok(Self { kinds, route, query, deprecation })
    }
}

/// Answers a read.
async fn look_up(lite: &Lite, parts: &Parts) -> Result<Response<LiteBody>, Failure> {
    let kinds = known_kinds(lite, parts.uri.path()).await?;
    let Asked { kinds, route, query, deprecation } = Asked::parse(kinds, parts)?;
    if let Some(kind) = route.kind() {
        ready(lite, kind).await?;
    }
    let answer = match route {
        Route::Collection { kind, .. } if kind.description().question => Err(Failure::method_not_allowed()),
        Route::Collection { kind, namespace } => {
            let form = Form::accepted(&parts.headers)?;
            if query.watch {
                watch::watch(lite, &kind, namespace.as_deref(), &query, form).await
            } else {
                read::list(lite, &kind, namespace.as_deref(), &query, form).await
            }
        }
        Route::Object(target) => object(lite, target, query, parts).await,
        Route::Document(wanted) => document(&kinds, &wanted, &parts.headers),
    };
    Ok(answer::warn(answer?, deprecation.as_slice()))
}

/// Carries out a request that is not a read.
fn changed(lite: &Lite, parts: &Parts, body: &Bytes) -> Result<Response<LiteBody>, Failure> {
    let kinds = lite.store().read().kinds().clone();
    if let Some(missing) = expected::missing(parts.uri.path(), &kinds, &lite.store().expected().borrow()) {
        return Err(Failure::too_early(&missing.plural, &missing.group));
    }
    let Asked { route, query, deprecation, .. } = Asked::parse(kinds, parts)?;
    if route.kind().is_some_and(|kind| kind.description().writes != Writes::Made) {
        return Err(Failure::method_not_allowed());
    }
    let answer = match route {
        Route::Collection { kind, namespace } => collection_changed(lite, &kind, namespace, &query, (parts, body)),
        Route::Object(target) => object_changed(lite, &target, &query, (parts, body)),
        Route::Document(_) => Err(Failure::method_not_allowed()),
    };
    Ok(answer::warn(answer?, deprecation.as_slice()))
}

/// The kinds that are served. Waits for a moment if the one of a path may come to them.
async fn known_kinds(lite: &Lite, path: &str) -> Result<Kinds, Failure> {
    let (mut pulse, mut expected) = (lite.store().pulse(), lite.store().expected());
    let mut too_long = std::pin::pin!(tokio::time::sleep(READY_WAIT));
    loop {
        let awaited = Arc::clone(&expected.borrow_and_update());
        let kinds = lite.store().look(|state| state.kinds().clone()).await;
        let Some(missing) = expected::missing(path, &kinds, &awaited) else { return Ok(kinds) };
        // Both senders live as long as the store.
        tokio::select! {
            () = &mut too_long => return Err(Failure::too_early(&missing.plural, &missing.group)),
            _ = pulse.changed() => {}
            _ = expected.changed() => {}
        }
    }
}

/// Waits for a moment for a kind that the upstream server has not reported yet.
async fn ready(lite: &Lite, kind: &KindId) -> Result<(), Failure> {
    let known = async {
        let mut pulse = lite.store().pulse();
        while unready(lite, kind).await.is_some() && pulse.changed().await.is_ok() {}
    };
    let in_time = tokio::time::timeout(READY_WAIT, known).await.is_ok();
    let unready = if in_time { None } else { unready(lite, kind).await };
    match unready {
        None => Ok(()),
        Some(Unready::Unknown) => Err(Failure::too_early(&kind.description().plural, &kind.description().group)),
        Some(Unready::TooLarge) => Err(Failure::too_many_bytes(kind.description())),
    }
}

async fn unready(lite: &Lite, kind: &KindId) -> Option<Unready> {
    lite.store().look(|state| state.unready(kind)).await
}

fn collection_changed(
    lite: &Lite,
    kind: &KindId,
    namespace: Option<String>,
    query: &Query,
    (parts, body): (&Parts, &Bytes),
) -> Result<Response<LiteBody>, Failure> {
    let form = Form::accepted(&parts.headers)?;
    let of = kind.description().built_in();
    let namespace = namespace.as_deref();
    match parts.method {
        Method::POST if kind.description().question => {
            review::answered(kind.description(), &decode(of, &parts.headers, body)?)
        }
        _ if kind.description().question => Err(Failure::method_not_allowed()),
        Method::POST => writes::create(lite, kind, namespace, query, form, object_of(of, &parts.headers, body)?),
        Method::DELETE => writes::delete_collection(lite, kind, namespace, query, &options(&parts.headers, body)?),
        _ => Err(Failure::method_not_allowed()),
    }
}

async fn object(lite: &Lite, target: Target, mut query: Query, parts: &Parts) -> Result<Response<LiteBody>, Failure> {
    if target.subresource == Some(Subresource::Log) {
        return logs::read(lite, &target, parts.uri.query().unwrap_or_default()).await;
    }
    if target.subresource == Some(Subresource::Finalize) {
        return Err(Failure::method_not_allowed());
    }
    let form = Form::accepted(&parts.headers)?;
    if query.watch && target.subresource.is_none() {
        watch_one(&target, &mut query)?;
        let namespace = Some(target.key.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        return watch::watch(lite, &target.kind, namespace, &query, form).await;
    }
    read::get(lite, &target, &query, form).await
}

fn object_changed(
    lite: &Lite,
    target: &Target,
    query: &Query,
    (parts, body): (&Parts, &Bytes),
) -> Result<Response<LiteBody>, Failure> {
    if target.subresource == Some(Subresource::Log) {
        return Err(Failure::method_not_allowed());
    }
    let form = Form::accepted(&parts.headers)?;
    match parts.method {
        Method::PUT => writes::replace(lite, target, query, form, object_of(sent(target), &parts.headers, body)?),
        Method::PATCH if target.subresource != Some(Subresource::Finalize) => {
            writes::patch(lite, target, query, form, (media_type(&parts.headers), body))
        }
        Method::DELETE if target.subresource.is_none() => {
            writes::delete(lite, target, query, &options(&parts.headers, body)?)
        }
        _ => Err(Failure::method_not_allowed()),
    }
}

/// A watch of a name is a watch of its collection that selects the name.
fn watch_one(target: &Target, query: &mut Query) -> Result<(), Failure> {
    let name = &target.key.name;
    let selected = crate::selector::Fields::parse(target.description(), &query.fields)?;
    if selected.name().is_some_and(|selected| selected != name) {
        return Err(Failure::bad_request("fieldSelector metadata.name doesn't match requested name"));
    }
    let comma = if query.fields.is_empty() { "" } else { "," };
    query.fields = format!("{}{comma}metadata.name={name}", query.fields);
    Ok(())
}

fn document(kinds: &Kinds, wanted: &Document, headers: &HeaderMap) -> Result<Response<LiteBody>, Failure> {
    let aggregated = form::entries(headers).any(discovery::is_aggregated);
    let found = match wanted {
        Document::Health => return Ok(answer::text("ok")),
        Document::CoreVersions | Document::Groups if aggregated => {
            let document = discovery::aggregated(kinds, matches!(wanted, Document::CoreVersions));
            return Ok(answer::with(StatusCode::OK, discovery::AGGREGATED, LiteBody::whole(document.to_string())));
        }
        Document::OpenApiV2 => {
            let document = LiteBody::whole(openapi_v2::document(kinds));
            return Ok(answer::with(StatusCode::OK, openapi_v2::MEDIA_TYPE, document));
        }
        Document::Version => Some(discovery::version()),
        Document::CoreVersions => Some(discovery::core_versions()),
        Document::Groups => Some(discovery::groups(kinds)),
        Document::Group(group) => discovery::group(kinds, group),
        Document::Resources { group, version } => discovery::resources(kinds, group, version),
        Document::OpenApiIndex => Some(openapi::index(kinds)),
        Document::OpenApi { group, version } => openapi::document(kinds, group, version),
    };
    found.map(|document| answer::json(StatusCode::OK, &document)).ok_or_else(Failure::no_resource)
}

/// The type of the object in a PUT to a target.
fn sent(target: &Target) -> Option<&'static str> {
    if target.subresource == Some(Subresource::Scale) { Some("Scale") } else { target.description().built_in() }
}

/// The name of the client program: it owns the fields that it writes without a field manager.
fn program(headers: &HeaderMap) -> String {
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = agent.split('/').next().unwrap_or_default().chars().filter(|letter| !letter.is_control());
    name.take(query::MANAGER_MAX_BYTES).collect()
}

fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// Reads the body of a request, an object of the built-in type `of`; media types other than JSON and YAML are refused,
/// and protobuf where there is no such type.
fn decode(of: Option<&'static str>, headers: &HeaderMap, body: &Bytes) -> Result<Value, Failure> {
    match (media_type(headers), of) {
        ("" | "application/json", _) => {}
        ("application/yaml", _) => return write::read_yaml(body),
        ("application/vnd.kubernetes.protobuf", Some(of)) => return protobuf::decode(of, body),
        _ => {
            let message = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml";
            return Err(Failure::unsupported_media_type(message));
        }
    }
    // The text of the error is serde's: positions, never values.
    let unreadable =
        |why: serde_json::Error| Failure::bad_request(format!("the object provided is unrecognized: {why}"));
    serde_json::from_slice(body).map_err(unreadable)
}

/// Reads the object of a write, and the faults of its text.
fn object_of(of: Option<&'static str>, headers: &HeaderMap, body: &Bytes) -> Result<(Value, Vec<Fault>), Failure> {
    let object = decode(of, headers, body)?;
    let is_json = matches!(media_type(headers), "" | "application/json");
    Ok((object, if is_json { Fault::twice(body) } else { Vec::new() }))
}

/// Reads DeleteOptions; no body is no options.
fn options(headers: &HeaderMap, body: &Bytes) -> Result<Value, Failure> {
    if body.is_empty() { Ok(Value::Null) } else { decode(Some("DeleteOptions"), headers, body) }
}
