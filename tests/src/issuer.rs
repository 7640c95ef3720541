//! An issuer of tokens: a discovery document, and keys that can be replaced while it runs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SigningKey};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::clock::unix_s;

/// The published keys by their ids.
type Keys = BTreeMap<String, Arc<KeyPair>>;

/// A running issuer on loopback, which ends with its handle.
#[derive(Debug)]
pub struct Issuer {
    /// Its URL, without a path.
    pub url: String,
    keys: watch::Sender<Keys>,
    _serves: JoinSet<()>,
}

impl Issuer {
    /// Starts one with a key `one`.
    pub async fn start() -> Self {
        Self::serving(None).await
    }

    /// The same over TLS; returns the certificate of its authority, in PEM, too.
    pub async fn start_tls() -> (Self, String) {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![own.cert.der().clone()], key).unwrap();
        (Self::serving(Some(TlsAcceptor::from(Arc::new(config)))).await, own.cert.pem())
    }

    async fn serving(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (keys, published) = watch::channel(Keys::new());
        let mut serves = JoinSet::new();
        serves.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, published) = (tls.clone(), published.clone());
                tokio::spawn(async move {
                    match tls {
                        None => answer(stream, (scheme, address), &published).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => answer(stream, (scheme, address), &published).await,
                            Err(_untrusted) => {}
                        },
                    }
                });
            }
        });
        let issuer = Self { url: format!("{scheme}://{address}"), keys, _serves: serves };
        issuer.publish("one");
        issuer
    }

    /// Publishes a new key under an id, besides the others.
    pub fn publish(&self, id: &str) {
        let key = Arc::new(KeyPair::generate_for(&PKCS_ED25519).unwrap());
        self.keys.send_modify(|keys| drop(keys.insert(id.to_owned(), key)));
    }

    /// Publishes a key no longer.
    pub fn withdraw(&self, id: &str) {
        self.keys.send_modify(|keys| drop(keys.remove(id)));
    }

    /// A token of `anna`, signed with the key of this id, with these claims besides the usual ones.
    #[must_use]
    pub fn token(&self, id: &str, claims: &Value) -> String {
        let key = Arc::clone(&self.keys.borrow()[id]);
        self.token_by(&key, id, claims)
    }

    /// The same, signed with any key.
    #[must_use]
    pub fn token_by(&self, key: &KeyPair, id: &str, claims: &Value) -> String {
        let mut all = json!({"iss": self.url, "sub": "anna", "exp": unix_s() + 3600});
        all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        let part = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let message = format!("{}.{}", part(&json!({"alg": "EdDSA", "kid": id})), part(&all));
        let signature = key.sign(message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

async fn answer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    (scheme, address): (&str, SocketAddr),
    published: &watch::Receiver<Keys>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or_default() == 0 {
            return;
        }
    }
    let body = if head.starts_with(b"GET /.well-known/openid-configuration ") {
        let url = format!("{scheme}://{address}");
        json!({"issuer": url, "jwks_uri": format!("{url}/keys")})
    } else {
        let keys = published.borrow().clone();
        let key = |(id, key): (&String, &Arc<KeyPair>)| {
            let x = URL_SAFE_NO_PAD.encode(key.der_bytes());
            json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": x})
        };
        json!({"keys": keys.iter().map(key).collect::<Vec<_>>()})
    };
    let body = body.to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length";
    stream.write_all(format!("{head}: {}\r\n\r\n{body}", body.len()).as_bytes()).await.ok();
    stream.shutdown().await.ok();
}
