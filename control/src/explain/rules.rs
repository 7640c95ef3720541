//! The rules of authentication and authorisation on the path of a request.

use std::fmt;

use serde::Serialize;
use tidegate_config::model::auth::{
    Authentication, AuthenticationMethod, Authorization, CallServer, Denial, HttpRule, KeySource, Metadata, PathAuth,
    RuleId, Success, SuccessTarget, UserInfo,
};
use tidegate_config::object::ObjectRef;

/// A rule in effect. It tells neither keys nor values, which may be secrets.
#[derive(Debug, Serialize)]
pub struct RuleView {
    /// Its section.
    pub section: &'static str,
    /// Its name in the section.
    pub name: String,
    /// The policy that declares it.
    pub policy: ObjectRef,
    /// Whether it refuses no request.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
    /// What it does.
    pub does: String,
}

impl RuleView {
    /// The rules of a path, in the order in which they are evaluated.
    pub(super) fn all(auth: &PathAuth) -> Vec<Self> {
        let unusable = auth.unusable.iter();
        let unusable =
            unusable.map(|rule| Self::of("unusable", rule.id(), format!("refuses every request: {}", rule.rule.why)));
        let authentication = auth.authentication.iter();
        let authentication =
            authentication.map(|rule| Self::of("authentication", rule.id(), authentication_of(&rule.rule)));
        let metadata = auth.metadata.iter().map(|rule| Self::of("metadata", rule.id(), metadata_of(&rule.rule)));
        let authorization = auth.authorization.iter();
        let authorization =
            authorization.map(|rule| Self::of("authorization", rule.id(), authorization_of(&rule.rule)));
        let success = auth.success.iter().map(|rule| Self::of("response.success", rule.id(), success_of(&rule.rule)));
        let denials = [
            ("response.unauthenticated", &auth.unauthenticated, 401),
            ("response.unauthorized", &auth.unauthorized, 403),
        ];
        let denials = denials.into_iter().filter_map(|(section, rule, usual)| {
            rule.as_ref().map(|rule| Self::of(section, rule.id(), denial_of(&rule.rule, usual)))
        });
        let callbacks = auth.callbacks.iter().map(|rule| Self::of("callbacks", rule.id(), callback_of(&rule.rule)));
        let deciding = unusable.chain(authentication).chain(metadata).chain(authorization);
        deciding.chain(success).chain(denials).chain(callbacks).collect()
    }

    fn of(section: &'static str, id: RuleId<'_>, does: String) -> Self {
        let RuleId { policy, name, shadow } = id;
        Self { section, name: name.to_string(), policy: policy.clone(), shadow, does }
    }
}

fn authentication_of(Authentication { credentials, method, .. }: &Authentication) -> String {
    match method {
        AuthenticationMethod::Anonymous => "accepts every client".to_owned(),
        AuthenticationMethod::Plain(_) => "takes the identity from the request".to_owned(),
        AuthenticationMethod::ApiKey(keys) => format!("accepts API keys ({}) in {credentials}", keys.0.len()),
        AuthenticationMethod::Jwt(jwt) => {
            let (KeySource::Jwks(url) | KeySource::Issuer(url)) = &jwt.source;
            let none = if jwt.keys.is_none() { ", once its keys are fetched" } else { "" };
            format!("accepts tokens of {url} in {credentials}{none}")
        }
        AuthenticationMethod::Introspection(of) => {
            let none = if of.client.is_none() { ", once its Secret is there" } else { "" };
            format!("asks {} about the token in {credentials}{}{none}", of.server, resolving(&of.server))
        }
        AuthenticationMethod::TokenReview { .. } => format!("asks the API server about the token in {credentials}"),
    }
}

fn authorization_of(rule: &Authorization) -> String {
    match rule {
        Authorization::Patterns(patterns) => format!("requires patterns ({})", patterns.len()),
        Authorization::AccessReview(_) => "asks the API server whether the client may do this".to_owned(),
    }
}

fn metadata_of(rule: &Metadata) -> String {
    match rule {
        Metadata::Http(http) => format!("fetches facts from {}{}", http.server, resolving(&http.server)),
        Metadata::UserInfo(UserInfo { server: Some(server), .. }) => {
            format!("fetches claims about the user from {server}{}", resolving(server))
        }
        Metadata::UserInfo(UserInfo { server: None, .. }) => {
            "fetches claims about the user, once its issuer has told where".to_owned()
        }
    }
}

fn callback_of(http: &HttpRule) -> String {
    format!("tells {} of the decision{}", http.server, resolving(&http.server))
}

fn resolving(server: &CallServer) -> &'static str {
    if server.target.is_none() { ", once its host is looked up" } else { "" }
}

fn success_of(Success { target, .. }: &Success) -> String {
    match target {
        SuccessTarget::Header(name) => format!("sets the header {name}"),
        SuccessTarget::Filter(name) => format!("gives limits auth.{name}"),
    }
}

fn denial_of(denial: &Denial, usual: u16) -> String {
    format!("answers {}", denial.status.unwrap_or(usual))
}

impl fmt::Display for RuleView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { section, name, policy, shadow, does } = self;
        let name = if section.ends_with(&**name) { String::new() } else { format!(" {name}") };
        let shadow = if *shadow { ", shadow" } else { "" };
        write!(f, "{section}{name}: {does}{shadow} ({policy})")
    }
}
