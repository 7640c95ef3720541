//! A policy that an Ingress names, in the whole process: `tidegate dev`, HTTP/1.1 and HTTP/2.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use tidegate_tests::{Dev, Kubectl, eventually, get, h2c};

const SHOP: &str = include_str!("manifests/shop.yaml");

/// Another Ingress of the same host, which names no policy.
const FREE: &str = "\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: shop, name: free}
spec:
  ingressClassName: tidegate
  rules:
  - host: shop.test
    http:
      paths:
      - {path: /free, pathType: Prefix, backend: {service: {name: cart, port: {name: web}}}}
";

/// Two requests in an hour, so that no window ends during the test. No route is its target.
const POLICY: &str = "\
apiVersion: kuadrant.io/v1
kind: RateLimitPolicy
metadata: {namespace: shop, name: calm}
spec:
  targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: none}
  limits:
    all:
      rates: [{limit: 2, window: 1h}]
";

async fn becomes(dev: &Dev, path: &str, status: u16) {
    eventually(&format!("{status} of {path}"), || async {
        let answer = get(dev.http, "shop.test", path).await?;
        if answer.status == status { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ingress_is_limited_by_the_policy_that_it_names() {
    let naming = "name: shop-ingress, annotations: {tidegate.io/policy: calm}";
    let shop = SHOP.replace("name: shop-ingress", naming);
    assert_ne!(shop, SHOP);
    let dev = Dev::start(&[("shop.yaml", &shop), ("free.yaml", FREE)]).await;
    becomes(&dev, "/free", 200).await;
    becomes(&dev, "/", 403).await;
    let other = h2c(dev.http, "shop.test", "/cart").await.unwrap();
    assert_eq!(other.status, 403, "{other:?}");

    let file = dev.folder().join("policy.yaml");
    std::fs::write(&file, POLICY).unwrap();
    // A closed route charges nothing, so that this is the first request of two.
    becomes(&dev, "/", 200).await;
    // HTTP/2 is another driver, with the same counters.
    let second = h2c(dev.http, "shop.test", "/cart").await.unwrap();
    assert_eq!(second.status, 200, "{second:?}");
    let third = get(dev.http, "shop.test", "/").await.unwrap();
    assert_eq!(third.status, 429, "{third:?}");
    let fourth = h2c(dev.http, "shop.test", "/").await.unwrap();
    assert_eq!(fourth.status, 429, "{fourth:?}");
    for _ in 0..3 {
        assert_eq!(get(dev.http, "shop.test", "/free").await.unwrap().status, 200);
        assert_eq!(h2c(dev.http, "shop.test", "/free").await.unwrap().status, 200);
    }
    if let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) {
        let reasons = "-o=jsonpath={.status.conditions[*].reason}";
        eventually("the conditions of the policy", || async {
            let got = kubectl.run(&["get", "-n", "shop", "ratelimitpolicy/calm", reasons]).await;
            if got == "Accepted Enforced" { Ok(()) } else { Err(got) }
        })
        .await;
    }
    std::fs::write(&file, POLICY.replace("name: calm", "name: other")).unwrap();
    becomes(&dev, "/", 403).await;
    becomes(&dev, "/free", 200).await;
}
