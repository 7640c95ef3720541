//! Client certificates, their keys, and the authority of the server.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};

use super::server::Server;
use super::{Asking, kubeconfig, replace};

/// An authority, a certificate of the server and one of a client, all new.
struct Made {
    authority: String,
    certificate: String,
    key: String,
    server: Arc<ServerConfig>,
}

fn make() -> Made {
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_certificate = authority.self_signed(&key).unwrap();
    let issuer = Issuer::new(authority, key);
    let signed = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        (certificate, key)
    };
    let (server, client) = (signed("127.0.0.1"), signed("client.test"));
    let mut roots = RootCertStore::empty();
    roots.add(authority_certificate.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![server.0.der().clone()], PrivateKeyDer::try_from(server.1.serialize_der()).unwrap())
        .unwrap();
    Made {
        authority: authority_certificate.pem(),
        certificate: client.0.pem(),
        key: client.1.serialize_pem(),
        server: Arc::new(config),
    }
}

/// Puts a part into the kubeconfig or into a file beside it.
fn put(part: &mut Value, folder: &Path, name: &str, pem: &str, inside: bool) {
    if inside {
        part[format!("{name}-data")] = json!(STANDARD.encode(pem));
    } else {
        replace(&folder.join(name), pem);
        // An empty part inside is none.
        (part[name], part[format!("{name}-data")]) = (json!(name), json!(""));
    }
}

#[tokio::test]
async fn every_combination_of_parts_inside_and_in_files_is_followed() {
    let made = [make(), make()];
    for parts in 0..8_u8 {
        let inside = |part: u8| parts & (1 << part) != 0;
        let (folder, server) = (tempfile::tempdir().unwrap(), Server::start().await);
        let config = folder.path().join("config");
        let write = |made: &Made| {
            let (mut cluster, mut user) = (json!({"server": format!("https://{}", server.address)}), json!({}));
            put(&mut cluster, folder.path(), "certificate-authority", &made.authority, inside(0));
            put(&mut user, folder.path(), "client-certificate", &made.certificate, inside(1));
            put(&mut user, folder.path(), "client-key", &made.key, inside(2));
            replace(&config, &kubeconfig(&cluster, &user));
            server.tls.send_replace(Some(Arc::clone(&made.server)));
        };
        write(&made[0]);
        let asking = Asking::by(&config);
        assert_eq!(asking.ask().await.as_deref(), Ok(""), "{parts:03b}");
        write(&made[1]);
        // The old connection still works. A client that comes with a new one is refused once at most.
        let renewed = Asking { client: asking.client.clone(), registry: asking.registry.clone() };
        server.accepted.send_replace(Some("none".to_owned()));
        renewed.ask().await.unwrap_err();
        server.accepted.send_replace(None);
        assert_eq!(renewed.ask().await.as_deref(), Ok(""), "{parts:03b}: after the rotation");
    }
}

#[tokio::test]
async fn a_certificate_without_its_key_is_never_used() {
    let made = [make(), make()];
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let config = folder.path().join("config");
    let (mut cluster, mut user) = (json!({"server": format!("https://{}", server.address)}), json!({}));
    put(&mut cluster, folder.path(), "certificate-authority", &made[0].authority, false);
    put(&mut user, folder.path(), "client-certificate", &made[0].certificate, false);
    put(&mut user, folder.path(), "client-key", &made[0].key, false);
    replace(&config, &kubeconfig(&cluster, &user));
    server.tls.send_replace(Some(Arc::clone(&made[0].server)));
    let asking = Asking::by(&config);
    for (name, pem) in [
        ("client-certificate", made[1].certificate.as_str()),
        ("client-certificate", ""),
        ("client-key", &made[1].key),
        ("client-key", "-----BEGIN PRIVATE KEY-----\n"),
        ("certificate-authority", ""),
        ("certificate-authority", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
    ] {
        let before = std::fs::read_to_string(folder.path().join(name)).unwrap();
        replace(&folder.path().join(name), pem);
        server.accepted.send_replace(Some("none".to_owned()));
        asking.ask().await.unwrap_err();
        server.accepted.send_replace(None);
        assert_eq!(asking.ask().await.as_deref(), Ok(""), "{name}: the last good ones stay in use");
        assert_eq!(asking.metric(r#"tidegate_followed_files_current{source="kubeconfig"}"#), 0, "{name}");
        replace(&folder.path().join(name), &before);
    }
}
