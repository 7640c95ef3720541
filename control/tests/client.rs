//! The sources of the API server's address and of the credentials.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::io::Write;

use tidegate_control::client::{Access, Deadlines, connect};
use tidegate_control::{ApiServer, Following};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

const TOKEN: &str = "a-token-that-must-not-be-seen";

fn kubeconfig(more: &str) -> tempfile::NamedTempFile {
    kubeconfig_of(more, "")
}

/// A kubeconfig with more fields of the clusters and of the user.
fn kubeconfig_of(more: &str, of_user: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(
        file,
        "apiVersion: v1
kind: Config
current-context: one
clusters:
- {{name: one, cluster: {{server: 'http://127.0.0.1:1'{more}}}}}
- {{name: two, cluster: {{server: 'http://127.0.0.1:2'{more}}}}}
contexts:
- {{name: one, context: {{cluster: one, user: me, namespace: shop}}}}
- {{name: two, context: {{cluster: two, user: me}}}}
users:
- {{name: me, user: {{token: {TOKEN}{of_user}}}}}
"
    )
    .unwrap();
    file
}

/// Compares the outcome for a kubeconfig and a context: the server's address, or a part of the error.
#[track_caller]
fn check(more: &str, context: Option<&str>, expected: Result<&str, &str>) {
    check_file(&kubeconfig(more), context, expected);
}

#[track_caller]
fn check_file(file: &tempfile::NamedTempFile, context: Option<&str>, expected: Result<&str, &str>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(async {
        let access = Access::kubeconfig(&Following::new().unwrap(), file.path(), context)?;
        let url = access.config().cluster_url.to_string();
        connect(&access, Deadlines::WRITE, &ApiServer::default()).map(|_client| url)
    });
    match (outcome, expected) {
        (Ok(url), Ok(expected)) => assert_eq!(url, expected),
        (Err(why), Err(expected)) => {
            let why = format!("{why} {why:?}");
            assert!(why.contains(expected), "{why}");
            assert!(!why.contains(TOKEN), "{why}");
        }
        (outcome, expected) => panic!("{outcome:?} is not {expected:?}"),
    }
}

#[test]
fn a_kubeconfig_names_the_server_and_the_context_can_be_chosen() {
    check("", None, Ok("http://127.0.0.1:1/"));
    check("", Some("two"), Ok("http://127.0.0.1:2/"));
    check("", Some("three"), Err("three"));
}

#[test]
fn proxy_variables_of_the_environment_are_ignored() {
    let other = "a_kubeconfig_names_the_server_and_the_context_can_be_chosen";
    for (name, value) in
        [("HTTPS_PROXY", "http://127.0.0.1:3"), ("https_proxy", "http://127.0.0.1:3"), ("HTTPS_PROXY", "a b")]
    {
        let mut own = std::process::Command::new(std::env::current_exe().unwrap());
        let outcome = own.args(["--exact", other]).env(name, value).output().unwrap();
        let told = String::from_utf8_lossy(&outcome.stdout);
        assert!(outcome.status.success() && told.contains("1 passed"), "{name}={value}: {told}");
    }
}

#[test]
fn unsupported_kubeconfig_settings_are_errors() {
    check(", proxy-url: 'http://127.0.0.1:3'", None, Err("proxy-url is not supported"));
    check(", certificate-authority: /there/is/no/such/file", None, Err("no/such/file"));
}

#[test]
fn an_auth_provider_is_refused_before_it_runs_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    for name in ["gcp", "azure", "openstack"] {
        let config = format!("cmd-path: /usr/bin/touch, cmd-args: '{}'", ran.display());
        let provider = format!(", auth-provider: {{name: {name}, config: {{{config}}}}}");
        let why = format!("auth-provider \"{name}\" is not supported");
        check_file(&kubeconfig_of("", &provider), None, Err(&why));
    }
    assert!(!ran.exists());
    let provider = ", auth-provider: {name: oidc, config: {id-token: x}}";
    check_file(&kubeconfig_of("", provider), None, Ok("http://127.0.0.1:1/"));
}

#[test]
fn outside_a_pod_the_service_account_is_an_error() {
    assert!(
        Access::in_cluster(&Following::new().unwrap())
            .unwrap_err()
            .to_string()
            .starts_with("the service account of the pod cannot be used")
    );
}

/// A server that answers only requests with a token of this name, and the tokens that it receives.
async fn answers_only(token: &'static str) -> (std::net::SocketAddr, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (shown, seen) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let shown = shown.clone();
            tokio::spawn(async move {
                let mut lines = tokio::io::BufReader::new(&mut stream).lines();
                while let Some(line) = lines.next_line().await.unwrap() {
                    if let Some(own) = line.strip_prefix("authorization: Bearer ") {
                        shown.send(own.to_owned()).unwrap();
                        if own != token {
                            std::future::pending::<()>().await;
                        }
                    }
                    if line.is_empty() {
                        break;
                    }
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
            });
        }
    });
    (at, seen)
}

#[tokio::test]
async fn an_aborted_request_makes_the_client_reread_credentials() {
    let (at, mut seen) = answers_only("new").await;
    let mut token = tempfile::NamedTempFile::new().unwrap();
    token.write_all(b"old").unwrap();
    let mut config = kube::Config::new(format!("http://{at}").parse().unwrap());
    config.auth_info.token_file = Some(token.path().to_str().unwrap().to_owned());
    let client = connect(
        &Access::of(&Following::new().unwrap(), "test", config).unwrap(),
        Deadlines::WRITE,
        &ApiServer::default(),
    )
    .unwrap();
    let ask = || client.request_text(http::Request::get("/version").body(Vec::new()).unwrap());
    let given_up = async {
        tokio::select! {
            answer = ask() => panic!("{answer:?}"),
            shown = seen.recv() => shown,
        }
    };
    assert_eq!(given_up.await.as_deref(), Some("old"));
    std::fs::write(token.path(), "new").unwrap();
    assert_eq!(ask().await.unwrap(), "ok");
    assert_eq!(seen.recv().await.as_deref(), Some("new"));
}

/// The addresses of the API server with this URL that are known before the first request.
fn known_at_once(url: &str) -> Vec<String> {
    let api_server = ApiServer::default();
    connect(
        &Access::of(&Following::new().unwrap(), "test", kube::Config::new(url.parse().unwrap())).unwrap(),
        Deadlines::WRITE,
        &api_server,
    )
    .unwrap();
    api_server.sockets().iter().map(ToString::to_string).collect()
}

/// The same, before and after one request.
async fn known(url: &str) -> [Vec<String>; 2] {
    let api_server = ApiServer::default();
    let sockets = || api_server.sockets().iter().map(ToString::to_string).collect();
    let client = connect(
        &Access::of(&Following::new().unwrap(), "test", kube::Config::new(url.parse().unwrap())).unwrap(),
        Deadlines::WRITE,
        &api_server,
    )
    .unwrap();
    let before = sockets();
    drop(client.request_text(http::Request::get("/version").body(Vec::new()).unwrap()).await);
    [before, sockets()]
}

#[tokio::test]
async fn the_addresses_of_the_api_server_are_reported() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    // The server closes every connection.
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    assert_eq!(known(&format!("http://{at}")).await, [[at.to_string()], [at.to_string()]]);
    assert_eq!(known_at_once("http://[::1]:1"), ["[::1]:1"]);
    assert_eq!(known_at_once("https://127.0.0.1"), ["127.0.0.1:443"]);
    assert_eq!(known_at_once("http://127.0.0.1"), ["127.0.0.1:80"]);

    let [before, after] = known(&format!("http://localhost:{}", at.port())).await;
    assert_eq!(before, [""; 0], "a name is looked up when it is connected to");
    assert!(after.contains(&at.to_string()), "{after:?}");
}
