//! The kubeconfig of a server.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::access::Token;

/// A kubeconfig with one cluster, one user and one context, all named `tidegate`.
pub(super) fn write(bound: SocketAddr, authority_pem: &str, token: &Token) -> String {
    let host = match bound {
        SocketAddr::V6(_) if !bound.ip().is_unspecified() => format!("[{}]", bound.ip()),
        SocketAddr::V4(_) if !bound.ip().is_unspecified() => bound.ip().to_string(),
        SocketAddr::V4(_) => "127.0.0.1".to_owned(),
        SocketAddr::V6(_) => "[::1]".to_owned(),
    };
    format!(
        "apiVersion: v1
kind: Config
current-context: tidegate
clusters:
- name: tidegate
  cluster:
    server: https://{host}:{port}
    certificate-authority-data: {authority}
users:
- name: tidegate
  user:
    token: {token}
contexts:
- name: tidegate
  context:
    cluster: tidegate
    user: tidegate
    namespace: default
",
        port = bound.port(),
        authority = STANDARD.encode(authority_pem),
        token = token.text(),
    )
}
