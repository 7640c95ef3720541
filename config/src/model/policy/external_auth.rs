//! External authorisation services.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use serde::Serialize;

use super::super::backend::Target;

/// An authorisation service, and its protocol. Without a valid answer in time, a request is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternalAuth {
    /// The service. Its endpoints must be requested, as those of the targets of routes.
    pub target: Arc<Target>,
    /// The protocol.
    pub protocol: AuthProtocol,
    /// The maximum size of a request body that is held and sent to the service, up to [`ExternalAuth::BODY_BYTES_MAX`];
    /// a request with more is refused. 0 sends no body.
    pub body_bytes_max: u32,
}

/// The protocol of an authorisation service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthProtocol {
    /// An HTTP request; the status 200 allows the request.
    Http {
        /// The prefix of the path of the request.
        path: Arc<str>,
        /// Headers that are sent besides those that always are.
        request_headers: Box<[HeaderName]>,
        /// Headers of the answer that are copied to the upstream request; all if the list is empty.
        response_headers: Box<[HeaderName]>,
    },
    /// Envoy's `ext_authz` over gRPC.
    Grpc {
        /// Headers that are sent; all if the list is empty.
        request_headers: Box<[HeaderName]>,
    },
}

impl AuthProtocol {
    /// The headers of a request that are sent besides those that always are.
    #[must_use]
    pub fn request_headers(&self) -> &[HeaderName] {
        match self {
            Self::Http { request_headers, .. } | Self::Grpc { request_headers } => request_headers,
        }
    }
}

impl ExternalAuth {
    /// The largest body that can be held, in bytes.
    pub const BODY_BYTES_MAX: u32 = 64 * 1024;
}

impl fmt::Display for ExternalAuth {
    /// For example `authz/checks:9000 over gRPC`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            AuthProtocol::Http { .. } => "HTTP",
            AuthProtocol::Grpc { .. } => "gRPC",
        };
        write!(f, "{} over {protocol}", self.target.backend)?;
        match self.body_bytes_max {
            0 => Ok(()),
            bytes => write!(f, ", with bodies of up to {bytes} bytes"),
        }
    }
}

impl Serialize for ExternalAuth {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
