//! The reasons why the edge answers a request itself, or aborts it. Every refusal and every upstream failure is one
//! [`Reason`], so the status, the metric and the log line come from one table.

/// The reason why no endpoint answered a request completely. The name is the label of the metric and of the log line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// The head is not valid HTTP.
    MalformedRequest,
    /// HTTP/1.1 without a Host header (RFC 9112 section 3.2).
    MissingHost,
    /// An invalid Host, or several that differ.
    MalformedHost,
    /// A path that cannot be normalised.
    MalformedPath,
    /// Several lengths, or both a length and a transfer coding (RFC 9112 section 6.3).
    AmbiguousLength,
    /// A `Connection` header with the name of a header that the edge sets.
    ForbiddenConnectionOption,
    /// `CONNECT` or `TRACE`.
    MethodNotAllowed,
    /// A transfer coding other than `chunked`.
    UnknownTransferCoding,
    /// More header lines or bytes than allowed.
    HeadTooLarge,
    /// A longer request line than allowed.
    UriTooLong,
    /// A longer path than expressions are tried with, or one that takes them too many steps.
    PathUntried,
    /// A longer header or query parameter than expressions are tried with, or one that takes them too many steps.
    ValueUntried,
    /// It came before the TLS handshake was complete, with a method that is not allowed then (RFC 8470 section 5.2).
    TooEarly,
    /// It has passed this edge too often: a destination behind the edge leads back to it.
    LoopDetected,
    /// The TLS handshake was with another listener than that of its host (RFC 9110 section 15.5.20).
    Misdirected,
    /// No host or path matches.
    NoRoute,
    /// A guard refuses it.
    Denied,
    /// It has no valid credentials.
    Unauthenticated,
    /// Authorisation refuses it.
    Forbidden,
    /// A rate limit refuses it.
    RateLimited,
    /// A rate limit cannot count it, because the store of limits is away.
    LimitsUnavailable,
    /// An authorisation service denies it.
    ExternalAuthDenied,
    /// The authorisation service cannot be reached, or its answer is invalid.
    ExternalAuthFailed,
    /// The authorisation service did not answer in time.
    ExternalAuthTimeout,
    /// A guard or the route redirects the client.
    Redirect,
    /// The route has a direct response.
    DirectResponse,
    /// The route, or the chosen share of its requests, has no usable backend, or a filter that cannot be applied.
    InvalidBackend,
    /// More body than the route allows.
    BodyTooLarge,
    /// The client stopped sending its body.
    BodyStalled,
    /// The client disconnected, or stopped reading.
    ClientGone,
    /// There is no endpoint.
    NoEndpoints,
    /// The edge itself has no file descriptor or memory left for a connection.
    OutOfResources,
    /// The Service has its maximum number of requests in flight.
    ServiceOverloaded,
    /// The client's address has reached its share of the edge's files and memory.
    ClientOverShare,
    /// No connection could be opened.
    ConnectFailed,
    /// No connection could be opened in time.
    ConnectTimeout,
    /// The connection broke, or its bytes were not HTTP.
    UpstreamBroken,
    /// The endpoint did not send for too long.
    UpstreamTimeout,
    /// A tunnel was idle for too long and was closed.
    TunnelIdle,
    /// The request was dropped before its end, as at a shutdown; this is only logged.
    Aborted,
    /// An error inside the edge.
    Internal,
}

impl Reason {
    /// All of them, for the metrics.
    pub(crate) const ALL: [Self; 41] = [
        Self::MalformedRequest,
        Self::MissingHost,
        Self::MalformedHost,
        Self::MalformedPath,
        Self::AmbiguousLength,
        Self::ForbiddenConnectionOption,
        Self::MethodNotAllowed,
        Self::UnknownTransferCoding,
        Self::HeadTooLarge,
        Self::UriTooLong,
        Self::PathUntried,
        Self::ValueUntried,
        Self::TooEarly,
        Self::LoopDetected,
        Self::Misdirected,
        Self::NoRoute,
        Self::Denied,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::RateLimited,
        Self::LimitsUnavailable,
        Self::ExternalAuthDenied,
        Self::ExternalAuthFailed,
        Self::ExternalAuthTimeout,
        Self::Redirect,
        Self::DirectResponse,
        Self::InvalidBackend,
        Self::BodyTooLarge,
        Self::BodyStalled,
        Self::ClientGone,
        Self::NoEndpoints,
        Self::OutOfResources,
        Self::ServiceOverloaded,
        Self::ClientOverShare,
        Self::ConnectFailed,
        Self::ConnectTimeout,
        Self::UpstreamBroken,
        Self::UpstreamTimeout,
        Self::TunnelIdle,
        Self::Aborted,
        Self::Internal,
    ];

    /// The status, the name, and whether it closes the connection; see [`Self::closes`]. 499 is never sent: it is only
    /// logged, when the client has disconnected.
    const fn describe(self) -> (u16, &'static str, bool) {
        match self {
            Self::MalformedRequest => (400, "malformed-request", true),
            Self::MissingHost => (400, "missing-host", true),
            Self::MalformedHost => (400, "malformed-host", true),
            Self::MalformedPath => (400, "malformed-path", true),
            Self::AmbiguousLength => (400, "ambiguous-length", true),
            Self::ForbiddenConnectionOption => (400, "forbidden-connection-option", true),
            Self::MethodNotAllowed => (405, "method-not-allowed", true),
            Self::UnknownTransferCoding => (501, "unknown-transfer-coding", true),
            Self::HeadTooLarge => (431, "head-too-large", true),
            Self::UriTooLong => (414, "uri-too-long", true),
            Self::PathUntried => (414, "path-untried", false),
            Self::ValueUntried => (431, "value-untried", false),
            Self::TooEarly => (425, "too-early", false),
            Self::LoopDetected => (508, "loop-detected", false),
            Self::Misdirected => (421, "misdirected-request", false),
            Self::NoRoute => (404, "no-route", false),
            Self::Denied => (403, "denied", false),
            Self::Unauthenticated => (401, "unauthenticated", false),
            Self::Forbidden => (403, "forbidden", false),
            Self::RateLimited => (429, "rate-limited", false),
            Self::LimitsUnavailable => (503, "limits-unavailable", false),
            Self::ExternalAuthDenied => (403, "external-auth-denied", false),
            Self::ExternalAuthFailed => (503, "external-auth-failed", false),
            Self::ExternalAuthTimeout => (504, "external-auth-timeout", false),
            Self::Redirect => (302, "redirect", false),
            Self::DirectResponse => (500, "direct-response", false),
            Self::InvalidBackend => (500, "invalid-backend", false),
            Self::BodyTooLarge => (413, "body-too-large", true),
            Self::BodyStalled => (408, "body-stalled", true),
            Self::ClientGone => (499, "client-gone", true),
            Self::NoEndpoints => (503, "no-endpoints", false),
            Self::OutOfResources => (503, "out-of-resources", false),
            Self::ServiceOverloaded => (503, "service-overloaded", false),
            Self::ClientOverShare => (503, "client-over-share", false),
            Self::ConnectFailed => (502, "connect-failed", false),
            Self::ConnectTimeout => (504, "connect-timeout", false),
            Self::UpstreamBroken => (502, "upstream-broken", false),
            Self::UpstreamTimeout => (504, "upstream-timeout", false),
            Self::TunnelIdle => (504, "tunnel-idle", true),
            Self::Aborted => (499, "aborted", true),
            Self::Internal => (500, "internal", true),
        }
    }

    /// The default status of an answer with this reason.
    pub(crate) const fn status(self) -> u16 {
        self.describe().0
    }

    /// Its name.
    pub(crate) const fn as_str(self) -> &'static str {
        self.describe().1
    }

    /// Returns `true` if an HTTP/1.1 connection must be closed after an answer with this reason, because the following
    /// bytes may not be a request. After the other answers it stays open if the request was read to its end and asked
    /// for no upgrade: the failure of an endpoint does not affect the framing of the client's bytes.
    pub(crate) const fn closes(self) -> bool {
        self.describe().2
    }

    /// Returns `true` if a retry may succeed (`Retry-After`, RFC 9110 section 10.2.3).
    pub(crate) const fn is_overload(self) -> bool {
        matches!(self, Self::OutOfResources | Self::ServiceOverloaded | Self::ClientOverShare | Self::LimitsUnavailable)
    }
}
