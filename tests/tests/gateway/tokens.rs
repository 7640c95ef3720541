//! Tokens of an issuer in the whole process: an issuer of the test, and clients with its tokens.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::Empty;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SigningKey};
use serde_json::{Value, json};
use tidegate_tests::{Answer, eventually, request, unix_s};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::Bench;

/// An issuer that signs with one key.
struct Issuer {
    address: SocketAddr,
    key: Arc<KeyPair>,
    _serves: JoinSet<()>,
}

impl Issuer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let key = Arc::new(KeyPair::generate_for(&PKCS_ED25519).unwrap());
        let own = Arc::clone(&key);
        let mut serves = JoinSet::new();
        serves.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, address, Arc::clone(&own)));
            }
        });
        Self { address, key, _serves: serves }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A token with these claims besides the usual ones.
    fn token(&self, key: &KeyPair, claims: &Value) -> String {
        let mut all = json!({"iss": self.url(), "sub": "anna", "exp": unix_s() + 3600});
        all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        let part = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let message = format!("{}.{}", part(&json!({"alg": "EdDSA", "kid": "one"})), part(&all));
        let signature = key.sign(message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

async fn answer(mut stream: TcpStream, address: SocketAddr, key: Arc<KeyPair>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or_default() == 0 {
            return;
        }
    }
    let body = if head.starts_with(b"GET /.well-known/openid-configuration ") {
        json!({"issuer": format!("http://{address}"), "jwks_uri": format!("http://{address}/keys")})
    } else {
        let x = URL_SAFE_NO_PAD.encode(key.der_bytes());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x}]})
    };
    let body = body.to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length";
    stream.write_all(format!("{head}: {}\r\n\r\n{body}", body.len()).as_bytes()).await.ok();
}

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
        let builder = http::Request::get("/").header("host", "staff.localhost");
        let builder = builder.header("authorization", format!("Bearer {token}"));
        request(self.door(0, 8080), builder.body(Empty::new()).unwrap()).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn staff_authenticates_with_tokens() {
    let issuer = Issuer::start().await;
    let Some(bench) = Bench::start_with(21, &[("tokens.yaml", &manifests(&issuer.url()))]).await else { return };
    let dev = json!({"groups": ["dev"]});
    let token = issuer.token(&issuer.key, &dev);
    let allowed = eventually("a request of staff", || async {
        let answer = bench.of_staff(&token).await;
        if answer.status == 200 { Ok(answer) } else { Err(format!("{answer:?}")) }
    })
    .await;
    assert!(allowed.body.to_ascii_lowercase().contains("x-user: anna"), "{allowed:?}");
    let other = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    for (token, status) in [
        (issuer.token(&other, &dev), 401),
        (issuer.token(&issuer.key, &json!({"groups": ["dev"], "exp": unix_s() - 3600})), 401),
        (issuer.token(&issuer.key, &json!({"groups": ["dev"], "iss": "http://127.0.0.1:1"})), 401),
        (issuer.token(&issuer.key, &json!({"groups": ["web"]})), 403),
        (format!("{token}x"), 401),
        (String::new(), 401),
    ] {
        assert_eq!(bench.of_staff(&token).await.status, status, "{token}");
    }
    // Without the issuer, the keys stay in use.
    let ben = issuer.token(&issuer.key, &json!({"groups": ["dev"], "sub": "ben"}));
    drop(issuer);
    let allowed = bench.of_staff(&ben).await;
    assert!(allowed.status == 200 && allowed.body.to_ascii_lowercase().contains("x-user: ben"), "{allowed:?}");
}
