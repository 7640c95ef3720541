//! Who may read the dumps: on TCP, requests that name an address and no DNS name; on a unix socket, its owner.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::HOST;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};

/// Pages that answer only to an IP address or `localhost`. A page in a browser can make a name of its own lead here
/// (DNS rebinding), but its requests then carry that name.
pub(crate) fn guarded(pages: Router) -> Router {
    pages.layer(from_fn(check))
}

async fn check(request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    if host.is_some_and(names_no_stranger) {
        next.run(request).await
    } else {
        (StatusCode::MISDIRECTED_REQUEST, "ask by IP address or as localhost\n").into_response()
    }
}

fn names_no_stranger(host: &str) -> bool {
    let address = host.parse::<std::net::SocketAddr>().is_ok() || host.parse::<std::net::Ipv4Addr>().is_ok();
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    address || bracketed.is_some_and(|v6| v6.parse::<std::net::Ipv6Addr>().is_ok()) || name == "localhost"
}

/// A unix socket that only its owner can use, from its first moment: it is made in a directory that nobody else can
/// enter and then moved into place. A socket that nobody listens on any more is replaced.
pub(crate) fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"));
    }
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let own = Permissions::from_mode(0o700);
    let private = tempfile::Builder::new().prefix(".tidegate-").permissions(own).tempdir_in(folder)?;
    let fresh = private.path().join("s");
    let listener = UnixListener::bind(&fresh)?;
    fs::set_permissions(&fresh, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    fs::rename(&fresh, path)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(host: &str, want: bool) {
        assert_eq!(names_no_stranger(host), want, "{host}");
    }

    #[test]
    fn names_are_refused() {
        for host in ["127.0.0.1", "127.0.0.1:9181", "[::1]", "[::1]:9181", "10.0.0.1:1", "localhost", "localhost:9181"]
        {
            check(host, true);
        }
        for host in
            ["", "evil.example", "evil.example:9181", "localhost.evil.example", "127.0.0.1.evil.example:1", "::1x"]
        {
            check(host, false);
        }
    }

    #[test]
    fn the_unix_socket_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("debug.sock");
        let first = bind_unix(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(bind_unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        bind_unix(&path).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
