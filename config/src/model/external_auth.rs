//! Services that are asked whether a request may pass.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use serde::Serialize;

use super::backend::Target;

/// An authorisation service, and how it is asked. Without a sound answer in time no request passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternalAuth {
    /// Who is asked. The Service is to be wanted for it, as those are that the route forwards to.
    pub target: Arc<Target>,
    /// How.
    pub protocol: AuthProtocol,
    /// Bytes of a request's body that are held and sent with the question, at most [`ExternalAuth::BODY_BYTES_MAX`]; a request with
    /// more is refused. 0 sends no body.
    pub body_bytes_max: u32,
}

/// How an authorisation service is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthProtocol {
    /// By a request, which the status 200 answers with yes.
    Http {
        /// What stands before the path of the request.
        path: Arc<str>,
        /// Headers that are sent besides those that always are; none where it is empty.
        request_headers: Box<[HeaderName]>,
        /// Headers of the answer that the endpoint is told; all where it is empty.
        response_headers: Box<[HeaderName]>,
    },
    /// By Envoy's `ext_authz` over gRPC.
    Grpc {
        /// Headers that are sent; all where it is empty.
        request_headers: Box<[HeaderName]>,
    },
}

impl ExternalAuth {
    /// The largest body that is held for a question.
    pub const BODY_BYTES_MAX: u32 = 64 * 1024;
}

impl fmt::Display for ExternalAuth {
    /// As in `authz/checks:9000 over gRPC`.
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
