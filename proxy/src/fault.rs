//! What Pingora's errors mean: each becomes one [`Reason`], here and nowhere else.

use pingora::{Error, ErrorSource, ErrorType};

use crate::answer::Reason;
use crate::metrics::Connect;

/// Why a request failed.
pub(crate) fn reason(error: &Error) -> Reason {
    use ErrorType as E;
    match (error.esource(), error.etype()) {
        (_, E::HTTPStatus(413)) => Reason::BodyTooLarge,
        (ErrorSource::Downstream, E::ReadTimedout) => Reason::BodyStalled,
        (ErrorSource::Downstream, E::ReadError) if is_malformed(error) => Reason::MalformedRequest,
        (
            ErrorSource::Downstream,
            E::WriteTimedout | E::WriteError | E::ReadError | E::ConnectionClosed | E::H2Error,
        ) => Reason::ClientGone,
        (ErrorSource::Downstream, _) => Reason::MalformedRequest,
        (_, E::ConnectTimedout | E::TLSHandshakeTimedout) => Reason::ConnectTimeout,
        (_, E::ReadTimedout | E::WriteTimedout) => Reason::UpstreamTimeout,
        (
            _,
            E::ConnectRefused
            | E::ConnectNoRoute
            | E::ConnectError
            | E::ConnectProxyFailure
            | E::TLSHandshakeFailure
            | E::TLSWantX509Lookup
            | E::HandshakeError
            | E::InvalidCert
            | E::BindError
            | E::SocketError,
        ) => Reason::ConnectFailed,
        (ErrorSource::Upstream, _) => Reason::UpstreamBroken,
        // A head that our own edits made invalid, and all that should not happen.
        (ErrorSource::Internal | ErrorSource::Unset, _) => Reason::Internal,
    }
}

/// Whether reading ended because [`crate::connection`] would not have it.
fn is_malformed(error: &Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::InvalidData)
}

/// How a connection that could not be opened is counted.
pub(crate) fn connect(error: &Error) -> Connect {
    if reason(error) == Reason::ConnectTimeout { Connect::TimedOut } else { Connect::Failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &ErrorSource, kind: ErrorType, want: Reason) {
        let mut error = Error::new(kind);
        error.esource = source.clone();
        assert_eq!(reason(&error), want, "{error}");
    }

    #[test]
    fn every_fault_has_its_reason() {
        use ErrorSource::{Downstream, Internal, Unset, Upstream};
        use ErrorType as E;
        check(&Upstream, E::ConnectRefused, Reason::ConnectFailed);
        check(&Upstream, E::TLSHandshakeFailure, Reason::ConnectFailed);
        check(&Upstream, E::ConnectTimedout, Reason::ConnectTimeout);
        check(&Upstream, E::ReadTimedout, Reason::UpstreamTimeout);
        check(&Upstream, E::ConnectionClosed, Reason::UpstreamBroken);
        check(&Upstream, E::InvalidHTTPHeader, Reason::UpstreamBroken);
        check(&Upstream, E::H2Error, Reason::UpstreamBroken);
        check(&Downstream, E::ReadTimedout, Reason::BodyStalled);
        check(&Downstream, E::ConnectionClosed, Reason::ClientGone);
        check(&Downstream, E::WriteTimedout, Reason::ClientGone);
        check(&Downstream, E::InvalidHTTPHeader, Reason::MalformedRequest);
        check(&Internal, E::HTTPStatus(413), Reason::BodyTooLarge);
        check(&Unset, E::UnknownError, Reason::Internal);
        check(&Internal, E::InvalidHTTPHeader, Reason::Internal);
    }
}
