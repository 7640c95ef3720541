//! One count of a rate limit for several replicas, in the whole process: `tidegate dev` for the objects, three
//! `tidegate run`, and one real server that they share.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tidegate_tests::{Dev, Redis, Run, eventually, free_addresses, get};
use tokio::task::JoinSet;

const SHOP: &str = include_str!("manifests/shop.yaml");

/// A limit in an hour, so that no window ends during a test, that nobody but the replicas counts.
fn policy(limit: u32) -> String {
    format!(
        "apiVersion: kuadrant.io/v1
kind: RateLimitPolicy
metadata: {{namespace: shop, name: calm}}
spec:
  targetRef: {{group: gateway.networking.k8s.io, kind: HTTPRoute, name: none}}
  limits:
    all:
      rates: [{{limit: {limit}, window: 1h}}]
"
    )
}

/// The objects of a limited shop.
async fn shop(limit: u32) -> Dev {
    let naming = "name: shop-ingress, annotations: {tidegate.io/policy: calm}";
    let shop = SHOP.replace("name: shop-ingress", naming);
    assert_ne!(shop, SHOP);
    Dev::start(&[("shop.yaml", &shop), ("policy.yaml", &policy(limit))]).await
}

async fn replica(dev: &Dev, flags: &[&str]) -> Run {
    Run::start(&dev.kubeconfig, &[&["--source", "ingress,kuadrant", "--https", "off"], flags].concat()).await
}

/// Waits until a replica has so much in a metric.
async fn shows(replica: &Run, metric: &str) {
    eventually(metric, || async {
        let metrics = replica.metrics().await;
        if metrics.lines().any(|line| line == metric) { Ok(()) } else { Err(metrics) }
    })
    .await;
}

/// Three replicas that know each other. One of them has the other driver.
async fn three(dev: &Dev, flags: &[&str]) -> [Run; 3] {
    let other = [flags, &["--driver", "pingora"]].concat();
    let replicas = [replica(dev, flags).await, replica(dev, flags).await, replica(dev, &other).await];
    for replica in &replicas {
        shows(replica, "tidegate_limit_store_up 1").await;
        shows(replica, "tidegate_limit_store_replicas 3").await;
    }
    replicas
}

/// Requests to each of the replicas, again and again until this is dropped.
struct Load {
    passed: Arc<AtomicUsize>,
    limited: Arc<[AtomicUsize; 3]>,
    tasks: JoinSet<()>,
    ends: Arc<AtomicBool>,
}

impl Load {
    fn start(replicas: &[Run; 3]) -> Self {
        let (passed, limited, ends) = (Arc::default(), Arc::<[AtomicUsize; 3]>::default(), Arc::default());
        let mut tasks = JoinSet::new();
        for (place, replica) in replicas.iter().enumerate() {
            let (http, passed, limited, ends) =
                (replica.http, Arc::clone(&passed), Arc::clone(&limited), Arc::<AtomicBool>::clone(&ends));
            tasks.spawn(async move {
                while !ends.load(SeqCst) {
                    let answer = get(http, "shop.test", "/").await.expect("an answer");
                    let passed: &AtomicUsize = &passed;
                    match answer.status.as_u16() {
                        200 => passed.fetch_add(1, SeqCst),
                        429 => limited[place].fetch_add(1, SeqCst),
                        // Before the policy is known, and when the store was late.
                        403 | 503 => 0,
                        status => panic!("{status}"),
                    };
                }
            });
        }
        Self { passed, limited, tasks, ends }
    }

    fn passed(&self) -> usize {
        self.passed.load(SeqCst)
    }

    /// Waits until each replica has refused some more requests.
    async fn is_refused(&self) {
        let before: Vec<usize> = self.limited.iter().map(|limited| limited.load(SeqCst)).collect();
        eventually("all replicas refuse", || async {
            let now = self.limited.iter().map(|limited| limited.load(SeqCst));
            if now.zip(&before).all(|(now, before)| now > before + 10) { Ok(()) } else { Err(format!("{before:?}")) }
        })
        .await;
    }

    async fn end(mut self) -> usize {
        self.ends.store(true, SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.passed()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_admit_what_one_limit_says() {
    let Some(redis) = Redis::start().await else { return };
    let dev = shop(200).await;
    let store = format!("redis://{}", redis.address);
    let replicas = three(&dev, &["--limits-store", &store, "--limits-store-away", "refuse"]).await;
    let load = Load::start(&replicas);
    // What one replica has not used goes to the others.
    eventually("all pass", || async { if load.passed() >= 200 { Ok(()) } else { Err(load.passed().to_string()) } })
        .await;
    load.is_refused().await;
    assert_eq!(load.end().await, 200);
    let metrics = replicas[0].metrics().await;
    for metric in
        ["tidegate_limit_store_calls_total{call=\"grant\",outcome=\"ok\"}", "tidegate_limit_store_waits_total"]
    {
        let value = metrics.lines().find_map(|line| line.strip_prefix(metric)?.trim().parse::<u64>().ok());
        assert!(value.is_some_and(|count| count > 0), "{metric}: {value:?}");
    }
    for metric in [
        "tidegate_limit_store_granted_total",
        "tidegate_limit_store_returned_total",
        "tidegate_limit_store_alone_total",
        "tidegate_limit_store_duration_seconds",
    ] {
        assert!(metrics.contains(metric), "{metric}");
    }
    // In the store, nobody reads names or values.
    let keys = redis.say("KEYS *").await.unwrap();
    assert!(keys.contains("tidegate:c:") && !keys.contains("calm") && !keys.contains("shop"), "{keys}");
}

/// At most `max` + (N - 1) × `max` / N pass: see docs/policies.md.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_divide_a_limit_while_the_store_is_away() {
    let Some(redis) = Redis::start().await else { return };
    let dev = shop(90).await;
    let store = format!("redis://{}", redis.address);
    let replicas = three(&dev, &["--limits-store", &store]).await;
    let load = Load::start(&replicas);
    eventually("some pass", || async { if load.passed() >= 10 { Ok(()) } else { Err("none yet".to_owned()) } }).await;
    let address = redis.kill().await;
    for replica in &replicas {
        shows(replica, "tidegate_limit_store_up 0").await;
    }
    load.is_refused().await;
    assert!(load.passed() <= 90 + 2 * 30, "{}", load.passed());
    // Under load it comes back, without counts, and hangs: no request waits for it, and those that are refused stay so.
    let redis = Redis::start_at(address).await.unwrap();
    for replica in &replicas {
        shows(replica, "tidegate_limit_store_up 1").await;
    }
    load.is_refused().await;
    redis.signal("-STOP").await;
    load.is_refused().await;
    for replica in &replicas {
        shows(replica, "tidegate_limit_store_up 0").await;
    }
    load.is_refused().await;
    redis.signal("-CONT").await;
    for replica in &replicas {
        shows(replica, "tidegate_limit_store_up 1").await;
    }
    load.is_refused().await;
    let passed = load.end().await;
    // Each has reported what it had admitted alone before it was granted anything by the new store; what was admitted
    // by leases of the old one is lost, and so is counted again.
    assert!((60..=90 + 90 + 2 * 30).contains(&passed), "{passed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn limited_requests_are_refused_while_the_store_is_away_if_that_is_wanted() {
    let Some(redis) = Redis::start().await else { return };
    let dev = shop(1000).await;
    let store = format!("redis://{}", redis.address);
    let replica = replica(&dev, &["--limits-store", &store, "--limits-store-away", "refuse"]).await;
    replica.answers("shop.test", 200).await;
    let address = redis.kill().await;
    // As soon as its lease is empty or was not given back.
    replica.answers("shop.test", 503).await;
    let refused = get(replica.http, "shop.test", "/").await.unwrap();
    assert!(refused.body.contains("limits-unavailable"), "{refused:?}");
    let redis = Redis::start_at(address).await.unwrap();
    replica.answers("shop.test", 200).await;
    drop(redis);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_is_reached_over_tls_and_with_a_password() {
    let files = tempfile::tempdir().unwrap();
    let at = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(at("ca.pem"), authority.self_signed(&authority_key).unwrap().pem()).unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &Issuer::new(authority, &authority_key)).unwrap();
    std::fs::write(at("cert.pem"), certificate.pem()).unwrap();
    std::fs::write(at("key.pem"), key.serialize_pem()).unwrap();
    std::fs::write(at("password"), "wrong\n").unwrap();
    let [address] = free_addresses();
    let port = address.port().to_string();
    let tls = ["--port", "0", "--tls-port", &port, "--tls-auth-clients", "no", "--requirepass", "hunter2"];
    let files =
        ["--tls-cert-file", &at("cert.pem"), "--tls-key-file", &at("key.pem"), "--tls-ca-cert-file", &at("ca.pem")];
    let Some(redis) = Redis::spawn(address, &[&tls[..], &files].concat()) else { return };
    let dev = shop(10).await;
    let (store, ca, password) = (format!("rediss://{}", redis.address), at("ca.pem"), at("password"));
    let flags = ["--limits-store", &store, "--limits-store-ca", &ca, "--limits-store-password-file", &password];
    let replica = replica(&dev, &[&flags[..], &["--limits-store-away", "refuse"]].concat()).await;
    replica.answers("shop.test", 503).await;
    // A new password needs no restart.
    std::fs::write(at("password"), "hunter2\n").unwrap();
    shows(&replica, "tidegate_limit_store_up 1").await;
    replica.answers("shop.test", 200).await;
    assert!(!replica.metrics().await.contains("hunter2"));
}
