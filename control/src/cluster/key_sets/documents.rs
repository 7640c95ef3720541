//! The documents that lead to keys: a key set (RFC 7517 section 5), or the discovery document of an issuer that names
//! one (OpenID Connect Discovery 1.0 sections 3 and 4).

use serde::Deserialize;
use tidegate_config::model::auth::{KeySet, KeySource};

use super::FetchedSet;
use super::client::KeyClient;

/// The members of a discovery document that are read.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
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
            let url = key_set_url(&discovered, issuer).map_err(|why| format!("{document}: {why}"))?;
            client.get(&url).await.map_err(|why| format!("its key set: {why}"))?
        }
    };
    let keys = KeySet::read(&text).map_err(|fault| format!("this is no key set: {fault}"))?;
    Ok(FetchedSet { keys, text })
}

/// The URL of the key set in the discovery document of an issuer.
fn key_set_url(document: &[u8], issuer: &str) -> Result<String, &'static str> {
    let document: Discovery =
        serde_json::from_slice(document).map_err(|_malformed| "it is no discovery document in JSON")?;
    if document.issuer != issuer {
        return Err("its issuer is another one than this URL");
    }
    if issuer.starts_with("https:") && !document.jwks_uri.starts_with("https:") {
        return Err("its jwks_uri is not https");
    }
    Ok(document.jwks_uri)
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
            assert_eq!(key_set_url(document.as_bytes(), issuer).as_deref().map_err(|why| *why), want, "{document}");
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
    fn sources_are_found_again_by_their_names() {
        for source in [KeySource::Jwks("http://a/b c".into()), KeySource::Issuer("https://a".into())] {
            assert_eq!(kept_source(&kept_name(&source)), Some(source));
        }
        assert_eq!(kept_source("http://a"), None);
    }
}
