//! Tokens of an issuer in the whole process: an issuer of the test, and clients with its tokens.

use std::cell::Cell;

use http_body_util::Empty;
use rcgen::{KeyPair, PKCS_ED25519};
use serde_json::{Value, json};
use tidegate_tests::{Answer, Issuer, eventually, request, unix_s};

use super::Bench;

/// A route for staff with tokens of this issuer.
fn manifests(issuer: &str) -> String {
    let (route, policy) = (
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"namespace": "shop", "name": "staff"},
            "spec": {
                "parentRefs": [{"name": "edge"}], "hostnames": ["staff.localhost"],
                "rules": [{"backendRefs": [{"name": "shop-v1", "port": 80}]}],
            },
        }),
        json!({
            "apiVersion": "kuadrant.io/v1", "kind": "AuthPolicy", "metadata": {"namespace": "shop", "name": "staff"},
            "spec": {
                "targetRef": {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "staff"},
                "rules": {
                    "authentication": {"staff": {"jwt": {"issuerUrl": issuer}}},
                    "authorization": {"dev": {"patternMatching": {
                        "patterns": [{"selector": "auth.identity.groups", "operator": "incl", "value": "dev"}],
                    }}},
                    "response": {"success": {"headers": {"x-user": {"plain": {"selector": "auth.identity.sub"}}}}},
                },
            },
        }),
    );
    format!("{route}\n---\n{policy}\n")
}

impl Bench {
    /// A request of staff with this token.
    async fn of_staff(&self, token: &str) -> Answer {
        self.asked_by_staff(token).await.unwrap()
    }

    /// The same; an error before the door is open.
    async fn asked_by_staff(&self, token: &str) -> Result<Answer, String> {
        let builder = http::Request::get("/").header("host", "staff.localhost");
        let builder = builder.header("authorization", format!("Bearer {token}"));
        request(self.door(0, 8080), builder.body(Empty::new()).unwrap()).await
    }
}

fn dev() -> Value {
    json!({"groups": ["dev"]})
}

/// Waits until a token is accepted.
async fn accepted(bench: &Bench, token: &str) -> Answer {
    eventually("a request of staff", || async {
        let answer = bench.asked_by_staff(token).await?;
        if answer.status == 200 { Ok(answer) } else { Err(format!("{answer:?}")) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn staff_authenticates_with_tokens() {
    let issuer = Issuer::start().await;
    let Some(bench) = Bench::start_with(21, &[("tokens.yaml", &manifests(&issuer.url))]).await else { return };
    let token = issuer.token("one", &dev());
    let allowed = accepted(&bench, &token).await;
    assert!(allowed.body.to_ascii_lowercase().contains("x-user: anna"), "{allowed:?}");
    let other = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    for (token, status) in [
        (issuer.token_by(&other, "one", &dev()), 401),
        (issuer.token("one", &json!({"groups": ["dev"], "exp": unix_s() - 3600})), 401),
        (issuer.token("one", &json!({"groups": ["dev"], "iss": "http://127.0.0.1:1"})), 401),
        (issuer.token("one", &json!({"groups": ["web"]})), 403),
        (format!("{token}x"), 401),
        (String::new(), 401),
    ] {
        assert_eq!(bench.of_staff(&token).await.status, status, "{token}");
    }
    // Without the issuer, the keys stay in use.
    let ben = issuer.token("one", &json!({"groups": ["dev"], "sub": "ben"}));
    drop(issuer);
    let allowed = bench.of_staff(&ben).await;
    assert!(allowed.status == 200 && allowed.body.to_ascii_lowercase().contains("x-user: ben"), "{allowed:?}");
}

/// A token with a new key is refused until its key is fetched. Meanwhile no other answer changes.
#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_replaces_its_keys_while_requests_run() {
    let issuer = Issuer::start().await;
    let Some(bench) = Bench::start_with(22, &[("tokens.yaml", &manifests(&issuer.url))]).await else { return };
    let (old, web) = (issuer.token("one", &dev()), issuer.token("one", &json!({"groups": ["web"]})));
    accepted(&bench, &old).await;
    let (done, requests) = (Cell::new(false), Cell::new(0_u32));
    let load = async {
        while !done.get() {
            for (token, status) in [(&*old, 200), (&*web, 403), ("", 401)] {
                assert_eq!(bench.of_staff(token).await.status, status, "{token}");
                requests.set(requests.get() + 1);
            }
        }
    };
    let replacing = async {
        issuer.publish("two");
        let new = issuer.token("two", &dev());
        accepted(&bench, &new).await;
        // The old key still signs tokens that are valid. When it is withdrawn, nothing has to be known of it.
        issuer.withdraw("one");
        for _ in 0..20 {
            assert_eq!(bench.of_staff(&new).await.status, 200);
        }
        done.set(true);
    };
    tokio::join!(load, replacing);
    assert!(requests.get() > 0);
}

/// An issuer with a certificate of an authority that only the operator trusts, and one at a host that the operator
/// does not allow.
#[tokio::test(flavor = "multi_thread")]
async fn the_operator_decides_which_issuers_are_asked() {
    let (issuer, authority) = Issuer::start_tls().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    std::fs::write(&file, authority).unwrap();
    let elsewhere = issuer.url.replace("127.0.0.1", "127.0.0.2");
    let other = manifests(&elsewhere).replace("staff", "others");
    let flags = ["--policy-ca", file.to_str().unwrap(), "--policy-url-hosts", "login.example,127.0.0.1/32"];
    let files = [("tokens.yaml", &*manifests(&issuer.url)), ("others.yaml", &*other)];
    let Some(bench) = Bench::start_under(23, &files, &flags).await else { return };
    accepted(&bench, &issuer.token("one", &dev())).await;
    let told = "the operator does not allow its host (--policy-url-hosts)";
    eventually("an Event says why", || async {
        let events = bench.kubectl.run(&["get", "events", "-n", "shop", "-o=jsonpath={.items[*].message}"]).await;
        if events.contains(told) { Ok(()) } else { Err(events) }
    })
    .await;
}
