//! `tidegate run` against an API server over the network: the same routing, readiness, and operation without it.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::time::Duration;

use tidegate_tests::{Dev, Run, binary, certificate_of, eventually, get, upstream};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

const SHOP: &str = include_str!("manifests/shop.yaml");

/// A route for `kept.test` to a loopback port without a Deployment.
const KEPT: &str = include_str!("manifests/kept.yaml");

async fn run(dev: &Dev) -> Run {
    Run::start(&dev.kubeconfig, &["--https", "off"]).await
}

/// Returns `true` if the response to one more request over a connection announces its close.
async fn is_last(client: &mut TcpStream) -> bool {
    client.write_all(b"GET / HTTP/1.1\r\nHost: kept.test\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"kept") {
        assert!(client.read_buf(&mut answer).await.unwrap() > 0, "{}", answer.escape_ascii());
    }
    answer.to_ascii_lowercase().windows(19).any(|line| line == b"connection: close\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_closed_gracefully_during_the_shutdown_delay() {
    let kept = KEPT.replace("PORT", &upstream().await.port().to_string());
    let dev = Dev::start(&[("kept.yaml", &kept)]).await;
    let run = Run::start(&dev.kubeconfig, &["--https", "off", "--shutdown-delay", "60s"]).await;
    run.ready().await;
    run.answers("kept.test", 200).await;
    let mut client = TcpStream::connect(run.http).await.unwrap();
    assert!(!is_last(&mut client).await);
    run.signal("-TERM").await;
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
async fn run_serves_the_cluster_and_continues_without_its_api_server() {
    let kept = KEPT.replace("PORT", &upstream().await.port().to_string());
    let mut dev = Dev::start(&[("shop.yaml", SHOP), ("kept.yaml", &kept)]).await;
    let mut run = run(&dev).await;
    run.ready().await;
    let answer = get(run.http, "shop.test", "/").await.unwrap();
    assert_eq!(answer.status, 200, "ready means right: {}", answer.body);

    let mut log = BufReader::new(run.child.stdout.take().unwrap()).lines();
    let line = log.next_line().await.unwrap().expect("one line a request");
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((line["status"].as_u64(), line["host"].as_str()), (Some(200), Some("shop.test")), "{line}");
    tokio::spawn(async move { while log.next_line().await.is_ok_and(|line| line.is_some()) {} });

    run.answers("kept.test", 200).await;
    let file = dev.folder().join("shop.yaml");
    std::fs::write(&file, SHOP.replace("shop.test", "renamed.test")).unwrap();
    run.answers("renamed.test", 200).await;
    run.answers("shop.test", 404).await;

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

    run.signal("-TERM").await;
    assert_eq!(run.child.wait().await.unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_process_with_status_writes_to_the_cluster() {
    let dev = Dev::with(&[("shop.yaml", SHOP)], &["--status", "off"]).await;
    for (status, writes) in [("off", false), ("on", true)] {
        let arguments = ["--https", "off", "--publish-status-address", "192.0.2.1", "--status", status];
        let run = Run::start(&dev.kubeconfig, &arguments).await;
        run.ready().await;
        run.answers("shop.test", 200).await;
        let counted = |metrics: String| metrics.contains("\ntidegate_leader ");
        assert_eq!(counted(run.metrics().await), writes, "--status {status}");
        assert!(!counted(get(dev.admin, "localhost", "/metrics").await.unwrap().body), "--status off of dev");
        if writes {
            eventually("the status is written", || async {
                let metrics = run.metrics().await;
                let written = "tidegate_status_writes_total{outcome=\"written\"} 1";
                if metrics.contains(written) { Ok(()) } else { Err(metrics) }
            })
            .await;
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn run_has_no_huge_pages() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let run = run(&dev).await;
    run.ready().await;
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", run.child.id().unwrap())).unwrap();
    // The kernel gives none unasked, and the allocator asks for none.
    assert!(read("status").contains("THP_enabled:\t0\n"), "{}", read("status"));
    let requested = read("smaps").lines().filter(|line| line.starts_with("VmFlags:") && line.contains(" hg")).count();
    assert_eq!(requested, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_explain_show_a_route() {
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
    for name in [
        "tidegate_snapshot_generation",
        "tidegate_change_duration_seconds_bucket",
        "tidegate_build_info{version=",
        "process_resident_memory_bytes",
    ] {
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
async fn no_route_leads_to_the_api_server_even_if_loopback_is_allowed() {
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
    run(&dev).await.answers("kept.test", 503).await;

    // If the API server is reached by a name.
    dev.kubeconfig = dev.folder().join("by-name.kubeconfig");
    std::fs::write(&dev.kubeconfig, kubeconfig.replace("https://127.0.0.1:", "https://localhost:")).unwrap();
    run(&dev).await.answers("kept.test", 503).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_read_by_name_without_the_right_to_list() {
    let shop = SHOP.replace("  rules:\n", "  tls: [{hosts: [shop.test], secretName: exact}]\n  rules:\n");
    let (secret, first) = tidegate_tests::secret("shop", "exact", "shop.test");
    let dev = Dev::start(&[("shop.yaml", &shop), ("secret.yaml", &secret)]).await;
    let by_name = ["--https", "127.0.0.1:0", "--watch-secrets", "referenced", "--secrets-poll-interval", "1s"];
    let run = Run::start(&dev.kubeconfig, &by_name).await;
    run.ready().await;
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
    let (secret, second) = tidegate_tests::secret("shop", "exact", "shop.test");
    std::fs::write(dev.folder().join("secret.yaml"), secret).unwrap();
    shows("the next certificate", |_, second| second, second.clone()).await;
    std::fs::remove_file(dev.folder().join("secret.yaml")).unwrap();
    shows("none of both", |first, second| !first && !second, second).await;

    let metrics = get(run.admin, "localhost", "/metrics").await.unwrap().body;
    assert!(metrics.contains("tidegate_secrets_polled 1\n"), "{metrics}");
    assert!(
        !metrics.lines().any(|line| line.starts_with("tidegate_lists_total") && line.contains("Secret")),
        "{metrics}"
    );
}

/// Ingresses of one Service, whose hosts are named `0.test` onwards.
fn ingresses(count: usize) -> String {
    let one = |number| {
        format!(
            "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{namespace: kept, name: n{number:03}}}
spec:
  ingressClassName: tidegate
  rules:
  - host: {number}.test
    http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: kept, port: {{number: 80}}}}}}}}]}}
---
"
        )
    };
    (0..count).map(one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_in_use_are_compiled_first() {
    const COUNT: usize = 40;
    let kept = KEPT.replace("PORT", &upstream().await.port().to_string());
    let files = [("kept.yaml", &*kept), ("ingresses.yaml", &ingresses(COUNT))];
    let dev = Dev::with(&files, &["--slow-batch-max", "1"]).await;
    let answers = |host: String, status: u16| {
        let http = dev.http;
        eventually("its answer", move || {
            let host = host.clone();
            async move {
                let answer = get(http, &host, "/").await?;
                if answer.status == status { Ok(()) } else { Err(format!("{host}: {}", answer.status)) }
            }
        })
    };
    let last = COUNT - 1;
    answers(format!("{last}.test"), 200).await;
    // The Service of all of them now claims HTTP/2, which its endpoint does not speak.
    std::fs::write(
        dev.folder().join("kept.yaml"),
        kept.replace("{port: 80}", "{port: 80, appProtocol: kubernetes.io/h2c}"),
    )
    .unwrap();
    for number in [last, 0, last - 1] {
        answers(format!("{number}.test"), 502).await;
    }
    let generation = async |number: usize| {
        let page = get(dev.debug, "localhost", &format!("/debug/history?last=1&host={number}.test")).await.unwrap();
        let page: serde_json::Value = serde_json::from_str(&page.body).unwrap();
        page["publications"][0]["generation"].as_u64().expect("a generation")
    };
    let used = generation(last).await;
    for number in 0..last {
        let other = generation(number).await;
        assert!(used < other, "the host in use came in generation {used}, host {number} in {other}");
    }
}
