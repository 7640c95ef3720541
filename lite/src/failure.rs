//! Errors, in the form of the API's `Status` object.

use std::collections::HashSet;

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::causes::{Cause, Causes};
use crate::kind::Kind;

/// A refused request: the contents of a `Status` body.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: StatusCode,
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
    /// Whether the details are there even if they are empty: those of the real server's generic answers are, and
    /// clients read them without a check.
    has_details: bool,
}

impl Failure {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Map::new(), has_details: false }
    }

    /// An answer as the real server gives for what it knows no better words for (`NewGenericServerResponse`).
    fn generic(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { has_details: true, ..Self::new(code, reason, message) }
    }

    fn about(mut self, kind: &Kind, name: &str) -> Self {
        self.details.insert("name".into(), name.into());
        if !kind.group.is_empty() {
            self.details.insert("group".into(), kind.group.clone().into());
        }
        self.details.insert("kind".into(), kind.plural.clone().into());
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// A write to be forwarded, from a client that has no token for the destination.
    pub(crate) fn no_token() -> Self {
        let message = "writes are forwarded with the client's own bearer token, and the request has none";
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", message)
    }

    /// A write could not be forwarded.
    pub(crate) fn upstream_away() -> Self {
        let message = "the API server cannot be reached, and nothing is written here";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message).after_seconds(1)
    }

    /// A write was forwarded, and its outcome is unknown.
    pub(crate) fn upstream_silent() -> Self {
        let message = "the API server did not answer in time: it may have made the change or not";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.qualified());
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(kind, name)
    }

    /// The request was sent to a name this server does not answer to.
    pub(crate) fn misdirected() -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, "Forbidden", "this server does not answer to that Host header")
    }

    /// The request line and the headers together exceed the limit.
    pub(crate) fn head_too_large() -> Self {
        let message = "the request line and the headers are too long";
        Self::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "BadRequest", message)
    }

    /// There is no resource at this path.
    pub(crate) fn no_resource() -> Self {
        Self::generic(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
    }

    /// A path that leads into a container.
    pub(crate) fn no_containers() -> Self {
        let message =
            "this server runs no containers: exec, attach, cp, port-forward, proxy and debug do not work here";
        Self::generic(StatusCode::NOT_FOUND, "NotFound", message)
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.qualified());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(kind, name)
    }

    /// The namespace of a new object does not exist.
    pub(crate) fn no_namespace(name: &str) -> Self {
        let mut failure = Self::new(StatusCode::NOT_FOUND, "NotFound", format!("namespaces \"{name}\" not found"));
        failure.details.insert("name".into(), name.into());
        failure.details.insert("kind".into(), "namespaces".into());
        failure
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.qualified());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(kind, name)
    }

    /// The name of a new object belongs to one that is waiting for its finalizers.
    pub(crate) fn being_deleted(kind: &Kind, name: &str) -> Self {
        let failure = Self::already_exists(kind, name);
        Self { message: format!("object is being deleted: {}", failure.message), ..failure }
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified());
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(kind, name)
    }

    /// The conflict of optimistic concurrency.
    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        const WHY: &str = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, WHY)
    }

    /// The applied fields have other owners.
    pub(crate) fn apply_conflict(message: String, causes: Vec<Value>) -> Self {
        let mut failure = Self::new(StatusCode::CONFLICT, "Conflict", message);
        failure.details.insert("causes".into(), Value::Array(causes));
        failure
    }

    /// An internal error of the real server.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::generic(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    /// A new object of a kind whose definition is being deleted.
    pub(crate) fn terminating_definition(kind: &Kind) -> Self {
        let message = "create not allowed while custom resource definition is terminating";
        let mut failure = Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).about(kind, "");
        failure.details.remove("name");
        failure
    }

    pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub(crate) fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json";
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub(crate) fn too_large(limit_bytes: usize) -> Self {
        Self::too_much(format!("Request entity too large: limit is {limit_bytes}"))
    }

    /// A patch or an object as a whole exceeds the limits of this server.
    pub(crate) fn too_much(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// A patch that is well formed but does not fit the object.
    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        Self::generic(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    /// A resourceVersion that has left the history.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// A resource that the upstream server of this watch cache has not reported yet, or of which it is not known
    /// whether the server has it.
    pub(crate) fn too_early(plural: &str, group: &str) -> Self {
        let dot = if group.is_empty() { "" } else { "." };
        let message = format!("{plural}{dot}{group} are not known yet, try again in a moment");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).after_seconds(1)
    }

    /// A kind that exceeds the memory limit of a watch cache.
    pub(crate) fn too_many_bytes(kind: &Kind) -> Self {
        let message = format!("{} take more memory than this server may hold", kind.qualified());
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message).after_seconds(60)
    }

    fn after_seconds(mut self, seconds: u64) -> Self {
        self.details.insert("retryAfterSeconds".into(), seconds.into());
        self
    }

    /// A resourceVersion that is still to come.
    pub(crate) fn future_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut failure = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        let cause = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
        failure.details.insert("causes".into(), cause);
        failure.details.insert("retryAfterSeconds".into(), 1.into());
        failure
    }

    /// An object, or the options of a request, with invalid fields.
    pub(crate) fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        Self::invalid_part(&kind.kind, &kind.group, name, causes)
    }

    /// An object that a patch has made unreadable. `text` is the patch, or the object.
    pub(crate) fn invalid_patch(text: &str, why: &str) -> Self {
        let mut causes = Causes::default();
        causes.invalid("patch", &text.into(), why);
        Self::invalid_part("", "", "", &causes.0)
    }

    /// The query of a list, a watch or a write is not allowed.
    pub(crate) fn invalid_options(options: &str, causes: &[Cause]) -> Self {
        Self::invalid_part(options, "meta.k8s.io", "", causes)
    }

    /// What a client has sent for a part of an object, or about it, has invalid fields: a Scale, or options.
    pub(crate) fn invalid_part(kind: &str, group: &str, name: &str, causes: &[Cause]) -> Self {
        let dot = if group.is_empty() { "" } else { "." };
        // Equal texts of several causes appear once in a message.
        let mut seen = HashSet::with_capacity(causes.len());
        let once = causes.iter().filter(|cause| seen.insert((&cause.field, &cause.message)));
        let texts: Vec<String> = once.map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let list = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
        let message = format!("{kind}{dot}{group} \"{name}\" is invalid: {list}");
        let mut failure = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        if !name.is_empty() {
            failure.details.insert("name".into(), name.into());
        }
        if !group.is_empty() {
            failure.details.insert("group".into(), group.into());
        }
        if !kind.is_empty() {
            failure.details.insert("kind".into(), kind.into());
        }
        let causes = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        failure.details.insert("causes".into(), Value::Array(causes));
        failure
    }

    /// Adds a cause without a field, as the refusal of a terminating namespace has.
    pub(crate) fn caused_by(mut self, reason: &str, message: &str, field: &str) -> Self {
        self.details.insert("causes".into(), json!([{"reason": reason, "message": message, "field": field}]));
        self
    }

    /// Seconds after which the client may ask again, if the failure passes by itself.
    pub(crate) fn retry_after_seconds(&self) -> Option<u64> {
        self.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }

    /// The body of the response.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if self.has_details || !self.details.is_empty() {
            status["details"] = Value::Object(self.details.clone());
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::KindId;

    #[track_caller]
    fn check(failure: &Failure, expected: Option<Value>) {
        assert_eq!(failure.status().get("details"), expected.as_ref(), "{}", failure.status());
    }

    /// The details are those of apimachinery's `api/errors`.
    #[test]
    fn details_are_there_where_the_real_server_has_them() {
        let (map, deployment) = (KindId::built_in("ConfigMap").unwrap(), KindId::built_in("Deployment").unwrap());
        let (map, deployment) = (map.description(), deployment.description());
        check(&Failure::no_resource(), Some(json!({})));
        check(&Failure::method_not_allowed(), Some(json!({})));
        check(&Failure::unprocessable("why"), Some(json!({})));
        check(&Failure::not_found(map, "a"), Some(json!({"name": "a", "kind": "configmaps"})));
        check(&Failure::forbidden(map, "a", "why"), Some(json!({"name": "a", "kind": "configmaps"})));
        check(&Failure::being_deleted(map, "a"), Some(json!({"name": "a", "kind": "configmaps"})));
        let of_apps = json!({"name": "a", "kind": "deployments", "group": "apps"});
        check(&Failure::conflict(deployment, "a", "why"), Some(of_apps));
        check(&Failure::terminating_definition(deployment), Some(json!({"kind": "deployments", "group": "apps"})));
        check(&Failure::bad_request("why"), None);
        check(&Failure::unauthorized(), None);
        check(&Failure::unsupported_media_type("why"), None);
        check(&Failure::not_acceptable(), None);
        check(&Failure::too_large(1), None);
        check(&Failure::internal("why"), None);
        check(&Failure::expired("why"), None);
    }
}
