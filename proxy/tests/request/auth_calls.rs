//! Rules of authentication and authorisation that need answers of servers, in both drivers: each server is asked once,
//! and whatever is wrong with its answer refuses the request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderName, Method};
use serde_json::{Value, json};
use tidegate_config::model::auth::{
    AccessReviewRule, AuthCache, AuthRule, Authentication, AuthenticationMethod, Authorization, CallBody,
    CallCredential, CallCredentialSource, CallPath, CallServer, ClientCredentials, ClientSecret, Credentials, HttpRule,
    Introspection, Metadata, PathAuth, PathPiece, SecretText, UserInfo,
};
use tidegate_config::model::{AppProtocol, Backend, BackendKey, Endpoint, Selector, Target};
use tidegate_config::object::ObjectName;
use tidegate_proxy::{CreateReview, ReviewError, Reviews};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::auth::{DRIVERS, bed_with, expression, header, patterns, rule};
use super::bed::{Bed, PATIENCE, closed_port};
use super::upstream::{Reply, Upstream};

fn server(address: SocketAddr) -> CallServer {
    let key = BackendKey::tcp(ObjectName::new("shop", "idp.test"), address.port());
    let backend = Arc::new(Backend::new(key.clone(), [Endpoint::tcp(address, None)].into()));
    let target = Target { backend: key, protocol: AppProtocol::Http, tls: None, fixed: Some(backend) };
    CallServer { tls: false, host: "idp.test".into(), port: address.port(), target: Some(Arc::new(target)) }
}

fn authentication(method: AuthenticationMethod) -> Authentication {
    let credentials = Credentials::default();
    Authentication { credentials, method, defaults: Box::default(), overrides: Box::default() }
}

fn introspection_of(address: SocketAddr) -> Introspection {
    let secret = SecretText::new;
    Introspection {
        server: server(address),
        path: "/introspect".into(),
        hint: "access_token".into(),
        client: Some(ClientSecret { id: secret("edge"), secret: secret("s3cret") }),
        timeout: PATIENCE,
    }
}

fn introspection(address: SocketAddr) -> Authentication {
    authentication(AuthenticationMethod::Introspection(introspection_of(address)))
}

fn http_rule(address: SocketAddr, path: &str) -> HttpRule {
    HttpRule {
        server: server(address),
        path: CallPath::Pieces([PathPiece::Text(path.into())].into()),
        method: Method::GET,
        body: CallBody::None,
        headers: Box::default(),
        credential: None,
        timeout: PATIENCE,
    }
}

fn json_answer(status: &str, body: &str) -> Reply {
    Reply::Send(format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

/// Knows the token `good`, and answers others as their names say.
fn introspects(token: &str) -> Reply {
    match token {
        "good" => json_answer("200 OK", r#"{"active":true,"sub":"anna","scope":"read"}"#),
        "inactive" => json_answer("200 OK", r#"{"active":false}"#),
        "expired" => json_answer("200 OK", r#"{"active":true,"exp":1}"#),
        "text" => json_answer("200 OK", r#"{"active":"true"}"#),
        "list" => json_answer("200 OK", "[true]"),
        "garbage" => json_answer("200 OK", "\u{1}\u{2}"),
        "error" => json_answer("500 Oh", r#"{"active":true}"#),
        "away" => Reply::Send("HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n".to_owned()),
        "large" => json_answer("200 OK", &format!(r#"{{"active":true,"pad":"{}"}}"#, "x".repeat(70_000))),
        "endless" => Reply::Send("HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n{\"active\":true".to_owned()),
        "packed" => Reply::Send(
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 15\r\n\r\n{\"active\":true}".to_owned(),
        ),
        "cut" => Reply::SendAndClose("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"active\":true}".to_owned()),
        "closed" => Reply::Close,
        "silent" => Reply::Silence,
        other => json_answer("400 Bad Request", &format!(r#"{{"error":"{other}"}}"#)),
    }
}

/// A server of introspection that counts its requests.
async fn introspection_server() -> (Upstream, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = Upstream::start(move |seen| {
        count.fetch_add(1, Ordering::Relaxed);
        let token = seen.body.split('&').find_map(|pair| pair.strip_prefix("token=")).unwrap_or_default();
        introspects(token)
    });
    (server.await, asked)
}

/// Waits until so many calls of the rule `oauth` have had this outcome.
async fn until_called(bed: &Bed, outcome: &str, number: usize) {
    let labels = format!(r#"kind="RateLimitPolicy",name="api",namespace="shop",outcome="{outcome}",rule="oauth""#);
    bed.until_metric(&format!("tidegate_auth_calls_total{{{labels}}} {number}")).await;
}

#[tokio::test]
async fn a_token_is_accepted_if_its_server_says_so_and_in_no_other_case() {
    let upstream = Upstream::start(|seen| Reply::ok(&seen.head)).await;
    for driver in DRIVERS {
        let (mut idp, asked) = introspection_server().await;
        let auth = accepting(introspection_of(idp.address));
        let bed = bed_with(driver, &upstream, auth, |_| ()).await;
        assert_eq!(bed.get("a.test", "/", "").await.status, 401, "{driver:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 0, "nothing is asked about a request without a token");
        let answer = bed.get("a.test", "/", "Authorization: Bearer good\r\nX-User: root\r\n").await;
        assert_eq!(answer.status, 200, "{driver:?}: {}", answer.body);
        assert!(answer.body.to_ascii_lowercase().contains("x-user: anna"), "{driver:?}: {}", answer.body);
        let seen = idp.seen().await;
        assert_eq!(
            (&*seen.line, &*seen.body),
            ("POST /introspect HTTP/1.1", "token=good&token_type_hint=access_token")
        );
        // edge:s3cret.
        assert_eq!(seen.header("authorization"), "Basic ZWRnZTpzM2NyZXQ=", "{driver:?}");
        assert_eq!(seen.header("host"), format!("idp.test:{}", idp.address.port()), "{driver:?}");
        for token in [
            "inactive", "expired", "text", "list", "garbage", "error", "away", "large", "packed", "cut", "closed",
            "unknown",
        ] {
            let before = asked.load(Ordering::Relaxed);
            let answer = bed.get("a.test", "/", &format!("Authorization: Bearer {token}\r\n")).await;
            assert_eq!(answer.status, 401, "{driver:?}: {token}");
            assert_eq!(answer.header("www-authenticate"), Some(r#"bearer realm="oauth""#), "{driver:?}: {token}");
            assert!(asked.load(Ordering::Relaxed) > before, "{driver:?}: {token} was not asked about");
        }
        for (outcome, number) in [("answered", 1), ("denied", 2), ("invalid-answer", 10)] {
            until_called(&bed, outcome, number).await;
        }
        bed.until_metric("tidegate_auth_call_duration_seconds_count 13").await;
    }
}

/// Accepts tokens that a server knows, and tells the endpoint whose they are.
fn accepting(introspection: Introspection) -> PathAuth {
    PathAuth {
        authentication: [rule("oauth", authentication(AuthenticationMethod::Introspection(introspection)))].into(),
        success: [header("x-user", "auth.identity.sub")].into(),
        ..PathAuth::default()
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_in_time_refuses_the_request() {
    let upstream = Upstream::echo().await;
    for driver in DRIVERS {
        let (idp, _) = introspection_server().await;
        let introspection = Introspection { timeout: Duration::from_millis(50), ..introspection_of(idp.address) };
        let bed = bed_with(driver, &upstream, accepting(introspection), |_| ()).await;
        for token in ["silent", "endless"] {
            let answer = bed.get("a.test", "/", &format!("Authorization: Bearer {token}\r\n")).await;
            assert_eq!(answer.status, 401, "{driver:?}: {token}");
        }
        until_called(&bed, "timeout", 2).await;
    }
}

#[tokio::test]
async fn a_client_does_not_wait_for_a_rule_in_shadow_mode() {
    let upstream = Upstream::echo().await;
    for driver in DRIVERS {
        let facts = Upstream::start(|_| Reply::Silence).await;
        let asks = Metadata::Http(http_rule(facts.address, "/"));
        let shadow = AuthRule { shadow: true, ..AuthRule::clone(&rule("facts", asks)) };
        let auth = PathAuth { metadata: [Arc::new(shadow)].into(), ..PathAuth::default() };
        let bed = bed_with(driver, &upstream, auth, |_| ()).await;
        // Less than the time that all calls of a request may take.
        let answer = tokio::time::timeout(Duration::from_secs(8), bed.get("a.test", "/", "")).await;
        assert_eq!(answer.expect("the client waits").status, 200, "{driver:?}");
    }
}

#[tokio::test]
async fn a_server_that_takes_no_connection_refuses_the_request() {
    let upstream = Upstream::echo().await;
    for driver in DRIVERS {
        let unknown = Introspection {
            server: CallServer { target: None, ..server(closed_port()) },
            ..introspection_of(closed_port())
        };
        for asks in [introspection(closed_port()), authentication(AuthenticationMethod::Introspection(unknown))] {
            let auth = PathAuth { authentication: [rule("oauth", asks)].into(), ..PathAuth::default() };
            let bed = bed_with(driver, &upstream, auth, |_| ()).await;
            assert_eq!(bed.get("a.test", "/", "Authorization: Bearer good\r\n").await.status, 401, "{driver:?}");
            until_called(&bed, "unreachable", 1).await;
        }
    }
}

#[tokio::test]
async fn an_answer_is_kept_for_its_key_and_credential() {
    let upstream = Upstream::echo().await;
    for driver in DRIVERS {
        let (idp, asked) = introspection_server().await;
        let cache = AuthCache { key: expression("request.host"), ttl: Duration::from_secs(3600), digest: [7; 16] };
        let asks = AuthRule { cache: Some(cache), ..AuthRule::clone(&rule("oauth", introspection(idp.address))) };
        let auth = PathAuth { authentication: [Arc::new(asks)].into(), ..PathAuth::default() };
        let bed = bed_with(driver, &upstream, auth, |_| ()).await;
        for (token, status, in_all) in
            [("good", 200, 1), ("good", 200, 1), ("inactive", 401, 2), ("inactive", 401, 3), ("good", 200, 3)]
        {
            let answer = bed.get("a.test", "/", &format!("Authorization: Bearer {token}\r\n")).await;
            assert_eq!((answer.status, asked.load(Ordering::Relaxed)), (status, in_all), "{driver:?}: {token}");
        }
    }
}

/// Gives tokens to clients, facts about the plan of a user to those with such a token, and claims about a user.
async fn facts_server() -> Upstream {
    let facts = Upstream::start(|seen| match seen.line.split(' ').nth(1) {
        Some("/token") => json_answer("200 OK", r#"{"access_token":"own","token_type":"bearer","expires_in":600}"#),
        Some("/plan?user=anna") if seen.header("authorization") == "Bearer own" => {
            json_answer("200 OK", r#"{"plan":"gold"}"#)
        }
        Some("/me") if seen.header("authorization") == "Bearer good" => {
            json_answer("200 OK", r#"{"sub":"anna","email":"anna@a.test"}"#)
        }
        _ => json_answer("404 Not Found", "{}"),
    });
    facts.await
}

/// Asks for the plan of the user.
fn plan(address: SocketAddr) -> HttpRule {
    let client = ClientCredentials {
        server: server(address),
        path: "/token".into(),
        client_id: "edge".into(),
        secret: Some(SecretText::new("s3cret")),
        scopes: Box::default(),
        extra: Box::default(),
        reused: true,
        timeout: PATIENCE,
    };
    let user = PathPiece::Value(Selector::new("auth.identity.sub").unwrap());
    let source = CallCredentialSource::OAuth2(Arc::new(client));
    HttpRule {
        path: CallPath::Pieces([PathPiece::Text("/plan?user=".into()), user].into()),
        credential: Some(CallCredential { place: Credentials::default(), source }),
        ..http_rule(address, "")
    }
}

#[tokio::test]
async fn facts_are_fetched_with_the_edges_own_credentials_and_told_to_the_endpoint() {
    let upstream = Upstream::start(|seen| Reply::ok(&seen.head)).await;
    for driver in DRIVERS {
        let (mut facts, (idp, _)) = (facts_server().await, introspection_server().await);
        let info = UserInfo {
            identity_source: Some("oauth".into()),
            server: Some(server(facts.address)),
            path: "/me".into(),
            timeout: PATIENCE,
        };
        let auth = PathAuth {
            authentication: [rule("oauth", introspection(idp.address))].into(),
            metadata: [
                rule("me", Metadata::UserInfo(info)),
                rule("none", Metadata::Http(http_rule(facts.address, "/none"))),
                rule("plan", Metadata::Http(plan(facts.address))),
            ]
            .into(),
            authorization: [rule("gold", patterns(&["auth.metadata.plan.plan == 'gold'"]))].into(),
            success: [
                header("x-email", "auth.metadata.me.email"),
                header("x-none", "auth.metadata.none.sub"),
                header("x-plan", "auth.metadata.plan.plan"),
            ]
            .into(),
            ..PathAuth::default()
        };
        let bed = bed_with(driver, &upstream, auth, |_| ()).await;
        for _ in 0..2 {
            let answer = bed.get("a.test", "/", "Authorization: Bearer good\r\nX-None: forged\r\n").await;
            let told = answer.body.to_ascii_lowercase();
            assert_eq!(answer.status, 200, "{driver:?}: {told}");
            assert!(told.contains("x-email: anna@a.test") && told.contains("x-plan: gold"), "{driver:?}: {told}");
            assert!(!told.contains("x-none"), "{driver:?}: {told}");
        }
        let mut tokens = 0;
        for _ in 0..7 {
            tokens += usize::from(facts.seen().await.line.contains("/token"));
        }
        assert_eq!(tokens, 1, "{driver:?}: a token is used again");
    }
}

/// Answers reviews as a test says, and notes them.
struct Answering {
    answer: fn(&Value) -> Result<Value, ReviewError>,
    asked: UnboundedSender<Value>,
}

impl CreateReview for Answering {
    fn create(&self, review: Value) -> BoxFuture<'static, Result<Value, ReviewError>> {
        let answer = (self.answer)(&review);
        self.asked.send(review).unwrap();
        Box::pin(async move { answer })
    }
}

#[tokio::test]
async fn the_api_server_knows_tokens_and_what_their_users_may_do() {
    let answer = |review: &Value| match review["kind"].as_str() {
        Some("TokenReview") => match review["spec"]["token"].as_str() {
            Some("good") => Ok(json!({"status": {
                "authenticated": true,
                "audiences": ["a.test"],
                "user": {"username": "system:serviceaccount:shop:web", "groups": ["pods"]},
            }})),
            Some("other") => Ok(json!({"status": {"authenticated": true, "audiences": ["b.test"]}})),
            _ => Ok(json!({"status": {"authenticated": false}})),
        },
        _ => match review["spec"]["nonResourceAttributes"]["path"].as_str() {
            Some("/open") => Ok(json!({"status": {"allowed": true}})),
            Some("/odd") => Ok(json!({"status": {}})),
            Some("/away") => Err(ReviewError { is_busy: false, why: "away".to_owned() }),
            _ => Ok(json!({"status": {"allowed": false}})),
        },
    };
    let upstream = Upstream::echo().await;
    for driver in DRIVERS {
        let method = AuthenticationMethod::TokenReview { audiences: Box::default() };
        let user = Some(expression("auth.identity.user.username"));
        let review = AccessReviewRule {
            user,
            authorization_groups: Some(expression("auth.identity.user.groups")),
            ..AccessReviewRule::default()
        };
        let auth = PathAuth {
            authentication: [rule("account", authentication(method))].into(),
            authorization: [rule("may", Authorization::AccessReview(Box::new(review)))].into(),
            ..PathAuth::default()
        };
        let (sender, mut asked) = unbounded_channel();
        let reviews = Reviews(Arc::new(Answering { answer, asked: sender }));
        let bed = bed_with(driver, &upstream, auth.clone(), |options| options.reviews = Some(reviews)).await;
        for (path, token, status) in [
            ("/open", "good", 200),
            ("/open", "other", 401),
            ("/open", "bad", 401),
            ("/shut", "good", 403),
            ("/odd", "good", 403),
            ("/away", "good", 403),
        ] {
            let answer = bed.get("a.test", path, &format!("Authorization: Bearer {token}\r\n")).await;
            assert_eq!(answer.status, status, "{driver:?}: {path} with {token}");
        }
        let want = json!({
            "user": "system:serviceaccount:shop:web",
            "groups": ["pods"],
            "nonResourceAttributes": {"path": "/open", "verb": "get"},
        });
        asked.recv().await.expect("the token was reviewed");
        assert_eq!(asked.recv().await.expect("its user was reviewed")["spec"], want, "{driver:?}");
        let without = bed_with(driver, &upstream, auth, |_| ()).await;
        assert_eq!(without.get("a.test", "/open", "Authorization: Bearer good\r\n").await.status, 401, "{driver:?}");
    }
}

#[tokio::test]
async fn a_callback_is_made_after_every_decision_and_never_waited_for() {
    let upstream = Upstream::echo().await;
    for driver in DRIVERS {
        let mut told = Upstream::start(|_| Reply::Silence).await;
        let tells = HttpRule {
            method: Method::POST,
            body: CallBody::Json([("path".into(), expression("request.path"))].into()),
            headers: [(HeaderName::from_static("x-method"), expression("request.method"))].into(),
            ..http_rule(told.address, "/told")
        };
        let auth = PathAuth {
            authorization: [rule("open", patterns(&["request.url_path == '/open'"]))].into(),
            callbacks: [rule("told", tells)].into(),
            ..PathAuth::default()
        };
        let bed = bed_with(driver, &upstream, auth, |_| ()).await;
        for (path, status) in [("/open", 200), ("/shut", 403)] {
            assert_eq!(bed.get("a.test", path, "").await.status, status, "{driver:?}: {path}");
            let seen = told.seen().await;
            assert_eq!((&*seen.line, seen.header("x-method")), ("POST /told HTTP/1.1", "GET".to_owned()), "{driver:?}");
            assert_eq!(seen.body, format!(r#"{{"path":"{path}"}}"#), "{driver:?}");
        }
    }
}
