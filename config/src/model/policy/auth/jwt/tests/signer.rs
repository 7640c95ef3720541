//! The other side: tokens that are signed with the private keys of RFC 7515 and RFC 8037.

use ring::rand::SystemRandom;
use ring::rsa::{KeyPair as RsaKeyPair, KeyPairComponents, PublicKeyComponents};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding,
};

use super::*;

/// RFC 7515 appendix A.2.1.
pub(super) const N: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL\
    -yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBE\
    Ma2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb\
    54h4FRWyuXpoQ";
const D: &str = "Eq5xpGnNCivDflJsRQBXHx1hdR1k6Ulwe2JZD50LpXyWPEAeP88vLNO97IjlA7_GQ5sLKMgvfTeXZx9SE-7YwVol2NXOoAJe46sui395IW\
    _GO-pWJ1O0BkTGoVEn2bKVRUCgu-GjBVaYLU6f3l9kJfFNS3E0QbVdxzubSu3Mkqzjkn439X0M_V51gfpRLI9JYanrC4D4qAdGcopV_0ZHHzQlBjudU2Q\
    vXt4ehNYTCBr6XCLQUShb1juUO1ZdiYoFaFQT5Tw8bGUl_x_jTj3ccPDVZFD9pIuhLhBOneufuBiB4cS98l2SR_RQyGWSeWjnczT0QU91p1DhOVRuOopz\
    nQ";
const P: &str = "4BzEEOtIpmVdVEZNCqS7baC4crd0pqnRH_5IB3jw3bcxGn6QLvnEtfdUdiYrqBdss1l58BQ3KhooKeQTa9AB0Hw_Py5PJdTJNPY8cQn7ouZ\
    2KKDcmnPGBY5t7yLc1QlQ5xHdwW1VhvKn-nXqhJTBgIPgtldC-KDV5z-y2XDwGUc";
const Q: &str = "uQPEfgmVtjL0Uyyx88GZFF1fOunH3-7cepKmtH4pxhtCoHqpWmT8YAmZxaewHgHAjLYsp1ZSe7zFYHj7C6ul7TjeLQeZD_YwD66t62wDmpe\
    _HlB-TnBA-njbglfIsRLtXlnDzQkv5dTltRJ11BKBBypeeF6689rjcJIDEz9RWdc";
const DP: &str = "BwKfV3Akq5_MFZDFZCnW-wzl-CCo83WoZvnLQwCTeDv8uzluRSnm71I3QCLdhrqE2e9YkxvuxdBfpT_PI7Yz-FOKnu1R6HsJeDCjn12Sk3\
    vmAktV2zb34MCdy7cpdTh_YVr7tss2u6vneTwrA86rZtu5Mbr1C1XsmvkxHQAdYo0";
const DQ: &str = "h_96-mK1R_7glhsum81dZxjTnYynPbZpHziZjeeHcXYsXaaMwkOlODsWa7I9xXDoRwbKgB719rrmI2oKr6N3Do9U0ajaHF-NKJnwgjMd2w\
    9cjz3_-kyNlxAr2v4IKhGNpmM5iIgOS1VZnOZ68m6_pbLBSp3nssTdlqvd0tIiTHU";
const QI: &str = "IYd7DHOhrWvxkwPQsRM2tOgrjbcrfvtQJipd-DlcxyVuuM9sQLdgjVk2oy26F0EmpScGLq2MowX7fhd_QJQ3ydy5cY7YIBi87w93IKLEdf\
    nbJtoOPLUW0ITrJReOgo1cq9SbsxYawBgfp_gh6A5603k2-ZQwVK0JKSHuLFkuQ3U";

/// RFC 7515 appendix A.3.1.
pub(super) const EC_X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
pub(super) const EC_Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";
const EC_D: &str = "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI";

/// RFC 8037 appendix A.1.
pub(super) const ED_X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
const ED_D: &str = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A";

pub(super) fn decode(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}

pub(super) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The public keys, each with its type as `kid`.
pub(super) fn rsa() -> Value {
    json!({"kty": "RSA", "kid": "rsa", "n": N, "e": "AQAB"})
}

pub(super) fn p256() -> Value {
    json!({"kty": "EC", "kid": "p256", "crv": "P-256", "x": EC_X, "y": EC_Y})
}

pub(super) fn ed25519() -> Value {
    json!({"kty": "OKP", "kid": "ed25519", "crv": "Ed25519", "x": ED_X})
}

/// A token of these parts, with the signature of this algorithm, whatever the header says.
pub(super) fn sign_as(algorithm: &str, header: &Value, claims: &[u8]) -> String {
    let message = format!("{}.{}", encode(header.to_string()), encode(claims));
    let signature = signature(algorithm, message.as_bytes());
    format!("{message}.{}", encode(signature))
}

/// A token with these claims.
pub(super) fn sign(header: &Value, claims: &Value) -> String {
    sign_as(header["alg"].as_str().unwrap(), header, claims.to_string().as_bytes())
}

fn signature(algorithm: &str, message: &[u8]) -> Vec<u8> {
    let padding: &'static dyn RsaEncoding = match algorithm {
        "RS256" => &RSA_PKCS1_SHA256,
        "RS384" => &RSA_PKCS1_SHA384,
        "RS512" => &RSA_PKCS1_SHA512,
        "PS256" => &RSA_PSS_SHA256,
        "PS384" => &RSA_PSS_SHA384,
        "PS512" => &RSA_PSS_SHA512,
        "ES256" => {
            let (x, y) = (decode(EC_X), decode(EC_Y));
            let (rng, point) = (SystemRandom::new(), [&[4], &*x, &*y].concat());
            let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
            let pair = EcdsaKeyPair::from_private_key_and_public_key(algorithm, &decode(EC_D), &point, &rng).unwrap();
            return pair.sign(&rng, message).unwrap().as_ref().into();
        }
        "EdDSA" | "Ed25519" => {
            let pair = Ed25519KeyPair::from_seed_and_public_key(&decode(ED_D), &decode(ED_X)).unwrap();
            return pair.sign(message).as_ref().into();
        }
        "HS256" => {
            // With the public key as the secret: the classic confusion of algorithms.
            let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &decode(N));
            return ring::hmac::sign(&secret, message).as_ref().into();
        }
        "none" => return Vec::new(),
        other => panic!("no key for {other}"),
    };
    let [n, d, p, q, dp, dq, qi] = [N, D, P, Q, DP, DQ, QI].map(decode);
    let (public_key, d_p, d_q) = (PublicKeyComponents { n, e: vec![1, 0, 1] }, dp, dq);
    let pair =
        RsaKeyPair::from_components(&KeyPairComponents { public_key, d, p, q, dP: d_p, dQ: d_q, qInv: qi }).unwrap();
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(padding, &SystemRandom::new(), message, &mut signature).unwrap();
    signature
}
