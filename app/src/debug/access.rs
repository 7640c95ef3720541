//! Access to the dumps: on TCP, requests that name an address and no DNS name; on a unix socket, its owner. Web pages
//! cannot send commands.

use std::fs::{self, Permissions};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use axum::Router;
use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};

/// Restricts pages to requests whose host is an IP address or `localhost`. A web page can make a name of its own
/// resolve to this address (DNS rebinding), but its requests then carry that name.
pub(crate) fn guarded(pages: Router) -> Router {
    pages.layer(from_fn(check))
}

async fn check(request: Request, next: Next) -> Response {
    let mut hosts = request.headers().get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let (host, second) = (hosts.next(), hosts.next());
    let named = request.uri().authority().map(Authority::as_str);
    // Two readers of several hosts may choose different ones (RFC 9112 section 3.2).
    if second.is_none() && host.is_some_and(names_no_stranger) && named.is_none_or(names_no_stranger) {
        next.run(request).await
    } else {
        (StatusCode::MISDIRECTED_REQUEST, "use an IP address or localhost as the host\n").into_response()
    }
}

/// Refuses commands from web pages. A browser names the page that sends a `POST` (Fetch Standard, `Origin` header); the
/// tools of operators do not send that header.
pub(crate) fn without_origin<S: Clone + Send + Sync + 'static>(pages: Router<S>) -> Router<S> {
    pages.layer(from_fn(check_origin))
}

async fn check_origin(request: Request, next: Next) -> Response {
    if request.method() == Method::POST && request.headers().contains_key(ORIGIN) {
        let refused = "commands of web pages are refused: send the request without an Origin header\n";
        return (StatusCode::FORBIDDEN, refused).into_response();
    }
    next.run(request).await
}

/// Returns `true` for an IP address or `localhost`, with or without a port.
fn names_no_stranger(host: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let name = match host.rsplit_once(':') {
        // The last colon of a bracketed IPv6 address is not before a port.
        Some((name, port)) if !port.ends_with(']') => Some(name).filter(|_| is_port(port)),
        _ => Some(host),
    };
    let is_ours = |name: &str| match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<Ipv4Addr>().is_ok() || name.eq_ignore_ascii_case("localhost"),
    };
    name.is_some_and(is_ours)
}

/// Binds a unix socket that only its owner can use, from its first moment: it is created in a directory of mode 0700
/// and then moved into place. A socket without a listener is replaced; any other file is not.
///
/// # Errors
/// When another file exists there, another process listens there, or the folder is not writable.
pub(crate) fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if !free_or_socket(path)? {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the existing file is not a socket and is not replaced",
        ));
    }
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

/// Removes the socket at the end, unless another process has replaced it.
pub(crate) fn unlink(path: &Path) {
    // While this process listens there, no successor can have replaced it.
    if matches!(free_or_socket(path), Ok(true)) {
        drop(fs::remove_file(path));
    }
}

/// Returns `true` if the path is free or is itself a socket and not a link to one.
fn free_or_socket(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(there) => Ok(there.file_type().is_socket()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
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
        for host in ["LOCALHOST", "localhost:65535", "[fe80::1]:1"] {
            check(host, true);
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9181",
            "localhost.evil.example",
            "127.0.0.1.evil.example:1",
            "::1x",
            "localhost:1.evil.test",
            "localhost:",
            "localhost:65536",
            "localhost:+1",
            "localhost:1:2",
            "127.0.0.1:1.evil.test",
            "127.0.0.1:",
            "[::1]:1.evil.test",
            "[::1]evil.test",
            "[localhost]",
            "user@localhost",
            "localhost@evil.test:1",
        ] {
            check(host, false);
        }
    }

    /// The status for a request with these hosts, and this target.
    async fn status(hosts: &[&str], target: &str) -> u16 {
        let pages = guarded(Router::new().route("/", axum::routing::get(|| async { "page" })));
        let mut request = axum::http::Request::get(target);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let answer = tower::ServiceExt::oneshot(pages, request.body(axum::body::Body::empty()).unwrap()).await;
        answer.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn a_request_has_one_host() {
        assert_eq!(status(&["localhost"], "/").await, 200);
        assert_eq!(status(&["localhost:9181"], "http://127.0.0.1:9181/").await, 200);
        assert_eq!(status(&[], "/").await, 421);
        assert_eq!(status(&["localhost", "evil.test"], "/").await, 421);
        assert_eq!(status(&["evil.test", "localhost"], "/").await, 421);
        assert_eq!(status(&["localhost", "localhost"], "/").await, 421);
        assert_eq!(status(&["localhost"], "http://evil.test/").await, 421);
    }

    #[test]
    fn only_the_owner_can_use_the_unix_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("debug.sock");
        let first = bind_unix(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(bind_unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        bind_unix(&path).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn nothing_but_a_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (text, link) = (folder.path().join("notes.txt"), folder.path().join("link"));
        fs::write(&text, "mine").unwrap();
        std::os::unix::fs::symlink(&text, &link).unwrap();
        for path in [&text, &link, &folder.path().to_owned()] {
            assert_eq!(bind_unix(path).unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{}", path.display());
            unlink(path);
        }
        assert_eq!(fs::read_to_string(&link).unwrap(), "mine");

        let socket = folder.path().join("debug.sock");
        drop(bind_unix(&socket).unwrap());
        unlink(&socket);
        assert!(!socket.exists());
    }
}
