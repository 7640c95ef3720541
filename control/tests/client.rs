//! Where the address and the credentials of the API server come from.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::io::Write;

use tidegate_control::ApiServer;
use tidegate_control::client::{Deadlines, connect, from_kubeconfig, in_cluster};

const TOKEN: &str = "a-token-that-must-not-be-seen";

fn kubeconfig(more: &str) -> tempfile::NamedTempFile {
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
- {{name: me, user: {{token: {TOKEN}}}}}
"
    )
    .unwrap();
    file
}

/// What becomes of a kubeconfig and the context that is asked for: the server's address, or a part of the error.
#[track_caller]
fn check(more: &str, context: Option<&str>, expected: Result<&str, &str>) {
    let file = kubeconfig(more);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(async {
        let config = from_kubeconfig(file.path(), context).await?;
        let url = config.cluster_url.to_string();
        connect(config, Deadlines::WRITE, &ApiServer::default()).map(|_client| url)
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
fn a_kubeconfig_says_where_and_the_context_can_be_chosen() {
    check("", None, Ok("http://127.0.0.1:1/"));
    check("", Some("two"), Ok("http://127.0.0.1:2/"));
    check("", Some("three"), Err("three"));
}

#[test]
fn what_cannot_be_honoured_is_an_error() {
    check(", proxy-url: 'http://127.0.0.1:3'", None, Err("proxy-url is not supported"));
    check(", certificate-authority: /there/is/no/such/file", None, Err("no/such/file"));
}

#[test]
fn outside_of_a_pod_there_is_no_service_account() {
    assert!(in_cluster().unwrap_err().to_string().starts_with("no service account of a pod"));
}

/// Where the API server of this URL is known to be before the first request.
fn known_at_once(url: &str) -> Vec<String> {
    let api_server = ApiServer::default();
    connect(kube::Config::new(url.parse().unwrap()), Deadlines::WRITE, &api_server).unwrap();
    api_server.sockets().iter().map(ToString::to_string).collect()
}

/// The same, and after one.
async fn known(url: &str) -> [Vec<String>; 2] {
    let api_server = ApiServer::default();
    let sockets = || api_server.sockets().iter().map(ToString::to_string).collect();
    let client = connect(kube::Config::new(url.parse().unwrap()), Deadlines::WRITE, &api_server).unwrap();
    let before = sockets();
    drop(client.request_text(http::Request::get("/version").body(Vec::new()).unwrap()).await);
    [before, sockets()]
}

#[tokio::test]
async fn where_the_api_server_is_gets_known() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    // It hangs up on everybody.
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    assert_eq!(known(&format!("http://{at}")).await, [[at.to_string()], [at.to_string()]]);
    assert_eq!(known_at_once("http://[::1]:1"), ["[::1]:1"]);
    assert_eq!(known_at_once("https://127.0.0.1"), ["127.0.0.1:443"]);
    assert_eq!(known_at_once("http://127.0.0.1"), ["127.0.0.1:80"]);

    let [before, after] = known(&format!("http://localhost:{}", at.port())).await;
    assert_eq!(before, [""; 0], "a name is looked up when it is connected to");
    assert!(after.contains(&at.to_string()), "{after:?}");
}

#[test]
fn an_authority_that_comes_from_a_file_is_known_by_its_file() {
    let made = rcgen::generate_simple_self_signed(vec!["api.test".to_owned()]).unwrap();
    let mut authority = tempfile::NamedTempFile::new().unwrap();
    authority.write_all(made.cert.pem().as_bytes()).unwrap();
    let path = authority.path().to_str().unwrap();
    let file = |more: &str, context| {
        let kubeconfig = kubeconfig(more);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(from_kubeconfig(kubeconfig.path(), context)).unwrap().root_cert_file
    };
    let named = format!(", certificate-authority: {path}");
    for context in [None, Some("two")] {
        assert_eq!(file(&named, context).as_deref(), Some(authority.path()));
    }
    assert_eq!(file("", None), None);
}
