//! Tests of the checks of tokens: one table of tokens that are right, and one of those that are wrong.

mod mutated;
mod signer;

use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use super::*;
use signer::{EC_X, EC_Y, ED_X, N, decode, ed25519, encode, p256, rsa, sign, sign_as};

const NOW_S: u64 = 1_800_000_000;
const ISSUER: &str = "https://issuer.example/realm";

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW_S)
}

fn key_set(keys: &[Value]) -> Result<KeySet, KeySetFault> {
    KeySet::read(json!({ "keys": keys }).to_string().as_bytes())
}

fn jwt(keys: &[Value], issuer: Option<&str>) -> Jwt {
    let keys = Some(Arc::new(key_set(keys).unwrap()));
    Jwt { source: KeySource::Issuer(ISSUER.into()), issuer: issuer.map(Into::into), keys }
}

/// The `kid` of the key for an algorithm.
fn key_for(algorithm: &str) -> &'static str {
    match algorithm {
        "ES256" => "p256",
        "EdDSA" | "Ed25519" => "ed25519",
        _ => "rsa",
    }
}

/// The fault of a token, and `Ok` for one that is accepted.
fn result(jwt: &Jwt, token: &str) -> Result<(), TokenFault> {
    jwt.verify(token, now()).map(drop)
}

/// Compares the result for a token with these claims, signed by an Ed25519 key.
#[track_caller]
fn check_claims(claims: &Value, want: Result<(), TokenFault>) {
    let token = sign(&json!({"alg": "EdDSA", "kid": "ed25519"}), claims);
    assert_eq!(result(&jwt(&[ed25519()], Some(ISSUER)), &token), want, "{claims}");
}

/// Compares the result for a token with a header, and claims that are right.
#[track_caller]
fn check_header(keys: &[Value], header: &Value, want: Result<(), TokenFault>) {
    let token = sign(header, &json!({"exp": NOW_S + 60}));
    assert_eq!(result(&jwt(keys, None), &token), want, "{header}");
}

#[test]
fn every_algorithm_is_checked_with_its_key() {
    let keys = [rsa(), p256(), ed25519()];
    for algorithm in ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "EdDSA", "Ed25519"] {
        check_header(&keys, &json!({"alg": algorithm, "kid": key_for(algorithm)}), Ok(()));
        check_header(&keys, &json!({"alg": algorithm}), Ok(()));
        let others: Vec<Value> = keys.iter().filter(|key| key["kid"] != key_for(algorithm)).cloned().collect();
        check_header(&others, &json!({"alg": algorithm}), Err(TokenFault::UnknownKey));
    }
}

#[test]
fn claims_are_returned_as_they_are() {
    let claims = json!({
        "exp": NOW_S + 60, "sub": "alice", "large": u64::MAX, "low": i64::MIN, "half": 0.5, "groups": ["a", {"b": null}],
    });
    let token = sign(&json!({"alg": "ES256"}), &claims);
    let verified = jwt(&[p256()], None).verify(&token, now()).unwrap();
    assert_eq!(*verified.claims, claims);
    assert_eq!(verified.expires, Some(now() + Duration::from_secs(60)));
    assert!(!format!("{verified:?}").contains("alice"));
}

#[test]
fn examples_of_the_rfcs_verify() {
    const PAYLOAD: &str =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let at = UNIX_EPOCH + Duration::from_secs(1_300_819_379);
    // RFC 7515 appendices A.2 and A.3.
    let rs256 = format!(
        "eyJhbGciOiJSUzI1NiJ9.{PAYLOAD}.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5Y\
         Kt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0Gar\
         ZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWk\
         WywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
    );
    let es256 = format!(
        "eyJhbGciOiJFUzI1NiJ9.{PAYLOAD}.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6N\
         U1Q"
    );
    for token in [&rs256, &es256] {
        let verified = jwt(&[rsa(), p256()], Some("joe")).verify(token, at).unwrap();
        assert_eq!(*verified.claims, json!({"iss": "joe", "exp": 1_300_819_380, "http://example.com/is_root": true}));
    }
    // RFC 8037 appendix A.4, whose payload is a text.
    let (message, signature) = (
        "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
        "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
    );
    let verifies = |message: &str| {
        let key = key::Key::read(&ed25519()).unwrap();
        key.verifies(algorithm::Algorithm::Ed25519, message.as_bytes(), &decode(signature))
    };
    assert!(verifies(message));
    assert!(!verifies(&message.replace("pbmc", "pbmd")));
}

#[test]
fn wrong_claims_are_refused() {
    let right = json!({"iss": ISSUER, "exp": NOW_S + 60});
    let with = |name: &str, value: Value| {
        let mut claims = right.clone();
        claims[name] = value;
        claims
    };
    let without = |name: &str| {
        let mut claims = right.clone();
        claims.as_object_mut().unwrap().remove(name);
        claims
    };
    let half = |seconds: i64| f64::from(i32::try_from(seconds).unwrap()) + 0.5;
    let now_s = i64::try_from(NOW_S).unwrap();
    check_claims(&right, Ok(()));
    for expired in [json!(NOW_S - 30), json!(0), json!(-1), json!(half(now_s - 31)), json!(-1e300), json!(i64::MIN)] {
        check_claims(&with("exp", expired), Err(TokenFault::Expired));
    }
    for valid in [json!(NOW_S - 29), json!(half(now_s - 30)), json!(u64::MAX), json!(1e300)] {
        check_claims(&with("exp", valid), Ok(()));
    }
    for early in [json!(NOW_S + 31), json!(half(now_s + 30)), json!(u64::MAX), json!(1e300)] {
        check_claims(&with("nbf", early), Err(TokenFault::NotYet));
    }
    for valid in [json!(NOW_S + 30), json!(half(now_s + 29)), json!(0), json!(-1)] {
        check_claims(&with("nbf", valid), Ok(()));
    }
    for no_time in [json!("1900000000"), json!(null), json!(true), json!([]), json!({"seconds": 1})] {
        check_claims(&with("exp", no_time.clone()), Err(TokenFault::Malformed));
        check_claims(&with("nbf", no_time), Err(TokenFault::Malformed));
    }
    check_claims(&without("exp"), Err(TokenFault::Malformed));
    let others = [
        json!("https://other.example"),
        json!(format!("{ISSUER}/")),
        json!(ISSUER.to_uppercase()),
        json!([ISSUER]),
        json!(null),
        json!(""),
    ];
    for other in others {
        check_claims(&with("iss", other), Err(TokenFault::Issuer));
    }
    check_claims(&without("iss"), Err(TokenFault::Issuer));
    for no_object in [json!([right]), json!("text"), json!(null), json!(1)] {
        check_claims(&no_object, Err(TokenFault::Malformed));
    }
}

#[test]
fn wrong_headers_are_refused() {
    let keys = [rsa(), p256(), ed25519()];
    for (header, want) in [
        (json!({"alg": "none"}), TokenFault::Malformed),
        (json!({"alg": "none", "kid": "rsa"}), TokenFault::Malformed),
        (json!({"alg": "HS256", "kid": "rsa"}), TokenFault::Malformed),
        (json!({"alg": "RS256", "kid": "rsa", "crit": ["exp"]}), TokenFault::Malformed),
        (json!({"alg": "RS256", "kid": "rsa", "crit": []}), TokenFault::Malformed),
        (json!({"alg": "RS256", "kid": "rsa", "crit": null}), TokenFault::Malformed),
        (json!({"alg": "RS256", "kid": 1}), TokenFault::Malformed),
        (json!({"alg": "RS256", "kid": "RSA"}), TokenFault::UnknownKey),
        (json!({"alg": "RS256", "kid": ""}), TokenFault::UnknownKey),
        (json!({"alg": "RS256", "kid": "p256"}), TokenFault::UnknownKey),
        (json!({"alg": "ES256", "kid": "rsa"}), TokenFault::UnknownKey),
    ] {
        check_header(&keys, &header, Err(want));
    }
    // The header names another algorithm than that of the signature.
    for (named, used, want) in [
        ("rs256", "RS256", TokenFault::Malformed),
        ("NONE", "none", TokenFault::Malformed),
        ("ES256K", "ES256", TokenFault::Malformed),
        ("ES384", "ES256", TokenFault::Malformed),
        ("RS384", "RS256", TokenFault::Signature),
        ("PS256", "RS256", TokenFault::Signature),
        ("RS256", "HS256", TokenFault::Signature),
        ("RS256", "none", TokenFault::Signature),
    ] {
        let claims = json!({"exp": NOW_S + 60}).to_string();
        let token = sign_as(used, &json!({"alg": named, "kid": "rsa"}), claims.as_bytes());
        assert_eq!(result(&jwt(&keys, None), &token), Err(want), "{named} for {used}");
    }
    let no_keys = Jwt { keys: None, ..jwt(&keys, None) };
    let token = sign(&json!({"alg": "RS256"}), &json!({"exp": NOW_S + 60}));
    assert_eq!(result(&no_keys, &token), Err(TokenFault::NoKeys));
}

#[test]
fn other_forms_than_the_compact_one_are_refused() {
    let token = sign(&json!({"alg": "EdDSA", "kid": "ed25519"}), &json!({"exp": NOW_S + 60}));
    let [header, payload, signature] = token.split('.').collect::<Vec<_>>().try_into().unwrap();
    let malformed = [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        header.to_owned(),
        format!("{header}.{payload}"),
        format!("{header}.{payload}."),
        format!(".{payload}.{signature}"),
        format!("{header}.{payload}.{signature}=="),
        format!("{header}.{payload}.{signature}.{signature}.{signature}"),
        format!(" {token}"),
        format!("{token}\n"),
        json!({"protected": header, "payload": payload, "signature": signature}).to_string(),
        format!("{}.{payload}.{signature}", encode(r#"{"alg":"EdDSA","alg":"EdDSA","kid":"ed25519"}"#)),
        format!("{}.{payload}.{signature}", encode(r#"{"alg":["EdDSA"]}"#)),
        format!("{}.{payload}.{signature}", encode("[]")),
        format!("{}.{payload}.{signature}", encode(b"{\"alg\":\"EdDSA\xff\"}")),
        format!("{}.{payload}.{signature}", encode("[".repeat(10_000))),
        "A".repeat(20_000),
    ];
    for wrong in malformed {
        let got = result(&jwt(&[ed25519()], None), &wrong);
        assert!(matches!(got, Err(TokenFault::Malformed | TokenFault::Signature)), "{got:?} for {wrong:.80}");
    }
    for not_json in [&b"{"[..], b"", b"{\"exp\":1e999}", b"\xff\xfe", b"{\"exp\":1800000060}x"] {
        let token = sign_as("EdDSA", &json!({"alg": "EdDSA", "kid": "ed25519"}), not_json);
        assert_eq!(result(&jwt(&[ed25519()], None), &token), Err(TokenFault::Malformed));
    }
    let of_bytes = |padding: usize| {
        let claims = json!({"exp": NOW_S + 60, "padding": "x".repeat(padding)});
        result(&jwt(&[ed25519()], None), &sign(&json!({"alg": "EdDSA"}), &claims))
    };
    assert_eq!(of_bytes(12_000), Ok(()));
    assert_eq!(of_bytes(12_300), Err(TokenFault::Malformed), "over 16 KiB");
}

#[test]
fn a_key_is_used_for_what_it_is_meant() {
    let with = |mut key: Value, name: &str, value: Value| {
        key[name] = value;
        key
    };
    let [rs256, rs384] = ["RS256", "RS384"].map(|algorithm| json!({"alg": algorithm}));
    check_header(&[with(rsa(), "alg", json!("RS256"))], &rs256, Ok(()));
    check_header(&[with(rsa(), "alg", json!("RS256"))], &rs384, Err(TokenFault::UnknownKey));
    check_header(&[with(rsa(), "use", json!("sig"))], &rs256, Ok(()));
    check_header(&[with(rsa(), "key_ops", json!(["sign", "verify"]))], &rs256, Ok(()));
    check_header(&[with(rsa(), "n", json!(encode([vec![0], decode(N)].concat())))], &rs256, Ok(()));
    check_header(&[with(ed25519(), "alg", json!("Ed25519"))], &json!({"alg": "EdDSA"}), Ok(()));

    let modulus = |bits: usize| {
        let mut bytes = vec![0xff; bits.div_ceil(8)];
        bytes[0] >>= bytes.len() * 8 - bits;
        with(rsa(), "n", json!(encode(bytes)))
    };
    for usable in [modulus(2048), modulus(4096), with(rsa(), "d", json!("private"))] {
        assert!(key_set(std::slice::from_ref(&usable)).is_ok(), "{usable}");
    }
    let short = encode(&decode(EC_X)[1..]);
    for unusable in [
        json!({"kty": "oct", "k": N}),
        json!({"kty": "oct", "k": N, "alg": "HS256"}),
        json!({"kty": "EC", "crv": "secp256k1", "x": EC_X, "y": EC_Y}),
        json!({"kty": "EC", "crv": "P-384", "x": encode([1; 48]), "y": encode([1; 48])}),
        json!({"kty": "EC", "crv": "P-256", "x": EC_X}),
        json!({"kty": "EC", "crv": "P-256", "x": short, "y": EC_Y}),
        json!({"kty": "OKP", "crv": "X25519", "x": ED_X}),
        json!({"kty": "OKP", "crv": "Ed25519", "x": encode(decode(N))}),
        json!({"kty": "RSA", "n": N}),
        json!({"kty": "RSA", "n": "", "e": "AQAB"}),
        json!({"kty": "RSA", "n": "AAAA", "e": "AQAB"}),
        json!({"kty": "RSA", "n": N, "e": encode([1; 5])}),
        json!({"kty": "RSA", "n": format!("{N}!"), "e": "AQAB"}),
        json!({"n": N, "e": "AQAB"}),
        json!("text"),
        json!(null),
        modulus(2047),
        modulus(4097),
        with(rsa(), "alg", json!("HS256")),
        with(rsa(), "alg", json!("ES256")),
        with(rsa(), "alg", json!("RSA-OAEP")),
        with(rsa(), "alg", json!(1)),
        with(rsa(), "use", json!("enc")),
        with(rsa(), "key_ops", json!(["sign"])),
        with(rsa(), "kid", json!(7)),
    ] {
        assert_eq!(key_set(std::slice::from_ref(&unusable)), Err(KeySetFault::NoUsableKey), "{unusable}");
        check_header(&[unusable, rsa()], &rs256, Ok(()));
    }
}

#[test]
fn key_sets_are_read_within_limits() {
    for no_set in ["", "{", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":null}"#, r#""keys""#] {
        assert_eq!(KeySet::read(no_set.as_bytes()), Err(KeySetFault::Form), "{no_set}");
    }
    assert_eq!(key_set(&[]), Err(KeySetFault::NoUsableKey));
    assert_eq!(key_set(&vec![ed25519(); 100]).map(|keys| keys.len()), Ok(100));
    assert_eq!(key_set(&vec![ed25519(); 101]), Err(KeySetFault::Number));
    assert_eq!(key_set(&[rsa(), p256()]), key_set(&[rsa(), json!({"kty": "oct"}), p256()]));
    assert_ne!(key_set(&[rsa()]), key_set(&[p256()]));
}

#[test]
fn a_key_set_is_outdated_until_it_is_asked() {
    let keys = key_set(&[rsa()]).unwrap();
    assert!(!keys.take_unknown_key());
    keys.note_unknown_key();
    keys.note_unknown_key();
    assert_eq!(Ok(&keys), key_set(&[rsa()]).as_ref(), "it is no part of the value");
    assert!(keys.take_unknown_key());
    assert!(!keys.take_unknown_key());
}

#[test]
fn a_token_without_a_key_id_is_tried_with_four_keys() {
    let other = |id: usize| json!({"kty": "OKP", "kid": id.to_string(), "crv": "Ed25519", "x": encode([7; 32])});
    let header = json!({"alg": "EdDSA"});
    let with_others = |number: usize| {
        let mut keys: Vec<Value> = (0..number).map(other).collect();
        keys.extend([rsa(), p256(), ed25519()]);
        keys
    };
    check_header(&with_others(3), &header, Ok(()));
    check_header(&with_others(4), &header, Err(TokenFault::UnknownKey));
    check_header(&with_others(50), &json!({"alg": "EdDSA", "kid": "ed25519"}), Ok(()));
}
