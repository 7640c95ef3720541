//! Fills what the rules of an AuthPolicy need at present: API keys in Secrets, keys of issuers of tokens, the addresses
//! of servers, and the secrets that these are shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::auth::{
    AuthEntry, AuthRule, Authentication, AuthenticationMethod, CallCredential, CallCredentialSource, CallPath,
    CallServer, ClientCredentials, HttpRule, Introspection, Jwt, KeySource, Metadata, SecretText, UserInfo,
};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::kuadrant::AuthPolicy;

use super::keys::{api_keys, key_set, shared};
use super::secrets::PolicySecret;
use super::servers::found;
use crate::sources::reader::Reader;

/// Fills the rules of a policy. The findings are about what a rule lacks at present.
pub(super) fn filled(reader: &mut Reader<'_>, policy: &Arc<AuthPolicy>) -> (Arc<AuthPolicy>, Vec<Finding>) {
    let Ok(block) = &policy.rules else { return (Arc::clone(policy), Vec::new()) };
    let mut filling = Filling {
        reader,
        policy,
        own: ObjectRef::new(Kind::AuthPolicy, policy.age.name.clone()),
        findings: Vec::new(),
        unusable: policy.unusable.to_vec(),
    };
    let mut entries: BTreeMap<Arc<str>, Arc<AuthEntry>> = BTreeMap::new();
    for (key, entry) in &block.entries {
        entries.extend(filling.entry(key, entry).map(|entry| (Arc::clone(key), Arc::new(entry))));
    }
    let Filling { findings, unusable, .. } = filling;
    if entries.is_empty() {
        return (Arc::clone(policy), findings);
    }
    let mut policy = AuthPolicy::clone(policy);
    policy.unusable = unusable.into();
    policy.rules.iter_mut().for_each(|block| block.entries.extend(std::mem::take(&mut entries)));
    (Arc::new(policy), findings)
}

/// The rules of one policy on their way.
struct Filling<'f, 'w> {
    reader: &'f mut Reader<'w>,
    policy: &'f AuthPolicy,
    own: ObjectRef,
    findings: Vec<Finding>,
    unusable: Vec<String>,
}

/// A rule of a policy, and a field of it.
#[derive(Clone, Copy)]
struct Place<'p> {
    /// The key of its entry.
    key: &'p Arc<str>,
    /// A field, such as `http.oauth2`.
    field: &'p str,
}

impl Place<'_> {
    /// The whole field, without the block of the policy.
    fn name(self) -> String {
        format!("rules.{}].{}", self.key.replacen('#', "[", 1), self.field)
    }
}

impl Filling<'_, '_> {
    /// A rule with what it needs; `None` if it needs nothing.
    fn entry(&mut self, key: &Arc<str>, entry: &AuthEntry) -> Option<AuthEntry> {
        match entry {
            AuthEntry::Authentication(rule) => match &rule.rule.method {
                AuthenticationMethod::ApiKey(_) => {
                    let place = Place { key, field: "apiKey" };
                    let method = self.api_keys(place);
                    Some(method.map_or_else(|why| self.closed(place, entry, &why), |keys| with_method(rule, keys)))
                }
                AuthenticationMethod::Jwt(jwt) => {
                    let place = Place { key, field: "jwt" };
                    let method = self.jwt(place, jwt);
                    Some(method.map_or_else(|why| self.closed(place, entry, &why), |keys| with_method(rule, keys)))
                }
                AuthenticationMethod::Introspection(introspection) => {
                    let filled = self.introspection(key, introspection);
                    Some(with_method(rule, AuthenticationMethod::Introspection(filled)))
                }
                AuthenticationMethod::Anonymous
                | AuthenticationMethod::Plain(_)
                | AuthenticationMethod::TokenReview { .. } => None,
            },
            AuthEntry::Metadata(rule) => {
                let filled = match &rule.rule {
                    Metadata::Http(http) => Metadata::Http(self.http(key, http)),
                    Metadata::UserInfo(info) => Metadata::UserInfo(self.user_info(key, info)),
                };
                Some(AuthEntry::Metadata(Arc::new(AuthRule { rule: filled, ..AuthRule::clone(rule) })))
            }
            AuthEntry::Callback(rule) => {
                let filled = self.http(key, &rule.rule);
                Some(AuthEntry::Callback(Arc::new(AuthRule { rule: filled, ..AuthRule::clone(rule) })))
            }
            AuthEntry::Authorization(_)
            | AuthEntry::Success(_)
            | AuthEntry::Unauthenticated(_)
            | AuthEntry::Unauthorized(_)
            | AuthEntry::Unusable(_) => None,
        }
    }

    fn api_keys(&mut self, place: Place<'_>) -> Result<AuthenticationMethod, String> {
        let selector = self.policy.api_keys.get(place.key);
        let (keys, told) = api_keys(self.reader, &self.own, selector, &place.name())?;
        self.findings.extend(told);
        Ok(AuthenticationMethod::ApiKey(shared(self.reader, &self.own, place.key, keys)))
    }

    fn jwt(&mut self, place: Place<'_>, jwt: &Jwt) -> Result<AuthenticationMethod, String> {
        let (keys, fault) = key_set(self.reader, &self.own.name.namespace, &jwt.source)?;
        if let Some(fault) = fault {
            let why = format!("it accepts no token, because its keys cannot be fetched: {fault}");
            self.without_effect(place, jwt.source.url(), why);
        }
        Ok(AuthenticationMethod::Jwt(Jwt { keys, ..jwt.clone() }))
    }

    /// The entry in place of a rule that cannot be used.
    fn closed(&mut self, place: Place<'_>, entry: &AuthEntry, why: &str) -> AuthEntry {
        let (field, name) = (place.name(), entry.id().name.to_string());
        self.unusable.push(format!("{field}: {name:?} {why}"));
        let unusable = entry.unusable(format!("{field} {why}"));
        let problem = Problem::AccessClosed { value: name, why: why.to_owned() };
        self.findings.push(Finding::new(self.own.clone(), field, problem));
        unusable
    }

    fn introspection(&mut self, key: &Arc<str>, of: &Introspection) -> Introspection {
        let server = self.server(Place { key, field: "oauth2Introspection.endpoint" }, &of.server);
        let secret = self.policy.secrets.get(key);
        let client = secret.and_then(|named| {
            let place = Place { key, field: "oauth2Introspection.credentialsRef" };
            let client = PolicySecret { policy: &self.own.name, named }.client(self.reader);
            self.secret(place, named.name(), client, "it accepts no token")
        });
        Introspection { server, client, ..of.clone() }
    }

    fn http(&mut self, key: &Arc<str>, http: &HttpRule) -> HttpRule {
        let field = match &http.path {
            CallPath::Pieces(_) => "http.url",
            CallPath::Expression(_) => "http.urlExpression",
        };
        let server = self.server(Place { key, field }, &http.server);
        let credential = http.credential.as_ref().map(|credential| {
            let source = match &credential.source {
                CallCredentialSource::Secret(_) => {
                    CallCredentialSource::Secret(self.entry_of(Place { key, field: "http.sharedSecretRef" }))
                }
                CallCredentialSource::OAuth2(client) => {
                    let server = self.server(Place { key, field: "http.oauth2.tokenUrl" }, &client.server);
                    let secret = self.entry_of(Place { key, field: "http.oauth2.clientSecretRef" });
                    let client = ClientCredentials { server, secret, ..ClientCredentials::clone(client) };
                    CallCredentialSource::OAuth2(Arc::new(client))
                }
            };
            CallCredential { source, place: credential.place.clone() }
        });
        HttpRule { server, credential, ..http.clone() }
    }

    /// Claims come from the URL in the rule, or from the one that the issuer of the tokens has in its discovery
    /// document.
    fn user_info(&mut self, key: &Arc<str>, info: &UserInfo) -> UserInfo {
        let Some(source) = &info.identity_source else {
            let place = Place { key, field: "userInfo.userInfoUrl" };
            let server = info.server.as_ref().map(|server| self.server(place, server));
            return UserInfo { server, ..info.clone() };
        };
        let place = Place { key, field: "userInfo.identitySource" };
        let none = UserInfo { server: None, ..info.clone() };
        let Some(issuer) = issuer_of(self.policy, source) else { return none };
        // Beyond the limit of a namespace the rule of the tokens is closed, and says so.
        let Ok((keys, fault)) = key_set(self.reader, &self.own.name.namespace, &issuer) else { return none };
        let Some(keys) = keys else {
            if let Some(fault) = fault {
                let why = format!("it fetches nothing, because the issuer cannot be asked for the URL: {fault}");
                self.without_effect(place, source, why);
            }
            return none;
        };
        let Some(url) = keys.user_info() else {
            let why = "it fetches nothing, because the discovery document of the issuer has no userinfo_endpoint";
            self.without_effect(place, source, why.to_owned());
            return none;
        };
        match CallServer::of_url(url) {
            Ok((server, path)) => UserInfo { server: Some(self.server(place, &server)), path, ..info.clone() },
            Err(why) => {
                let why = format!("it fetches nothing, because the userinfo_endpoint of the issuer {why}");
                self.without_effect(place, source, why);
                none
            }
        }
    }

    fn entry_of(&mut self, place: Place<'_>) -> Option<SecretText> {
        let named = self.policy.secrets.get(place.key)?;
        let text = PolicySecret { policy: &self.own.name, named }.entry(self.reader);
        self.secret(place, named.name(), text, "no request is made")
    }

    /// The text of a Secret, or a finding.
    fn secret<T>(&mut self, place: Place<'_>, secret: &str, text: Result<T, String>, effect: &str) -> Option<T> {
        text.map_err(|why| self.without_effect(place, secret, format!("{effect}, because {why}"))).ok()
    }

    fn server(&mut self, place: Place<'_>, server: &CallServer) -> CallServer {
        let found = found(self.reader, &self.own.name.namespace, server);
        let finding = |problem| Finding::new(self.own.clone(), place.name(), problem);
        self.findings.extend(found.problems.into_iter().map(finding));
        found.server
    }

    fn without_effect(&mut self, place: Place<'_>, value: &str, why: String) {
        let problem = Problem::WithoutEffect { value: value.to_owned(), why };
        self.findings.push(Finding::new(self.own.clone(), place.name(), problem));
    }
}

/// The issuer of the tokens that a rule of authentication accepts.
fn issuer_of(policy: &AuthPolicy, rule: &str) -> Option<KeySource> {
    let block = policy.rules.as_ref().ok()?;
    let rule = block.entries.get(&*format!("authentication#{rule}"))?.authentication()?;
    let AuthenticationMethod::Jwt(jwt) = &rule.rule.method else { return None };
    Some(jwt.source.clone())
}

fn with_method(rule: &AuthRule<Authentication>, method: AuthenticationMethod) -> AuthEntry {
    let rule = AuthRule { rule: Authentication { method, ..rule.rule.clone() }, ..AuthRule::clone(rule) };
    AuthEntry::Authentication(Arc::new(rule))
}
