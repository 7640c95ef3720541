//! Checks by an authorisation service that already has its maximum number of requests.

use std::time::Duration;

use futures::future::join_all;
use tidegate_proxy::{Driver, Options};
use tokio::io::AsyncWriteExt;

use super::bed::answer;
use super::external_auth::{bed, over_http, send, until_counted};
use super::retries::WAYS;
use super::upstream::{Reply, Upstream};

/// The time in which a silent service fails its checks: those that wait have their places until then.
const CHECK: Duration = Duration::from_secs(3);

async fn check(driver: Driver, http2: bool) {
    let what = format!("{driver:?}, HTTP/2: {http2}");
    let mut upstream = Upstream::echo().await;
    let mut silent = Upstream::start(|_| Reply::Silence).await;
    let set = |options: &mut Options| {
        options.driver = driver;
        options.budget.service_requests = 2;
        options.upstream.external_auth = CHECK;
    };
    let bed = bed(&over_http(&[], &[], 0), upstream.address, &[silent.address], set).await;
    let mut waiting = [bed.connect().await, bed.connect().await];
    for client in &mut waiting {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
        silent.seen().await;
    }
    let got = send(&bed, http2, ("GET", "/"), &[], ("", false)).await;
    assert!(got.status == 503 && got.body.contains("reason: external-auth-failed"), "{what}: {}", got.body);
    for client in &mut waiting {
        assert_eq!(answer(client).await.status, 504, "{what}");
    }
    until_counted(&bed, "failed", "service-overloaded", 1).await;
    // Their places are free again.
    assert_eq!(send(&bed, http2, ("GET", "/"), &[], ("", false)).await.status, 504, "{what}");
    assert!(upstream.is_quiet(), "{what}");
}

#[tokio::test]
async fn checks_per_service_are_limited() {
    join_all(WAYS.map(|(driver, http2)| check(driver, http2))).await;
}
