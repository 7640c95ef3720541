//! Tests of rules that need answers of servers.

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue, Method};

use super::super::super::super::backend::{AppProtocol, BackendKey, Target};
use super::*;

fn server() -> CallServer {
    let backend = BackendKey::tcp(ObjectName::new("shop", "idp.test"), 8080);
    let target = Arc::new(Target { backend, protocol: AppProtocol::Http, tls: None, fixed: None });
    CallServer { tls: false, host: "idp.test".into(), port: 8080, target: Some(target) }
}

fn introspection() -> Introspection {
    let secret = SecretText::new;
    let client = ClientSecret { id: secret("edge"), secret: secret("a b") };
    let path = "/introspect".into();
    Introspection { server: server(), path, hint: "access_token".into(), client: Some(client), timeout: CALL_TIMEOUT }
}

fn asks() -> Authentication {
    authentication(AuthenticationMethod::Introspection(introspection()))
}

fn http_rule(pieces: &[PathPiece]) -> HttpRule {
    HttpRule {
        server: server(),
        path: CallPath::Pieces(pieces.into()),
        method: Method::GET,
        body: CallBody::None,
        headers: Box::default(),
        credential: None,
        timeout: CALL_TIMEOUT,
    }
}

fn metadata(name: &str, priority: i64) -> Arc<AuthRule<Metadata>> {
    let http = http_rule(&[PathPiece::Text(format!("/{name}").into())]);
    Arc::new(AuthRule { priority, ..rule(name, Metadata::Http(http)) })
}

fn review_rule(name: &str, priority: i64) -> Arc<AuthRule<Authorization>> {
    let user = Some(expression("auth.identity.sub"));
    let review = AccessReviewRule { user, ..AccessReviewRule::default() };
    Arc::new(AuthRule { priority, ..rule(name, Authorization::AccessReview(Box::new(review))) })
}

fn with_priority<R>(priority: i64, of: AuthRule<R>) -> Arc<AuthRule<R>> {
    Arc::new(AuthRule { priority, ..of })
}

/// The rounds of calls of a request, each with the names of the rules that call, and the status of the answer, or 0 for
/// a request that is allowed. Calls are answered by these values by the names of the rules, others with a fault.
#[track_caller]
fn check(auth: &PathAuth, head: &SampleHead, answers: &[(&str, Value)], want: &[&str], want_status: u16) -> AuthResult {
    let (mut facts, mut rounds) = (Facts::default(), Vec::new());
    let result = loop {
        match auth.decide(&attributes(head), &mut facts) {
            AuthResult::Waits(calls) => {
                rounds.push(calls.iter().map(|call| &*call.rule.rule).collect::<Vec<_>>().join(" "));
                for call in calls {
                    let of_rule = answers.iter().find(|(name, _)| *name == &*call.rule.rule).map(|(_, value)| value);
                    let answer = match of_rule {
                        None => Err(CallFault::Timeout),
                        Some(Value::Null) => Ok(None),
                        Some(value) => Ok(Some(Arc::new(value.clone()))),
                    };
                    assert!(facts.answers.insert(call.place, answer).is_none(), "{} is called twice", call.rule);
                }
            }
            result @ (AuthResult::Granted(_) | AuthResult::Refused(_)) => break result,
        }
    };
    let status = match &result {
        AuthResult::Granted(_) => 0,
        AuthResult::Refused(denial) => denial.status(),
        AuthResult::Waits(calls) => panic!("{calls:?}"),
    };
    assert_eq!((rounds.iter().map(|round| &**round).collect::<Vec<_>>(), status), (want.to_vec(), want_status));
    result
}

#[test]
fn a_rule_with_a_call_decides_by_its_answer() {
    let auth = PathAuth { authentication: one(rule("oauth", asks())), ..PathAuth::default() };
    let anna = json!({"active": true, "sub": "anna"});
    let result = check(&auth, &with_key("t"), &[("oauth", anna)], &["oauth"], 0);
    let AuthResult::Granted(grant) = result else { panic!("refused") };
    assert_eq!(grant.user.as_deref(), Some("anna"));
    check(&auth, &with_key("t"), &[("oauth", Value::Null)], &["oauth"], 401);
    check(&auth, &with_key("t"), &[], &["oauth"], 401);
    // Nothing is asked about a request without credentials.
    check(&auth, &SampleHead::new("GET"), &[], &[], 401);
    let unknown = Introspection { server: CallServer { target: None, ..server() }, ..introspection() };
    let unknown = authentication(AuthenticationMethod::Introspection(unknown));
    let auth = PathAuth { authentication: one(rule("oauth", unknown)), ..PathAuth::default() };
    check(&auth, &with_key("t"), &[], &[], 401);
}

#[test]
fn rules_with_one_priority_are_called_together_and_after_those_without_calls() {
    let identity = json!({"active": true, "sub": "anna"});
    let authentication = |first: i64, keys: i64, second: i64| {
        let rules = [
            with_priority(first, rule("a", asks())),
            with_priority(keys, rule("keys", api_key())),
            with_priority(second, rule("b", asks())),
        ];
        PathAuth { authentication: rules.into(), ..PathAuth::default() }
    };
    let answers = [("b", identity.clone())];
    check(&authentication(0, 0, 0), &with_key("t"), &answers, &["a b"], 0);
    check(&authentication(0, 0, 0), &with_key("good"), &answers, &[], 0);
    check(&authentication(0, 1, 2), &with_key("t"), &answers, &["a", "b"], 0);
    check(&authentication(0, 1, 2), &with_key("good"), &answers, &["a"], 0);
    check(&authentication(0, 0, 1), &with_key("t"), &[("a", identity)], &["a"], 0);
    check(&authentication(0, 0, 1), &with_key("t"), &[], &["a", "b"], 401);
}

#[test]
fn metadata_is_fetched_before_authorisation_and_may_be_missing() {
    let patterns = |predicate: &str| one(rule("patterns", super::patterns(&[predicate])));
    let auth = |metadata: &[Arc<AuthRule<Metadata>>], predicate: &str| PathAuth {
        metadata: metadata.into(),
        authorization: patterns(predicate),
        ..PathAuth::default()
    };
    let get = SampleHead::new("GET");
    let answers = [("plan", json!({"name": "gold"})), ("geo", json!("DE"))];
    let both = [metadata("geo", 0), metadata("plan", 0)];
    check(
        &auth(&both, "auth.metadata.plan.name == 'gold' && auth.metadata.geo == 'DE'"),
        &get,
        &answers,
        &["geo plan"],
        0,
    );
    let apart = [metadata("geo", 0), metadata("plan", 1)];
    check(&auth(&apart, "auth.metadata.plan.name == 'gold'"), &get, &answers, &["geo", "plan"], 0);
    check(&auth(&both, "auth.metadata.plan.name == 'gold'"), &get, &[], &["geo plan"], 403);
    check(&auth(&both, "true"), &get, &[], &["geo plan"], 0);
    // What depends on a missing fact has no result, not even that the fact is missing.
    for predicate in ["!has(auth.metadata.plan.name)", "auth.metadata.geo != 'DE'", "!('plan' in auth.metadata)"] {
        let some = [("geo", json!("FR")), ("plan", json!({}))];
        if predicate.contains("geo") || predicate.contains("has") {
            check(&auth(&both, predicate), &get, &some, &["geo plan"], 0);
        }
        check(&auth(&both, predicate), &get, &[], &["geo plan"], 403);
    }
    // A rule that is asked only if another fact says so.
    let depends =
        AuthRule { when: [when("auth.metadata.geo == 'DE'")].into(), ..AuthRule::clone(&metadata("plan", 1)) };
    let depends = auth(&[metadata("geo", 0), Arc::new(depends)], "!has(auth.metadata.plan)");
    check(&depends, &get, &[("geo", json!("FR"))], &["geo"], 0);
    check(&depends, &get, &[], &["geo"], 403);
    let differs = Pattern {
        selector: Selector::new("auth.metadata.plan.name").unwrap(),
        operator: Operator::Differs("free".into()),
    };
    let differs = Authorization::Patterns([AuthCondition::Any([AuthCondition::Pattern(differs)].into())].into());
    let differs =
        PathAuth { metadata: both.clone().into(), authorization: one(rule("differs", differs)), ..PathAuth::default() };
    check(&differs, &get, &answers, &["geo plan"], 0);
    check(&differs, &get, &[], &["geo plan"], 403);
    check(&differs, &get, &[("plan", Value::Null)], &["geo plan"], 403);
    let skipped = Arc::new(AuthRule { when: [when("false")].into(), ..AuthRule::clone(&metadata("geo", 0)) });
    check(&auth(&[skipped], "true"), &get, &answers, &[], 0);
}

#[test]
fn the_api_server_is_asked_after_the_patterns_of_the_same_priority() {
    let identity =
        |name: &str| authentication(AuthenticationMethod::Plain(expression(&format!("{{'sub': '{name}'}}"))));
    let auth = |rules: &[Arc<AuthRule<Authorization>>]| PathAuth {
        authentication: one(rule("plain", identity("anna"))),
        authorization: rules.into(),
        ..PathAuth::default()
    };
    let get = SampleHead::new("GET");
    let yes = [("may", json!(true))];
    check(&auth(&[review_rule("may", 0)]), &get, &yes, &["may"], 0);
    check(&auth(&[review_rule("may", 0)]), &get, &[("may", Value::Null)], &["may"], 403);
    check(&auth(&[review_rule("may", 0)]), &get, &[], &["may"], 403);
    let never = Arc::new(rule("never", patterns(&["false"])));
    check(&auth(&[review_rule("may", 0), never]), &get, &yes, &[], 403);
    let nobody = PathAuth { authorization: [review_rule("may", 0)].into(), ..PathAuth::default() };
    check(&nobody, &get, &yes, &[], 403);
}

/// The key of the first call of a request, if it waits for one.
fn key_of(auth: &PathAuth, head: &SampleHead) -> Option<CacheKey> {
    match auth.decide(&attributes(head), &mut Facts::default()) {
        AuthResult::Waits(calls) => calls[0].kept.as_ref().map(|kept| kept.key.clone()),
        AuthResult::Granted(_) | AuthResult::Refused(_) => None,
    }
}

fn cached<R>(of: AuthRule<R>) -> Arc<AuthRule<R>> {
    let cache = AuthCache { key: expression("request.path"), ttl: Duration::from_secs(60), digest: [1; 16] };
    Arc::new(AuthRule { cache: Some(cache), ..of })
}

#[test]
fn a_kept_answer_is_that_to_the_same_call() {
    let auth = PathAuth { authentication: [cached(rule("oauth", asks()))].into(), ..PathAuth::default() };
    let [first, other] = ["t", "u"].map(|token| key_of(&auth, &with_key(token)).unwrap());
    assert!(first != other && first.key == other.key, "two tokens");
    let answer = Ok(Some(Arc::new(json!({"sub": "anna"}))));
    let mut facts = Facts { kept: HashMap::from([(first, answer)]), ..Facts::default() };
    assert!(matches!(auth.decide(&attributes(&with_key("t")), &mut facts), AuthResult::Granted(_)));
    assert!(matches!(auth.decide(&attributes(&with_key("u")), &mut facts), AuthResult::Waits(_)));
    let review = authentication(AuthenticationMethod::TokenReview { audiences: Box::default() });
    let auth = PathAuth { authentication: [cached(rule("account", review))].into(), ..PathAuth::default() };
    let head = with_key("t");
    let at = |host: &'static str| {
        let attributes = Attributes { host, ..attributes(&head) };
        match auth.decide(&attributes, &mut Facts::default()) {
            AuthResult::Waits(calls) => calls[0].kept.as_ref().map(|kept| kept.key.clone()),
            other @ (AuthResult::Granted(_) | AuthResult::Refused(_)) => panic!("{other:?}"),
        }
    };
    assert_ne!(at("a.test"), at("b.test"), "two audiences");
    let user = authentication(AuthenticationMethod::Plain(expression("{'sub': request.headers['x-user']}")));
    let kept = cached(AuthRule::clone(&review_rule("may", 0)));
    let auth =
        PathAuth { authentication: one(rule("plain", user)), authorization: [kept].into(), ..PathAuth::default() };
    let of = |user: &'static str| key_of(&auth, &SampleHead::new("GET").with(&[("x-user", user)])).unwrap();
    assert_ne!(of("anna"), of("ben"), "two users");
}

#[test]
fn callbacks_are_made_whatever_the_decision_is() {
    let callbacks = one(rule("told", http_rule(&[PathPiece::Text("/told".into())])));
    let paths = |calls: &[HttpCall]| calls.iter().map(|call| call.path.to_string()).collect::<Vec<_>>();
    let user = PathPiece::Value(Selector::new("auth.identity.metadata.name").unwrap());
    let of_user = one(rule("told", http_rule(&[PathPiece::Text("/told/".into()), user])));
    let allows = PathAuth { authentication: one(rule("keys", api_key())), callbacks: of_user, ..PathAuth::default() };
    let AuthResult::Granted(grant) = allows.decide(&attributes(&with_key("good")), &mut Facts::default()) else {
        panic!("refused")
    };
    assert_eq!(paths(&grant.callbacks), ["/told/good-key"]);
    let refuses = PathAuth { callbacks, authorization: one(rule("no", patterns(&["false"]))), ..PathAuth::default() };
    let AuthResult::Refused(denial) = refuses.decide(&attributes(&SampleHead::new("GET")), &mut Facts::default())
    else {
        panic!("allowed")
    };
    assert_eq!(paths(&denial.callbacks), ["/told"]);
}

/// A request as lines: method, authority and path; the headers; the body.
fn text(call: &HttpCall) -> Vec<String> {
    let mut lines = vec![format!("{} {}{}", call.method, call.authority, call.path)];
    lines.extend(call.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())));
    lines.push(String::from_utf8_lossy(&call.body).into_owned());
    lines
}

#[test]
fn an_introspection_has_the_form_of_rfc_7662() {
    let want = [
        "POST idp.test:8080/introspect",
        "accept: application/json",
        "content-type: application/x-www-form-urlencoded",
        // The client edge with the secret "a b", encoded as in forms.
        "authorization: Basic ZWRnZTphK2I=",
        "token=t%261&token_type_hint=access_token",
    ];
    assert_eq!(text(&introspection().call("t&1").unwrap()), want);
    let without = Introspection { client: None, ..introspection() };
    assert_eq!(without.call("t").unwrap_err(), CallFault::Incomplete);
}

#[test]
fn parts_of_a_request_come_from_the_request_and_add_nothing_else() {
    let head = SampleHead::new("GET").with(&[("x-user", "a b&c=d?e/f"), ("x-bad", "a\nb")]);
    let value = |selector: &str| PathPiece::Value(Selector::new(selector).unwrap());
    let plain = |text: &str| PathPiece::Text(text.into());
    let of = |rule: &HttpRule| rule.call(&attributes(&head), ReplyForm::Document).map(|call| text(&call));
    let user = [plain("/users/"), value("request.headers.x-user"), plain("?all=1")];
    let first = |rule: &HttpRule| of(rule).map(|lines| lines[0].clone());
    assert_eq!(first(&http_rule(&user)), Ok("GET idp.test:8080/users/a%20b%26c%3Dd%3Fe/f?all=1".to_owned()));
    assert_eq!(first(&http_rule(&[plain("/"), value("request.headers.x-none")])), Err(CallFault::Incomplete));
    assert_eq!(first(&http_rule(&[value("request.headers.x-user")])), Err(CallFault::Incomplete));
    let url =
        |source: &str| HttpRule { path: CallPath::Expression(ValueExpression::new(source).unwrap()), ..http_rule(&[]) };
    assert_eq!(first(&url("'http://idp.test:8080/x?m=' + request.method")), Ok("GET idp.test:8080/x?m=GET".to_owned()));
    let up = SampleHead::new("GET").with(&[("x-user", "../admin")]);
    let call = http_rule(&user).call(&attributes(&up), ReplyForm::Document);
    assert_eq!(call.map(|call| text(&call)), Err(CallFault::Incomplete), "a value leads to another place");
    for away in ["http://other.test:8080/", "https://idp.test:8080/", "http://idp.test/", "http://a@idp.test:8080/", ""]
    {
        assert_eq!(first(&url(&format!("'{away}'"))), Err(CallFault::Incomplete), "{away}");
    }
    let bad = [(HeaderName::from_static("x-a"), expression("request.headers['x-bad']"))];
    assert_eq!(of(&HttpRule { headers: bad.into(), ..http_rule(&[plain("/")]) }), Err(CallFault::Incomplete));
    let parameters = [("a".into(), expression("request.method")), ("n".into(), expression("1"))];
    let posts = |body| HttpRule { method: Method::POST, body, ..http_rule(&[plain("/")]) };
    let last = |rule: &HttpRule| of(rule).map(|lines| lines.last().unwrap().clone());
    assert_eq!(last(&posts(CallBody::Form(parameters.clone().into()))), Ok("a=GET&n=1".to_owned()));
    assert_eq!(last(&posts(CallBody::Json(parameters.into()))), Ok(r#"{"a":"GET","n":1}"#.to_owned()));
}

#[test]
fn a_shared_secret_is_put_into_its_place() {
    let of = |place: Credentials| {
        let source = CallCredentialSource::Secret(Some(SecretText::new("s")));
        let path = [PathPiece::Text("/?a=1".into())];
        let rule = HttpRule { credential: Some(CallCredential { place, source }), ..http_rule(&path) };
        let call = rule.call(&attributes(&SampleHead::new("GET")), ReplyForm::Document).unwrap();
        let lines = text(&call);
        format!("{} {}", lines[0], lines.get(2).filter(|line| !line.is_empty()).cloned().unwrap_or_default())
    };
    assert_eq!(of(Credentials::default()), "GET idp.test:8080/?a=1 authorization: Bearer s");
    assert_eq!(of(Credentials::Header(HeaderName::from_static("x-key"))), "GET idp.test:8080/?a=1 x-key: s");
    assert_eq!(of(Credentials::Query("k".into())), "GET idp.test:8080/?a=1&k=s ");
    assert_eq!(of(Credentials::Cookie("k".into())), "GET idp.test:8080/?a=1 cookie: k=s");
}

#[test]
fn an_answer_must_have_the_form_of_its_protocol() {
    let now = UNIX_EPOCH + Duration::from_secs(1000);
    let check = |form: &ReplyForm, status: u16, body: &str, want: Result<Option<Value>, CallFault>| {
        let headers =
            HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let mut call = introspection().call("t").unwrap();
        call.reply = form.clone();
        let got =
            call.read(status, &headers, body.as_bytes(), now).map(|value| value.map(|value| Value::clone(&value)));
        assert_eq!(got, want, "{status} {body}");
    };
    let invalid = Err(CallFault::InvalidAnswer);
    let form = ReplyForm::Introspection;
    check(&form, 200, r#"{"active":true,"sub":"a"}"#, Ok(Some(json!({"active": true, "sub": "a"}))));
    check(&form, 200, r#"{"active":true,"exp":1001}"#, Ok(Some(json!({"active": true, "exp": 1001}))));
    check(&form, 200, r#"{"active":true,"exp":1000}"#, Ok(None));
    check(&form, 200, r#"{"active":false}"#, Ok(None));
    for bad in [r#"{"active":"true"}"#, "{}", "[]", "null", "", "no", r#"{"active":true,"exp":"1"}"#, r#"{"active":1}"#]
    {
        check(&form, 200, bad, invalid.clone());
    }
    for status in [201, 204, 302, 401, 500] {
        check(&form, status, r#"{"active":true}"#, invalid.clone());
    }
    let form = ReplyForm::UserInfo { subject: Some("a".into()) };
    check(&form, 200, r#"{"sub":"a","email":"e"}"#, Ok(Some(json!({"sub": "a", "email": "e"}))));
    check(&form, 200, r#"{"sub":"b"}"#, invalid.clone());
    check(&form, 200, r#"{"email":"e"}"#, invalid.clone());
    check(&ReplyForm::UserInfo { subject: None }, 200, r#"{"email":"e"}"#, Ok(Some(json!({"email": "e"}))));
    let form = ReplyForm::AccessToken;
    let token = json!({"access_token": "t", "token_type": "Bearer"});
    check(&form, 200, &token.to_string(), Ok(Some(token)));
    check(&form, 200, r#"{"access_token":"t"}"#, invalid.clone());
    check(&form, 200, r#"{"access_token":"t","token_type":"mac"}"#, invalid.clone());
    check(&form, 200, r#"{"token_type":"bearer"}"#, invalid.clone());
    check(&ReplyForm::Document, 200, "[1]", Ok(Some(json!([1]))));
    check(&ReplyForm::Document, 200, "[1", invalid.clone());
    check(&ReplyForm::Document, 404, "[1]", invalid.clone());
    check(&ReplyForm::Ignored, 500, "", Ok(None));
    let many = format!("[{}0]", r#"{"":0},"#.repeat(1500));
    check(&ReplyForm::Document, 200, &many, Err(CallFault::InvalidAnswer));
}

#[test]
fn a_review_must_be_about_its_audience() {
    let review = TokenReview { token: "t".into(), audiences: ["a.test".into(), "b.test".into()].into() };
    assert_eq!(review.object()["spec"], json!({"token": "t", "audiences": ["a.test", "b.test"]}));
    let check = |status: Value, want: bool| {
        let got = review.read(&json!({ "status": status }));
        assert_eq!(got.map(|got| got.is_some()), Ok(want), "{status}");
    };
    check(json!({"authenticated": true, "audiences": ["b.test"], "user": {"username": "u"}}), true);
    check(json!({"authenticated": true, "audiences": ["c.test"]}), false);
    check(json!({"authenticated": true}), false);
    check(json!({"authenticated": false, "audiences": ["b.test"]}), false);
    check(json!({"error": "no"}), false);
    assert_eq!(review.read(&json!({})), Err(CallFault::InvalidAnswer));
}

#[test]
fn an_access_review_is_about_a_resource_or_the_request() {
    let head = SampleHead::new("DELETE").with(&[("x-name", "n")]);
    let of = |rule: &AccessReviewRule| rule.call(&attributes(&head)).map(|review| review.object()["spec"].clone());
    let user = Some(expression("'anna'"));
    let plain = AccessReviewRule { user: user.clone(), groups: ["dev".into()].into(), ..AccessReviewRule::default() };
    let want = json!({"user": "anna", "groups": ["dev"], "nonResourceAttributes": {"path": "/", "verb": "delete"}});
    assert_eq!(of(&plain), Ok(want));
    let resource = AccessAttributes {
        group: Some(expression("'apps'")),
        resource: Some(expression("'deployments'")),
        name: Some(expression("request.headers['x-name']")),
        verb: Some(expression("'get'")),
        ..AccessAttributes::default()
    };
    let of_resource = AccessReviewRule {
        user: user.clone(),
        authorization_groups: Some(expression("['a', 'b']")),
        resource: Some(resource),
        ..AccessReviewRule::default()
    };
    let attributes_of = |name: &str| json!({"group": "apps", "resource": "deployments", "subresource": "", "name": name, "namespace": "", "verb": "get"});
    assert_eq!(
        of(&of_resource),
        Ok(json!({"user": "anna", "groups": ["a", "b"], "resourceAttributes": attributes_of("n")}))
    );
    let incomplete = Err(CallFault::Incomplete);
    assert_eq!(of(&AccessReviewRule::default()), incomplete, "about nobody");
    let absent =
        AccessReviewRule { user: Some(expression("request.headers['x-none']")), ..AccessReviewRule::default() };
    assert_eq!(of(&absent), incomplete);
    for groups in ["'dev'", "[1]"] {
        let odd = AccessReviewRule { authorization_groups: Some(expression(groups)), ..plain.clone() };
        assert_eq!(of(&odd), incomplete, "{groups}");
    }
    let review = plain.call(&attributes(&head)).unwrap();
    let read = |status: Value| review.read(&json!({ "status": status })).map(|answer| answer.is_some());
    assert_eq!(read(json!({"allowed": true})), Ok(true));
    assert_eq!(read(json!({"allowed": true, "denied": true})), Ok(false));
    assert_eq!(read(json!({"allowed": false})), Ok(false));
    assert_eq!(read(json!({})), Err(CallFault::InvalidAnswer));
}
