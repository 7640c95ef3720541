//! The documents that lead to keys: a key set (RFC 7517 section 5), or the discovery document of an issuer that names
//! one (OpenID Connect Discovery 1.0 sections 3 and 4).

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use tidegate_config::model::auth::{KeySet, KeySource};

use super::FetchedSet;
use super::client::KeyClient;

/// The member of a key set with the URL where the issuer tells claims about users.
const USER_INFO: &str = "userinfo_endpoint";
/// The limit of that URL in bytes.
const URL_BYTES_MAX: usize = 2048;

/// The members of a discovery document that are read.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
    userinfo_endpoint: Option<Value>,
}

/// Fetches the keys of a source.
///
/// # Errors
/// The reason, in one line, without anything of what was received.
pub(super) async fn fetch(client: &KeyClient, source: &KeySource) -> Result<FetchedSet, String> {
    let text = match source {
        KeySource::Jwks(url) => client.get(url).await?,
        KeySource::Issuer(issuer) => {
            // A query or a fragment would swallow the path that is added.
            if issuer.contains(['?', '#']) {
                return Err("the URL of an issuer has no query and no fragment".to_owned());
            }
            let document = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
            let discovered = client.get(&document).await.map_err(|why| format!("{document}: {why}"))?;
            let named = of_issuer(&discovered, issuer).map_err(|why| format!("{document}: {why}"))?;
            let text = client.get(&named.jwks_uri).await.map_err(|why| format!("its key set: {why}"))?;
            with_user_info(text, named.userinfo_endpoint)
        }
    };
    let keys = KeySet::read(&text).map_err(|fault| format!("this is no key set: {fault}"))?;
    Ok(FetchedSet { keys, text })
}

/// The URLs in the discovery document of an issuer.
fn of_issuer(document: &[u8], issuer: &str) -> Result<Discovery, &'static str> {
    let mut document: Discovery =
        serde_json::from_slice(document).map_err(|_malformed| "it is no discovery document in JSON")?;
    if document.issuer != issuer {
        return Err("its issuer is another one than this URL");
    }
    if issuer.starts_with("https:") && !document.jwks_uri.starts_with("https:") {
        return Err("its jwks_uri is not https");
    }
    document.userinfo_endpoint = document.userinfo_endpoint.filter(|url| {
        let is_as_safe = |url: &str| !issuer.starts_with("https:") || url.starts_with("https:");
        url.as_str().is_some_and(|url| is_as_safe(url) && url.len() <= URL_BYTES_MAX)
    });
    Ok(document)
}

/// A key set with the URL of the discovery document instead of any of its own: so they are kept and read together.
fn with_user_info(text: Bytes, url: Option<Value>) -> Bytes {
    let Ok(Value::Object(mut set)) = serde_json::from_slice(&text) else { return text };
    set.remove(USER_INFO);
    set.extend(url.map(|url| (USER_INFO.to_owned(), url)));
    Value::Object(set).to_string().into()
}

/// The name of a source in the cache on disk.
pub(super) fn kept_name(source: &KeySource) -> String {
    match source {
        KeySource::Jwks(url) => format!("jwks {url}"),
        KeySource::Issuer(url) => format!("issuer {url}"),
    }
}

/// The source with this name in the cache on disk.
pub(in crate::cluster) fn kept_source(name: &str) -> Option<KeySource> {
    match name.split_once(' ')? {
        ("jwks", url) => Some(KeySource::Jwks(url.into())),
        ("issuer", url) => Some(KeySource::Issuer(url.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discovery_document_is_that_of_its_issuer() {
        let check = |document: &str, issuer: &str, want: Result<&str, &str>| {
            let got = of_issuer(document.as_bytes(), issuer).map(|named| named.jwks_uri);
            assert_eq!(got.as_deref().map_err(|why| *why), want, "{document}");
        };
        let (other, insecure) = ("its issuer is another one than this URL", "its jwks_uri is not https");
        let document = r#"{"issuer":"https://a/","jwks_uri":"https://b/keys","other":[1]}"#;
        check(document, "https://a/", Ok("https://b/keys"));
        check(document, "https://a", Err(other));
        check(document, "http://a/", Err(other));
        check(r#"{"issuer":"https://a","jwks_uri":"http://a/keys"}"#, "https://a", Err(insecure));
        check(r#"{"issuer":"http://a","jwks_uri":"http://a/keys"}"#, "http://a", Ok("http://a/keys"));
        for none in ["", "[]", "{}", r#"{"issuer":"https://a"}"#, r#"{"issuer":["https://a"],"jwks_uri":"https://a"}"#]
        {
            check(none, "https://a", Err("it is no discovery document in JSON"));
        }
    }

    #[test]
    fn the_url_of_claims_is_kept_with_the_keys() {
        let check = |issuer: &str, endpoint: &str, want: Option<&str>| {
            let document = format!(r#"{{"issuer":"{issuer}","jwks_uri":"https://b/keys"{endpoint}}}"#);
            let named = of_issuer(document.as_bytes(), issuer).unwrap();
            let own = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}],"userinfo_endpoint":"https://own/"}"#;
            let set = KeySet::read(&with_user_info(Bytes::from(own), named.userinfo_endpoint)).unwrap();
            assert_eq!((set.len(), set.user_info().map(|url| &**url)), (1, want), "{document}");
        };
        check("https://a", r#","userinfo_endpoint":"https://a/me""#, Some("https://a/me"));
        check("http://a", r#","userinfo_endpoint":"http://a/me""#, Some("http://a/me"));
        check("https://a", r#","userinfo_endpoint":"http://a/me""#, None);
        check("https://a", r#","userinfo_endpoint":null"#, None);
        check("https://a", r#","userinfo_endpoint":["https://a"]"#, None);
        check("https://a", "", None);
        let long = format!(r#","userinfo_endpoint":"https://a/{}""#, "m".repeat(2048));
        check("https://a", &long, None);
        assert_eq!(with_user_info(Bytes::from_static(b"no JSON"), Some("a".into())), "no JSON");
    }

    #[test]
    fn sources_are_found_again_by_their_names() {
        for source in [KeySource::Jwks("http://a/b c".into()), KeySource::Issuer("https://a".into())] {
            assert_eq!(kept_source(&kept_name(&source)), Some(source));
        }
        assert_eq!(kept_source("http://a"), None);
    }
}
