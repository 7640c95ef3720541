//! Certificates of Secrets: usable ones with their names; no message contains a key.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::{Value, json};
use tidegate_config::model::{Certificate, CertificateFault, HostPattern, ServerCertificates, WildcardDepth};
use tidegate_config::object::{Kind, ObjectName};
use tidegate_config::project::{Object, Projected};

use crate::manifest::projected;

/// An RSA key, because the crypto provider of the tests can use RSA keys but cannot generate them.
const RSA_KEY: &str = include_str!("rsa_test_key.pem");

fn ecdsa() -> KeyPair {
    KeyPair::generate().unwrap()
}

fn signed(key: &KeyPair, names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_after = date_time_ymd(2030, 1, 2);
    params.self_signed(key).unwrap().pem()
}

fn secret(chain: &str, key: &str) -> Value {
    json!({
        "type": "kubernetes.io/tls",
        "metadata": {"namespace": "shop", "name": "shop-tls", "resourceVersion": "1"},
        "data": {"tls.crt": STANDARD.encode(chain), "tls.key": STANDARD.encode(key)},
    })
}

#[track_caller]
fn certificate(projected: &Projected) -> &Result<Arc<Certificate>, CertificateFault> {
    assert_eq!(projected.findings, [], "a Secret has no findings of its own");
    let Some(Object::Secret(secret)) = &projected.object else { panic!("no Secret") };
    &secret.certificate
}

#[track_caller]
fn check_usable(key: &KeyPair, names: &[&str], want: &str) {
    let projected = projected(Kind::Secret, &secret(&signed(key, names), &key.serialize_pem()));
    let certificate = certificate(&projected).as_ref().unwrap();
    assert_eq!(format!("{certificate:?}"), want);
    assert_eq!(certificate.not_after_s, 1_893_542_400);
}

#[test]
fn ecdsa_and_rsa_certificates_are_for_their_names() {
    check_usable(&ecdsa(), &["shop.example"], "Certificate(shop/shop-tls for [shop.example])");
    let rsa = KeyPair::from_pem(RSA_KEY).unwrap();
    check_usable(
        &rsa,
        &["*.Shop.example", "shop.example"],
        "Certificate(shop/shop-tls for [shop.example, *.shop.example])",
    );
}

/// The longest line of a key's PEM, which must not appear anywhere.
fn material(key: &str) -> &str {
    key.lines().max_by_key(|line| line.len()).unwrap()
}

#[track_caller]
fn check_fault(secret: &Value, key: &str, want: &str) {
    let projected = projected(Kind::Secret, secret);
    let fault = certificate(&projected).as_ref().unwrap_err();
    assert!(fault.0.starts_with(want), "{fault}");
    let shown = format!("{projected:?}{fault}");
    assert!(!shown.contains(material(key)), "{shown}");
    // A parser that quotes bytes as numbers would leak them as well.
    let as_numbers = format!("{:?}", &material(key).as_bytes()[..8]);
    assert!(!shown.contains(as_numbers.trim_matches(['[', ']'])), "{shown}");
}

#[test]
fn an_unusable_secret_has_a_reason_that_shows_no_key() {
    let (key, other) = (ecdsa(), ecdsa());
    let (pem, chain) = (key.serialize_pem(), signed(&key, &["shop.example"]));
    check_fault(
        &secret(&chain, &other.serialize_pem()),
        &other.serialize_pem(),
        "tls.key is not the key of the certificate",
    );
    check_fault(&secret(&pem, &chain), &pem, "tls.crt holds no certificate");
    check_fault(&secret(&chain, "hello"), &pem, "tls.key holds no private key");
    check_fault(&secret("", ""), &pem, "tls.crt holds no certificate");
    check_fault(&secret(&format!("{chain}{}", pem.replace('\n', " ")), &pem), &pem, "tls.crt is not PEM");
    check_fault(&secret(&pem.replace('\n', " "), &pem), &pem, "tls.crt is not PEM");
    check_fault(&secret(&format!("-----BEGIN {}", material(&pem)), &pem), &pem, "tls.crt is not PEM");
    check_fault(&secret(&chain, &pem.replace('\n', " ")), &pem, "tls.key holds no private key");
    check_fault(&secret(&"x".repeat(300_000), &pem), &pem, "tls.crt or tls.key is larger");
    let mut undecoded = secret(&chain, &pem);
    undecoded["data"]["tls.key"] = json!(pem);
    check_fault(&undecoded, &pem, "tls.key is not base64");
    undecoded["data"]["tls.key"] = json!([pem]);
    check_fault(&undecoded, &pem, "tls.key is not base64");
    undecoded["data"] = json!(pem);
    check_fault(&undecoded, &pem, "data cannot be read");
}

/// Certificates that clients may refuse are the owner's choice; keys that the crypto provider cannot use are named.
#[test]
fn old_certificates_are_usable_and_keys_of_other_kinds_are_named() {
    let object = |pem: &str| {
        let (chain, key) = pem.split_at(pem.find("-----BEGIN PRIVATE KEY").unwrap());
        (secret(chain, key), key.to_owned())
    };
    let (version_1, key) = object(include_str!("version_1.pem"));
    let used = projected(Kind::Secret, &version_1);
    assert_eq!(format!("{:?}", certificate(&used).as_ref().unwrap()), "Certificate(shop/shop-tls for [v1.test])");
    let mut other = version_1;
    other["data"]["tls.key"] = json!(STANDARD.encode(ecdsa().serialize_pem()));
    check_fault(&other, &key, "tls.key is not the key of the certificate");
    let usable =
        "tls.key is not of a supported kind: RSA with 2048 to 4096 bits, ECDSA on P-256 or P-384, and Ed25519 are";
    let (p521, key) = object(include_str!("p521.pem"));
    check_fault(&p521, &key, &format!("{usable}; the key of the certificate is ECDSA on P-521"));
    let (rsa, key) = object(include_str!("rsa_1024.pem"));
    check_fault(&rsa, &key, &format!("{usable}; the key of the certificate is RSA with 1024 bits"));
}

#[test]
fn only_a_renewed_certificate_is_a_change() {
    let key = ecdsa();
    let (before, renewed) = (signed(&key, &["shop.example"]), signed(&key, &["shop.example", "www.shop.example"]));
    let object = |chain: &str| projected(Kind::Secret, &secret(chain, &key.serialize_pem())).object;
    assert_eq!(object(&before), object(&before));
    assert_ne!(object(&before), object(&renewed));
}

#[test]
fn the_type_of_a_secret_makes_no_difference() {
    let key = ecdsa();
    let mut opaque = secret(&signed(&key, &["shop.example"]), &key.serialize_pem());
    opaque["type"] = json!("Opaque");
    opaque["data"]["ca.crt"] = json!("not base64 either");
    assert!(certificate(&projected(Kind::Secret, &opaque)).is_ok());
}

#[test]
fn the_most_specific_certificate_is_chosen_for_a_server_name() {
    use WildcardDepth::{Any, One};
    let key = ecdsa();
    let made = Certificate::from_pem(
        ObjectName::new("shop", "any"),
        signed(&key, &["shop.example"]).as_bytes(),
        key.serialize_pem().as_bytes(),
    )
    .unwrap();
    let of_secret = |name: &str| {
        let mut certificate = made.clone();
        certificate.secret = ObjectName::new("shop", name);
        Arc::new(certificate)
    };
    let patterns = [
        HostPattern::Exact("a.b.c".into()),
        HostPattern::Wildcard("b.c".into(), One),
        HostPattern::Wildcard("b.c".into(), Any),
        HostPattern::Wildcard("c".into(), Any),
    ];
    let empty = (HostPattern::Exact("x.b.c".into()), Vec::new());
    let by_name = patterns.into_iter().map(|pattern| (pattern.clone(), vec![of_secret(&pattern.to_string())]));
    let all = ServerCertificates::new(by_name.chain([empty]).collect());
    for (name, want) in [
        ("a.b.c", Some("a.b.c")),
        ("x.b.c", Some("*.b.c")),
        ("y.x.b.c", Some("**.b.c")),
        ("b.c", Some("**.c")),
        ("z.c", Some("**.c")),
        ("c", None),
        ("b.d", None),
    ] {
        assert_eq!(all.of(name).first().map(|it| &*it.secret.name), want, "{name}");
    }
    assert_eq!(all.iter().count(), 4);
}

/// The texts of a Secret with these entries, as `a=text`.
fn texts(kind: &str, data: &Value) -> String {
    let metadata = json!({"namespace": "shop", "name": "client", "resourceVersion": "1"});
    let projected = projected(Kind::Secret, &json!({"type": kind, "metadata": metadata, "data": data}));
    let shown = format!("{projected:?}");
    assert!(!shown.contains("hunter2") && !shown.contains(&STANDARD.encode("hunter2")), "{shown}");
    assert_eq!(projected.findings, []);
    let Some(Object::Secret(secret)) = projected.object else { panic!("no Secret") };
    let names: Vec<&String> = data.as_object().unwrap().keys().collect();
    let text = |name: &&String| Some(format!("{name}={}", secret.texts.get(name)?.as_str()));
    names.iter().filter_map(text).collect::<Vec<_>>().join(" ")
}

#[test]
fn texts_for_rules_are_those_of_opaque_secrets() {
    let base64 = |text: &str| STANDARD.encode(text);
    let data = json!({"a": base64("hunter2"), "b": base64("x"), "c": "no base64", "d": 1, "e": "", "f": STANDARD.encode([0xff])});
    assert_eq!(texts("Opaque", &data), "a=hunter2 b=x");
    assert_eq!(texts("", &data), "a=hunter2 b=x");
    for other in ["kubernetes.io/tls", "kubernetes.io/service-account-token", "helm.sh/release.v1"] {
        assert_eq!(texts(other, &data), "");
    }
    let others =
        json!({"api_key": base64("hunter2"), "tls.crt": base64("x"), "tls.key": base64("x"), "a": base64("x")});
    assert_eq!(texts("Opaque", &others), "a=x");
    let lengths = json!({"a": base64(&"x".repeat(4096)), "b": base64(&"x".repeat(4097))});
    assert_eq!(texts("Opaque", &lengths).len(), 4098);
    let many: serde_json::Map<String, Value> =
        (0..20).map(|number| (format!("k{number:02}"), json!(base64("x")))).collect();
    let kept = texts("Opaque", &Value::Object(many));
    assert_eq!((kept.split(' ').count(), kept.split(' ').next_back()), (16, Some("k15=x")));
}
