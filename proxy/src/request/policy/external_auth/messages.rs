//! The messages of Envoy's `envoy.service.auth.v3.Authorization`, with the fields that are written or read here: field
//! numbers are those of the published protocol, and other fields are neither sent nor read.

use std::collections::HashMap;

/// `envoy.service.auth.v3.CheckRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) attributes: Option<AttributeContext>,
}

/// `envoy.service.auth.v3.AttributeContext`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AttributeContext {
    #[prost(message, optional, tag = "1")]
    pub(crate) source: Option<Peer>,
    #[prost(message, optional, tag = "2")]
    pub(crate) destination: Option<Peer>,
    #[prost(message, optional, tag = "4")]
    pub(crate) request: Option<AttributeRequest>,
    #[prost(message, optional, tag = "12")]
    pub(crate) tls_session: Option<TlsSession>,
}

/// `envoy.service.auth.v3.AttributeContext.Peer`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Peer {
    #[prost(message, optional, tag = "1")]
    pub(crate) address: Option<Address>,
}

/// `envoy.config.core.v3.Address`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Address {
    #[prost(message, optional, tag = "1")]
    pub(crate) socket_address: Option<SocketAddress>,
}

/// `envoy.config.core.v3.SocketAddress`, of TCP.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SocketAddress {
    #[prost(string, tag = "2")]
    pub(crate) address: String,
    #[prost(uint32, tag = "3")]
    pub(crate) port_value: u32,
}

/// `envoy.service.auth.v3.AttributeContext.Request`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AttributeRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) time: Option<Timestamp>,
    #[prost(message, optional, tag = "2")]
    pub(crate) http: Option<HttpRequest>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

/// `envoy.service.auth.v3.AttributeContext.HttpRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HttpRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) method: String,
    #[prost(map = "string, string", tag = "3")]
    pub(crate) headers: HashMap<String, String>,
    #[prost(string, tag = "4")]
    pub(crate) path: String,
    #[prost(string, tag = "5")]
    pub(crate) host: String,
    #[prost(string, tag = "6")]
    pub(crate) scheme: String,
    #[prost(int64, tag = "9")]
    pub(crate) size: i64,
    #[prost(string, tag = "10")]
    pub(crate) protocol: String,
    #[prost(string, tag = "11")]
    pub(crate) body: String,
    #[prost(bytes = "bytes", tag = "12")]
    pub(crate) raw_body: bytes::Bytes,
}

/// `envoy.service.auth.v3.AttributeContext.TLSSession`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TlsSession {
    #[prost(string, tag = "1")]
    pub(crate) sni: String,
}

/// `envoy.service.auth.v3.CheckResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(oneof = "HttpResponse", tags = "2, 3")]
    pub(crate) http_response: Option<HttpResponse>,
}

/// The HTTP response for a status.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum HttpResponse {
    /// For a status other than OK.
    #[prost(message, tag = "2")]
    Denied(DeniedHttpResponse),
    /// For the status OK.
    #[prost(message, tag = "3")]
    Ok(OkHttpResponse),
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
}

/// `envoy.service.auth.v3.DeniedHttpResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeniedHttpResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<HttpStatus>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) headers: Vec<HeaderValueOption>,
    #[prost(string, tag = "3")]
    pub(crate) body: String,
}

/// `envoy.type.v3.HttpStatus`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
}

/// `envoy.service.auth.v3.OkHttpResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OkHttpResponse {
    #[prost(message, repeated, tag = "2")]
    pub(crate) headers: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "5")]
    pub(crate) headers_to_remove: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) response_headers_to_add: Vec<HeaderValueOption>,
}

/// `envoy.config.core.v3.HeaderValueOption`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, optional, tag = "2")]
    pub(crate) append: Option<BoolValue>,
    #[prost(enumeration = "HeaderAppendAction", tag = "3")]
    pub(crate) append_action: i32,
}

/// `envoy.config.core.v3.HeaderValue`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Header {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) raw_value: bytes::Bytes,
}

/// `google.protobuf.BoolValue`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct BoolValue {
    #[prost(bool, tag = "1")]
    pub(crate) value: bool,
}

/// `envoy.config.core.v3.HeaderValueOption.HeaderAppendAction`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum HeaderAppendAction {
    /// The default value, for which [`HeaderValueOption::append`] decides.
    AppendIfExistsOrAdd = 0,
    AddIfAbsent = 1,
    OverwriteIfExistsOrAdd = 2,
    OverwriteIfExists = 3,
}
