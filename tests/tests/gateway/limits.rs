//! RateLimitPolicies in the whole process: the example, with kubectl and HTTP.

use http_body_util::Empty;
use tidegate_tests::{Answer, eventually, request};

use super::observed::ask;
use super::{Bench, LIMITS};

const CONDITIONS: &str = "{.status.conditions[*].reason}";

impl Bench {
    /// An order at the new checkout.
    async fn order(&self, method: &str) -> Answer {
        let order = http::Request::builder().method(method).uri("/checkout").header("host", "shop.localhost");
        let order = order.header("x-tester", "yes").body(Empty::new()).unwrap();
        request(self.door(0, 8080), order).await.unwrap()
    }

    /// Waits until the explanation of an order does or does not have a text.
    async fn explained(&self, text: &str, is_there: bool) {
        let url = format!("http://{}/checkout", self.door(0, 8080));
        let words = ["explain", &url, "--method", "POST", "-H", "Host: shop.localhost", "-H", "X-Tester: yes"];
        eventually(&format!("{text:?} in the explanation: {is_there}"), || async {
            let explained = ask(&self.dev, &words).await;
            let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
            if explained.contains(text) == is_there { Ok(()) } else { Err(explained) }
        })
        .await;
    }

    async fn statuses(&self, method: &str, count: usize) -> Vec<u16> {
        let mut statuses = Vec::new();
        for _ in 0..count {
            statuses.push(self.order(method).await.status.as_u16());
        }
        statuses
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_a_limit_are_refused() {
    let Some(bench) = Bench::start_with(19, &[("limits.yaml", LIMITS)]).await else { return };
    bench.answered(bench.door(0, 8080), "shop.localhost", "/", 200).await;
    bench.said("ratelimitpolicy/edge", CONDITIONS, "Accepted Enforced").await;
    bench.said("ratelimitpolicy/checkout", CONDITIONS, "Accepted Enforced").await;
    // An hour, so that no window ends during the test.
    let limit =
        |max: u32| format!(r#"{{"spec":{{"limits":{{"orders":{{"rates":[{{"limit":{max},"window":"1h"}}]}}}}}}}}"#);
    bench.patch("ratelimitpolicy/checkout", &limit(5)).await;
    bench.explained("3600s", true).await;
    assert_eq!(bench.statuses("POST", 6).await, [200, 200, 200, 200, 200, 429]);
    let refused = bench.order("POST").await;
    let after: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=3600).contains(&after), "{after}");
    // The condition of the limit is false for other methods.
    assert_eq!(bench.statuses("GET", 2).await, [200, 200]);
    // A changed maximum keeps the count.
    bench.patch("ratelimitpolicy/checkout", &limit(7)).await;
    bench.explained("7 requests", true).await;
    assert_eq!(bench.statuses("POST", 3).await, [200, 200, 429]);
    // An override of the Gateway has the last word.
    let overrides = r#"{"spec":{"defaults":null,"overrides":{"strategy":"atomic","limits":{"none":{"rates":[{"limit":0,"window":"1h"}]}}}}}"#;
    bench.patch("ratelimitpolicy/edge", overrides).await;
    bench.answered(bench.door(0, 8080), "shop.localhost", "/", 429).await;
    bench.said("ratelimitpolicy/checkout", CONDITIONS, "Accepted Overridden").await;
    bench.kubectl.run(&["delete", "-n", "shop", "ratelimitpolicy/edge"]).await;
    bench.answered(bench.door(0, 8080), "shop.localhost", "/", 200).await;
    bench.said("ratelimitpolicy/checkout", CONDITIONS, "Accepted Enforced").await;
    bench.kubectl.run(&["delete", "-n", "shop", "ratelimitpolicy/checkout"]).await;
    bench.explained("  limit ", false).await;
    assert_eq!(bench.statuses("POST", 3).await, [200; 3]);
}
