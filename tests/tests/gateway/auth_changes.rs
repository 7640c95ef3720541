//! AuthPolicies and API keys that change many times a second while requests run: each answer is one of the state
//! before a change or after it.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::Empty;
use serde_json::{Value, json};
use tidegate_tests::{eventually, request};

use super::Bench;

const CHANGES: u32 = 100;
/// The key of a client that always has one.
const STABLE: &str = "stable-key";

/// A Secret with a key.
fn secret(name: &str, key: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": "shop", "name": name, "labels": {"app": "changes"}},
        "data": {"api_key": STANDARD.encode(key)},
    })
}

fn route() -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": "shop", "name": "changes"},
        "spec": {
            "parentRefs": [{"name": "edge"}], "hostnames": ["changes.localhost"],
            "rules": [{"backendRefs": [{"name": "shop-v1", "port": 80}]}],
        },
    })
}

/// The nth state: an even policy allows clients with a key, an odd one refuses them; each answer names it. The keys
/// of this state and of the one before exist.
fn state(number: u32) -> String {
    let version = json!({"value": format!("<v{number}>")});
    let allows = if number.is_multiple_of(2) { "true" } else { "false" };
    let policy = json!({
        "apiVersion": "kuadrant.io/v1", "kind": "AuthPolicy", "metadata": {"namespace": "shop", "name": "changes"},
        "spec": {
            "targetRef": {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "changes"},
            "rules": {
                "authentication": {"keys": {
                    "apiKey": {"selector": {"matchLabels": {"app": "changes"}}},
                    "credentials": {"customHeader": {"name": "x-key"}},
                }},
                "authorization": {"even": {"patternMatching": {"patterns": [{"predicate": allows}]}}},
                "response": {
                    "success": {"headers": {"x-version": {"plain": version}}},
                    "unauthenticated": {"body": version}, "unauthorized": {"body": version},
                },
            },
        },
    });
    let keys = (number.saturating_sub(1)..=number).map(|of| secret(&format!("key-{}", of % 3), &key(of)));
    let objects: Vec<String> = std::iter::once(policy).chain(keys).map(|object| object.to_string()).collect();
    objects.join("\n---\n")
}

/// The key that comes with a state and goes with the next but one.
fn key(number: u32) -> String {
    format!("key-of-{number}")
}

/// Writes a file at once, so that no half of it is read.
fn write(folder: &Path, text: &str) {
    let (new, file) = (folder.join("changes.new"), folder.join("changes.yaml"));
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, file).unwrap();
}

impl Bench {
    /// The status of an answer to a client with this key, and the number of the policy that it names.
    async fn with_key(&self, key: &str) -> (u16, Option<u32>) {
        self.asked_with_key(key).await.unwrap()
    }

    /// The same; an error before the door is open.
    async fn asked_with_key(&self, key: &str) -> Result<(u16, Option<u32>), String> {
        let builder = http::Request::get("/").header("host", "changes.localhost").header("x-key", key);
        let answer = request(self.door(0, 8080), builder.body(Empty::new()).unwrap()).await?;
        let number = answer.body.split_once("<v").and_then(|(_, rest)| rest.split_once('>')?.0.parse().ok());
        Ok((answer.status.as_u16(), number))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_is_wrong_while_policies_and_keys_change() {
    let files = [("route.yaml", &*route().to_string()), ("stable.yaml", &*secret("stable", STABLE).to_string())];
    let files = [files[0], files[1], ("changes.yaml", &*state(0))];
    let Some(bench) = Bench::start_with(24, &files).await else { return };
    let reaches = async |number: u32, status: u16| {
        eventually(&format!("policy {number}"), || async {
            let got = bench.asked_with_key(STABLE).await?;
            if got == (status, Some(number)) { Ok(()) } else { Err(format!("{got:?}")) }
        })
        .await;
    };
    reaches(0, 200).await;
    let (done, requests) = (Cell::new(false), Cell::new(0_u32));
    // One client after another: no request sees an older policy than the one before it.
    let load = async |key: &str| {
        let mut last = 0;
        while !done.get() {
            let (status, number) = bench.with_key(key).await;
            let number = number.unwrap_or_else(|| panic!("{status} of no policy"));
            let want = if key.is_empty() {
                401
            } else if number.is_multiple_of(2) {
                200
            } else {
                403
            };
            assert!(status == want && number >= last, "{status} of policy {number} after {last} for {key:?}");
            last = number;
            requests.set(requests.get() + 1);
        }
    };
    let changing = async {
        for number in 1..=CHANGES {
            write(bench.dev.folder(), &state(number));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        reaches(CHANGES, 200).await;
        done.set(true);
    };
    tokio::join!(load(STABLE), load(""), load(STABLE), changing);
    assert!(requests.get() > 0);
    // Of the keys that came and went, only the last two are accepted.
    for number in 0..=CHANGES {
        let want = if number + 1 >= CHANGES { 200 } else { 401 };
        eventually(&format!("{want} for the key of {number}"), || async {
            let got = bench.with_key(&key(number)).await;
            if got.0 == want { Ok(()) } else { Err(format!("{got:?}")) }
        })
        .await;
    }
    // A deleted key is refused, and never accepted again.
    bench.kubectl.run(&["delete", "-n", "shop", "secret/stable"]).await;
    eventually("the deleted key is refused", || async {
        let got = bench.with_key(STABLE).await;
        if got == (401, Some(CHANGES)) { Ok(()) } else { Err(format!("{got:?}")) }
    })
    .await;
    for _ in 0..20 {
        assert_eq!(bench.with_key(STABLE).await, (401, Some(CHANGES)));
    }
}
