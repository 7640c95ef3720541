//! What Pingora's errors mean: each becomes one [`Reason`], here and nowhere else.

use std::io::ErrorKind;

use pingora::{Error, ErrorSource, ErrorType, RetryType};

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
    has_cause(error, ErrorKind::InvalidData)
}

/// Whether the connection to an endpoint ended or was reset. Pingora says so of reads that the system failed; a write may be
/// the first to notice, and TLS has an error of its own for an end that nobody has announced.
pub(crate) fn is_cut(error: &Error) -> bool {
    *error.esource() == ErrorSource::Upstream
        && (error.retry == RetryType::ReusedOnly
            || *error.etype() == ErrorType::WriteError
            || has_cause(error, ErrorKind::UnexpectedEof))
}

fn has_cause(error: &Error, kind: ErrorKind) -> bool {
    error.root_cause().downcast_ref::<std::io::Error>().is_some_and(|cause| cause.kind() == kind)
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

    #[track_caller]
    fn check_cut(source: &ErrorSource, kind: ErrorType, cause: Option<ErrorKind>, retry: RetryType, want: bool) {
        let mut error = match cause {
            Some(cause) => Error::because(kind, "", std::io::Error::from(cause)),
            None => Error::new(kind),
        };
        (error.esource, error.retry) = (source.clone(), retry);
        assert_eq!(is_cut(&error), want, "{error}");
    }

    #[test]
    fn connections_of_endpoints_that_end_are_told_from_other_faults() {
        use ErrorSource::{Downstream, Upstream};
        use ErrorType as E;
        let no = || RetryType::Decided(false);
        check_cut(&Upstream, E::ConnectionClosed, None, RetryType::ReusedOnly, true);
        check_cut(&Upstream, E::ReadError, Some(ErrorKind::ConnectionReset), RetryType::ReusedOnly, true);
        check_cut(&Upstream, E::ReadError, Some(ErrorKind::UnexpectedEof), no(), true);
        check_cut(&Upstream, E::WriteError, Some(ErrorKind::BrokenPipe), no(), true);
        check_cut(&Upstream, E::ReadError, Some(ErrorKind::InvalidData), no(), false);
        check_cut(&Upstream, E::ReadTimedout, None, no(), false);
        check_cut(&Upstream, E::InvalidHTTPHeader, None, no(), false);
        check_cut(&Downstream, E::WriteError, Some(ErrorKind::BrokenPipe), no(), false);
        check_cut(&Downstream, E::ReadError, Some(ErrorKind::UnexpectedEof), no(), false);
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
