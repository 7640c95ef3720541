//! Kinds of which it is not known yet whether the upstream server has them: no answer says that they are missing.

use http_body_util::BodyExt as _;
use tidegate_lite::ExpectedKind;

use super::*;

fn expected(group: &str, version: Option<&str>, plural: &str) -> ExpectedKind {
    ExpectedKind { group: group.to_owned(), version: version.map(str::to_owned), plural: plural.to_owned() }
}

/// The status for a path, and the seconds after which to try again.
async fn status(lite: &Lite, path: &str) -> (u16, Option<u64>) {
    let request = http::Request::get(path).body(http_body_util::Full::<bytes::Bytes>::default()).unwrap();
    let answer = tower::ServiceExt::oneshot(lite.service(), request).await.unwrap();
    let code = answer.status().as_u16();
    if code == 200 {
        return (code, None);
    }
    let header = answer.headers().get("retry-after").map(|value| value.to_str().unwrap().parse().unwrap());
    let body: Value = serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(body["details"]["retryAfterSeconds"].as_u64(), header, "{body}");
    (code, header)
}

const COLD: [&str; 17] = [
    "/api/v1/pods",
    "/api/v1/pods?watch=1",
    "/api/v1/pods?resourceVersion=0",
    "/api/v1/namespaces/a/pods",
    "/api/v1/namespaces/a/pods/x",
    "/api/v1/namespaces/a/pods/x/status",
    "/api/v1/namespaces/a/pods/x/log",
    "/api/v1/namespaces/a/p%6fds/x",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1beta1/namespaces/a/deployments/x/scale",
    "/apis/example.org/v2/things/x",
    "/api",
    "/api/v1",
    "/apis",
    "/apis/apps",
    "/apis/apps/v1",
    "/apis/example.org/v2",
];

#[tokio::test(start_paused = true)]
async fn nothing_of_an_expected_kind_is_said_to_be_missing() {
    let limits =
        WatchCacheLimits { bytes_max: 1 << 20, unconfirmed_removals_share: 0.5, unconfirmed_removals_count: 2 };
    let (lite, _) = Lite::watch_cache(&[], limits);
    let kinds = [
        expected("", Some("v1"), "pods"),
        expected("apps", None, "deployments"),
        expected("example.org", Some("v2"), "things"),
    ];
    lite.expect(kinds.to_vec());
    for path in COLD {
        assert_eq!(status(&lite, path).await, (429, Some(1)), "{path}");
    }
    for path in ["/api/v1/nodes", "/api/v2/pods", "/apis/batch/v1", "/apis/example.org/v1/things", "/pods"] {
        assert_eq!(status(&lite, path).await.0, 404, "{path}");
    }
    for path in ["/version", "/healthz"] {
        assert_eq!(status(&lite, path).await.0, 200, "{path}");
    }

    // One is found: it is not listed yet, and the documents of its group are complete.
    let feed = lite.follow(&kind("", "pods", "Pod", true), limits);
    assert_eq!(status(&lite, "/api/v1").await.0, 200);
    assert_eq!(status(&lite, "/api/v1/pods").await, (429, Some(1)));
    assert_eq!(status(&lite, "/apis").await.0, 429, "another group is still missing");
    feed.list_begins();
    feed.list_done("5", true, true);
    assert_eq!(status(&lite, "/api/v1/pods").await.0, 200);
    assert_eq!(status(&lite, "/api/v1/namespaces/a/pods/x").await.0, 404, "it is missing indeed");

    // The others do not exist.
    lite.expect(Vec::new());
    for path in ["/apis/apps/v1/deployments", "/apis/example.org/v2/things/x", "/apis/apps/v1"] {
        assert_eq!(status(&lite, path).await.0, 404, "{path}");
    }
    assert_eq!(status(&lite, "/apis").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_moment_for_its_kind() {
    let limits =
        WatchCacheLimits { bytes_max: 1 << 20, unconfirmed_removals_share: 0.5, unconfirmed_removals_count: 2 };
    let (lite, _) = Lite::watch_cache(&[], limits);
    lite.expect(vec![expected("", Some("v1"), "pods")]);
    let found = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let feed = lite.follow(&kind("", "pods", "Pod", true), limits);
        feed.list_begins();
        feed.list_done("5", true, true);
    };
    let (answer, ()) = tokio::join!(status(&lite, "/api/v1/pods"), found);
    assert_eq!(answer.0, 200);
}
