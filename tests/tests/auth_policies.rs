//! Access by an AuthPolicy in the whole process: `tidegate dev`, HTTP/1.1 and HTTP/2, keys in Secrets.

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

const POLICY: &str = "\
apiVersion: kuadrant.io/v1
kind: AuthPolicy
metadata: {namespace: shop, name: keys}
spec:
  targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: none}
  rules:
    authentication:
      partners:
        apiKey: {selector: {matchLabels: {app: shop}}}
        credentials: {queryString: {name: key}}
    authorization:
      gold:
        when: [{predicate: request.url_path.startsWith('/cart')}]
        patternMatching:
          patterns: [{selector: auth.identity.metadata.annotations.plan, operator: eq, value: gold}]
";

const SECRET: &str = "\
apiVersion: v1
kind: Secret
metadata: {namespace: shop, name: partner, labels: {app: shop}, annotations: {plan: gold}}
stringData: {api_key: first}
";

/// Compares the status of requests of both drivers, at last.
async fn becomes(dev: &Dev, path: &str, status: u16) {
    eventually(&format!("{status} of {path}"), || async {
        let answers = [get(dev.http, "shop.test", path).await?, h2c(dev.http, "shop.test", path).await?];
        if answers.iter().all(|answer| answer.status == status) { Ok(()) } else { Err(format!("{answers:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ingress_is_open_for_those_whom_its_policy_knows() {
    let naming = "name: shop-ingress, annotations: {tidegate.io/policy: keys}";
    let shop = SHOP.replace("name: shop-ingress", naming);
    assert_ne!(shop, SHOP);
    let dev = Dev::start(&[("shop.yaml", &shop), ("free.yaml", FREE), ("policy.yaml", POLICY)]).await;
    becomes(&dev, "/free", 200).await;
    becomes(&dev, "/?key=first", 401).await;
    let secret = dev.folder().join("secret.yaml");
    std::fs::write(&secret, SECRET).unwrap();
    becomes(&dev, "/?key=first", 200).await;
    becomes(&dev, "/cart?key=first", 200).await;
    becomes(&dev, "/?key=second", 401).await;
    becomes(&dev, "/", 401).await;

    std::fs::write(&secret, SECRET.replace("first", "second").replace("gold", "free")).unwrap();
    becomes(&dev, "/?key=second", 200).await;
    becomes(&dev, "/?key=first", 401).await;
    becomes(&dev, "/cart?key=second", 403).await;
    if let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) {
        let reasons = "-o=jsonpath={.status.conditions[*].reason}";
        eventually("the conditions of the policy", || async {
            let got = kubectl.run(&["get", "-n", "shop", "authpolicy/keys", reasons]).await;
            if got == "Accepted Enforced" { Ok(()) } else { Err(got) }
        })
        .await;
    }

    let policy = dev.folder().join("policy.yaml");
    std::fs::write(
        &policy,
        POLICY.replace(
            "credentials: {",
            "cache: {key: {value: x}}\n        x509: {selector: {}}\n        credentials: {",
        ),
    )
    .unwrap();
    becomes(&dev, "/?key=second", 403).await;
    becomes(&dev, "/free", 200).await;
    std::fs::write(&policy, POLICY).unwrap();
    becomes(&dev, "/?key=second", 200).await;
    std::fs::remove_file(&secret).unwrap();
    becomes(&dev, "/?key=second", 401).await;
    std::fs::remove_file(&policy).unwrap();
    becomes(&dev, "/?key=second", 403).await;
    becomes(&dev, "/free", 200).await;
}
