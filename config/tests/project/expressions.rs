//! Objects that hold regular expressions, and their projections after expressions are dropped.

use serde_json::{Value, json};
use tidegate_config::finding::Finding;
use tidegate_config::object::Kind;
use tidegate_config::project::{
    ExpressionPool, NAMESPACE_EXPRESSION_BYTES_MAX, Object, Projected, expressions_in, identify, project,
    project_listed,
};

use crate::manifest::{self, Manifest};

fn projected(kind: Kind, mut object: Value) -> Projected {
    object["metadata"]["name"] = "own".into();
    object["metadata"]["namespace"] = "shop".into();
    object["metadata"]["resourceVersion"] = "1".into();
    project(kind, object.to_string().as_bytes()).unwrap()
}

/// Leaves out the expressions of an object, and compares it with the projection of another one; returns the findings.
#[track_caller]
fn check(kind: Kind, object: Value, like: Value, told: &[&str]) -> Projected {
    let mut whole = projected(kind, object);
    let findings = whole.object.as_mut().unwrap().leave_out_expressions(&whole.meta.object, "has no room");
    assert!(whole.object.as_ref().unwrap().expressions().is_none());
    assert_eq!(format!("{:?}", parts(&whole)), format!("{:?}", parts(&projected(kind, like))));
    let all = findings.iter().map(|finding| format!("{}: {}", finding.field, finding.problem));
    assert_eq!(all.collect::<Vec<_>>(), told);
    whole
}

/// The rules or the application.
fn parts(projected: &Projected) -> impl std::fmt::Debug {
    let object = projected.object.as_ref().unwrap();
    if let Object::HttpRoute(route) = object {
        return format!("{:?}", route.rules);
    }
    if let Object::GrpcRoute(route) = object {
        return format!("{:?}", route.rules);
    }
    let Object::Service(service) = object else { panic!("{object:?}") };
    let app = service.deis.as_ref().unwrap();
    format!("{:?} {:?} {:?}", app.domains, app.expression, app.locations)
}

#[test]
fn rules_of_http_routes_are_left_out() {
    let literal = json!({"matches": [{"path": {"value": "/b"}}]});
    let path =
        json!({"matches": [{"path": {"value": "/a"}}, {"path": {"type": "RegularExpression", "value": "/a.*"}}]});
    let header = json!({"matches": [{"headers": [{"name": "x", "type": "RegularExpression", "value": "y+"}]}]});
    let query = json!({"matches": [{"queryParams": [{"name": "x", "type": "RegularExpression", "value": "z+"}]}]});
    let rules = |rules: &[&Value]| json!({"spec": {"rules": rules}});
    // An invalid rule, so that the others have their indexes.
    let invalid = json!({"matches": [{"method": "NONE"}]});
    let whole = check(
        Kind::HttpRoute,
        rules(&[&path, &literal, &invalid, &header, &query]),
        rules(&[&invalid, &literal]),
        &[
            "spec.rules[0].matches[1]: \"/a.*\" has no room, so it is dropped",
            "spec.rules[3].matches[0]: \"y+\" has no room, so it is dropped",
            "spec.rules[4].matches[0]: \"z+\" has no room, so it is dropped",
        ],
    );
    let Some(Object::HttpRoute(route)) = whole.object else { panic!("no route") };
    assert_eq!(*route.dropped, [0, 2, 3, 4]);
}

#[test]
fn rules_of_grpc_routes_are_left_out() {
    let literal = json!({"matches": [{"method": {"service": "a.B"}}]});
    let method = json!({"matches": [{"method": {"type": "RegularExpression", "service": "a.*"}}]});
    let header = json!({"matches": [{"headers": [{"name": "x", "type": "RegularExpression", "value": "y+"}]}]});
    let never = json!({"matches": [{"method": {"type": "None"}}]});
    check(
        Kind::GrpcRoute,
        json!({"spec": {"rules": [method, literal, header]}}),
        json!({"spec": {"rules": [never, literal]}}),
        &[
            "spec.rules[0].matches[0]: \"/(?:a.*)/(?:[^/]+)\" has no room, so it is dropped",
            "spec.rules[2].matches[0]: \"y+\" has no room, so it is dropped",
        ],
    );
}

#[test]
fn paths_and_hosts_of_applications_are_left_out() {
    let app = |annotations: Value| {
        let labels = json!({"router.deis.io/routable": "true"});
        json!({"metadata": {"labels": labels, "annotations": annotations}})
    };
    let of = |expression: Option<&str>, locations: &str| {
        let mut annotations = json!({
            "router.deis.io/domains": "shop,other",
            "router.deis.io/proxyDomain": "front",
            "router.deis.io/proxyLocations": locations,
        });
        if let Some(expression) = expression {
            annotations["router.deis.io/regexDomain"] = expression.into();
        }
        app(annotations)
    };
    check(
        Kind::Service,
        of(Some("shop-[a-z]+"), "/a,~ ^/b.*,/c"),
        of(None, "/a,/c"),
        &[
            "metadata.annotations[router.deis.io/regexDomain]: \"(?:shop|shop-[a-z]+)\\\\..+\" has no room, so it is dropped",
            "metadata.annotations[router.deis.io/proxyLocations]: \"^/b.*\" has no room, so it is dropped",
        ],
    );
    check(
        Kind::Service,
        of(None, "~ ^/b.*"),
        app(json!({"router.deis.io/domains": "shop,other"})),
        &["metadata.annotations[router.deis.io/proxyLocations]: \"^/b.*\" has no room, so it is dropped"],
    );
}

/// A policy with these limits.
fn policy(limits: &Value) -> Projected {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"});
    projected(Kind::RateLimitPolicy, json!({"spec": {"targetRef": target, "limits": limits}}))
}

/// The name of a limit takes part in merges, so that it stays.
#[test]
fn limits_with_patterns_are_left_out_and_keep_their_names() {
    let rates = json!([{"limit": 1, "window": "1s"}]);
    let when = json!([{"predicate": "request.host.matches('^a+')"}]);
    let mut whole = policy(&json!({"ip": {"when": when, "rates": rates}, "all": {"rates": rates}}));
    let findings = whole.object.as_mut().unwrap().leave_out_expressions(&whole.meta.object, "has no room");
    let told: Vec<String> = findings.iter().map(Finding::note).collect();
    assert_eq!(told, [r#"limits[ip]: "^a+" has no room, so the limit is not enforced"#]);
    let Some(Object::RateLimitPolicy(left)) = whole.object else { panic!("{:?}", whole.object) };
    let block = left.limits.as_ref().unwrap();
    let rates: Vec<(&str, usize)> = block.entries.iter().map(|(name, limit)| (&**name, limit.rates.len())).collect();
    assert_eq!(rates, [("all", 1), ("ip", 0)]);
    assert_eq!(*left.left_out, [r#"limits[ip]: "^a+" has no room"#.to_owned()]);
    assert!(Object::RateLimitPolicy(left).expressions().is_none());
}

/// The patterns of all expressions of a policy are counted together, and equal ones once.
#[test]
fn patterns_of_a_policy_are_limited() {
    let of_patterns = |pattern: fn(usize) -> String| {
        let predicate = |number: usize| json!({"predicate": format!("request.host.matches('{}')", pattern(number))});
        let limit = |number: usize| json!({"when": [predicate(2 * number), predicate(2 * number + 1)]});
        policy(&(0..100).map(|number| (format!("l{number:02}"), limit(number))).collect())
    };
    let object = of_patterns(|_| "^a+".to_owned()).object.unwrap();
    let all = object.expressions().unwrap().all;
    assert!(all.len() == 200 && all.iter().all(|it| it.is_same(all[0])));

    let different = of_patterns(|number| format!("^a{number}+"));
    assert_eq!(different.object.as_ref().unwrap().expressions().unwrap().all.len(), 128);
    let told: Vec<String> = different.findings.iter().map(Finding::note).filter(|it| it.contains("pattern")).collect();
    assert_eq!(told.len(), 36);
    assert_eq!(
        told[0],
        concat!(
            r#"spec.limits[l64].when[0].predicate: "request.host.matches('^a128+')" is not a usable expression "#,
            "(the patterns before it in the policy take all that a policy may use), so the limit is not enforced"
        )
    );
}

/// Objects with expressions are projected on another thread, and are found without being parsed.
#[test]
fn objects_with_expressions_are_found_by_their_bytes() {
    let (mut with, mut without) = (0, 0);
    for Manifest { kind, json, .. } in manifest::all() {
        let json = json.to_string();
        let projected = project(kind, json.as_bytes()).unwrap();
        assert_eq!(identify(kind, json.as_bytes()).unwrap(), projected.meta);
        let has = projected.object.is_some_and(|object| object.expressions().is_some());
        let found = expressions_in(kind, json.as_bytes()) > 0;
        assert!(found || !has, "{kind} has expressions: {json}");
        with += usize::from(has);
        without += usize::from(!found);
    }
    assert!(with > 2 && without > 2, "{with} manifests with expressions, {without} without");
}

#[test]
fn equal_expressions_of_an_object_are_compiled_once() {
    let one = json!({"path": {"type": "RegularExpression", "value": "/a.*"}});
    let spec = json!({"rules": [{"matches": [one, one]}, {"matches": [one]}]});
    let object = projected(Kind::HttpRoute, json!({"spec": spec})).object.unwrap();
    let all = object.expressions().unwrap().all;
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|it| it.is_same(all[0])));
}

/// A list of objects holds at most twice the memory of what is kept of it, and compiles equal expressions once.
#[test]
fn a_list_makes_a_limited_number_of_expressions() {
    let object = |namespace: &str, number: usize, text: &str| {
        let one =
            |entry: usize| json!({"path": {"type": "RegularExpression", "value": format!(r"/{text}/{entry}/\w+")}});
        let rules: Vec<Value> = (0..16)
            .map(|rule| json!({"matches": (0..8).map(|entry| one(8 * rule + entry)).collect::<Vec<Value>>()}))
            .collect();
        let metadata = json!({"namespace": namespace, "name": format!("r{number}"), "resourceVersion": "1"});
        json!({"metadata": metadata, "spec": {"rules": rules}}).to_string()
    };
    let mut pool = ExpressionPool::default();
    let mut read = |object: String| project_listed(Kind::HttpRoute, object.as_bytes(), &mut pool).unwrap();
    let (mut bytes, mut whole) = (0, 0);
    for number in 0..80 {
        let projected = read(object("loud", number, &number.to_string()));
        let Some(held) = projected.object.as_ref().and_then(Object::expressions) else { break };
        bytes += held.all.iter().map(|it| it.bytes()).sum::<usize>();
        whole += 1;
    }
    assert!(whole > 8 && whole < 80 && bytes < 2 * NAMESPACE_EXPRESSION_BYTES_MAX + (1 << 20), "{whole}: {bytes}");
    let dropped = read(object("loud", 99, "new"));
    let told = dropped.findings.iter().filter(|it| it.to_string().contains("need too much memory")).count();
    assert_eq!((dropped.object.unwrap().expressions().is_none(), told), (true, 16));
    // Equal ones cost nothing, and other namespaces have their own limit.
    let (equal, other) = (read(object("loud", 100, "0")), read(object("quiet", 101, "new")));
    for projected in [equal, other] {
        assert_eq!(projected.object.unwrap().expressions().unwrap().all.len(), 128, "{:?}", projected.findings);
    }
}
