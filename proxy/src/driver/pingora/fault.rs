//! The mapping of Pingora's errors: each becomes one [`Reason`], here and nowhere else; the underlying errors of the
//! operating system are mapped by [`connect::failure`].

use std::io::{self, ErrorKind};

use pingora::{Error, ErrorSource, ErrorType, RetryType};
use rustix::io::Errno;

use crate::reason::Reason;
use crate::upstream::{connect, http2};

/// The reason why a request failed.
pub(crate) fn reason(error: &Error) -> Reason {
    use ErrorType as E;
    match (error.esource(), error.etype(), system(error).map(connect::failure)) {
        (_, E::HTTPStatus(413), _) => Reason::BodyTooLarge,
        (ErrorSource::Downstream, E::ReadTimedout, _) => Reason::BodyStalled,
        (ErrorSource::Downstream, E::ReadError, _) if is_malformed(error) => Reason::MalformedRequest,
        (
            ErrorSource::Downstream,
            E::WriteTimedout | E::WriteError | E::ReadError | E::ConnectionClosed | E::H2Error,
            _,
        ) => Reason::ClientGone,
        (ErrorSource::Downstream, ..) => Reason::MalformedRequest,
        (_, E::ConnectTimedout | E::TLSHandshakeTimedout, _) => Reason::ConnectTimeout,
        (_, E::ReadTimedout | E::WriteTimedout, _) => Reason::UpstreamTimeout,
        (ErrorSource::Upstream, E::ReadError, _) if is_silent(error) => Reason::UpstreamTimeout,
        // Pingora reports an internal error if a socket cannot be opened, has no address, or may not connect.
        (_, E::ConnectError | E::BindError | E::SocketError | E::InternalError, Some(reason)) => reason,
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
            _,
        ) => Reason::ConnectFailed,
        (ErrorSource::Upstream, ..) => Reason::UpstreamBroken,
        // A head that the edge's own edits made invalid, and all other errors that should not happen.
        (ErrorSource::Internal | ErrorSource::Unset, ..) => Reason::Internal,
    }
}

/// The equivalent error of Pingora for a connection that could not be opened.
pub(super) fn connecting(reason: Reason) -> Box<Error> {
    let kind = match reason == Reason::ConnectTimeout {
        true => ErrorType::ConnectTimedout,
        false => ErrorType::ConnectError,
    };
    if reason == Reason::OutOfResources {
        let of_system = io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
        return Error::because(ErrorType::SocketError, "", of_system).into_up();
    }
    Error::new_up(kind)
}

/// The equivalent error of Pingora for a stream to an HTTP/2 endpoint, before or after the head of the response.
pub(super) fn of_stream(error: h2::Error, answered: bool) -> Box<Error> {
    let unprocessed = http2::is_unprocessed(&error);
    let cut = error.get_io().is_some_and(|error| {
        use ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, UnexpectedEof};
        error.raw_os_error().is_some()
            || matches!(error.kind(), BrokenPipe | ConnectionReset | TimedOut | UnexpectedEof)
    });
    let mut error = Error::because(if cut { ErrorType::ReadError } else { ErrorType::H2Error }, "", error).into_up();
    error.retry = match (unprocessed && !answered, cut) {
        (true, _) => RetryType::Decided(true),
        (false, true) => RetryType::ReusedOnly,
        (false, false) => RetryType::Decided(false),
    };
    error
}

/// Returns `true` if an attempt failed because a GOAWAY excludes its request, and can be repeated.
pub(super) fn is_excluded(error: &Error) -> bool {
    error.retry == RetryType::Decided(true) && error.root_cause().downcast_ref().is_some_and(http2::is_excluded)
}

/// Returns `true` if the socket's own wait for an endpoint has ended, and not one of the operating system.
fn is_silent(error: &Error) -> bool {
    has_cause(error, ErrorKind::TimedOut) && system(error).is_some_and(|error| error.raw_os_error().is_none())
}

/// Returns `true` if [`crate::connection`] has refused the bytes read.
fn is_malformed(error: &Error) -> bool {
    has_cause(error, ErrorKind::InvalidData)
}

/// Returns `true` if the connection to an endpoint ended or was reset. Pingora reports this for failed reads; a write
/// may be the first to fail, and TLS has an error of its own for an end without close_notify.
pub(crate) fn is_cut(error: &Error) -> bool {
    *error.esource() == ErrorSource::Upstream
        && (error.retry == RetryType::ReusedOnly
            || *error.etype() == ErrorType::WriteError
            || has_cause(error, ErrorKind::UnexpectedEof))
}

fn has_cause(error: &Error, kind: ErrorKind) -> bool {
    error.root_cause().downcast_ref::<std::io::Error>().is_some_and(|cause| cause.kind() == kind)
}

/// The operating system's error behind an error; Pingora wraps it if the connection had an address already.
fn system(error: &Error) -> Option<&io::Error> {
    let root: &(dyn std::error::Error + 'static) = error.root_cause();
    std::iter::successors(Some(root), |error| error.source()).find_map(|error| error.downcast_ref())
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
    fn connections_closed_by_the_endpoint_differ_from_other_faults() {
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

    #[track_caller]
    fn check_connecting(errno: Errno, want: Reason) {
        let of_system = || io::Error::from_raw_os_error(errno.raw_os_error());
        assert_eq!(connect::failure(&of_system()), want, "{errno}");
        use ErrorType::{BindError, ConnectError, InternalError, SocketError};
        let check = |mut error: Box<Error>| {
            error.esource = ErrorSource::Upstream;
            assert_eq!(reason(&error), want, "{error}");
        };
        for kind in [SocketError, BindError, ConnectError, InternalError] {
            check(Error::because(kind, "", of_system()));
        }
        // Pingora's errors for a socket that cannot be opened, and for a connection that had an address already.
        check(Error::because(InternalError, "", Error::because(SocketError, "", of_system())));
        let bound = || Error::because(BindError, "", Wrapped(of_system()));
        check(bound().more_context(""));
        check(Error::because(InternalError, "", bound()));
    }

    #[derive(Debug)]
    struct Wrapped(io::Error);

    impl std::fmt::Display for Wrapped {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fmt(f)
        }
    }

    impl std::error::Error for Wrapped {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_shortage_of_the_edge_is_no_fault_of_an_endpoint() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            check_connecting(errno, Reason::OutOfResources);
        }
        use Errno as E;
        for errno in [E::CONNREFUSED, E::HOSTUNREACH, E::NETUNREACH, E::ADDRNOTAVAIL, E::CONNRESET, E::ACCESS, E::PERM]
        {
            check_connecting(errno, Reason::ConnectFailed);
        }
    }

    #[test]
    fn every_fault_has_its_reason() {
        use ErrorSource::{Downstream, Internal, Unset, Upstream};
        use ErrorType as E;
        check(&Upstream, E::ConnectRefused, Reason::ConnectFailed);
        check(&Upstream, E::TLSHandshakeFailure, Reason::ConnectFailed);
        check(&Upstream, E::ConnectError, Reason::ConnectFailed);
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
