//! Rate limits: which requests are counted and refused, in both drivers and over both versions.

use std::sync::Arc;
use std::time::Duration;

use tidegate_config::model::{
    Limit, LimitId, ListenerPolicies, PathPolicies, Predicate, Rate, Route, TargetPolicies, ValueExpression,
};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_proxy::{Driver, LimitHeaders};

use super::bed::{Bed, Model, route};
use super::upstream::Upstream;

const DRIVERS: [Driver; 2] = [Driver::Both, Driver::Pingora];

/// A limit for an hour, so that no window ends during a test.
fn limit(name: &str, max: u32, when: &[&str], counters: &[&str]) -> Limit {
    Limit {
        id: LimitId::new(ObjectRef::new(Kind::RateLimitPolicy, ObjectName::new("shop", "limits")), name.into()),
        when: when.iter().map(|source| Predicate::new(source).unwrap()).collect(),
        counters: counters.iter().map(|source| ValueExpression::new(source).unwrap()).collect(),
        rates: [Rate { max, window: Duration::from_secs(3600) }].into(),
        shadow: false,
    }
}

/// Every request of the route's object has these limits.
fn limited(mut model: Model, of: &Route, limits: Vec<Limit>) -> Model {
    let limits = limits.into_iter().map(Arc::new).collect();
    let path = Arc::new(PathPolicies { limits, ..PathPolicies::default() });
    let over = ListenerPolicies { gateway: None, section: None, whole: path, rules: Default::default() };
    let policies = Arc::new(TargetPolicies::new(vec![over]));
    model.parts.policies.insert_mut(of.origin.object.clone(), policies);
    model
}

async fn bed(driver: Driver, upstream: &Upstream, limits: Vec<Limit>) -> Bed {
    let of = route("web", tidegate_config::model::AppProtocol::Http);
    let model = limited(Model::to(&[upstream.address]), &of, limits);
    Bed::with(model, |options| {
        options.driver = driver;
        options.limit_headers = LimitHeaders::Draft;
    })
    .await
}

#[tokio::test]
async fn requests_beyond_a_limit_are_refused_and_told_when_to_return() {
    let upstream = Upstream::echo().await;
    for driver in DRIVERS {
        let limits = vec![
            limit("orders", 2, &["request.url_path.startsWith('/orders')"], &["request.headers['x-tenant']"]),
            limit("total", 5, &[], &[]),
        ];
        let bed = bed(driver, &upstream, limits).await;
        // Each request: its path, its tenant, the status, and the limit that the answer tells.
        for (path, tenant, status, told) in [
            ("/orders", "a", 200, r#""orders";r=1"#),
            ("/orders", "a", 200, r#""orders";r=0"#),
            ("/orders", "a", 429, r#""orders";r=0"#),
            ("/orders", "b", 200, r#""orders";r=1"#),
            // One without a tenant is counted with others of its kind.
            ("/orders", "", 200, r#""orders";r=1"#),
            ("/", "a", 200, r#""total";r=0"#),
            ("/", "a", 429, r#""total";r=0"#),
            // The limit that refuses is charged no more than the other one.
            ("/orders", "b", 429, r#""total";r=0"#),
        ] {
            let lines = if tenant.is_empty() { String::new() } else { format!("X-Tenant: {tenant}\r\n") };
            let answer = bed.get("a.test", path, &lines).await;
            let got = answer.header("ratelimit").unwrap_or_default().split(";t=").next().unwrap_or_default();
            assert_eq!((answer.status, got), (status, told), "{driver:?}: {path} of {tenant}");
            let after = answer.header("retry-after").map(|after| after.parse::<u64>().unwrap());
            let in_window = |after: u64| (1..=3600).contains(&after);
            assert_eq!(after.map(in_window), (status == 429).then_some(true), "{driver:?}: {path}: {after:?}");
        }
        bed.until_metric(r#"tidegate_requests_by_reason_total{reason="rate-limited"} 3"#).await;
        let labels = r#"kind="RateLimitPolicy",limit="orders",name="limits",namespace="shop""#;
        bed.until_metric(&format!(r#"tidegate_limited_requests_total{{{labels},outcome="allowed"}} 4"#)).await;
    }
}

/// A client does not switch off a limit by a text that is too long for a condition.
#[tokio::test]
async fn a_request_that_is_too_large_for_a_condition_is_counted() {
    let upstream = Upstream::echo().await;
    for driver in DRIVERS {
        let agent = ["!request.headers['user-agent'].matches('^good/')"];
        let limits = vec![limit("bots", 1, &agent, &["request.headers['x-tenant']"])];
        let bed = bed(driver, &upstream, limits).await;
        let long = "a".repeat(9000);
        for (agent, tenant, status) in
            [("good/1", "a", 200), ("bad", "a", 200), ("bad", "a", 429), (&*long, "a", 200), (&*long, "b", 429)]
        {
            let lines = format!("User-Agent: {agent}\r\nX-Tenant: {tenant}\r\n");
            assert_eq!(bed.get("a.test", "/", &lines).await.status, status, "{driver:?}: {tenant}");
        }
        let labels = r#"expression="when",kind="RateLimitPolicy",limit="bots",name="limits",namespace="shop""#;
        bed.until_metric(&format!(r#"tidegate_limit_expression_failures_total{{{labels}}} 2"#)).await;
    }
}

#[tokio::test]
async fn a_limit_in_shadow_mode_refuses_nothing() {
    let upstream = Upstream::echo().await;
    for driver in DRIVERS {
        let bed = bed(driver, &upstream, vec![Limit { shadow: true, ..limit("total", 1, &[], &[]) }]).await;
        for _ in 0..3 {
            assert_eq!(bed.get("a.test", "/", "").await.status, 200, "{driver:?}");
        }
        let labels = r#"kind="RateLimitPolicy",limit="total",name="limits",namespace="shop""#;
        bed.until_metric(&format!(r#"tidegate_limited_requests_total{{{labels},outcome="shadow-limited"}} 2"#)).await;
    }
}
