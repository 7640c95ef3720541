//! The decision about a request.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::super::super::condition::Head;
use super::super::super::filter::HeaderEdits;
use super::super::Attributes;
use super::{
    AuthCondition, AuthDenial, AuthDocument, AuthRule, Authentication, AuthenticationMethod, Authorization, Denial,
    Jwt, PathAuth, Success, SuccessForm, SuccessTarget, TokenFault, VerifiedToken, credentials,
};
use crate::object::ObjectRef;

/// The result for an allowed request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuthGrant {
    /// The facts about the client, for the steps after this one.
    pub document: AuthDocument,
    /// The edits of the request to the endpoint. No header that a rule of the path makes is taken from the client.
    pub request: HeaderEdits,
    /// The client, for the log: the claim `sub` of a token, or the name of the Secret of an API key.
    pub user: Option<Box<str>>,
    /// The rule that has identified the client.
    pub by: Option<AuthRuleName>,
    /// The rule in shadow mode that would have refused the request.
    pub shadow: Option<AuthRuleName>,
}

/// A rule, as metrics and the log name it. Printed as `shop/api/partners`: namespace and name of its policy, and its
/// name there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AuthRuleName {
    /// The policy that declares it.
    pub policy: ObjectRef,
    /// Its name.
    pub rule: Arc<str>,
}

impl fmt::Display for AuthRuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.policy.name, self.rule)
    }
}

impl<R> From<&AuthRule<R>> for AuthRuleName {
    fn from(rule: &AuthRule<R>) -> Self {
        Self { policy: rule.policy.clone(), rule: Arc::clone(&rule.name) }
    }
}

/// Whether a rule has a part in a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Applies,
    Skipped,
    /// A condition has no result.
    Failed,
}

/// The verdict of a rule about a request.
enum Said {
    Yes,
    No,
    /// Nothing: its conditions exclude the request.
    Skipped,
}

impl PathAuth {
    /// Returns `true` if a request has something where one of the rules looks for credentials.
    pub fn is_given_credentials<H: Head + ?Sized>(&self, head: &H) -> bool {
        self.authentication.iter().any(|rule| credentials::of(&rule.rule.credentials, head).is_some())
    }

    /// Decides about a request. `verify` checks tokens, as [`Jwt::verify`] does.
    ///
    /// # Errors
    /// The refusal. Whatever has no result refuses the request.
    pub fn decide<H: Head + ?Sized>(
        &self,
        attributes: &Attributes<'_, H>,
        mut verify: impl FnMut(&Jwt, &str, SystemTime) -> Result<Arc<VerifiedToken>, TokenFault>,
    ) -> Result<AuthGrant, AuthDenial> {
        let mut decision =
            Decision { auth: self, attributes, document: AuthDocument::default(), by: None, shadow: None };
        if let Some(rule) = self.unusable.iter().find(|rule| !rule.shadow) {
            return Err(decision.unauthorized(&**rule));
        }
        decision.shadow = self.unusable.first().map(|rule| (&**rule).into());
        decision.authenticate(&mut verify)?;
        let user = decision.document.user();
        decision.authorise()?;
        let set = decision.succeed();
        let Decision { document, by, shadow, .. } = decision;
        let unusable = self.unusable.iter().filter_map(|rule| rule.rule.header.clone());
        let remove = self.success.iter().filter_map(|rule| rule.rule.header().cloned()).chain(unusable).collect();
        Ok(AuthGrant { document, request: HeaderEdits { remove, set, add: Box::default() }, user, by, shadow })
    }
}

/// A decision on its way.
struct Decision<'d, 'a, H: ?Sized> {
    auth: &'d PathAuth,
    attributes: &'d Attributes<'a, H>,
    document: AuthDocument,
    by: Option<AuthRuleName>,
    shadow: Option<AuthRuleName>,
}

impl<H: Head + ?Sized> Decision<'_, '_, H> {
    /// The request with the facts so far.
    fn known(&self) -> Attributes<'_, H> {
        self.attributes.with_auth(&self.document)
    }

    /// Determines the identity.
    fn authenticate(
        &mut self,
        verify: &mut impl FnMut(&Jwt, &str, SystemTime) -> Result<Arc<VerifiedToken>, TokenFault>,
    ) -> Result<(), AuthDenial> {
        let mut refusing: Option<&Arc<AuthRule<Authentication>>> = None;
        for rule in &self.auth.authentication {
            // A rule in shadow mode must not identify a client that enforced rules refuse.
            if rule.shadow && refusing.is_some_and(|before| !before.shadow) {
                break;
            }
            match self.part(rule) {
                Part::Skipped if !self.takes_part(rule) => continue,
                Part::Skipped | Part::Failed => {}
                Part::Applies => {
                    let known = self.identity(&rule.rule, verify).and_then(|identity| self.extended(rule, identity));
                    if let Some(identity) = known {
                        self.document.put_identity(identity);
                        self.by = Some((&**rule).into());
                        return Ok(());
                    }
                }
            }
            refusing = refusing.or(Some(rule));
        }
        match refusing {
            Some(rule) if !rule.shadow => Err(self.unauthenticated(rule)),
            refusing => {
                self.shadow = refusing.map(|rule| (&**rule).into()).or(self.shadow.take());
                self.document.put_identity(anonymous());
                Ok(())
            }
        }
    }

    /// The identity that a rule finds; `None` without valid credentials.
    fn identity(
        &self,
        rule: &Authentication,
        verify: &mut impl FnMut(&Jwt, &str, SystemTime) -> Result<Arc<VerifiedToken>, TokenFault>,
    ) -> Option<Value> {
        let credential = || credentials::of(&rule.credentials, self.attributes.head);
        match &rule.method {
            AuthenticationMethod::Anonymous => Some(anonymous()),
            AuthenticationMethod::Plain(value) => value.json(self.attributes).filter(|value| !value.is_null()),
            AuthenticationMethod::ApiKey(keys) => keys.identity(&credential()?).cloned(),
            AuthenticationMethod::Jwt(jwt) => {
                let verified = verify(jwt, &credential()?, (self.attributes.now)()).ok()?;
                Some(Value::clone(&verified.claims))
            }
        }
    }

    /// An identity with the defaults and overrides of its rule; `None` if one of them has no value.
    fn extended(&self, rule: &AuthRule<Authentication>, identity: Value) -> Option<Value> {
        let Authentication { defaults, overrides, .. } = &rule.rule;
        if defaults.is_empty() && overrides.is_empty() {
            return Some(identity);
        }
        let mut document = self.document.clone();
        document.put_identity(identity.clone());
        let known = self.attributes.with_auth(&document);
        let Value::Object(mut fields) = identity else { return None };
        for (name, value) in defaults {
            if !fields.contains_key(&**name) {
                fields.insert(name.to_string(), value.json(&known)?);
            }
        }
        for (name, value) in overrides {
            fields.insert(name.to_string(), value.json(&known)?);
        }
        Some(Value::Object(fields))
    }

    /// Evaluates the rules that may refuse a client.
    fn authorise(&mut self) -> Result<(), AuthDenial> {
        for rule in &self.auth.authorization {
            match self.allows(rule) {
                Said::Yes => self.document.put("authorization", &rule.name, Value::Bool(true)),
                Said::Skipped => {}
                Said::No if rule.shadow => self.shadow = Some((&**rule).into()),
                Said::No => return Err(self.unauthorized(&**rule)),
            }
        }
        Ok(())
    }

    fn allows(&self, rule: &AuthRule<Authorization>) -> Said {
        match self.part(rule) {
            Part::Skipped => return Said::Skipped,
            Part::Failed => return Said::No,
            Part::Applies => {}
        }
        let known = self.known();
        let Authorization::Patterns(patterns) = &rule.rule;
        if patterns.iter().all(|pattern| pattern.holds(&known) == Some(true)) { Said::Yes } else { Said::No }
    }

    /// Evaluates the rules for an allowed request, and returns the headers. A value that cannot be a header leaves it
    /// out; of several rules for one header or filter the first with a value counts.
    fn succeed(&mut self) -> Box<[(HeaderName, HeaderValue)]> {
        let (mut headers, mut identity) = (Vec::new(), None);
        for rule in &self.auth.success {
            if self.part(rule) != Part::Applies {
                continue;
            }
            let Some(value) = rule.rule.value(&self.known()) else { continue };
            match &rule.rule.target {
                SuccessTarget::Header(name) => {
                    let is_set = headers.iter().any(|(set, _)| set == name);
                    if let Some(text) = HeaderValue::try_from(text_of(&value)).ok().filter(|_| !is_set) {
                        headers.push((name.clone(), text));
                    }
                }
                SuccessTarget::Filter(name) if &**name == "identity" => identity = identity.or(Some(value.clone())),
                SuccessTarget::Filter(_) => {}
            }
            self.document.put("response", rule.rule.name(), value);
        }
        if let Some(identity) = identity {
            self.document.put_identity(identity);
        }
        headers.into()
    }

    /// Whether the policy of a rule has a part in the request, as far as that can be told.
    fn takes_part<R>(&self, rule: &AuthRule<R>) -> bool {
        AuthCondition::all(&rule.policy_when, &self.known()) != Some(false)
    }

    fn part<R>(&self, rule: &AuthRule<R>) -> Part {
        let known = self.known();
        let holds = |conditions: &[AuthCondition]| AuthCondition::all(conditions, &known);
        match (holds(&rule.policy_when), holds(&rule.when)) {
            (Some(false), _) | (Some(true), Some(false)) => Part::Skipped,
            (Some(true), Some(true)) => Part::Applies,
            (None, _) | (_, None) => Part::Failed,
        }
    }

    fn unauthenticated(&self, by: &AuthRule<Authentication>) -> AuthDenial {
        let challenges = self.auth.authentication.iter().filter(|rule| self.takes_part(rule));
        let challenges = challenges.filter_map(|rule| rule.rule.challenge(&rule.name)).collect();
        let denial = self.auth.unauthenticated.as_deref().filter(|rule| self.part(*rule) == Part::Applies);
        AuthDenial::unauthenticated(by.into(), denial.map(|rule| &rule.rule), challenges, &self.known())
    }

    fn unauthorized<R>(&self, by: &AuthRule<R>) -> AuthDenial {
        let denial = self.auth.unauthorized.as_deref().filter(|rule| self.part(*rule) == Part::Applies);
        AuthDenial::unauthorized(by.into(), denial.map(|rule: &AuthRule<Denial>| &rule.rule), &self.known())
    }
}

/// The identity of a client that no rule identifies.
fn anonymous() -> Value {
    Value::Object(Map::from_iter([("anonymous".to_owned(), Value::Bool(true))]))
}

impl Success {
    /// The name of its result.
    fn name(&self) -> &str {
        match &self.target {
            SuccessTarget::Header(name) => name.as_str(),
            SuccessTarget::Filter(name) => name,
        }
    }

    /// The header that it makes.
    pub(super) const fn header(&self) -> Option<&HeaderName> {
        match &self.target {
            SuccessTarget::Header(name) => Some(name),
            SuccessTarget::Filter(_) => None,
        }
    }

    /// Its value for a request; `None` if a part of it has none.
    fn value<H: Head + ?Sized>(&self, attributes: &Attributes<'_, H>) -> Option<Value> {
        match &self.form {
            SuccessForm::Plain(value) => value.json(attributes),
            SuccessForm::Json(properties) => {
                let property =
                    |(name, value): &(Arc<str>, super::AuthValue)| Some((name.to_string(), value.json(attributes)?));
                properties.iter().map(property).collect::<Option<Map<_, _>>>().map(Value::Object)
            }
        }
    }
}

/// A text as it is, any other value as JSON.
pub(super) fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
