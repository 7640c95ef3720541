//! AuthPolicies in the whole process: the example, with kubectl and HTTP.

use http_body_util::Empty;
use tidegate_tests::{Answer, eventually, request};

use super::observed::ask;
use super::{AUTH, Bench};

const CONDITIONS: &str = "{.status.conditions[*].reason}";

impl Bench {
    /// A request of a partner with this key; without one if it is empty.
    async fn of_partner(&self, path: &str, key: &str) -> Answer {
        self.asked_by_partner(path, key).await.unwrap()
    }

    /// The same; an error before the door is open.
    async fn asked_by_partner(&self, path: &str, key: &str) -> Result<Answer, String> {
        let mut builder = http::Request::get(path).header("host", "partners.localhost").header("x_partner", "root");
        if !key.is_empty() {
            builder = builder.header("authorization", format!("APIKEY {key}"));
        }
        request(self.door(0, 8080), builder.body(Empty::new()).unwrap()).await
    }

    /// Waits until a partner's request has this status.
    async fn partner(&self, path: &str, key: &str, status: u16) -> Answer {
        eventually(&format!("{status} for {path} with {key:?}"), || async {
            let answer = self.asked_by_partner(path, key).await?;
            if answer.status == status { Ok(answer) } else { Err(format!("{answer:?}")) }
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partners_authenticate_with_keys() {
    let Some(bench) = Bench::start_with(20, &[("auth.yaml", AUTH)]).await else { return };
    bench.said("authpolicy/partners", CONDITIONS, "Accepted Enforced").await;
    let answer = bench.partner("/", "anna-0f8a", 200).await;
    let seen = answer.body.to_ascii_lowercase();
    assert!(seen.contains("x-partner: anna") && !seen.contains("root"), "{seen}");
    for (path, key, status) in [
        ("/", "", 401),
        ("/", "carl", 401),
        ("/", "ben-77c1", 200),
        ("/orders", "ben-77c1", 403),
        ("/orders", "anna-0f8a", 200),
    ] {
        assert_eq!(bench.of_partner(path, key).await.status, status, "{path} {key}");
    }
    // Neighbours are open.
    bench.answered(bench.door(0, 8080), "shop.localhost", "/", 200).await;
    // A key that is changed or deleted is not valid any more.
    bench.patch("secret/ben", r#"{"metadata":{"annotations":{"plan":"gold"}}}"#).await;
    bench.partner("/orders", "ben-77c1", 200).await;
    bench.kubectl.run(&["delete", "-n", "shop", "secret/ben"]).await;
    bench.partner("/", "ben-77c1", 401).await;
    assert_eq!(bench.of_partner("/", "anna-0f8a").await.status, 200);
    let url = format!("http://{}/orders", bench.door(0, 8080));
    let words = ["explain", &url, "-H", "Host: partners.localhost", "-H", "Authorization: APIKEY carl"];
    let explained = ask(&bench.dev, &words).await;
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.contains("401") && !explained.contains("anna-0f8a"), "{explained}");
    // A rule that cannot be used closes the route, and its policy says why.
    let broken = r#"{"spec":{"rules":{"authorization":{"orders":{"when":[{"predicate":"request.nothing"}]}}}}}"#;
    bench.patch("authpolicy/partners", broken).await;
    bench.partner("/", "anna-0f8a", 403).await;
    bench.answered(bench.door(0, 8080), "shop.localhost", "/", 200).await;
    bench.kubectl.run(&["delete", "-n", "shop", "authpolicy/partners"]).await;
    bench.partner("/", "", 200).await;
}
