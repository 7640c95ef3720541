//! Tests of decisions.

mod calls;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use http::HeaderName;
use serde_json::{Value, json};

use super::super::super::path::PathMatch;
use super::super::super::route::{Action, Origin, Route};
use super::super::super::sample::SampleHead;
use super::super::{Attributes, Predicate, Selector, ValueExpression};
use super::*;
use crate::object::{Age, Kind, ObjectName, ObjectRef};

static ROUTE: LazyLock<Route> = LazyLock::new(|| {
    let object = ObjectRef::new(Kind::HttpRoute, ObjectName::new("shop", "web"));
    let age = Age { created_s: 0, name: object.name.clone() };
    let origin = Origin { object, field: "spec".into(), age, position: 0 };
    Route::new(origin, PathMatch::Prefix("/".into()), Action::Forward([].into()))
});

fn attributes(head: &SampleHead) -> Attributes<'_, SampleHead> {
    Attributes::sample(&ROUTE, head)
}

/// No token is valid; the answers to calls by their places, of which the first is used up last.
#[derive(Default)]
struct Facts {
    answers: HashMap<CallPlace, CallAnswer>,
    /// The answers that are kept.
    kept: HashMap<CacheKey, CallAnswer>,
}

impl AuthFacts for Facts {
    fn verify(&mut self, _: &Jwt, _: &str, _: SystemTime) -> Result<Arc<VerifiedToken>, TokenFault> {
        Err(TokenFault::NoKeys)
    }

    fn answer(&mut self, place: CallPlace, kept: Option<&CacheKey>) -> Option<CallAnswer> {
        self.answers.get(&place).or_else(|| self.kept.get(kept?)).cloned()
    }

    fn fail(&mut self, place: CallPlace, _: AuthRuleName, fault: CallFault) {
        self.answers.insert(place, Err(fault));
    }
}

/// A rule without conditions.
fn rule<R>(name: &str, rule: R) -> AuthRule<R> {
    let policy = ObjectRef::new(Kind::RateLimitPolicy, ObjectName::new("shop", "p"));
    let (policy_when, when) = (Arc::from([]), Box::default());
    AuthRule { policy, name: name.into(), priority: 0, policy_when, when, shadow: false, cache: None, rule }
}

fn when(predicate: &str) -> AuthCondition {
    AuthCondition::Predicate(Predicate::new(predicate).unwrap())
}

fn authentication(method: AuthenticationMethod) -> Authentication {
    let credentials = Credentials::Header(HeaderName::from_static("x-key"));
    Authentication { credentials, method, defaults: Box::default(), overrides: Box::default() }
}

/// Accepts the key `good`.
fn api_key() -> Authentication {
    let identity = json!({"metadata": {"name": "good-key", "annotations": {"plan": "gold"}}});
    let keys = HashMap::from([(ApiKeyHash::of(b"good"), Arc::new(identity))]);
    authentication(AuthenticationMethod::ApiKey(Arc::new(ApiKeys(keys))))
}

fn patterns(predicates: &[&str]) -> Authorization {
    Authorization::Patterns(predicates.iter().map(|predicate| when(predicate)).collect())
}

fn one<R>(of: AuthRule<R>) -> Box<[Arc<AuthRule<R>>]> {
    [Arc::new(of)].into()
}

fn expression(source: &str) -> AuthValue {
    AuthValue::Expression(ValueExpression::new(source).unwrap())
}

/// The status of the answer, or 0 for a request that is allowed; and the rule that refuses it or would have.
#[track_caller]
fn check(auth: &PathAuth, head: &SampleHead, want: u16, by: &str) {
    let decided = auth.decide(&attributes(head), &mut Facts::default());
    let (status, rule) = match &decided {
        AuthResult::Granted(grant) => (0, grant.shadow.as_ref().map(|rule| &*rule.rule)),
        AuthResult::Refused(denial) => (denial.status(), Some(&*denial.by.rule)),
        AuthResult::Waits(calls) => panic!("{calls:?}"),
    };
    assert_eq!((status, rule.unwrap_or_default()), (want, by), "{auth:?} {head:?}");
}

fn grant(auth: &PathAuth, head: &SampleHead) -> AuthGrant {
    match auth.decide(&attributes(head), &mut Facts::default()) {
        AuthResult::Granted(grant) => *grant,
        other @ (AuthResult::Refused(_) | AuthResult::Waits(_)) => panic!("{other:?}"),
    }
}

fn with_key(key: &str) -> SampleHead {
    SampleHead::new("GET").with(&[("x-key", key)])
}

#[test]
fn one_rule_of_authentication_must_succeed() {
    let get = SampleHead::new("GET");
    check(&PathAuth::default(), &get, 0, "");
    let keys = PathAuth { authentication: one(rule("keys", api_key())), ..PathAuth::default() };
    check(&keys, &get, 401, "keys");
    check(&keys, &with_key("bad"), 401, "keys");
    check(&keys, &with_key("good"), 0, "");
    check(&keys, &SampleHead::new("GET").with(&[("x-key", "good"), ("x-key", "good")]), 401, "keys");
    let anonymous = rule("all", authentication(AuthenticationMethod::Anonymous));
    let both = [Arc::new(rule("keys", api_key())), Arc::new(anonymous)].into();
    let both = PathAuth { authentication: both, ..PathAuth::default() };
    check(&both, &get, 0, "");
    let user = |head| grant(&both, head).user;
    assert_eq!((user(&get), user(&with_key("good")).as_deref()), (None, Some("good-key")));
}

#[test]
fn a_rule_whose_conditions_fail_gives_no_identity_and_allows_nothing() {
    let get = SampleHead::new("GET");
    let check_when = |policy: &[&str], own: &[&str], want: (u16, u16)| {
        let conditions = |of: &[&str]| of.iter().map(|one| when(one)).collect::<Vec<_>>();
        let (policy_when, when): (Arc<[_]>, Box<[_]>) = (conditions(policy).into(), conditions(own).into());
        let asks = AuthRule { policy_when: Arc::clone(&policy_when), when: when.clone(), ..rule("keys", api_key()) };
        let auth = PathAuth { authentication: one(asks), ..PathAuth::default() };
        check(&auth, &get, want.0, if want.0 == 0 { "" } else { "keys" });
        let refuses = AuthRule { policy_when, when, ..rule("never", patterns(&["false"])) };
        let auth = PathAuth { authorization: one(refuses), ..PathAuth::default() };
        check(&auth, &get, want.1, if want.1 == 0 { "" } else { "never" });
    };
    check_when(&["true"], &["true"], (401, 403));
    // Its policy has no part in the request.
    check_when(&["false"], &["true"], (0, 0));
    // It is skipped: then the client has no identity.
    check_when(&["true"], &["false"], (401, 0));
    let absent = "request.headers['x-none'] == ''";
    check_when(&[absent], &["true"], (401, 403));
    check_when(&["true"], &[absent], (401, 403));
    check_when(&[absent], &["false"], (401, 403));
    check_when(&["true"], &["false", absent], (401, 0));
}

#[test]
fn all_rules_of_authorisation_must_pass() {
    let check = |rules: &[(&str, &[&str])], want: u16, by: &str| {
        let authorization = rules.iter().map(|(name, predicates)| Arc::new(rule(name, patterns(predicates))));
        let (authentication, authorization) = (one(rule("keys", api_key())), authorization.collect());
        let auth = PathAuth { authentication, authorization, ..PathAuth::default() };
        super::tests::check(&auth, &with_key("good"), want, by);
    };
    let gold = "auth.identity.metadata.annotations.plan == 'gold'";
    check(&[("gold", &[gold])], 0, "");
    check(&[("gold", &[gold, "request.method == 'PUT'"])], 403, "gold");
    check(&[("gold", &[gold]), ("never", &["false"])], 403, "never");
    check(&[("none", &[])], 0, "");
    check(&[("absent", &["auth.identity.sub == 'anna'"])], 403, "absent");
    check(&[("gold", &[gold]), ("after", &["auth.authorization.gold"])], 0, "");
}

#[test]
fn a_rule_that_cannot_be_used_refuses_every_request() {
    let unusable = PathAuth {
        unusable: one(rule("opa", UnusableRule { why: "is not supported".to_owned(), header: None })),
        ..PathAuth::default()
    };
    check(&unusable, &SampleHead::new("GET"), 403, "opa");
}

#[test]
fn a_rule_in_shadow_mode_refuses_nothing() {
    let get = SampleHead::new("GET");
    let shadow = |of: AuthRule<Authentication>| AuthRule { shadow: true, ..of };
    let keys = PathAuth { authentication: one(shadow(rule("keys", api_key()))), ..PathAuth::default() };
    check(&keys, &get, 0, "keys");
    check(&keys, &with_key("good"), 0, "");
    let all = authentication(AuthenticationMethod::Anonymous);
    let both = [Arc::new(rule("b", api_key())), Arc::new(shadow(rule("a", all)))].into();
    check(&PathAuth { authentication: both, ..PathAuth::default() }, &get, 401, "b");
    let never = AuthRule { shadow: true, ..rule("never", patterns(&["false"])) };
    check(&PathAuth { authorization: one(never), ..PathAuth::default() }, &get, 0, "never");
    let opa = AuthRule { shadow: true, ..rule("opa", UnusableRule { why: String::new(), header: None }) };
    check(&PathAuth { unusable: one(opa), ..PathAuth::default() }, &get, 0, "opa");
}

#[test]
fn an_identity_is_extended() {
    let constant = |value: &str| AuthValue::Constant(Arc::new(value.into()));
    let (defaults, overrides) = (
        [("plan".into(), constant("none")), ("metadata".into(), constant("kept"))].into(),
        [("name".into(), expression("auth.identity.metadata.name + '!'"))].into(),
    );
    let extended = Authentication { defaults, overrides, ..api_key() };
    let auth = PathAuth { authentication: one(rule("keys", extended)), ..PathAuth::default() };
    let document = grant(&auth, &with_key("good")).document;
    let get = |field: &str| document.get(&["identity".into(), field.into()]).cloned();
    assert_eq!(get("plan"), Some("none".into()));
    assert_eq!(get("name"), Some("good-key!".into()));
    assert!(get("metadata").is_some_and(|metadata| metadata.is_object()));
    let broken = Authentication { overrides: [("x".into(), expression("auth.identity.none"))].into(), ..api_key() };
    check(
        &PathAuth { authentication: one(rule("keys", broken)), ..PathAuth::default() },
        &with_key("good"),
        401,
        "keys",
    );
}

#[test]
fn a_plain_identity_is_a_value_of_the_request() {
    let plain = |value| authentication(AuthenticationMethod::Plain(value));
    let user = AuthValue::Selector(Selector::new("context.request.http.headers.x-key").unwrap());
    let auth = PathAuth { authentication: one(rule("user", plain(user))), ..PathAuth::default() };
    check(&auth, &SampleHead::new("GET"), 401, "user");
    assert_eq!(grant(&auth, &with_key("anna")).document.get(&["identity".into()]), Some(&"anna".into()));
    let null = PathAuth { authentication: one(rule("user", plain(expression("null")))), ..PathAuth::default() };
    check(&null, &SampleHead::new("GET"), 401, "user");
}

#[test]
fn an_allowed_request_gets_the_headers_of_the_rules_and_none_of_the_client() {
    let header = |name: &'static str, form| {
        let rule = Success { target: SuccessTarget::Header(HeaderName::from_static(name)), form };
        Arc::new(self::rule(name, rule))
    };
    let name = expression("auth.identity.metadata.name");
    let absent = header("x-absent", SuccessForm::Plain(expression("auth.identity.sub")));
    let invalid = header("x-invalid", SuccessForm::Plain(AuthValue::Constant(Arc::new("a\nb".into()))));
    let skipped = header("x-skipped", SuccessForm::Plain(name.clone()));
    let skipped = Arc::new(AuthRule { when: [when("false")].into(), ..(*skipped).clone() });
    let filter = |name: &str, value| {
        let rule = Success { target: SuccessTarget::Filter(name.into()), form: SuccessForm::Plain(value) };
        Arc::new(self::rule(name, rule))
    };
    let success = [
        header("x-user", SuccessForm::Plain(name.clone())),
        header("x-json", SuccessForm::Json([("user".into(), name), ("n".into(), expression("1"))].into())),
        absent,
        invalid,
        skipped,
        filter("plan", expression("auth.identity.metadata.annotations.plan")),
        filter("identity", expression("{'user': auth.identity.metadata.name}")),
    ];
    let auth =
        PathAuth { authentication: one(rule("keys", api_key())), success: success.into(), ..PathAuth::default() };
    let AuthGrant { document, request, user, .. } = grant(&auth, &with_key("good"));
    let set: Vec<_> = request.set.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    assert_eq!(set, ["x-user: good-key", r#"x-json: {"n":1,"user":"good-key"}"#]);
    let removed: Vec<_> = request.remove.iter().map(HeaderName::as_str).collect();
    assert_eq!(removed, ["x-user", "x-json", "x-absent", "x-invalid", "x-skipped"]);
    let get = |path: &[&str]| document.get(&path.iter().map(|one| Box::from(*one)).collect::<Vec<_>>()).cloned();
    assert_eq!(get(&["response", "plan"]), Some("gold".into()));
    assert_eq!(get(&["identity"]), Some(json!({"user": "good-key"})));
    assert_eq!(user.as_deref(), Some("good-key"));
}

/// An answer as lines: the status, the headers, and the body.
fn answer(auth: &PathAuth, head: &SampleHead) -> Vec<String> {
    let AuthResult::Refused(denial) = auth.decide(&attributes(head), &mut Facts::default()) else { panic!("allowed") };
    let mut lines = vec![denial.status().to_string()];
    match &denial.response {
        None => lines.extend(denial.challenges.iter().map(|value| format!("challenge: {}", value.to_str().unwrap()))),
        Some(response) => {
            let headers = response.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
            lines.extend(headers);
            lines.extend(response.content_type.iter().map(|value| format!("type: {}", value.to_str().unwrap())));
            lines.push(String::from_utf8_lossy(&response.body).into_owned());
        }
    }
    lines
}

#[test]
fn a_refusal_is_answered_as_a_policy_says() {
    let get = SampleHead::new("GET");
    let asks = |denial: Option<Denial>| PathAuth {
        authentication: [
            Arc::new(rule("a \"b\"", api_key())),
            Arc::new(rule("bearer", Authentication { credentials: Credentials::default(), ..api_key() })),
        ]
        .into(),
        unauthenticated: denial.map(|denial| Arc::new(rule("", denial))),
        ..PathAuth::default()
    };
    let challenges = [r#"x-key realm="a \"b\"""#, r#"Bearer realm="bearer""#];
    assert_eq!(
        answer(&asks(None), &get),
        ["401".to_owned(), format!("challenge: {}", challenges[0]), format!("challenge: {}", challenges[1])]
    );
    let [first, second] = challenges.map(|challenge| format!("www-authenticate: {challenge}"));
    assert_eq!(answer(&asks(Some(Denial::default())), &get), ["401", &first, &second, ""]);
    let header = |name: &'static str, value: &str| (HeaderName::from_static(name), expression(value));
    let redirect = Denial {
        status: Some(302),
        message: Some(expression("'log in'")),
        headers: [
            header("location", "'https://login.test/?to=' + request.path"),
            header("x-none", "request.headers['x-none']"),
        ]
        .into(),
        body: None,
    };
    let want = ["302", "location: https://login.test/?to=/", "x-ext-auth-reason: log in", ""];
    assert_eq!(answer(&asks(Some(redirect)), &get), want);
    let refuses = |denial: Denial| PathAuth {
        authorization: one(rule("never", patterns(&["false"]))),
        unauthorized: Some(Arc::new(rule("", denial))),
        ..PathAuth::default()
    };
    let text = Denial { body: Some(expression("'no, ' + request.method")), ..Denial::default() };
    assert_eq!(answer(&refuses(text), &get), ["403", "type: text/plain; charset=utf-8", "no, GET"]);
    let body: Value = json!({"error": "no"});
    let document = Denial {
        status: Some(404),
        headers: [header("content-type", "'application/json'")].into(),
        body: Some(AuthValue::Constant(Arc::new(body))),
        ..Denial::default()
    };
    assert_eq!(answer(&refuses(document), &get), ["404", "type: application/json", r#"{"error":"no"}"#]);
}

#[test]
fn patterns_compare_values_as_texts() {
    let head = SampleHead::new("GET").with(&[("x-list", "a")]);
    let mut document = AuthDocument::default();
    document.put_identity(json!({"n": 1, "groups": ["dev", 2], "name": "anna"}));
    let attributes = attributes(&head);
    let attributes = attributes.with_auth(&document);
    let check = |selector: &str, operator: Operator, want: bool| {
        let pattern = Pattern { selector: Selector::new(selector).unwrap(), operator };
        assert_eq!(AuthCondition::Pattern(pattern.clone()).holds(&attributes), Some(want), "{pattern:?}");
    };
    check("auth.identity.name", Operator::Equals("anna".into()), true);
    check("auth.identity.n", Operator::Equals("1".into()), true);
    check("auth.identity.none", Operator::Equals("".into()), true);
    check("auth.identity.name", Operator::Differs("anna".into()), false);
    check("auth.identity.none", Operator::Differs("anna".into()), true);
    check("auth.identity.groups", Operator::Includes("dev".into()), true);
    check("auth.identity.groups", Operator::Includes("2".into()), true);
    check("auth.identity.groups", Operator::Includes("de".into()), false);
    check("auth.identity.name", Operator::Includes("anna".into()), false);
    check("auth.identity.groups", Operator::Excludes("web".into()), true);
    check("auth.identity.groups", Operator::Excludes("dev".into()), false);
    let all = |list: &[&str]| AuthCondition::All(list.iter().map(|one| when(one)).collect());
    let any = |list: &[&str]| AuthCondition::Any(list.iter().map(|one| when(one)).collect());
    let unknown = "request.headers['x-none'] == ''";
    for (condition, want) in [
        (all(&[]), Some(true)),
        (any(&[]), Some(false)),
        (all(&["true", "false"]), Some(false)),
        (any(&["true", "false"]), Some(true)),
        (all(&[unknown, "true"]), None),
        (all(&[unknown, "false"]), Some(false)),
        (any(&[unknown, "true"]), Some(true)),
        (any(&[unknown, "false"]), None),
    ] {
        assert_eq!(condition.holds(&attributes), want, "{condition:?}");
    }
}
