//! The served API: its address, its clients and its limits.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use tidegate_control::options::Secrets;

use super::pace::within;
use super::{Cluster, InvalidValue};
use crate::args::{ServeArgs, ServerArgs};

/// The served API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Serve {
    pub(crate) at: ServeAddress,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) tls: Option<TlsFiles>,
    /// `true` if Secrets are served.
    pub(crate) secrets: bool,
    /// `true` if writes are forwarded.
    pub(crate) forward_writes: bool,
    pub(crate) bytes_max: usize,
    pub(crate) connections_max: usize,
}

/// The address of the served API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ServeAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// The files of its certificates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TlsFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    /// The authorities of client certificates, which clients must then present.
    pub(crate) client_ca: Option<PathBuf>,
}

/// A server to read from, in place of a cluster's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Server {
    pub(crate) url: http::Uri,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) ca: Option<PathBuf>,
}

const FLAG: &str = "--serve-api";

/// Reads the settings of the served API, if there is to be one.
pub(super) fn read(args: &ServeArgs, cluster: &Cluster, secrets: &Secrets) -> Result<Option<Serve>, InvalidValue> {
    let Some(text) = args.serve_api.as_deref() else {
        let given = [
            ("--serve-token-file", args.serve_token_file.is_some()),
            ("--serve-cert", args.serve_cert.is_some()),
            ("--serve-secrets", args.serve_secrets),
            ("--forward-writes", args.forward_writes),
        ];
        let alone = given.into_iter().find(|(_, given)| *given);
        return alone.map_or(Ok(None), |(flag, _)| Err(InvalidValue::new(flag, "", "needs --serve-api")));
    };
    if !cluster.namespaces.is_empty() {
        let why = "serves what is read in all namespaces, and cannot be combined with --namespace";
        return Err(InvalidValue::new(FLAG, text, why));
    }
    if args.serve_secrets && *secrets != Secrets::Watched {
        return Err(InvalidValue::new("--serve-secrets", "true", "needs --watch-secrets all"));
    }
    read_at(args, text).map(Some)
}

/// Reads the settings of a served API at this address.
pub(super) fn read_at(args: &ServeArgs, text: &str) -> Result<Serve, InvalidValue> {
    let mib: usize = within("--serve-memory", &args.serve_memory, 1..=1 << 20)?;
    let connections_max = within("--serve-connections", &args.serve_connections, 1..=1 << 20)?;
    let refuse = |why: &str| Err(InvalidValue::new(FLAG, text, why));
    let at = match text.strip_prefix("unix:") {
        Some("") => return refuse("names no socket"),
        Some(path) => ServeAddress::Unix(path.into()),
        None => ServeAddress::Tcp(text.parse().map_err(|why| InvalidValue::new(FLAG, text, why))?),
    };
    let files = args.serve_cert.clone().zip(args.serve_key.clone());
    let tls = files.map(|(cert, key)| TlsFiles { cert, key, client_ca: args.serve_client_ca.clone() });
    let known = args.serve_token_file.is_some() || args.serve_client_ca.is_some();
    match at {
        ServeAddress::Tcp(at) if !at.ip().is_loopback() => {
            if tls.is_none() {
                return refuse("is not on loopback, and needs --serve-cert and --serve-key");
            }
            if !known {
                return refuse("is not on loopback, and needs --serve-token-file or --serve-client-ca");
            }
        }
        ServeAddress::Tcp(_) if args.serve_secrets && !known => {
            return refuse("with --serve-secrets needs --serve-token-file or --serve-client-ca, or a unix socket");
        }
        ServeAddress::Tcp(_) => {}
        ServeAddress::Unix(_) if tls.is_some() => return refuse("is a unix socket, which has no certificates"),
        ServeAddress::Unix(_) => {}
    }
    let (token_file, secrets, bytes_max) = (args.serve_token_file.clone(), args.serve_secrets, mib << 20);
    if args.forward_writes && token_file.is_some() {
        return Err(InvalidValue::new(
            "--forward-writes",
            "true",
            "forwards each client's own bearer token, which --serve-token-file would replace",
        ));
    }
    Ok(Serve { at, token_file, tls, secrets, forward_writes: args.forward_writes, bytes_max, connections_max })
}

/// Reads the settings of the server to read from, if one is named.
pub(super) fn server(args: &ServerArgs) -> Result<Option<Server>, InvalidValue> {
    let Some(text) = &args.server else { return Ok(None) };
    let url: http::Uri = text.parse().map_err(|why| InvalidValue::new("--server", text, why))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none() {
        return Err(InvalidValue::new("--server", text, "is not a URL such as https://127.0.0.1:6443"));
    }
    if args.server_token_file.is_some() && !is_private(&url) {
        let why = "is plain HTTP and not on loopback, and the token of --server-token-file would go there in clear text; name an https \
                   URL";
        return Err(InvalidValue::new("--server", text, why));
    }
    Ok(Some(Server { url, token_file: args.server_token_file.clone(), ca: args.server_ca.clone() }))
}

/// Returns `true` if requests to this server cannot be read on their way: over TLS, or on loopback.
pub(crate) fn is_private(url: &http::Uri) -> bool {
    let host = url.host().unwrap_or_default();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
    url.scheme_str() == Some("https") || bare == "localhost" || bare.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(at: &str, given: &[&str], want: Result<(), &str>) {
        let path = |name: &str| given.contains(&name).then(|| PathBuf::from(name));
        let args = ServeArgs {
            serve_api: Some(at.to_owned()),
            serve_token_file: path("token"),
            serve_cert: path("tls"),
            serve_key: path("tls"),
            serve_client_ca: path("ca"),
            serve_secrets: given.contains(&"secrets"),
            forward_writes: given.contains(&"writes"),
            serve_memory: "1".to_owned(),
            serve_connections: "1".to_owned(),
        };
        let namespaces = given.contains(&"namespace").then(|| "shop".into()).into_iter().collect();
        let cluster = Cluster { kubeconfig: None, server: None, namespaces };
        let got = read(&args, &cluster, &Secrets::Watched).map(drop).map_err(|why| why.to_string());
        match want {
            Ok(()) => assert_eq!(got, Ok(())),
            Err(want) => assert!(got.as_ref().is_err_and(|got| got.contains(want)), "{got:?}"),
        }
    }

    #[test]
    fn remote_clients_need_a_token_or_a_certificate() {
        check("127.0.0.1:0", &[], Ok(()));
        check("[::1]:8001", &["token"], Ok(()));
        check("unix:/run/api.sock", &[], Ok(()));
        check("unix:/run/api.sock", &["secrets"], Ok(()));
        check("0.0.0.0:8001", &[], Err("needs --serve-cert"));
        check("0.0.0.0:8001", &["token"], Err("needs --serve-cert"));
        check("192.0.2.1:8001", &["tls"], Err("needs --serve-token-file or --serve-client-ca"));
        check("192.0.2.1:8001", &["tls", "token"], Ok(()));
        check("192.0.2.1:8001", &["tls", "ca"], Ok(()));
        check("127.0.0.1:8001", &["secrets"], Err("a unix socket"));
        check("127.0.0.1:8001", &["secrets", "token"], Ok(()));
        check("unix:", &[], Err("names no socket"));
        check("unix:/run/api.sock", &["tls"], Err("no certificates"));
        check("8001", &[], Err("socket address"));
        check("127.0.0.1:8001", &["namespace"], Err("--namespace"));
        check("127.0.0.1:8001", &["writes"], Ok(()));
        check("192.0.2.1:8001", &["writes"], Err("needs --serve-cert"));
        check("192.0.2.1:8001", &["tls", "ca", "writes"], Ok(()));
        check("192.0.2.1:8001", &["tls", "token", "writes"], Err("would replace"));
    }

    #[track_caller]
    fn check_server(url: &str, token: bool, want: bool) {
        let token_file = token.then(|| PathBuf::from("token"));
        let args = ServerArgs { server: Some(url.to_owned()), server_token_file: token_file, server_ca: None };
        let got = server(&args).map(drop).map_err(|why| why.to_string());
        let refused = |why: &String| why.contains("in clear text") && why.contains(url);
        assert!(if want { got.is_ok() } else { got.as_ref().is_err_and(refused) }, "{got:?}");
    }

    #[test]
    fn the_authorities_of_a_server_are_those_of_its_flag() {
        let ca = |server_ca| {
            let args = ServerArgs { server: Some("https://192.0.2.1".to_owned()), server_token_file: None, server_ca };
            server(&args).unwrap().unwrap().ca
        };
        assert_eq!(ca(Some("ca.crt".into())), Some(PathBuf::from("ca.crt")));
        assert_eq!(ca(None), None);
    }

    #[test]
    fn the_token_for_a_server_is_sent_in_clear_text_only_to_loopback() {
        check_server("https://192.0.2.1:8001", true, true);
        check_server("http://127.0.0.1:8001", true, true);
        check_server("http://[::1]:8001", true, true);
        check_server("http://localhost:8001", true, true);
        check_server("http://192.0.2.1:8001", true, false);
        check_server("http://edge.example:8001", true, false);
        check_server("http://192.0.2.1:8001", false, true);
    }
}
