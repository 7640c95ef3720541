//! Authentication rules.

use std::sync::Arc;

use http::Uri;
use serde_json::value::RawValue;

use super::authorization::review_timeout;
use super::call::{RuleSecret, URL_BYTES_MAX, secret_name, server_of, texts, timeout};
use super::reader::{Place, RuleReader, unsupported};
use super::value::{check_length, header, too_long};
use crate::model::auth::{Authentication, AuthenticationMethod, Credentials, Introspection, Jwt, KeySource};
use crate::project::field::{FindingList, InvalidValue, read, written};
use crate::project::gateway::LabelSelector;
use crate::project::kuadrant::fields::Fields;
use crate::project::kuadrant::policy::fault;

/// The maximum length of an authentication scheme in bytes.
const SCHEME_BYTES_MAX: usize = 64;

impl RuleReader<'_> {
    pub(super) fn authentication(
        &mut self,
        fields: &mut Fields<'_>,
        place: &Place,
    ) -> Result<Authentication, InvalidValue> {
        let credentials = fields.take("credentials");
        let credentials = credentials
            .map_or_else(|| Ok(Credentials::default()), |raw| credentials_of(raw, &fields.at("credentials")))?;
        let defaults = fields.take("defaults");
        let defaults = self.properties(defaults, &fields.at("defaults"))?;
        let overrides = fields.take("overrides");
        let overrides = self.properties(overrides, &fields.at("overrides"))?;
        let (method, raw) = fields.one_of(&[
            "anonymous",
            "apiKey",
            "jwt",
            "plain",
            "oauth2Introspection",
            "kubernetesTokenReview",
            "x509",
        ])?;
        let field = fields.at(method);
        let method = match method {
            "anonymous" => {
                Fields::read(raw, &field)?.end()?;
                AuthenticationMethod::Anonymous
            }
            "apiKey" => {
                let selector = api_key(raw, &field)?;
                self.api_keys.insert(Arc::clone(&place.key), selector);
                AuthenticationMethod::ApiKey(Arc::default())
            }
            "jwt" => AuthenticationMethod::Jwt(self.jwt(raw, &field)?),
            "plain" => AuthenticationMethod::Plain(self.request_value(raw, &field)?),
            "oauth2Introspection" => {
                let (introspection, secret) = introspection(raw, &field)?;
                self.secrets.insert(Arc::clone(&place.key), secret);
                AuthenticationMethod::Introspection(introspection)
            }
            "kubernetesTokenReview" => token_review(raw, &field, self.findings)?,
            _ => return Err(unsupported(&field, raw)),
        };
        Ok(Authentication { credentials, method, defaults, overrides })
    }

    fn jwt(&mut self, raw: &RawValue, field: &str) -> Result<Jwt, InvalidValue> {
        let mut fields = Fields::read(raw, field)?;
        let (source, raw) = fields.one_of(&["jwksUrl", "issuerUrl"])?;
        let url = url(&read::<String>(raw, &fields.at(source))?, &fields.at(source))?;
        let own: Option<String> = fields.value("issuer")?.filter(|issuer: &String| !issuer.is_empty());
        if let Some(issuer) = own.as_ref().filter(|issuer| issuer.len() > URL_BYTES_MAX) {
            return Err(too_long(&fields.at("issuer"), issuer.len(), URL_BYTES_MAX));
        }
        for (name, unit) in [("ttl", "s"), ("timeout", "ms")] {
            if let Some(number) = fields.value::<i64>(name)?.filter(|number| *number != 0) {
                let why = "keys are fetched at the edge's own intervals";
                self.findings.without_effect(&fields.at(name), &format!("{number} {unit}"), why);
            }
        }
        fields.end()?;
        let (source, issuer) = match source {
            "issuerUrl" => (KeySource::Issuer(Arc::clone(&url)), Some(url)),
            _ => (KeySource::Jwks(url), None),
        };
        Ok(Jwt { source, issuer: own.map(Into::into).or(issuer), keys: None })
    }
}

/// The rule, and its Secret.
fn introspection(raw: &RawValue, field: &str) -> Result<(Introspection, RuleSecret), InvalidValue> {
    let mut fields = Fields::read(raw, field)?;
    let endpoint: String = fields.required("endpoint")?;
    let (server, path) = server_of(&endpoint, &fields.at("endpoint"))?;
    let hint = fields.value::<Arc<str>>("tokenTypeHint")?.filter(|hint| !hint.is_empty());
    if let Some(hint) = &hint {
        check_length(hint, &fields.at("tokenTypeHint"))?;
    }
    let mut of_secret = Fields::read(fields.required("credentialsRef")?, &fields.at("credentialsRef"))?;
    let secret = secret_name(&mut of_secret)?;
    of_secret.end()?;
    let timeout = timeout(&mut fields)?;
    fields.end()?;
    let hint = hint.unwrap_or_else(|| "access_token".into());
    Ok((Introspection { server, path, hint, client: None, timeout }, RuleSecret::Client(secret)))
}

fn token_review(raw: &RawValue, field: &str, findings: &mut FindingList) -> Result<AuthenticationMethod, InvalidValue> {
    let mut fields = Fields::read(raw, field)?;
    let audiences = texts(&mut fields, "audiences")?;
    review_timeout(&mut fields, findings)?;
    fields.end()?;
    Ok(AuthenticationMethod::TokenReview { audiences })
}

/// The selector of the Secrets with keys.
fn api_key(raw: &RawValue, field: &str) -> Result<LabelSelector, InvalidValue> {
    let mut fields = Fields::read(raw, field)?;
    let (selector, of_selector) = (fields.required::<&RawValue>("selector")?, fields.at("selector"));
    if fields.value::<bool>("allNamespaces")? == Some(true) {
        let why = "is not supported: only Secrets in the namespace of the policy have its keys";
        return Err(fault(&fields.at("allNamespaces"), "true", why));
    }
    fields.end()?;
    // A misspelt requirement would accept the keys of others.
    let mut known = Fields::read(selector, &of_selector)?;
    let (labels, expressions) = (known.take("matchLabels"), known.take("matchExpressions"));
    known.end()?;
    let selector_of_labels = LabelSelector::read(selector, &of_selector)?;
    if selector_of_labels.is_empty() {
        let value = labels.or(expressions).map_or_else(|| "{}".to_owned(), written);
        return Err(fault(&of_selector, &value, "has no requirement, and would accept every key of the namespace"));
    }
    Ok(selector_of_labels)
}

pub(super) fn credentials_of(raw: &RawValue, field: &str) -> Result<Credentials, InvalidValue> {
    let mut fields = Fields::read(raw, field)?;
    if fields.is_empty() {
        return Ok(Credentials::default());
    }
    let (place, raw) = fields.one_of(&["authorizationHeader", "customHeader", "queryString", "cookie"])?;
    let mut of_place = Fields::read(raw, &fields.at(place))?;
    fields.end()?;
    if place == "authorizationHeader" {
        let (prefix, field) = (of_place.value::<String>("prefix")?, of_place.at("prefix"));
        of_place.end()?;
        // As in Kuadrant, an empty one is none.
        let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) else { return Ok(Credentials::default()) };
        let is_scheme = prefix.len() <= SCHEME_BYTES_MAX && prefix.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_scheme {
            let why = format!("is not an authentication scheme of at most {SCHEME_BYTES_MAX} visible characters");
            return Err(fault(&field, &prefix, &why));
        }
        return Ok(Credentials::Authorization(prefix.into()));
    }
    let (name, field) = (of_place.required::<String>("name")?, of_place.at("name"));
    of_place.end()?;
    check_length(&name, &field)?;
    match place {
        "customHeader" => header(&name, &field).map(Credentials::Header),
        "queryString" => Ok(Credentials::Query(name.into())),
        // RFC 6265 section 4.1.1: the name of a cookie is a token, like that of a header.
        _ if http::HeaderName::from_bytes(name.as_bytes()).is_err() => {
            Err(fault(&field, &name, "is not the name of a cookie"))
        }
        _ => Ok(Credentials::Cookie(name.into())),
    }
}

/// A URL of http or https, without a user and a fragment.
fn url(text: &str, field: &str) -> Result<Arc<str>, InvalidValue> {
    if text.len() > URL_BYTES_MAX {
        return Err(too_long(field, text.len(), URL_BYTES_MAX));
    }
    let is_usable = |uri: &Uri| {
        let scheme = matches!(uri.scheme_str(), Some("http" | "https"));
        let host = uri.host().is_some_and(|host| !host.is_empty());
        scheme && host && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
    };
    let is_url = !text.contains('#') && text.parse::<Uri>().is_ok_and(|uri| is_usable(&uri));
    if !is_url {
        return Err(fault(field, text, "is not a URL of http or https without a user and a fragment"));
    }
    Ok(text.into())
}
