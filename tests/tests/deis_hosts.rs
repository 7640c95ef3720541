//! Hosts of a Deis router that are not plain names, in the whole process: regular expressions, and unknown hosts.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stderr, reason = "a test may fail loudly")]

use tidegate_tests::{annotate_router, answered, deis, eventually, get, https, skipped};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

#[tokio::test(flavor = "multi_thread")]
async fn regex_domains_match_hosts_if_the_router_allows_them() {
    let Some((dev, kubectl)) = deis(&[]).await else { return };
    let expression = "router.deis.io/regexDomain=blog-pr-[0-9]+";
    kubectl.run(&["-n", "blog", "annotate", "service", "blog", expression]).await;
    eventually("a finding", || async {
        let findings = get(dev.debug, "localhost", "/debug/findings").await?.body;
        if findings.contains("does not have enableRegexDomains") { Ok(()) } else { Err(findings) }
    })
    .await;
    answered(&dev, "blog-pr-7.elsewhere.localhost", 404).await;

    annotate_router(&kubectl, &["enableRegexDomains=true"]).await;
    for host in ["blog-pr-7.elsewhere.localhost", "BLOG-PR-12.x", "blog.elsewhere.localhost", "blog.apps.localhost"] {
        answered(&dev, host, 200).await;
    }
    // A listed name takes precedence over every expression, and a host that matches no expression is unknown.
    answered(&dev, "www.blog.localhost", 200).await;
    for host in ["blog-pr-x.elsewhere.localhost", "blog-pr-7", "my-blog-pr-7.x"] {
        answered(&dev, host, 404).await;
    }
    annotate_router(&kubectl, &["enableRegexDomains=false"]).await;
    answered(&dev, "blog-pr-7.elsewhere.localhost", 404).await;
    answered(&dev, "blog.apps.localhost", 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_hosts_go_to_the_default_service() {
    // Port 80 may be privileged.
    let server = match TcpListener::bind("127.0.0.80:80").await {
        Ok(server) => server,
        Err(error) => return skipped("port-80", format_args!("127.0.0.80:80 cannot be listened on: {error}")),
    };
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = server.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 2048];
                while stream.read(&mut head).await.is_ok_and(|count| count > 0) {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nlanding";
                    if stream.write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let Some((dev, kubectl)) = deis(&[]).await else { return };
    answered(&dev, "unknown.localhost", 404).await;
    annotate_router(&kubectl, &["defaultServiceEnabled=true", "defaultServiceIP=127.0.0.80", "defaultAppName=landing"])
        .await;
    answered(&dev, "unknown.localhost", 200).await;
    assert_eq!(get(dev.http, "unknown.localhost", "/any?x").await.unwrap().body, "landing");
    assert_eq!(get(dev.http, "unknown.localhost", "/healthz").await.unwrap().body, "");
    // It is for plain HTTP alone, and takes nothing from hosts of applications.
    assert_eq!(https(dev.https, "unknown.localhost", "/", false).await.unwrap().status, 404);
    assert!(get(dev.http, "blog.apps.localhost", "/").await.unwrap().body.contains("blog"));
    annotate_router(&kubectl, &["defaultServiceEnabled=false"]).await;
    answered(&dev, "unknown.localhost", 404).await;
}
