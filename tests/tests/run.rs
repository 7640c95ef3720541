//! `tidegate run` against an API server over the network: the same routing, readiness, and going on alone.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tidegate_tests::{Dev, binary, certificate_of, eventually, get};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

const SHOP: &str = include_str!("manifests/shop.yaml");

/// Routes `kept.test` to a port of loopback that no Deployment stands behind.
const KEPT: &str = include_str!("manifests/kept.yaml");

struct Run {
    child: Child,
    http: SocketAddr,
    https: Option<SocketAddr>,
    admin: SocketAddr,
}

async fn run(dev: &Dev) -> Run {
    run_with(dev, &["--https", "off"]).await
}

/// `tidegate run` on free ports, which it tells in its log.
async fn run_with(dev: &Dev, arguments: &[&str]) -> Run {
    let mut command = Command::new(binary());
    command.arg("run").arg("--kubeconfig").arg(&dev.kubeconfig).arg("--allow-loopback-endpoints");
    let any = "127.0.0.1:0";
    command.args(["--http", any, "--admin", any, "--debug", "off"]).args(arguments);
    command.args(["--access-log", "stdout", "--log-form", "json", "--log-level", "info"]);
    if !arguments.contains(&"--shutdown-delay") {
        command.args(["--shutdown-delay", "0s"]);
    }
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.kill_on_drop(true).spawn().expect("tidegate run");
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let secure = !arguments.contains(&"off");
    let (mut http, mut https, mut admin) = (None, None, None);
    let read = async {
        while http.is_none() || admin.is_none() || secure && https.is_none() {
            let line = log.next_line().await.expect("text").expect("a line about each socket");
            let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            let address = |field: &str| line[field].as_str().and_then(|text| text.parse().ok());
            if line["message"] == "listening" && line["protocol"] == "Http" {
                http = address("address");
            }
            if line["message"] == "listening" && line["protocol"] == "Https" {
                https = address("address");
            }
            admin = admin.or_else(|| address("admin"));
        }
    };
    tokio::time::timeout(Duration::from_secs(30), read).await.expect("its sockets");
    // What nobody reads would fill the pipe.
    tokio::spawn(async move { while log.next_line().await.is_ok_and(|line| line.is_some()) {} });
    Run { child, http: http.expect("an address"), https, admin: admin.expect("an address") }
}

/// Answers every request of a connection of its own with `kept`.
async fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                // A request of these tests fits into one read.
                let mut head = [0; 4096];
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nkept";
                if stream.read(&mut head).await.is_ok_and(|read| read > 0) {
                    drop(stream.write_all(answer).await);
                }
            });
        }
    });
    address
}

async fn ready(run: &Run) {
    eventually("ready", || async {
        let answer = get(run.admin, "localhost", "/readyz").await?;
        if answer.status == 200 { Ok(()) } else { Err(answer.body) }
    })
    .await;
}

async fn answers(run: &Run, host: &str, status: u16) {
    eventually(&format!("{host} answers {status}"), || async {
        let answer = get(run.http, host, "/").await?;
        if answer.status == status { Ok(()) } else { Err(answer.status.to_string()) }
    })
    .await;
}

async fn term(run: &Run) {
    let term = Command::new("kill").arg(run.child.id().unwrap().to_string()).status().await.unwrap();
    assert!(term.success());
}

/// Whether the answer to one more request over a connection says that it is the last.
async fn is_last(client: &mut TcpStream) -> bool {
    client.write_all(b"GET / HTTP/1.1\r\nHost: kept.test\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"kept") {
        assert!(client.read_buf(&mut answer).await.unwrap() > 0, "{}", answer.escape_ascii());
    }
    answer.to_ascii_lowercase().windows(19).any(|line| line == b"connection: close\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn it_tells_clients_of_its_end_while_it_still_listens() {
    let kept = KEPT.replace("PORT", &upstream().await.port().to_string());
    let dev = Dev::start(&[("kept.yaml", &kept)]).await;
    let run = run_with(&dev, &["--https", "off", "--shutdown-delay", "60s"]).await;
    ready(&run).await;
    answers(&run, "kept.test", 200).await;
    let mut client = TcpStream::connect(run.http).await.unwrap();
    assert!(!is_last(&mut client).await);
    term(&run).await;
    eventually("a new connection is taken and told", || async {
        let mut new = TcpStream::connect(run.http).await.map_err(|error| error.to_string())?;
        if is_last(&mut new).await { Ok(()) } else { Err("not the last".into()) }
    })
    .await;
    assert_eq!(get(run.admin, "localhost", "/readyz").await.unwrap().status, 503);
    let told = tokio::time::timeout(Duration::from_secs(30), async { while !is_last(&mut client).await {} });
    told.await.expect("it is not told");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_serves_what_the_api_server_holds_and_goes_on_without_it() {
    let kept = KEPT.replace("PORT", &upstream().await.port().to_string());
    let mut dev = Dev::start(&[("shop.yaml", SHOP), ("kept.yaml", &kept)]).await;
    let mut run = run(&dev).await;
    ready(&run).await;
    let answer = get(run.http, "shop.test", "/").await.unwrap();
    assert_eq!(answer.status, 200, "ready means right: {}", answer.body);

    let mut log = BufReader::new(run.child.stdout.take().unwrap()).lines();
    let line = log.next_line().await.unwrap().expect("one line a request");
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((line["status"].as_u64(), line["host"].as_str()), (Some(200), Some("shop.test")), "{line}");
    tokio::spawn(async move { while log.next_line().await.is_ok_and(|line| line.is_some()) {} });

    answers(&run, "kept.test", 200).await;
    let file = dev.folder().join("shop.yaml");
    std::fs::write(&file, SHOP.replace("shop.test", "renamed.test")).unwrap();
    answers(&run, "renamed.test", 200).await;
    answers(&run, "shop.test", 404).await;

    dev.signal("-TERM").await;
    dev.ended().await;
    eventually("the failing watches show", || async {
        let answer = get(run.admin, "localhost", "/readyz?verbose").await?;
        if answer.status == 200 && answer.body.contains("degraded: true") { Ok(()) } else { Err(answer.body) }
    })
    .await;
    let answer = get(run.http, "kept.test", "/").await.unwrap();
    assert_eq!((answer.status.as_u16(), &*answer.body), (200, "kept"), "the last good configuration serves");
    let answer = get(run.http, "shop.test", "/").await.unwrap();
    assert_eq!(answer.status, 404, "what was gone stays gone");

    term(&run).await;
    assert_eq!(run.child.wait().await.unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_explain_tell_of_a_route() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    eventually("an answer", || async {
        let answer = get(dev.http, "shop.test", "/cart").await?;
        if answer.status == 200 { Ok(()) } else { Err(answer.status.to_string()) }
    })
    .await;
    let metrics = eventually("the request is counted", || async {
        let answer = get(dev.admin, "localhost", "/metrics").await?;
        let counted = |line: &str| line.starts_with("tidegate_requests_total") && line.contains("shop-ingress");
        if answer.body.lines().any(counted) { Ok(answer.body) } else { Err(answer.body) }
    })
    .await;
    for name in
        ["tidegate_snapshot_generation", "tidegate_change_duration_seconds_bucket", "process_resident_memory_bytes"]
    {
        assert!(metrics.contains(name), "{name}");
    }
    let mut explain = Command::new(binary());
    explain.args(["explain", "http://shop.test/cart/1", "--debug", &dev.debug.to_string()]);
    let output = explain.output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for word in ["Ingress shop/shop-ingress", "spec.rules[0].http.paths[1]", "shop/cart:80", "127.0.0.1:"] {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_leads_to_the_api_server_though_loopback_is_allowed() {
    let mut dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let kubeconfig = std::fs::read_to_string(&dev.kubeconfig).unwrap();
    let (_, port) = kubeconfig.split_once("server: https://127.0.0.1:").expect("where the API server is");
    let port = port.lines().next().unwrap();
    std::fs::write(dev.folder().join("kept.yaml"), KEPT.replace("PORT", port)).unwrap();
    eventually("its owner is told", || async {
        let answer = get(dev.debug, "localhost", "/debug/findings").await?;
        if answer.body.contains("it is the API server") { Ok(()) } else { Err(answer.body) }
    })
    .await;
    assert_eq!(get(dev.http, "kept.test", "/").await.unwrap().status, 503);
    answers(&run(&dev).await, "kept.test", 503).await;

    // Where it is a name that it is reached by.
    dev.kubeconfig = dev.folder().join("by-name.kubeconfig");
    std::fs::write(&dev.kubeconfig, kubeconfig.replace("https://127.0.0.1:", "https://localhost:")).unwrap();
    answers(&run(&dev).await, "kept.test", 503).await;
}

/// A Secret with a certificate for `shop.test`, and the certificate.
fn certificate() -> (String, rustls_pki_types::CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(["shop.test".to_owned()]).unwrap();
    let indent = |pem: String| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let (chain, key) = (indent(made.cert.pem()), indent(made.signing_key.serialize_pem()));
    let head = "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {namespace: shop, name: exact}\n";
    (format!("{head}stringData:\n  tls.crt: |\n{chain}  tls.key: |\n{key}"), made.cert.der().clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_read_by_name_where_none_is_to_be_listed() {
    let shop = SHOP.replace("  rules:\n", "  tls: [{hosts: [shop.test], secretName: exact}]\n  rules:\n");
    let (secret, first) = certificate();
    let dev = Dev::start(&[("shop.yaml", &shop), ("secret.yaml", &secret)]).await;
    let by_name = ["--https", "127.0.0.1:0", "--watch-secrets", "referenced", "--secrets-again", "1s"];
    let run = run_with(&dev, &by_name).await;
    ready(&run).await;
    let https = run.https.expect("an address");
    assert_eq!(certificate_of(https, "shop.test").await.unwrap(), first, "ready means right");

    let shows =
        |what: &'static str, right: fn(bool, bool) -> bool, second: rustls_pki_types::CertificateDer<'static>| {
            let first = first.clone();
            eventually(what, move || {
                let (first, second) = (first.clone(), second.clone());
                async move {
                    let shown = certificate_of(https, "shop.test").await?;
                    if right(shown == first, shown == second) { Ok(()) } else { Err("another certificate".to_owned()) }
                }
            })
        };
    let (secret, second) = certificate();
    std::fs::write(dev.folder().join("secret.yaml"), secret).unwrap();
    shows("the next certificate", |_, second| second, second.clone()).await;
    std::fs::remove_file(dev.folder().join("secret.yaml")).unwrap();
    shows("none of both", |first, second| !first && !second, second).await;

    let metrics = get(run.admin, "localhost", "/metrics").await.unwrap().body;
    assert!(metrics.contains("tidegate_secrets_followed 1\n"), "{metrics}");
    assert!(
        !metrics.lines().any(|line| line.starts_with("tidegate_lists_total") && line.contains("Secret")),
        "{metrics}"
    );
}
