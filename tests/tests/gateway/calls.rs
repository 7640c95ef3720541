//! Rules that ask servers, in the whole process: servers of the test for tokens, facts and claims, and their clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http_body_util::Empty;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SigningKey};
use serde_json::{Value, json};
use tidegate_tests::{Answer, eventually, request, unix_s};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::Bench;

/// What a server does with a request.
enum Reply {
    Json(Value),
    Status(u16),
    Redirect(String),
    /// A body that goes on for 1 GiB, as long as it is read.
    Endless,
    /// No answer, until the connection is closed.
    Silence,
    Close,
}

/// A request as a server reads it.
struct Seen {
    /// The first line.
    line: String,
    /// The whole head.
    head: String,
    body: String,
}

/// A small HTTP server on a free port.
struct Server {
    address: SocketAddr,
    /// The number of requests.
    count: Arc<AtomicUsize>,
    _serves: JoinSet<()>,
}

impl Server {
    async fn start(reply: impl Fn(&Seen, SocketAddr) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (reply, count) = (Arc::new(reply), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&count);
        let mut serves = JoinSet::new();
        serves.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (reply, counted) = (Arc::clone(&reply), Arc::clone(&counted));
                connections.spawn(async move {
                    let mut stream = stream;
                    let Some(seen) = read(&mut stream).await else { return };
                    counted.fetch_add(1, Ordering::Relaxed);
                    answer(stream, reply(&seen, address)).await;
                });
            }
        });
        Self { address, count, _serves: serves }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

async fn read(stream: &mut TcpStream) -> Option<Seen> {
    let mut text = Vec::new();
    loop {
        if stream.read_buf(&mut text).await.unwrap_or_default() == 0 {
            return None;
        }
        let whole = String::from_utf8_lossy(&text);
        let Some((head, body)) = whole.split_once("\r\n\r\n") else { continue };
        let lower = head.to_ascii_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length = length.map_or(0, |length| length.trim().parse().unwrap());
        if body.len() >= length {
            let line = head.lines().next().unwrap_or_default().to_owned();
            return Some(Seen { line, head: head.to_owned(), body: body.to_owned() });
        }
    }
}

async fn answer(mut stream: TcpStream, reply: Reply) {
    let (status, more, body) = match reply {
        Reply::Json(body) => (200, "Content-Type: application/json\r\n".to_owned(), body.to_string()),
        Reply::Status(status) => (status, String::new(), String::new()),
        Reply::Redirect(to) => (302, format!("Location: {to}\r\n"), String::new()),
        Reply::Endless => {
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", 1 << 30);
            stream.write_all(head.as_bytes()).await.ok();
            let part = [b' '; 64 << 10];
            for _ in 0..(1 << 30) / part.len() {
                if stream.write_all(&part).await.is_err() {
                    return;
                }
            }
            return;
        }
        Reply::Silence => {
            // Ends when the edge closes the connection.
            stream.read_u8().await.ok();
            return;
        }
        Reply::Close => return,
    };
    let head = format!("HTTP/1.1 {status} X\r\n{more}Connection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await.ok();
}

/// The header of a client with these credentials (RFC 7617).
fn basic(secret: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("edge:{secret}")))
}

/// A route `NAME.localhost` with a policy with these rules.
fn manifests(name: &str, rules: &Value) -> String {
    let route = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": "shop", "name": name},
        "spec": {
            "parentRefs": [{"name": "edge"}], "hostnames": [format!("{name}.localhost")],
            "rules": [{"backendRefs": [{"name": "shop-v1", "port": 80}]}],
        },
    });
    let policy = json!({
        "apiVersion": "kuadrant.io/v1", "kind": "AuthPolicy", "metadata": {"namespace": "shop", "name": name},
        "spec": {
            "targetRef": {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name},
            "rules": rules,
        },
    });
    format!("{route}\n---\n{policy}\n")
}

fn secret(name: &str, entries: &Value) -> String {
    let metadata = json!({"namespace": "shop", "name": name});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": entries}).to_string()
}

impl Bench {
    async fn with_token(&self, host: &str, path: &str, token: &str) -> Answer {
        self.asked(host, path, token).await.unwrap()
    }

    /// The same; an error before the door is open.
    async fn asked(&self, host: &str, path: &str, token: &str) -> Result<Answer, String> {
        let builder = http::Request::get(path).header("host", format!("{host}.localhost"));
        let builder = builder.header("authorization", format!("Bearer {token}"));
        request(self.door(0, 8080), builder.body(Empty::new()).unwrap()).await
    }

    /// Waits until a request has this status.
    async fn eventually_with_token(&self, host: &str, token: &str, status: u16) -> Answer {
        eventually(&format!("{status} for {token}"), || async {
            let answer = self.asked(host, "/", token).await?;
            if answer.status == status { Ok(answer) } else { Err(format!("{answer:?}")) }
        })
        .await
    }
}

/// What an authorization server answers about a token, by its name, to a client with one of two secrets.
fn about(seen: &Seen, own: SocketAddr) -> Reply {
    let is_client = [basic("one"), basic("two")].iter().any(|value| seen.head.contains(value));
    if seen.line != "POST /introspect HTTP/1.1" || !is_client {
        return Reply::Status(401);
    }
    let token = seen.body.split('&').find_map(|pair| pair.strip_prefix("token=")).unwrap_or_default();
    match token {
        // Only the second secret is told about this one.
        "later" if !seen.head.contains(&basic("two")) => Reply::Status(401),
        "anna" | "later" => Reply::Json(json!({"active": true, "sub": token})),
        "inactive" => Reply::Json(json!({"active": false})),
        "expired" => Reply::Json(json!({"active": true, "exp": 1})),
        "text" => Reply::Json(json!("active")),
        "truth" => Reply::Json(json!({"active": "true"})),
        "redirected" => Reply::Redirect(format!("http://{own}/introspect")),
        "endless" => Reply::Endless,
        "silent" => Reply::Silence,
        "closed" => Reply::Close,
        _ => Reply::Status(500),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_checked_by_their_authorization_server() {
    let server = Server::start(about).await;
    let rules = json!({
        "authentication": {"tokens": {
            "oauth2Introspection": {
                "endpoint": server.url("/introspect"), "credentialsRef": {"name": "edge-client"}, "timeout": 2000,
            },
            "cache": {"key": {"selector": "request.headers.authorization"}, "ttl": 3600},
        }},
        "response": {"success": {"headers": {"x-user": {"plain": {"selector": "auth.identity.sub"}}}}},
    });
    let files = [
        ("calls.yaml", &*manifests("tokens", &rules)),
        ("secret.json", &*secret("edge-client", &json!({"clientID": "edge", "clientSecret": "one"}))),
    ];
    let Some(bench) = Bench::start_with(22, &files).await else { return };
    let allowed = bench.eventually_with_token("tokens", "anna", 200).await;
    assert!(allowed.body.to_ascii_lowercase().contains("x-user: anna"), "{allowed:?}");
    let asked = server.count();
    for _ in 0..5 {
        assert_eq!(bench.with_token("tokens", "/x", "anna").await.status, 200);
    }
    assert_eq!(server.count(), asked, "its answer is kept");
    for token in
        ["inactive", "expired", "text", "truth", "redirected", "endless", "silent", "closed", "unknown", "later"]
    {
        assert_eq!(bench.with_token("tokens", "/", token).await.status, 401, "{token}");
    }
    // A rotated secret is used from the next publication on.
    bench.patch("secret/edge-client", r#"{"stringData":{"clientSecret":"two"}}"#).await;
    bench.eventually_with_token("tokens", "later", 200).await;
    // Without one, nobody is accepted whose answer is not kept.
    bench.kubectl.run(&["delete", "-n", "shop", "secret/edge-client"]).await;
    let told = "{.status.conditions[?(@.type=='Accepted')].status}";
    bench.said("authpolicy/tokens", told, "True").await;
    eventually("a client without a secret", || async {
        let before = server.count();
        let status = bench.with_token("tokens", "/", "inactive").await.status;
        if status == 401 && server.count() == before { Ok(()) } else { Err(format!("{status}")) }
    })
    .await;
    // Neighbours are open.
    bench.answered(bench.door(0, 8080), "shop.localhost", "/", 200).await;
}

/// The facts about a user, and the tokens that are needed to read them.
fn facts(seen: &Seen, _: SocketAddr) -> Reply {
    match &*seen.line {
        "POST /token HTTP/1.1" => {
            let is_client = seen.head.contains(&basic("s3cret"));
            let form = seen.body.contains("grant_type=client_credentials") && seen.body.contains("scope=read");
            match is_client && form {
                true => Reply::Json(json!({"access_token": "of-the-edge", "token_type": "Bearer", "expires_in": 3600})),
                false => Reply::Status(401),
            }
        }
        "GET /plans/anna%20b HTTP/1.1" if seen.head.contains("Bearer of-the-edge") => {
            Reply::Json(json!({"plan": "gold"}))
        }
        _ => Reply::Status(404),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_about_a_request_decide_about_it() {
    let server = Server::start(facts).await;
    let oauth2 = json!({
        "tokenUrl": server.url("/token"), "clientId": "edge", "scopes": ["read"],
        "clientSecretRef": {"name": "facts", "key": "secret"},
    });
    let rules = json!({
        "metadata": {"plan": {"http": {"url": server.url("/plans/{request.headers.x-user}"), "oauth2": oauth2}}},
        "authorization": {"gold": {"patternMatching": {
            "patterns": [{"selector": "auth.metadata.plan.plan", "operator": "eq", "value": "gold"}],
        }}},
    });
    let files = [
        ("calls.yaml", &*manifests("plans", &rules)),
        ("secret.json", &*secret("facts", &json!({"secret": "s3cret"}))),
    ];
    let Some(bench) = Bench::start_with(23, &files).await else { return };
    let of = async |user: &'static str| {
        let builder = http::Request::get("/").header("host", "plans.localhost").header("x-user", user);
        request(bench.door(0, 8080), builder.body(Empty::new()).unwrap()).await.map(|answer| answer.status.as_u16())
    };
    eventually("a user of the plan", || async {
        let status = of("anna b").await?;
        if status == 200 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    assert_eq!(of("ben").await, Ok(403));
    assert_eq!(of("../token").await, Ok(403));
}

/// An issuer with claims about the users of its tokens.
fn issuer(key: &Arc<KeyPair>) -> impl Fn(&Seen, SocketAddr) -> Reply + use<> {
    let key = Arc::clone(key);
    move |seen, own| match seen.line.split(' ').nth(1).unwrap_or_default() {
        "/.well-known/openid-configuration" => Reply::Json(json!({
            "issuer": format!("http://{own}"), "jwks_uri": format!("http://{own}/keys"),
            "userinfo_endpoint": format!("http://{own}/me"),
        })),
        "/keys" => {
            let x = URL_SAFE_NO_PAD.encode(key.der_bytes());
            Reply::Json(json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x}]}))
        }
        // About another user than the token of Ben.
        "/me" if seen.head.contains("Bearer ") => Reply::Json(json!({"sub": "anna", "email": "anna@shop.test"})),
        _ => Reply::Status(404),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_about_a_user_come_from_the_issuer_of_its_token() {
    let key = Arc::new(KeyPair::generate_for(&PKCS_ED25519).unwrap());
    let server = Server::start(issuer(&key)).await;
    let rules = json!({
        "authentication": {"staff": {"jwt": {"issuerUrl": format!("http://{}", server.address)}}},
        "metadata": {"me": {"userInfo": {"identitySource": "staff"}}},
        "authorization": {"shop": {"patternMatching": {
            "patterns": [{"predicate": "auth.metadata.me.email.endsWith('@shop.test')"}],
        }}},
    });
    let Some(bench) = Bench::start_with(24, &[("calls.yaml", &manifests("claims", &rules))]).await else { return };
    let token = |subject: &str| {
        let claims = json!({"iss": format!("http://{}", server.address), "sub": subject, "exp": unix_s() + 3600});
        let part = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let message = format!("{}.{}", part(&json!({"alg": "EdDSA", "kid": "one"})), part(&claims));
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(key.sign(message.as_bytes()).unwrap()))
    };
    bench.eventually_with_token("claims", &token("anna"), 200).await;
    assert_eq!(bench.with_token("claims", "/", &token("ben")).await.status, 403);
}
