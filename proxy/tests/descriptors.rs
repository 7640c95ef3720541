//! Requests while the process cannot open files. The limit applies to the whole process, so this test has a process of
//! its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
#![allow(unreachable_pub, missing_docs, missing_debug_implementations, reason = "nothing outside uses a test bed")]
#![allow(dead_code, reason = "the bed is that of other tests too")]

mod request {
    pub mod bed;
    pub mod upstream;
}

use std::time::Duration;

use request::bed::{Bed, Model, PATIENCE, answer};
use request::upstream::Upstream;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_proxy::Driver;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::time::{sleep, timeout};

#[tokio::test]
async fn a_shortage_of_file_descriptors_ejects_no_endpoint() {
    for driver in [Driver::Both, Driver::Pingora] {
        let upstreams = [Upstream::echo().await, Upstream::echo().await];
        let model = Model::to(&upstreams.each_ref().map(|upstream| upstream.address));
        let bed = Bed::with(model, |options| options.driver = driver).await;
        let mut client = bed.connect().await;
        bed.until_metric(r#"tidegate_connections_active{protocol="http"} 1"#).await;
        let late = TcpSocket::new_v4().unwrap();

        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
        let refused = answer(&mut client).await;
        let mut late = late.connect(bed.address).await.unwrap();
        let counted = async {
            while bed.metrics().contains("\ntidegate_accept_errors_total 0\n") {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let counted = timeout(PATIENCE, counted).await;
        setrlimit(Resource::Nofile, limit).unwrap();
        counted.expect("no failure to accept");
        // The client that could not be accepted is served afterwards.
        late.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
        assert_eq!(answer(&mut late).await.status, 200, "{driver:?}");

        assert_eq!((refused.status, refused.body.contains("out-of-resources")), (503, true), "{driver:?}");
        for line in [
            r#"tidegate_requests_by_reason_total{reason="out-of-resources"} 1"#,
            r#"tidegate_upstream_connects_total{result="failed"} 2"#,
            "tidegate_upstream_retries_total 1",
            "tidegate_endpoints_ejected 0",
        ] {
            bed.until_metric(line).await;
        }
        assert_eq!(bed.get("a.test", "/", "").await.status, 200, "{driver:?}");
    }
}
