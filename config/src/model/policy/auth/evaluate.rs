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
    AuthCall, AuthCondition, AuthDenial, AuthDocument, AuthRule, Authentication, AuthenticationMethod, Authorization,
    CacheKey, CallAnswer, CallFault, CallPhase, CallPlace, Denial, HttpCall, Jwt, KeptAnswer, Metadata, PathAuth,
    PlacedCall, ReplyForm, Success, SuccessForm, SuccessTarget, TokenFault, TokenReview, UserInfo, VerifiedToken,
    credentials,
};
use crate::object::ObjectRef;

/// What is known beyond the request and the rules.
pub trait AuthFacts {
    /// Checks a token, as [`Jwt::verify`] does.
    ///
    /// # Errors
    /// Why it is not accepted.
    fn verify(&mut self, jwt: &Jwt, token: &str, now: SystemTime) -> Result<Arc<VerifiedToken>, TokenFault>;

    /// The answer to the call of a rule; `None` if it is not known yet. `kept` is the key under which one from another
    /// request may be known.
    fn answer(&mut self, place: CallPlace, kept: Option<&CacheKey>) -> Option<CallAnswer>;

    /// The call of a rule cannot be made. This is its answer from now on.
    fn fail(&mut self, place: CallPlace, rule: AuthRuleName, fault: CallFault);
}

/// The result of a decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthResult {
    /// The request is allowed.
    Granted(Box<AuthGrant>),
    /// It is refused. Whatever has no result refuses it.
    Refused(Box<AuthDenial>),
    /// It is decided with the answers to these calls, which are independent of each other.
    Waits(Vec<PlacedCall>),
}

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
    /// The requests to make now, whose answers do not matter.
    pub callbacks: Box<[HttpCall]>,
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
    Yes(Value),
    No,
    /// Nothing: its conditions exclude the request.
    Skipped,
    /// Nothing before the answer to its call.
    Waits,
}

/// The identity that a rule finds.
enum Found {
    Identity(Value),
    Nothing,
    Waits,
}

impl From<Option<Value>> for Found {
    fn from(identity: Option<Value>) -> Self {
        identity.map_or(Self::Nothing, Self::Identity)
    }
}

/// That of an answer, which has to be waited for if there is none.
impl From<Option<CallAnswer>> for Found {
    fn from(answer: Option<CallAnswer>) -> Self {
        match answer {
            None => Self::Waits,
            Some(Ok(Some(identity))) => Self::Identity(Value::clone(&identity)),
            Some(Ok(None) | Err(_)) => Self::Nothing,
        }
    }
}

/// Why a decision ends early.
enum Stop {
    Refused(AuthDenial),
    Waits,
}

impl PathAuth {
    /// Returns `true` if a request has something where one of the rules looks for credentials.
    pub fn is_given_credentials<H: Head + ?Sized>(&self, head: &H) -> bool {
        self.authentication.iter().any(|rule| credentials::of(&rule.rule.credentials, head).is_some())
    }

    /// Decides about a request by what is known.
    pub fn decide<H: Head + ?Sized>(
        &self,
        attributes: &Attributes<'_, H>,
        facts: &mut (impl AuthFacts + ?Sized),
    ) -> AuthResult {
        let document = AuthDocument::default();
        let mut decision = Decision {
            auth: self,
            attributes,
            facts,
            document,
            by: None,
            shadow: None,
            calls: Vec::new(),
            missing: Vec::new(),
        };
        if let Some(rule) = self.unusable.iter().find(|rule| !rule.shadow) {
            return AuthResult::Refused(Box::new(decision.unauthorized(&**rule)));
        }
        decision.shadow = self.unusable.first().map(|rule| (&**rule).into());
        match decision.grant() {
            Ok(grant) => AuthResult::Granted(Box::new(grant)),
            Err(Stop::Refused(mut denial)) => {
                denial.callbacks = decision.callbacks();
                AuthResult::Refused(Box::new(denial))
            }
            Err(Stop::Waits) => AuthResult::Waits(decision.calls),
        }
    }
}

/// A decision on its way.
struct Decision<'d, 'a, H: ?Sized, F: ?Sized> {
    auth: &'d PathAuth,
    attributes: &'d Attributes<'a, H>,
    facts: &'d mut F,
    document: AuthDocument,
    /// The rule that has identified the client.
    by: Option<&'d AuthRule<Authentication>>,
    shadow: Option<AuthRuleName>,
    /// The calls to wait for.
    calls: Vec<PlacedCall>,
    /// The rules of metadata that have no answer. Whatever depends on one of them has no result.
    missing: Vec<&'d str>,
}

impl<'d, H: Head + ?Sized, F: AuthFacts + ?Sized> Decision<'d, '_, H, F> {
    /// Evaluates the phases in their order.
    fn grant(&mut self) -> Result<AuthGrant, Stop> {
        self.authenticate()?;
        let user = self.document.user();
        self.fetch()?;
        self.authorise()?;
        let set = self.succeed();
        let unusable = self.auth.unusable.iter().filter_map(|rule| rule.rule.header.clone());
        let remove = self.auth.success.iter().filter_map(|rule| rule.rule.header().cloned()).chain(unusable).collect();
        let request = HeaderEdits { remove, set, add: Box::default() };
        let callbacks = self.callbacks();
        let (document, by) = (std::mem::take(&mut self.document), self.by.map(Into::into));
        Ok(AuthGrant { document, request, user, by, shadow: self.shadow.take(), callbacks })
    }

    /// The request with the facts so far.
    fn known(&self) -> Attributes<'_, H> {
        self.attributes.with_auth(&self.document)
    }

    /// Ends the decision if there are calls to wait for.
    fn wait(&self) -> Result<(), Stop> {
        if self.calls.is_empty() { Ok(()) } else { Err(Stop::Waits) }
    }

    /// The answer to the call of a rule; `None` if it has to be waited for.
    fn answer<R>(
        &mut self,
        place: CallPlace,
        rule: &AuthRule<R>,
        call: impl FnOnce(&Self) -> Result<AuthCall, CallFault>,
    ) -> Option<CallAnswer> {
        let known = self.facts.answer(place, None);
        if known.is_some() {
            return known;
        }
        let call = match call(self) {
            Ok(call) => call,
            Err(fault) => {
                self.facts.fail(place, rule.into(), fault);
                return Some(Err(fault));
            }
        };
        let kept = rule.cache.as_ref().and_then(|cache| {
            let key = text_of(&cache.key.json(&self.known()).filter(|key| !key.is_null())?).into();
            Some(KeptAnswer { key: CacheKey { rule: cache.digest, key, call: call.digest() }, ttl: cache.ttl })
        });
        let known = kept.as_ref().and_then(|kept| self.facts.answer(place, Some(&kept.key)));
        if known.is_none() {
            self.calls.push(PlacedCall { place, rule: rule.into(), kept, shadow: rule.shadow, call });
        }
        known
    }

    /// Determines the identity. Rules with one priority are evaluated together: one that needs no call comes before
    /// those that do.
    fn authenticate(&mut self) -> Result<(), Stop> {
        let mut refusing: Option<&Arc<AuthRule<Authentication>>> = None;
        let mut group = Group::default();
        for (index, rule) in self.auth.authentication.iter().enumerate() {
            if group.ends_before(rule) {
                self.wait()?;
            }
            // A rule in shadow mode must not identify a client that enforced rules refuse.
            if rule.shadow && refusing.is_some_and(|before| !before.shadow) {
                break;
            }
            match self.part(rule) {
                Part::Skipped if !self.takes_part(rule) => continue,
                Part::Skipped | Part::Failed => {}
                Part::Applies => match self.identity(index, rule) {
                    Found::Waits => continue,
                    Found::Nothing => {}
                    Found::Identity(identity) => {
                        if let Some(identity) = self.extended(rule, identity) {
                            self.document.put_identity(identity);
                            self.by = Some(rule);
                            self.calls.clear();
                            return Ok(());
                        }
                    }
                },
            }
            refusing = refusing.or(Some(rule));
        }
        self.wait()?;
        match refusing {
            Some(rule) if !rule.shadow => Err(Stop::Refused(self.unauthenticated(rule))),
            refusing => {
                self.shadow = refusing.map(|rule| (&**rule).into()).or(self.shadow.take());
                self.document.put_identity(anonymous());
                Ok(())
            }
        }
    }

    /// The identity that a rule finds; none without valid credentials.
    fn identity(&mut self, index: usize, rule: &AuthRule<Authentication>) -> Found {
        let place = CallPlace { phase: CallPhase::Authentication, index };
        let attributes = self.attributes;
        let credential = || credentials::of(&rule.rule.credentials, attributes.head);
        match &rule.rule.method {
            AuthenticationMethod::Anonymous => Found::Identity(anonymous()),
            AuthenticationMethod::Plain(value) => value.json(attributes).filter(|value| !value.is_null()).into(),
            AuthenticationMethod::ApiKey(keys) => credential().and_then(|key| keys.identity(&key).cloned()).into(),
            AuthenticationMethod::Jwt(jwt) => {
                let verified = credential().and_then(|token| self.facts.verify(jwt, &token, (attributes.now)()).ok());
                verified.map(|verified| Value::clone(&verified.claims)).into()
            }
            AuthenticationMethod::Introspection(introspection) => {
                let Some(token) = credential() else { return Found::Nothing };
                self.answer(place, rule, |_| introspection.call(&token).map(AuthCall::from)).into()
            }
            AuthenticationMethod::TokenReview { audiences } => {
                let Some(token) = credential() else { return Found::Nothing };
                let own = || [Arc::from(attributes.host)].into();
                let audiences = if audiences.is_empty() { own() } else { audiences.clone() };
                let review = TokenReview { token: token.as_ref().into(), audiences };
                self.answer(place, rule, |_| Ok(AuthCall::TokenReview(Box::new(review)))).into()
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

    /// Fetches more facts. Without the answer of a rule the request may pass, but not what depends on it.
    fn fetch(&mut self) -> Result<(), Stop> {
        let mut group = Group::default();
        for (index, rule) in self.auth.metadata.iter().enumerate() {
            if group.ends_before(rule) {
                self.wait()?;
            }
            match self.part(rule) {
                Part::Applies => {}
                Part::Skipped => continue,
                Part::Failed => {
                    self.missing.push(&rule.name);
                    continue;
                }
            }
            match self.metadata(index, rule) {
                Some(Ok(Some(value))) => self.document.put("metadata", &rule.name, Value::clone(&value)),
                Some(Ok(None) | Err(_)) => self.missing.push(&rule.name),
                None => {}
            }
        }
        self.wait()
    }

    fn metadata(&mut self, index: usize, rule: &AuthRule<Metadata>) -> Option<CallAnswer> {
        let place = CallPlace { phase: CallPhase::Metadata, index };
        match &rule.rule {
            Metadata::Http(http) => {
                let call = |decision: &Self| http.call(&decision.known(), ReplyForm::Document).map(AuthCall::from);
                self.answer(place, rule, call)
            }
            Metadata::UserInfo(info) => {
                let Some(token) = self.token_for(info) else { return Some(Ok(None)) };
                let call = |decision: &Self| {
                    let subject = decision.document.get(&["identity".into(), "sub".into()]).and_then(Value::as_str);
                    info.call(&token, subject).map(AuthCall::from)
                };
                self.answer(place, rule, call)
            }
        }
    }

    /// The token of the client, if it was identified by a token, and by the rule whose claims these are. No other
    /// credential is for the issuer's eyes, and no other identity is one that the issuer knows.
    fn token_for(&self, info: &UserInfo) -> Option<String> {
        let by = self.by?;
        let by_token = matches!(by.rule.method, AuthenticationMethod::Jwt(_) | AuthenticationMethod::Introspection(_));
        let is_source = info.identity_source.as_ref().is_none_or(|source| *source == by.name);
        let token = credentials::of(&by.rule.credentials, self.attributes.head).filter(|_| by_token && is_source)?;
        Some(token.into_owned())
    }

    /// Evaluates the rules that may refuse a client. Of rules with one priority, those that need no call come first.
    fn authorise(&mut self) -> Result<(), Stop> {
        let mut group = Group::default();
        for (index, rule) in self.auth.authorization.iter().enumerate() {
            if group.ends_before(rule) {
                self.wait()?;
            }
            match self.allows(index, rule) {
                Said::Yes(value) => self.document.put("authorization", &rule.name, value),
                Said::Skipped | Said::Waits => {}
                Said::No if rule.shadow => self.shadow = Some((&**rule).into()),
                Said::No => return Err(Stop::Refused(self.unauthorized(&**rule))),
            }
        }
        self.wait()
    }

    fn allows(&mut self, index: usize, rule: &AuthRule<Authorization>) -> Said {
        match self.part(rule) {
            Part::Skipped => return Said::Skipped,
            Part::Failed => return Said::No,
            Part::Applies => {}
        }
        match &rule.rule {
            Authorization::Patterns(patterns) => {
                if self.all(patterns) == Some(true) {
                    Said::Yes(Value::Bool(true))
                } else {
                    Said::No
                }
            }
            Authorization::AccessReview(review) => {
                let place = CallPlace { phase: CallPhase::Authorization, index };
                let call = |decision: &Self| {
                    review.call(&decision.known()).map(|review| AuthCall::AccessReview(Box::new(review)))
                };
                match self.answer(place, rule, call) {
                    None => Said::Waits,
                    Some(Ok(Some(value))) => Said::Yes(Value::clone(&value)),
                    Some(Ok(None) | Err(_)) => Said::No,
                }
            }
        }
    }

    /// The requests to make after the decision. One that has no value for a part is not made.
    fn callbacks(&self) -> Box<[HttpCall]> {
        let applied = self.auth.callbacks.iter().filter(|rule| self.part(rule) == Part::Applies);
        applied.filter_map(|rule| rule.rule.call(&self.known(), ReplyForm::Ignored).ok()).collect()
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

    /// Whether all conditions hold; `None` if one has no result and none is false.
    fn all(&self, conditions: &[AuthCondition]) -> Option<bool> {
        let has_missing = || conditions.iter().any(|it| self.missing.iter().any(|rule| it.reads_metadata(rule)));
        if !self.missing.is_empty() && has_missing() {
            return None;
        }
        AuthCondition::all(conditions, &self.known())
    }

    /// Whether the policy of a rule has a part in the request, as far as that can be told.
    fn takes_part<R>(&self, rule: &AuthRule<R>) -> bool {
        self.all(&rule.policy_when) != Some(false)
    }

    fn part<R>(&self, rule: &AuthRule<R>) -> Part {
        let holds = |conditions: &[AuthCondition]| self.all(conditions);
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

/// Rules in their order, with the place where those of one priority end.
#[derive(Default)]
struct Group(Option<(bool, i64)>);

impl Group {
    /// Whether the rules of a priority end before this one.
    fn ends_before<R>(&mut self, rule: &AuthRule<R>) -> bool {
        let own = (rule.shadow, rule.priority);
        self.0.replace(own).is_some_and(|before| before != own)
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
