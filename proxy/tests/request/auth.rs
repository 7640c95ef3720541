//! Authentication and authorisation by policies: who passes, what others get, and what the endpoint is told, in both
//! drivers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use serde_json::json;
use tidegate_config::model::auth::{
    ApiKeyHash, ApiKeys, AuthCondition, AuthRule, AuthValue, Authentication, AuthenticationMethod, Authorization,
    Credentials, Denial, Operator, PathAuth, Pattern, Success, SuccessForm, SuccessTarget, UnusableRule,
};
use tidegate_config::model::{
    AppProtocol, Limit, LimitId, ListenerPolicies, PathPolicies, Predicate, Rate, Selector, TargetPolicies,
    ValueExpression,
};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_proxy::{Driver, Options};

use super::bed::{Bed, Model, route};
use super::upstream::{Reply, Upstream};

pub const DRIVERS: [Driver; 2] = [Driver::Both, Driver::Pingora];

pub fn rule<R>(name: &str, rule: R) -> Arc<AuthRule<R>> {
    let policy = ObjectRef::new(Kind::RateLimitPolicy, ObjectName::new("shop", "api"));
    let (policy_when, when) = (Arc::from([]), Box::default());
    Arc::new(AuthRule { policy, name: name.into(), priority: 0, policy_when, when, shadow: false, cache: None, rule })
}

pub fn expression(source: &str) -> AuthValue {
    AuthValue::Expression(ValueExpression::new(source).unwrap())
}

pub fn header(name: &'static str, source: &str) -> Arc<AuthRule<Success>> {
    let target = SuccessTarget::Header(HeaderName::from_static(name));
    rule(name, Success { target, form: SuccessForm::Plain(expression(source)) })
}

/// Clients with a key; those of the plan `gold` may send everything, others may not send to `/gold`.
fn keys() -> PathAuth {
    let key = |name: &str, plan: &str| {
        let identity = json!({"metadata": {"name": name, "annotations": {"plan": plan}}});
        (ApiKeyHash::of(format!("{name}-key").as_bytes()), Arc::new(identity))
    };
    let keys = Arc::new(ApiKeys(HashMap::from([key("anna", "gold"), key("ben", "free")])));
    let authentication = Authentication {
        credentials: Credentials::Authorization("APIKEY".into()),
        method: AuthenticationMethod::ApiKey(keys),
        defaults: Box::default(),
        overrides: Box::default(),
    };
    let plan = "auth.identity.metadata.annotations.plan";
    let gold = Predicate::new(&format!("!request.url_path.startsWith('/gold') || {plan} == 'gold'")).unwrap();
    PathAuth {
        authentication: [rule("keys", authentication)].into(),
        authorization: [rule("gold", Authorization::Patterns([AuthCondition::Predicate(gold)].into()))].into(),
        success: [header("x-user", "auth.identity.metadata.name"), header("x-plan", "request.headers['x-none']")]
            .into(),
        ..PathAuth::default()
    }
}

fn per_user(max: u32) -> Arc<Limit> {
    Arc::new(Limit {
        id: LimitId::new(ObjectRef::new(Kind::RateLimitPolicy, ObjectName::new("shop", "limits")), "user".into()),
        when: Box::default(),
        counters: [ValueExpression::new("auth.identity.metadata.name").unwrap()].into(),
        rates: [Rate { max, window: Duration::from_secs(3600) }].into(),
        shadow: false,
    })
}

async fn bed(driver: Driver, upstream: &Upstream, auth: PathAuth, limits: &[Arc<Limit>]) -> Bed {
    let path = PathPolicies { auth: Some(Arc::new(auth)), identity_limits: limits.into(), ..PathPolicies::default() };
    bed_of(driver, upstream, path, |_| ()).await
}

pub fn patterns(predicates: &[&str]) -> Authorization {
    let predicates = predicates.iter().map(|source| AuthCondition::Predicate(Predicate::new(source).unwrap()));
    Authorization::Patterns(predicates.collect())
}

pub async fn bed_with(driver: Driver, upstream: &Upstream, auth: PathAuth, set: impl FnOnce(&mut Options)) -> Bed {
    bed_of(driver, upstream, PathPolicies { auth: Some(Arc::new(auth)), ..PathPolicies::default() }, set).await
}

async fn bed_of(driver: Driver, upstream: &Upstream, path: PathPolicies, set: impl FnOnce(&mut Options)) -> Bed {
    let path = path.with_headers();
    let mut model = Model::to(&[upstream.address]);
    let over = ListenerPolicies { gateway: None, section: None, whole: Arc::new(path), rules: Default::default() };
    let object = route("web", AppProtocol::Http).origin.object.clone();
    model.parts.policies.insert_mut(object, Arc::new(TargetPolicies::new(vec![over])));
    let set = |options: &mut Options| {
        options.driver = driver;
        set(options);
    };
    Bed::with(model, set).await
}

#[tokio::test]
async fn clients_with_keys_pass_and_the_endpoint_is_told_who_they_are() {
    let upstream = Upstream::start(|seen| Reply::ok(&seen.head)).await;
    for driver in DRIVERS {
        let bed = bed(driver, &upstream, keys(), &[]).await;
        for (path, lines, status) in [
            ("/", "", 401),
            ("/", "Authorization: APIKEY carl-key\r\n", 401),
            ("/", "Authorization: Bearer anna-key\r\n", 401),
            ("/", "Authorization: APIKEY anna-key\r\nAuthorization: APIKEY ben-key\r\n", 401),
            ("/", "Authorization: APIKEY anna-key\r\n", 200),
            ("/gold/x", "Authorization: apikey anna-key\r\n", 200),
            ("/", "Authorization: APIKEY ben-key\r\n", 200),
            ("/gold/x", "Authorization: APIKEY ben-key\r\n", 403),
            ("/%67old/x", "Authorization: APIKEY ben-key\r\n", 403),
            ("/y/../gold/x", "Authorization: APIKEY ben-key\r\n", 403),
        ] {
            let forged =
                "X-User: root\r\nX_User: root\r\nx-uSeR: root\r\nX-Plan: gold\r\nX_Plan: gold\r\nX.Plan: gold\r\n";
            let answer = bed.get("a.test", path, &format!("{lines}{forged}")).await;
            assert_eq!(answer.status, status, "{driver:?}: {path} {lines}");
            let challenge = answer.header("www-authenticate");
            assert_eq!(challenge, (status == 401).then_some(r#"apikey realm="keys""#), "{driver:?}: {path} {lines}");
            if status == 200 {
                let sent = answer.body.to_ascii_lowercase();
                let user = if lines.contains("anna") { "x-user: anna" } else { "x-user: ben" };
                assert!(sent.contains(user), "{driver:?}: {sent}");
                for forged in ["root", "plan"] {
                    assert!(!sent.contains(forged), "{driver:?}: {forged} in {sent}");
                }
            }
        }
        let labels = |rule: &str, outcome: &str| {
            let labels =
                format!(r#"kind="RateLimitPolicy",name="api",namespace="shop",outcome="{outcome}",rule="{rule}""#);
            format!("tidegate_auth_requests_total{{{labels}}}")
        };
        bed.until_metric(&format!("{} 3", labels("keys", "allowed"))).await;
        bed.until_metric(&format!("{} 4", labels("keys", "unauthenticated"))).await;
        bed.until_metric(&format!("{} 3", labels("gold", "forbidden"))).await;
    }
}

#[tokio::test]
async fn a_refusal_is_answered_as_the_policy_says() {
    let upstream = Upstream::echo().await;
    for driver in DRIVERS {
        let denial = Denial {
            status: Some(302),
            headers: [(HeaderName::from_static("location"), expression("'https://login.test/?to=' + request.path"))]
                .into(),
            ..Denial::default()
        };
        let forbidden =
            Denial { body: Some(expression("'not for ' + auth.identity.metadata.name")), ..Denial::default() };
        let (unauthenticated, unauthorized) = (Some(rule("", denial)), Some(rule("", forbidden)));
        let auth = PathAuth { unauthenticated, unauthorized, ..keys() };
        let bed = bed(driver, &upstream, auth, &[]).await;
        let answer = bed.get("a.test", "/x", "").await;
        assert_eq!((answer.status, answer.header("location")), (302, Some("https://login.test/?to=/x")), "{driver:?}");
        let answer = bed.get("a.test", "/gold", "Authorization: APIKEY ben-key\r\n").await;
        assert_eq!((answer.status, answer.body), (403, "not for ben".to_owned()), "{driver:?}");
    }
}

#[tokio::test]
async fn a_limit_counts_by_identity_and_only_requests_that_are_allowed() {
    let upstream = Upstream::echo().await;
    for driver in DRIVERS {
        let bed = bed(driver, &upstream, keys(), &[per_user(1)]).await;
        for (path, key, status) in [
            ("/", "anna", 200),
            ("/", "ben", 200),
            ("/", "anna", 429),
            ("/gold", "ben", 403),
            ("/", "carl", 401),
            ("/", "ben", 429),
        ] {
            let lines = format!("Authorization: APIKEY {key}-key\r\n");
            assert_eq!(bed.get("a.test", path, &lines).await.status, status, "{driver:?}: {path} of {key}");
        }
    }
}

#[tokio::test]
async fn the_endpoint_gets_no_other_spelling_of_a_header_that_a_rule_reads() {
    let read = "request.headers['x-in-rule'] == 'a'";
    let when: Box<[AuthCondition]> = [AuthCondition::Predicate(Predicate::new(read).unwrap())].into();
    let selector = Pattern {
        selector: Selector::new("request.headers.x-in-selector").unwrap(),
        operator: Operator::Equals("a".into()),
    };
    let success = Success {
        target: SuccessTarget::Filter("any".into()),
        form: SuccessForm::Plain(expression("request.headers['x-in-value']")),
    };
    let keys = keys();
    let mut authentication = Authentication::clone(&keys.authentication[0].rule);
    authentication.credentials = Credentials::Header(HeaderName::from_static("x-api-key"));
    let patterns = [AuthCondition::Any([AuthCondition::Pattern(selector)].into())].into();
    let auth = PathAuth {
        authentication: [rule("keys", authentication)].into(),
        authorization: [
            Arc::new(AuthRule { when, ..AuthRule::clone(&rule("when", Authorization::Patterns(Box::default()))) }),
            rule("selector", Authorization::Patterns(patterns)),
        ]
        .into(),
        success: [rule("value", success)].into(),
        ..PathAuth::default()
    };
    let limit = Limit {
        counters: [ValueExpression::new("request.headers['x-in-limit']").unwrap()].into(),
        ..Limit::clone(&per_user(9))
    };
    let upstream = Upstream::start(|seen| Reply::ok(&seen.head)).await;
    for driver in DRIVERS {
        let bed = bed(driver, &upstream, auth.clone(), &[Arc::new(limit.clone())]).await;
        let mut lines = String::new();
        for name in ["X-Api-Key", "X-In-Rule", "X-In-Selector", "X-In-Value", "X-In-Limit"] {
            let value = if name == "X-Api-Key" { "anna-key" } else { "a" };
            let (low, dotted) = (name.replace('-', "_"), name.replacen('-', ".", 1));
            lines += &format!("{low}: forged\r\n{name}: {value}\r\n{dotted}: forged\r\n");
        }
        lines += "X_In_None: kept\r\n";
        let answer = bed.get("a.test", "/", &lines).await;
        assert_eq!(answer.status, 200, "{driver:?}");
        let sent = answer.body.to_ascii_lowercase();
        assert!(!sent.contains("forged") && sent.contains("x_in_none: kept"), "{driver:?}: {sent}");
        assert!(sent.contains("x-in-rule: a") && sent.contains("x-api-key: anna-key"), "{driver:?}: {sent}");
    }
}

#[tokio::test]
async fn no_client_makes_the_header_of_a_rule_that_cannot_be_used() {
    let upstream = Upstream::start(|seen| Reply::ok(&seen.head)).await;
    let unusable = UnusableRule { why: String::new(), header: Some(HeaderName::from_static("x-plan")) };
    let shadow = AuthRule { shadow: true, ..AuthRule::clone(&rule("x-plan", unusable)) };
    for driver in DRIVERS {
        let auth = PathAuth { unusable: [Arc::new(shadow.clone())].into(), ..PathAuth::default() };
        let bed = bed(driver, &upstream, auth, &[]).await;
        let answer = bed.get("a.test", "/", "X-Plan: gold\r\nx_plan: gold\r\nX-Other: kept\r\n").await;
        let sent = answer.body.to_ascii_lowercase();
        assert!(answer.status == 200 && sent.contains("kept") && !sent.contains("gold"), "{driver:?}: {sent}");
    }
}
