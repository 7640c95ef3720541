//! External authorisation filters. They are read whole or not at all, because access restrictions fail closed.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::backend::{BackendRef, backend_ref};
use super::header_edits::header_names;
use crate::finding::printable;
use crate::model::{AuthProtocol, ExternalAuth as Asked, normalize};
use crate::object::ObjectName;
use crate::project::field::{InvalidValue, read};

/// The maximum number of header names in one list.
const HEADERS_MAX: usize = 64;
/// The maximum length of the path in bytes.
const PATH_BYTES_MAX: usize = 1024;

/// `externalAuth`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternalAuth {
    /// The authorisation service.
    pub backend: BackendRef,
    /// The protocol.
    pub protocol: AuthProtocol,
    /// The maximum size of a request's body that is sent to the service; a longer one is refused. 0 sends no body.
    pub body_bytes_max: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct AuthJson<'a> {
    protocol: Option<String>,
    #[serde(borrow)]
    backend_ref: Option<&'a RawValue>,
    grpc: Option<GrpcJson>,
    http: Option<HttpJson>,
    forward_body: Option<BodyJson>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct GrpcJson {
    allowed_headers: Option<Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct HttpJson {
    path: Option<String>,
    allowed_headers: Option<Vec<String>>,
    allowed_response_headers: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct BodyJson {
    max_size: Option<i64>,
}

/// Reads an external authorisation filter.
pub(super) fn external_auth(raw: &RawValue, field: &str, own: &ObjectName) -> Result<ExternalAuth, InvalidValue> {
    let json: AuthJson<'_> = read(raw, field)?;
    let fault = |below: &str, value: &str, why: &str| InvalidValue {
        field: format!("{field}.{below}"),
        value: printable(value),
        why: why.to_owned(),
    };
    let raw = json.backend_ref.ok_or_else(|| fault("backendRef", "", "is required but missing"))?;
    let backend = backend_ref(raw, &format!("{field}.backendRef"), own)?;
    let names = |list, below: &str| header_names(list, HEADERS_MAX, &format!("{field}.{below}"));
    let protocol = match (json.protocol.as_deref().unwrap_or_default(), json.grpc, json.http) {
        ("HTTP", None, http) => {
            let http = http.unwrap_or_default();
            let path = http.path.unwrap_or_default();
            if !is_prefix(&path) {
                return Err(fault("http.path", &path, "is not a valid request path"));
            }
            AuthProtocol::Http {
                path: path.into(),
                request_headers: names(http.allowed_headers, "http.allowedHeaders")?,
                response_headers: names(http.allowed_response_headers, "http.allowedResponseHeaders")?,
            }
        }
        ("GRPC", grpc, None) => AuthProtocol::Grpc {
            request_headers: names(grpc.unwrap_or_default().allowed_headers, "grpc.allowedHeaders")?,
        },
        ("HTTP", Some(_), _) => return Err(fault("grpc", "HTTP", "is the protocol, and grpc is configured")),
        ("GRPC", _, Some(_)) => return Err(fault("http", "GRPC", "is the protocol, and http is configured")),
        (text, _, _) => return Err(fault("protocol", text, "is neither HTTP nor GRPC")),
    };
    let bytes = json.forward_body.and_then(|body| body.max_size).unwrap_or_default();
    let bytes_fault = |why: &str| fault("forwardBody.maxSize", &bytes.to_string(), why);
    let body_bytes_max = u32::try_from(bytes).map_err(|_| bytes_fault("is not a number of bytes"))?;
    if body_bytes_max > Asked::BODY_BYTES_MAX {
        return Err(bytes_fault(&format!(
            "is more than the {} bytes of a body that can be held",
            Asked::BODY_BYTES_MAX
        )));
    }
    Ok(ExternalAuth { backend, protocol, body_bytes_max })
}

fn is_prefix(path: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-/._~!$&'()*+,;=:@%".contains(&b);
    let sound = || normalize(path).is_some_and(|path| !path.had_dot_segments);
    path.is_empty() || path.len() <= PATH_BYTES_MAX && path.bytes().all(plain) && sound()
}
