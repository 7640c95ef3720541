//! Random and malicious schemas, rules and objects: every request is answered quickly.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Map, Value, json};

use crate::server::{DEFINITIONS, Server, definition};

const ROUNDS: usize = 400;
const AT: &str = "/apis/example.com/v1/namespaces/default/noises";

/// The words of random rules.
const WORDS: &[&str] = &[
    "self",
    "oldSelf",
    ".a",
    ".b",
    "(",
    ")",
    "[",
    "]",
    "0",
    "1",
    "'a'",
    "'('",
    "\"",
    "==",
    "!=",
    "<",
    "+",
    "-",
    "*",
    "/",
    "%",
    "&&",
    "||",
    "!",
    "? 1 : 2",
    "has(self.a)",
    ".size()",
    ".all(x, x == 1)",
    ".map(x, x)",
    ".filter(x, true)",
    ".exists(x, y)",
    ".matches('a+')",
    ".matches(self)",
    ".split('')",
    ".join(',')",
    ".replace('a', 'bb')",
    ".format([1])",
    "{'a': 1}",
    "[1, 2]",
    "true",
    "null",
    "in",
    "duration('1s')",
    "timestamp('x')",
    "int(",
    "string(self)",
    "quantity(self)",
    ".add(quantity('9E'))",
    ".sub(9)",
    "ip(self)",
    "cidr(self)",
    ".masked()",
    "url(self)",
    ".getQuery()",
    "semver(self, true)",
    ".compareTo(semver('1.0.0'))",
    "lists.range(1000000)",
    ".flatten()",
    ".sort()",
    ".sum()",
    ".findAll('a', 9)",
    "sets.equivalent(self, oldSelf)",
    "format.named(self)",
    ".validate(self)",
    ".all(i, v, i == v)",
    ".transformList(i, v, v)",
    ".transformMapEntry(i, v, {v: i})",
    ".?a",
    "optional.none()",
    "dyn(self)",
    "é",
    "\n",
    "9223372036854775807",
    "-9223372036854775808",
    "1e999",
    "b'\\xff'",
    "type(self)",
    "isIP('::')",
    ".foo()",
    "@result",
];

fn rule(rng: &mut Rng) -> Value {
    let mut source = String::from(if rng.bool() { "self" } else { "" });
    (0..rng.usize(..8)).for_each(|_| source.push_str(WORDS[rng.usize(..WORDS.len())]));
    let mut rule = json!({"rule": source, "message": "no"});
    match rng.u8(..6) {
        0 => rule["messageExpression"] = WORDS[rng.usize(..WORDS.len())].into(),
        1 => rule["optionalOldSelf"] = true.into(),
        2 => rule["fieldPath"] = [".a", "a", "['x']", ""][rng.usize(..4)].into(),
        3 => rule["reason"] = ["FieldValueRequired", "FieldValueDuplicate", "?"][rng.usize(..3)].into(),
        _ => {}
    }
    rule
}

fn schema(rng: &mut Rng, depth: usize) -> Value {
    let kinds = ["object", "array", "string", "integer", "number", "boolean"];
    let kind = kinds[if depth > 3 { rng.usize(2..6) } else { rng.usize(..6) }];
    let mut schema = json!({"type": kind});
    match kind {
        "object" if rng.bool() => {
            let fields = ["a", "b", "c-d", "namespace"].iter().filter(|_| rng.bool()).map(|&name| name.to_owned());
            let fields: Vec<String> = fields.collect();
            let fields = fields.into_iter().map(|name| (name, self::schema(rng, depth + 1)));
            schema["properties"] = Value::Object(fields.collect::<Map<_, _>>());
        }
        "object" => schema["additionalProperties"] = self::schema(rng, depth + 1),
        "array" => schema["items"] = self::schema(rng, depth + 1),
        _ => {}
    }
    for (key, values) in [
        ("default", json!([1, "a", {}, [], null, true])),
        ("enum", json!([[1], ["a", 2], [], "x"])),
        ("pattern", json!(["^a", "(", "(a*)*", "\\d{1000}", 1])),
        ("maxLength", json!([0, 3, -1, "x"])),
        ("minimum", json!([0, 1.5, 1e308, "x"])),
        ("multipleOf", json!([0, 2, -1, 0.1])),
        ("required", json!([["a"], ["zz"], 1])),
        ("nullable", json!([true, 1])),
        ("format", json!(["date-time", "int32", "byte", "x"])),
        ("anyOf", json!([[{"required": ["a"]}], [{"type": "string"}], {}, [1]])),
        ("not", json!([{"enum": ["a"]}, {}, 1])),
        ("x-kubernetes-list-type", json!(["set", "map", "atomic", 1])),
        ("x-kubernetes-list-map-keys", json!([["a"], [], 1])),
        ("x-kubernetes-preserve-unknown-fields", json!([true, false])),
        ("x-kubernetes-embedded-resource", json!([true])),
        ("x-kubernetes-int-or-string", json!([true])),
    ] {
        if rng.u8(..12) == 0 {
            let values = values.as_array().unwrap();
            schema[key] = values[rng.usize(..values.len())].clone();
        }
    }
    if rng.u8(..4) == 0 {
        schema["x-kubernetes-validations"] = json!([rule(rng)]);
    }
    schema
}

fn object(rng: &mut Rng, depth: usize) -> Value {
    match rng.u8(..if depth > 4 { 7 } else { 10 }) {
        0 => Value::Null,
        1 => json!(rng.bool()),
        2 => json!(rng.i64(..)),
        3 => json!(rng.f64()),
        4 => json!(["", "a", "aaaa", "2020-01-01T00:00:00Z", "é\u{0}"][rng.usize(..5)]),
        5 => json!([]),
        6 => json!({}),
        7 => (0..rng.usize(..4)).map(|_| object(rng, depth + 1)).collect(),
        _ => {
            let names = ["a", "b", "c-d", "namespace", "metadata"];
            let fields = (0..rng.usize(..4)).map(|_| (names[rng.usize(..5)].to_owned(), object(rng, depth + 1)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
    }
}

#[tokio::test]
async fn any_schema_and_any_object_are_answered() {
    let server = Server::new();
    let mut rng = Rng::with_seed(29);
    let (mut defined, mut taken, mut refused) = (0, 0, 0);
    for _ in 0..ROUNDS {
        let root = json!({"type": "object", "properties": {"spec": schema(&mut rng, 0)}});
        let made =
            server.ask(&format!("POST {DEFINITIONS}"), Some(&definition("noises", "Noise", &[("v1", root)]))).await;
        assert!(made.status < 500, "{}", made.body);
        if made.status != 201 {
            continue;
        }
        defined += 1;
        for _ in 0..4 {
            let body = json!({"kind": "Noise", "metadata": {"name": "n"}, "spec": object(&mut rng, 0)});
            let said = server.ask(&format!("POST {AT}"), Some(&body)).await;
            assert!(said.status < 500, "{}", said.body);
            if said.status < 300 {
                taken += 1
            } else {
                refused += 1
            }
            let patch = json!({"spec": object(&mut rng, 0)});
            assert!(server.ask(&format!("PATCH {AT}/n"), Some(&patch)).await.status < 500);
            let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
            assert_eq!(server.send(&format!("GET {AT}"), None, accept).await.status, 200);
        }
        server.gives(&format!("DELETE {DEFINITIONS}/noises.example.com"), None, 200).await;
    }
    assert!(defined > 40 && taken > 100 && refused > 20, "{defined} defined, {taken} taken, {refused} refused");
}

/// A definition with one rule for a list of texts.
fn ruled(rule: &str) -> Value {
    let spec = json!({
        "type": "array", "items": {"type": "string"},
        "x-kubernetes-validations": [{"rule": rule, "message": "no"}],
    });
    definition("noises", "Noise", &[("v1", json!({"type": "object", "properties": {"spec": spec}}))])
}

/// Checks that a rule is refused, or that its evaluation on many texts is, within a short time.
async fn check(rule: &str, texts: usize) {
    let server = Server::new();
    let work = async {
        let made = server.ask(&format!("POST {DEFINITIONS}"), Some(&ruled(rule))).await;
        assert!(matches!(made.status, 201 | 422), "{}", made.body);
        if made.status == 201 {
            let spec: Vec<String> = (0..texts).map(|nth| format!("a{nth}")).collect();
            let body = json!({"kind": "Noise", "metadata": {"name": "n"}, "spec": spec});
            let said = server.ask(&format!("POST {AT}?dryRun=All"), Some(&body)).await;
            let budget = "running out of cost budget";
            assert!(said.status == 422 && said.message().contains(budget), "{rule:.60}: {}", said.message());
        }
    };
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("it is answered");
}

#[tokio::test]
async fn expensive_rules_are_refused() {
    check("self.all(a, self.all(b, a != b || a == b))", 20_000).await;
    check("self.map(a, self.map(b, a + b)).size() > 0", 20_000).await;
    let bomb = format!("self[0]{}.size() > 0", ".replace('a', 'aaaaaaaaaa')".repeat(20));
    check(&bomb, 1).await;
    let doubled = format!("[self[0]]{}[0].size() > 0", ".map(x, x + x)".repeat(40));
    check(&doubled, 1).await;
    for rule in [
        "sets.contains(self, self)",
        "self.distinct().size() > 0",
        "sets.equivalent(self, self.map(a, a + 'b'))",
        "lists.range(self.size() + 1).size() > 0",
        "self.all(a, self.sort()[0] == a)",
        "self.all(a, lists.range(1000).all(b, b >= 0))",
        "self.all(a, self.join(',').findAll('a').size() > 0)",
        "self.all(a, url('/?' + self.join('&')).getQuery().size() > 0)",
        "self.all(a, self.indexOf(a) >= 0)",
        "self.all(i, a, self.exists(j, b, i != j && a == b))",
        "self.transformMap(i, a, self.transformList(j, b, a + b)).size() > 0",
    ] {
        check(rule, 20_000).await;
    }
}

#[tokio::test]
async fn deeply_nested_rules_are_refused() {
    for rule in [
        format!("1{} > 0", " + 1".repeat(4_000)),
        format!("self{} == 1", "[0]".repeat(4_000)),
        format!("{}1{} == 1", "(".repeat(4_000), ")".repeat(4_000)),
        format!("self{}", ".map(x, x)".repeat(1_000)),
        "x".repeat(20_000),
        format!("self{}", ".a".repeat(8_000)),
        format!("1{} > 0", "+1".repeat(8_000)),
        format!("true{}", "?1:true".repeat(2_300)),
    ] {
        let server = Server::new();
        let said = server.ask(&format!("POST {DEFINITIONS}"), Some(&ruled(&rule))).await;
        assert_eq!(said.status, 422, "{:.60}", rule);
    }
}

#[tokio::test]
async fn schemas_beyond_the_limit_are_refused() {
    let mut deep = json!({"type": "string"});
    for _ in 0..60 {
        deep = json!({"type": "array", "items": deep});
    }
    let root = json!({"type": "object", "properties": {"spec": deep.clone()}});
    let server = Server::new();
    server.define(&definition("noises", "Noise", &[("v1", root)])).await;
    for _ in 0..10 {
        deep = json!({"type": "array", "items": deep});
    }
    let root = json!({"type": "object", "properties": {"spec": deep}});
    let said = server.ask(&format!("POST {DEFINITIONS}"), Some(&definition("deeps", "Deep", &[("v1", root)]))).await;
    assert!(said.status == 422 && said.message().contains("must not be nested deeper than 64"), "{}", said.message());
    let pattern = json!({"type": "string", "pattern": "((a{100}){100}){100}"});
    let root = json!({"type": "object", "properties": {"spec": pattern}});
    let said = server.ask(&format!("POST {DEFINITIONS}"), Some(&definition("wides", "Wide", &[("v1", root)]))).await;
    assert!(said.status == 422 && said.message().contains("must be a valid regular expression"), "{}", said.message());
}
