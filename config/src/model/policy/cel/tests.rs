//! Tests of expressions.

mod agreement;
mod hostile;
mod mutated;

use std::time::{Duration, SystemTime};

use super::super::super::path::PathMatch;
use super::super::super::route::{Action, Origin, Route};
use super::super::super::sample::SampleHead;
use super::super::super::settings::Effective;
use super::super::{AuthDocument, ConnectionAttributes};
use super::*;
use crate::model::ListenerName;
use crate::object::{Age, Kind, ObjectName, ObjectRef};

/// 2026-11-29 09:30:00 UTC, a Sunday.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_944_600)
}

/// The result of a function of the attributes of a request for `/shop/cart` of a client over TLS.
fn with<T>(head: &SampleHead, read: impl FnOnce(&Attributes<'_, SampleHead>) -> T) -> T {
    let object = ObjectRef::new(Kind::HttpRoute, ObjectName::new("shop", "web"));
    let age = Age { created_s: 0, name: object.name.clone() };
    let origin = Origin { object, field: "spec".into(), age, position: 0 };
    let route = Route::new(origin, PathMatch::Prefix("/".into()), Action::Forward([].into()));
    read(&Attributes {
        head,
        host: "shop.test",
        path: "/shop/cart",
        request_id: Some("0123"),
        protocol: Some("HTTP/2"),
        address: Some([192, 0, 2, 9].into()),
        secure: true,
        connection: ConnectionAttributes {
            client_port: Some(50_000),
            local: Some(([10, 0, 0, 1], 443).into()),
            server_name: Some("shop.test"),
            tls_version: Some("TLSv1.3"),
        },
        listener: &ListenerName("https".into()),
        body_bytes: Some(7),
        route: &route,
        share: None,
        policies: None,
        auth: None,
        effective: &Effective::DEFAULT,
        now,
    })
}

fn head() -> SampleHead {
    let lines = [
        ("user-agent", "curl/8"),
        ("x-tenant", "acme"),
        ("x-list", "a,b"),
        ("x-list", "c"),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("x-empty", ""),
    ];
    SampleHead::new("GET").query("q=1").with(&lines).with(&[("x-bytes", b"\xffa")])
}

/// The value of an expression for a request; an error begins with `!`.
#[track_caller]
fn value(source: &str, want: &str) {
    let expression = ValueExpression::new(source).unwrap_or_else(|why| panic!("{source}: {why}"));
    let text = |value: Result<String, EvaluationError>| value.unwrap_or_else(|error| format!("!{error}"));
    let got = with(&head(), |attributes| text(expression.value(attributes).map(Cow::into_owned)));
    assert_eq!(got, want, "{source}");
    let read = with(&head(), |attributes| text(expression.with_value(attributes, str::to_owned)));
    assert_eq!(read, want, "{source}");
}

#[test]
fn attributes_have_their_values() {
    for (name, want) in [
        ("request.id", "0123"),
        ("request.scheme", "https"),
        ("request.protocol", "HTTP/2"),
        ("request.host", "shop.test"),
        ("request.method", "GET"),
        ("request.path", "/shop/cart?q=1"),
        ("request.url_path", "/shop/cart"),
        ("request.query", "q=1"),
        ("request.useragent", "curl/8"),
        ("request.user_agent", "curl/8"),
        ("request.referer", "!the request has no request.headers['referer']"),
        ("request.size", "7"),
        ("request['method']", "GET"),
        ("request.headers.cookie", "a=1; b=2"),
        ("request.headers['x-tenant']", "acme"),
        ("request.headers['x-list']", "a,b,c"),
        ("request.headers['x-empty']", ""),
        ("request.headers['x-bytes']", "\u{fffd}a"),
        ("request.headers['x-none']", "!the request has no request.headers['x-none']"),
        ("request.headers[':path']", "/shop/cart?q=1"),
        ("request.headers['host']", "shop.test"),
        ("string(request.time)", "2026-11-29T09:30:00Z"),
        ("request.time.getHours('Europe/Berlin')", "10"),
        ("request.time.getDayOfWeek()", "0"),
        ("source.address", "192.0.2.9"),
        ("source.remote_address", "192.0.2.9"),
        ("source.port", "50000"),
        ("destination.address", "10.0.0.1"),
        ("destination.port", "443"),
        ("connection.requested_server_name", "shop.test"),
        ("connection.tls_session.sni", "shop.test"),
        ("connection.tls_version", "TLSv1.3"),
        ("connection.mtls", "false"),
    ] {
        value(name, want);
    }
}

#[test]
fn values_are_texts_numbers_and_truth_values() {
    for (source, want) in [
        ("'a' + request.method", "aGET"),
        ("1 + 2", "3"),
        ("2u", "2"),
        ("1.5", "1.5"),
        ("1.0", "1"),
        ("request.method == 'GET'", "true"),
        ("null", "!the result is neither a text nor a number, true or false"),
        ("[request.method]", "!the result is neither a text nor a number, true or false"),
        ("{'a': 1}", "!the result is neither a text nor a number, true or false"),
        ("request.time", "!the result is neither a text nor a number, true or false"),
        ("request.headers.?x_none", "!the result is neither a text nor a number, true or false"),
        ("1 / (request.size - 7)", "!a division by zero"),
        ("[1][request.size]", "!an index is out of bounds"),
        ("{'a': 1}[request.method]", "!a map has no such key"),
        ("request.method + 1", "!a function or operator is not for values like these"),
        ("int(request.method)", "!int has no result for these values"),
    ] {
        value(source, want);
    }
}

#[test]
fn headers_can_be_absent() {
    for (source, want) in [
        ("has(request.headers.cookie)", "true"),
        ("has(request.headers.none)", "false"),
        ("'x-tenant' in request.headers", "true"),
        ("'x-none' in request.headers", "false"),
        ("request.headers.?none.orValue('-')", "-"),
        ("request.headers[?'x-tenant'].orValue('-')", "acme"),
        ("request.?headers['x-none'].hasValue()", "false"),
        ("request.headers['x-none'] == 'a' || true", "true"),
        ("request.headers['x-none'] == 'a' && false", "false"),
        ("request.headers['x-none'] == 'a' || false", "!the request has no request.headers['x-none']"),
        ("has(request.headers.none) && request.headers.none == 'a'", "false"),
    ] {
        value(source, want);
    }
}

#[test]
fn functions_of_texts_have_their_results() {
    for (source, want) in [
        ("'tacocat'.charAt(3)", "o"),
        ("'é€a'.charAt(1)", "€"),
        ("'a'.charAt(1)", ""),
        ("'a'.charAt(2)", "!charAt has no result for these values"),
        ("'hello mellow'.indexOf('ello')", "1"),
        ("'hello mellow'.indexOf('')", "0"),
        ("'hello mellow'.indexOf('jello')", "-1"),
        ("'hello mellow'.indexOf('ello', 2)", "7"),
        ("'é€a'.indexOf('a')", "2"),
        ("'hello'.indexOf('l', -1)", "!indexOf has no result for these values"),
        ("'hello'.indexOf('l', 9)", "!indexOf has no result for these values"),
        ("'hello mellow'.lastIndexOf('ello')", "7"),
        ("'hello mellow'.lastIndexOf('ello', 6)", "1"),
        ("'hello mellow'.lastIndexOf('ello', 0)", "-1"),
        ("'hello'.lastIndexOf('')", "5"),
        ("'é€é'.lastIndexOf('é', 1)", "0"),
        ("['a', 'b'].join('-')", "a-b"),
        ("[].join()", ""),
        ("[1].join()", "!join has no result for these values"),
        ("'TacoCÆt'.lowerAscii()", "tacocÆt"),
        ("'TacoCæt'.upperAscii()", "TACOCæT"),
        ("'hello hello'.replace('he', 'we')", "wello wello"),
        ("'hello hello'.replace('he', 'we', 1)", "wello hello"),
        ("'hello hello'.replace('he', 'we', -1)", "wello wello"),
        ("'ab'.replace('', '-')", "-a-b-"),
        ("'a b c'.split(' ').join('|')", "a|b|c"),
        ("'a b c'.split(' ', 2).join('|')", "a|b c"),
        ("'a b c'.split(' ', 0).size()", "0"),
        ("'abc'.split('').join('|')", "a|b|c"),
        ("'abc'.split('', 2).join('|')", "a|bc"),
        ("'abc'.split('', 3).join('|')", "a|b|c"),
        ("''.split('').size()", "0"),
        ("''.split(',').size()", "1"),
        ("'a,'.split(',').size()", "2"),
        ("'tacocat'.substring(4)", "cat"),
        ("'tacocat'.substring(0, 4)", "taco"),
        ("'é€a'.substring(1, 2)", "€"),
        ("'tacocat'.substring(8)", "!substring has no result for these values"),
        ("'tacocat'.substring(2, 1)", "!substring has no result for these values"),
        ("' \\t trim \\n '.trim()", "trim"),
        ("'abc'.matches('^a.c$')", "true"),
        ("matches(request.method, 'P(UT|OST)')", "false"),
        ("request.headers['x-list'].split(',').exists(one, one == 'b')", "true"),
        ("optional.of(request.method).value()", "GET"),
        ("['a', 'bb'].map(text, size(text))[1]", "2"),
        ("[1, 2, 3].filter(n, n > 1).size()", "2"),
        ("[1, 2].all(a, [1, 2].exists_one(b, a == b))", "true"),
        ("request.method in ['GET', 'HEAD'] ? 'read' : 'write'", "read"),
        ("type(request.size) == int", "true"),
        ("duration('90s').getMinutes() == 1 && timestamp('2026-11-29T00:00:00Z') < request.time", "true"),
    ] {
        value(source, want);
    }
}

#[test]
fn what_does_not_exist_is_refused_with_its_name() {
    let check = |source: &str, want: &str| {
        let got = ValueExpression::new(source).map(|_| ()).unwrap_err();
        assert_eq!((&*got, Predicate::new(source).map(|_| ())), (want, Err(want.to_owned())), "{source}");
    };
    check("request.body", "there is no attribute request.body: bodies are not read");
    check("request.foo == 'a'", "there is no attribute request.foo");
    check("request.method.name", "there is no attribute request.method.name");
    check("ratelimit.a.b", "there is no attribute ratelimit: limits do not see the results of others");
    check("source.principal", "there is no attribute source.principal: clients have no certificates here");
    check("metadata.filter_metadata['a']", "there is no attribute metadata: there is no such state here");
    check("size(request)", "request can only be used by one of its fields");
    let one_by_one =
        "there is no attribute request.headers: headers are read one by one: write request.headers['name']";
    check("size(request.headers)", one_by_one);
    check("request.headers.exists(name, name == 'a')", one_by_one);
    check("request.headers[request.method]", one_by_one);
    check("request.headers['X-A']", "request.headers['X-A']: the names of headers are in lower case");
    check("method == 'GET'", "there is no attribute method");
    check("[1].map(a, b)", "there is no attribute b");
    check("requestBodyJSON('/a')", "there is no function requestBodyJSON");
    check("request.method.reverse()", "there is no function reverse");
    check("lists.range(9)", "there is no function range");
    check("_f(1)", "there is no function _f");
    check("optional.some(1)", "there is no function optional.some");
    check("a.b{c: 1}", "a.b: messages cannot be made here");
    check("request.method.matches(request.host)", "the pattern of matches must be a constant text");
    check("request.method.matches('(')", "\"(\" is not a usable expression (unclosed group)");
    check("", "line 1, column 1: Syntax error: mismatched input '<EOF>' expecting expression");
    check("1 +", "line 1, column 4: Syntax error: mismatched input '<EOF>' expecting expression");
    check("request.method = 'GET'", "line 1, column 16: Syntax error: mismatched input '=' expecting <EOF>");
}

#[test]
fn a_reference_to_the_identity_is_one_by_the_syntax_tree() {
    let check = |source: &str, want: bool| {
        assert_eq!(Predicate::new(source).unwrap().reads_identity(), want, "{source}");
        assert_eq!(ValueExpression::new(source).unwrap().reads_identity(), want, "{source}");
    };
    check("auth.identity.sub == 'a'", true);
    check("has(auth.identity)", true);
    check("auth['identity']['sub'] == 'a'", true);
    check("[1].exists(n, auth.identity.number == n)", true);
    check("request.method == 'auth.identity'", false);
    check("[{'identity': 1}].exists(auth, auth.identity == 1)", false);
    check("[auth.identity].exists(auth, auth == 1)", true);
    check("request.headers['auth.'] == ''", false);
}

#[test]
fn without_an_identity_a_reference_to_it_is_an_error() {
    value("auth.identity.sub", "!the request has no auth.identity.sub");
    value("has(auth.identity) ? 'a' : 'b'", "b");
}

/// The value of an expression as JSON for a request of a known client.
#[track_caller]
fn known(source: &str, want: &str) {
    let mut auth = AuthDocument::default();
    auth.put_identity(serde_json::json!({
        "sub": "anna", "age": 7, "share": 0.5, "admin": false, "none": null, "groups": ["dev", "ops"],
        "metadata": {"annotations": {"example.com/plan": "gold"}},
        "long": "x".repeat(json::BYTES_MAX + 1), "many": vec![0; json::NODES_MAX],
    }));
    let expression = ValueExpression::new(source).unwrap_or_else(|why| panic!("{source}: {why}"));
    let got = with(&head(), |attributes| match expression.json(&attributes.with_auth(&auth)) {
        Ok(value) => value.to_string(),
        Err(error) => format!("!{error}"),
    });
    assert_eq!(got, want, "{source}");
}

#[test]
fn expressions_read_what_is_known_of_the_client() {
    known("auth.identity.sub", r#""anna""#);
    known("auth.identity['sub'] + request.method", r#""annaGET""#);
    known("auth.identity.metadata.annotations['example.com/plan']", r#""gold""#);
    known("auth.identity.metadata", r#"{"annotations":{"example.com/plan":"gold"}}"#);
    known("auth.identity.age + 1 == 8 && auth.identity.share < 1.0", "true");
    known("auth.identity.age == 7.0 && !auth.identity.admin", "true");
    known("'ops' in auth.identity.groups && !('web' in auth.identity.groups)", "true");
    known("auth.identity.groups.exists(group, group.startsWith('d'))", "true");
    known("auth.identity.groups.map(group, group + '!')", r#"["dev!","ops!"]"#);
    known("auth.identity.groups[0]", r#""dev""#);
    known("has(auth.identity.sub) && !has(auth.identity.email)", "true");
    known("auth.identity.?email.orValue('nobody')", r#""nobody""#);
    known("{'user': auth.identity.sub, 'n': [1, 2.5, null]}.user", r#""anna""#);
    known("[1, 2.5, null, true]", "[1,2.5,null,true]");
    known("auth.identity.none == null", "true");
    known("auth.identity.email", "!the request has no auth.identity.email");
    known("auth.response.x", "!the request has no auth.response.x");
    known("auth.identity.long", "!auth.identity.long is too long");
    known("size(auth.identity.many)", "!auth.identity.many is too long");
    known("request.time", "!the result has no form in JSON");
}

#[test]
fn what_is_known_of_the_client_has_four_parts() {
    let refused = |source: &str| ValueExpression::new(source).unwrap_err();
    assert_eq!(refused("auth"), "auth can only be used by one of its fields");
    assert_eq!(refused("auth.user"), "there is no attribute auth.user");
}

#[test]
fn a_selector_names_an_attribute() {
    let mut auth = AuthDocument::default();
    let annotations = serde_json::json!({"example.com/plan": "gold"});
    auth.put_identity(serde_json::json!({"n": 1, "list": ["a"], "annotations": annotations, "null": null}));
    let check = |source: &str, want: Result<Option<&str>, &str>| {
        let got = Selector::new(source).map(|selector| {
            let text = |attributes: &Attributes<'_, SampleHead>| {
                selector.text(&attributes.with_auth(&auth)).map(std::borrow::Cow::into_owned)
            };
            with(&head(), text)
        });
        assert_eq!(got.as_ref().map(Option::as_deref).map_err(|why| &**why), want, "{source}");
    };
    check("context.request.http.method", Ok(Some("GET")));
    check("context.request.http.headers.X-Tenant", Ok(Some("acme")));
    check("request.url_path", Ok(Some("/shop/cart")));
    check("request.size", Ok(Some("7")));
    check("context.source.address", Ok(Some("192.0.2.9")));
    check("auth.identity.n", Ok(Some("1")));
    check("auth.identity.list", Ok(Some(r#"["a"]"#)));
    check(r"auth.identity.annotations.example\.com/plan", Ok(Some("gold")));
    check("auth.identity.none", Ok(None));
    check("auth.identity", Ok(Some(r#"{"annotations":{"example.com/plan":"gold"},"list":["a"],"n":1,"null":null}"#)));
    check("auth.identity.list.#", Err("# is not understood in a selector: use an expression"));
    check("auth.identity.n.@base64:encode", Err("@ is not understood in a selector: use an expression"));
    check("context.request.http.body", Err("there is no such attribute"));
    check("auth.identity.list.0", Err("\"0\" is no name of a field: use an expression for elements of lists"));
    check("auth..identity", Err("\"\" is no name of a field: use an expression for elements of lists"));
    check("auth.identity.null", Ok(None));
}

#[test]
fn a_predicate_is_true_or_false() {
    let check = |source: &str, want: Result<bool, &str>| {
        let got = with(&head(), |attributes| Predicate::new(source).unwrap().holds(attributes));
        assert_eq!(got.as_ref().map_err(ToString::to_string), want.as_ref().map_err(|&why| why.to_owned()), "{source}");
    };
    check("request.method == 'GET'", Ok(true));
    check("request.size > 7", Ok(false));
    check("request.method", Err("the result is neither true nor false"));
    check("request.headers.none == ''", Err("the request has no request.headers['none']"));
    check("auth.identity.admin", Err("the request has no auth.identity.admin"));
}

#[test]
fn expressions_are_equal_by_their_text_and_are_written_as_it() {
    let (one, other) = (Predicate::new("1 == 1").unwrap(), Predicate::new("1 ==  1").unwrap());
    assert_eq!((one == one.clone(), one == other), (true, false));
    assert_eq!(one.to_string(), "1 == 1");
}
