//! Strange texts in every field of a tenant's objects: most of them are rejected by an API server. Each text in each
//! field is a case. Either the object serves as before, or there is a finding; and no other object is affected.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use ipnet::IpNet;
use k8s_openapi::ByteString;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tidegate_config::finding::Finding;
use tidegate_config::model::Guard;
use tidegate_config::object::Kind;
use tidegate_config::project::annotations;

use crate::bench::Bench;
use crate::hostile::{TOLD_MAX, loud};
use crate::manifests::{class, external, service, slice};

/// The placeholder of the text while the objects are built.
const MARK: &str = "mark-of-the-text";

/// Fields in which a text gives a valid object with another meaning, or another object.
const MEANT: [(Kind, &str); 15] = [
    (Kind::IngressClass, "/spec/controller"),
    (Kind::Service, "/spec/ports/0/protocol"),
    (Kind::EndpointSlice, "/metadata/name"),
    (Kind::EndpointSlice, "/metadata/namespace"),
    (Kind::EndpointSlice, "/metadata/labels/kubernetes.io~1service-name"),
    (Kind::EndpointSlice, "/metadata/labels"),
    (Kind::EndpointSlice, "/ports/0/name"),
    (Kind::EndpointSlice, "/ports/0/protocol"),
    (Kind::Ingress, "/metadata/name"),
    (Kind::Ingress, "/metadata/namespace"),
    (Kind::Ingress, "/metadata/uid"),
    (Kind::Ingress, "/metadata/annotations/tidegate.io~1session-cookie"),
    (Kind::Ingress, "/metadata/annotations/tidegate.io~1session-cookie-path"),
    (Kind::Ingress, "/spec/rules/0/host"),
    (Kind::Ingress, "/spec/rules/0/http/paths/0/path"),
];

/// Texts as they appear between the quotes of JSON.
fn texts() -> Vec<String> {
    let label = "a".repeat(63);
    let host = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    let long = "9".repeat(1 << 20);
    let plain = [
        ("nothing", ""),
        ("a blank", " "),
        ("NUL", "\0"),
        ("a terminal's command", "\u{1b}[2J"),
        ("DEL and a C1 control", "\u{7f}\u{9b}2J"),
        ("another header", "\r\nX: y"),
        ("a line", "a\nb"),
        ("text from right to left", "\u{202e}abc"),
        ("an isolate", "\u{2066}abc\u{2069}"),
        ("no width", "a\u{200b}b\u{feff}"),
        ("a path", "../../etc/passwd"),
        ("a whole path", "/../../etc/passwd"),
        ("two names", "a/b"),
        ("an emoji", "💣"),
        ("percent", "%00"),
        ("percent and dots", "%2e%2e%2f"),
        ("JSON", "{}"),
        ("a shell's command", "$(id)"),
        ("quotes", "'\"`;\\"),
        ("every name", "*"),
        ("names beside the neighbour", "*.example"),
        ("the longest host", &host),
        ("a host that is too long", &format!("a{host}")),
        ("a mebibyte", &long),
    ];
    let escaped = plain.map(|(_, text)| Value::from(text).to_string()).map(|json| json[1..json.len() - 1].to_owned());
    // Texts that Rust strings cannot hold: unpaired surrogates.
    let halves = [r"\ud800", r"\udc00\ud800", r"\ud83dx", r"a\uDFFF"].map(str::to_owned);
    escaped.into_iter().chain(halves).collect()
}

/// A value for each annotation of a kind that differs from its default. New annotations must be added here.
fn annotated(kind: Kind) -> Value {
    let manual = annotations::manual();
    let (of_ingress, of_service) = manual.split_once("on a Service").unwrap();
    let keys = if kind == Kind::Service { of_service } else { of_ingress };
    let keys = keys.lines().filter_map(|line| line.strip_prefix("| `tidegate.io/")?.split('`').next());
    let value = |key: &str| match key {
        "connect-timeout" | "read-timeout" | "write-timeout" | "request-timeout" | "tunnel-idle-timeout" => "7s",
        "body-size-max" => "7k",
        "tries-max" => "7",
        "balance" => "round-robin",
        "session-cookie" => "x",
        "session-cookie-max-age" => "7h",
        "session-cookie-path" => "/x",
        "session-cookie-samesite" => "Strict",
        "ssl-redirect" | "session-cookie-secure" => "true",
        "session-cookie-change-on-failure" => "false",
        "allow-source-range" => "10.0.0.0/8",
        "ignore-nginx-annotations" => "auth-url",
        "policy" => "x",
        "enforcement" => "shadow",
        "requests-max" => "7",
        "send-proxy-protocol" => "v1",
        "udp-idle-timeout" => "7s",
        _ => panic!("what may tidegate.io/{key} say?"),
    };
    let ours = keys.map(|key| (format!("tidegate.io/{key}"), Value::from(value(key))));
    // Those of ingress-nginx with a grammar of their own.
    let of_nginx = [
        ("configuration-snippet", "add_header A \"b; c\" always; # d"),
        ("rewrite-target", "/x"),
        ("whitelist-source-range", "10.0.0.0/8"),
    ];
    let of_nginx = of_nginx.into_iter().filter(|_| kind == Kind::Ingress);
    let of_nginx = of_nginx.map(|(key, text)| (format!("nginx.ingress.kubernetes.io/{key}"), Value::from(text)));
    ours.chain(of_nginx).collect()
}

static SECRET: LazyLock<Value> = LazyLock::new(|| {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["loud.example".to_owned()]).unwrap().self_signed(&key).unwrap();
    let [chain, key] = [certificate.pem(), key.serialize_pem()].map(|pem| ByteString(pem.into_bytes()));
    let metadata = json!({"namespace": "loud", "name": "s", "labels": {"app": "x"}});
    json!({"metadata": metadata, "type": "kubernetes.io/tls", "data": {"tls.crt": chain, "tls.key": key}})
});

fn ingress(class: &str) -> Value {
    let mut ingress = loud("x", "loud.example", &["/"]);
    ingress["spec"]["ingressClassName"] = class.into();
    ingress["spec"]["tls"] = json!([{"hosts": ["loud.example"], "secretName": "s"}]);
    ingress["metadata"]["annotations"] = annotated(Kind::Ingress);
    ingress["metadata"]["uid"] = "6f1de5f4-3f0c-4d5e-9a1c-2f6a0c1b7d3e".into();
    ingress
}

/// A class, a Service with an EndpointSlice, and an Ingress with a certificate, with a placeholder wherever a text is
/// allowed.
fn with_slices() -> Vec<(Kind, Value)> {
    let mut class = class();
    class["metadata"] =
        json!({"name": "loud", "annotations": {"ingressclass.kubernetes.io/is-default-class": "false"}});
    let mut service = service("loud/x");
    service["spec"] = json!({"type": "ClusterIP", "clusterIP": "10.96.0.7", "ports": [
        {"name": "web", "port": 80, "protocol": "TCP", "targetPort": "http", "appProtocol": "http"}]});
    service["metadata"]["annotations"] = annotated(Kind::Service);
    let mut slice = slice("loud/x", &["10.0.0.2"]);
    slice["ports"] = json!([{"name": "web", "port": 80, "protocol": "TCP", "appProtocol": "http"}]);
    let pod = json!({"kind": "Pod", "namespace": "loud", "name": "x-0", "uid": "6f3c"});
    slice["endpoints"] = json!([{"addresses": ["10.0.0.2"], "hostname": "x-0", "nodeName": "n", "zone": "z",
        "hints": {"forZones": [{"name": "z"}]}, "targetRef": pod, "deprecatedTopology": {"a": "b"}}]);
    let mut ingress = ingress("loud");
    ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["port"] = json!({"name": "web"});
    vec![
        (Kind::IngressClass, class),
        (Kind::Service, service),
        (Kind::EndpointSlice, slice),
        (Kind::Secret, SECRET.clone()),
        (Kind::Ingress, ingress),
    ]
}

fn by_name() -> Vec<(Kind, Value)> {
    vec![(Kind::Service, external("loud/x", "loud.test")), (Kind::Ingress, ingress("tidegate"))]
}

/// The position of a text as a JSON pointer: a value, or a key of an object with free keys.
#[derive(Clone, Debug)]
enum Place {
    Value(String),
    Key(String, String),
}

fn places(value: &Value) -> Vec<Place> {
    let below = |name: &str, value: &Value| -> Vec<Place> {
        let name = name.replace('~', "~0").replace('/', "~1");
        let put = |place| match place {
            Place::Value(of) => Place::Value(format!("/{name}{of}")),
            Place::Key(of, key) => Place::Key(format!("/{name}{of}"), key),
        };
        let free = matches!(&*name, "annotations" | "labels" | "data").then(|| value.as_object()).flatten();
        let keys = free.into_iter().flat_map(|map| map.keys()).map(|key| Place::Key(format!("/{name}"), key.clone()));
        places(value).into_iter().map(put).chain(keys).collect()
    };
    match value {
        Value::String(_) => vec![Place::Value(String::new())],
        Value::Array(list) => list.iter().enumerate().flat_map(|(n, value)| below(&n.to_string(), value)).collect(),
        Value::Object(map) => map.iter().flat_map(|(name, value)| below(name, value)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

impl Place {
    fn at(&self) -> &str {
        match self {
            Self::Value(at) | Self::Key(at, _) => at,
        }
    }

    /// The JSON of an object with this text in the place. The prefix of a key is kept, so that it stays in its domain.
    fn put(&self, object: &Value, text: &str) -> String {
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = "2".into();
        match self {
            Self::Value(at) => *object.pointer_mut(at).unwrap() = MARK.into(),
            Self::Key(at, key) => {
                let map = object.pointer_mut(at).unwrap().as_object_mut().unwrap();
                let (value, prefix) = (map.remove(key).unwrap(), key.split_once('/').map_or("", |(prefix, _)| prefix));
                let slash = if prefix.is_empty() { "" } else { "/" };
                map.insert(format!("{prefix}{slash}{MARK}"), value);
            }
        }
        object.to_string().replace(MARK, text)
    }
}

/// The serving routes without those of the neighbour.
fn served(bench: &Bench) -> BTreeSet<String> {
    let mut served = BTreeSet::new();
    for (host, routes) in bench.parts().hosts.iter() {
        for route in routes.all().filter(|route| &*route.origin.object.name.namespace != "quiet") {
            let (path, settings, action) = (&route.path, &route.settings, &route.action);
            served.insert(format!("{host} {path} {:?} {:?} {settings:?} {action:?}", route.guards, route.filters));
        }
        served.extend(routes.certificates.iter().map(|(name, _)| format!("{host} shows a certificate for {name}")));
    }
    for (key, backend) in bench.parts().backends.iter().filter(|(key, _)| &*key.service.namespace != "quiet") {
        served.extend(backend.endpoints.iter().map(|endpoint| format!("{key:?} is {}", endpoint.address)));
    }
    served
}

fn played(objects: impl Iterator<Item = (Kind, String)>) -> Bench {
    let mut bench = Bench::quiet();
    let before = bench.neighbour();
    objects.for_each(|(kind, object)| bench.apply_json(kind, &object));
    bench.settle();
    let after = bench.neighbour();
    assert!(Arc::ptr_eq(&before.0, &after.0) && Arc::ptr_eq(&before.1, &after.1), "the neighbour noticed");
    bench
}

/// Checks that a finding is printable and readable.
#[track_caller]
fn check_told(finding: &Finding) {
    let obeyed = |mark: char| mark.is_control() || matches!(mark, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    for text in [finding.to_string(), finding.note()] {
        assert!(!text.chars().any(obeyed), "{text:?}");
        assert!(text.chars().count() < TOLD_MAX, "{} characters: {:?}", text.chars().count(), &text[..200]);
    }
    assert!(&*finding.object.name.namespace != "quiet", "{finding} is told to somebody else");
    assert_ne!(finding.problem.reason(), "ProcessingFailed", "{finding}");
}

/// Each text in each place of these objects.
#[track_caller]
fn check(originals: &[(Kind, Value)]) {
    let none = Place::Value("/metadata/resourceVersion".to_owned());
    let whole = |place: &Place, which: Option<usize>, text: &str| {
        let object = |(number, (kind, object)): (usize, &(Kind, Value))| {
            let here = which == Some(number);
            (*kind, if here { place.put(object, text) } else { none.put(object, "2") })
        };
        played(originals.iter().enumerate().map(object))
    };
    let before = whole(&none, None, "");
    let (served_before, told_before) = (served(&before), before.reconciler.model().compiled().all_findings());
    for (which, (kind, original)) in originals.iter().enumerate() {
        for place in places(original) {
            for text in texts() {
                let bench = whole(&place, Some(which), &text);
                let what = format!("{kind} {place:?} {:?}", &text[..text.len().min(70)]);
                let told = bench.reconciler.model().compiled().all_findings();
                told.iter().for_each(check_told);
                let told = told.iter().any(|it| !it.field.is_empty() && !told_before.contains(it));
                // The API treats an empty text as a missing one.
                let meant = text.is_empty() || MEANT.contains(&(*kind, place.at()));
                let served = served(&bench);
                assert!(told || meant || served == served_before, "{what}: nobody is told");
                let annotation = place.at().contains("/annotations");
                // A route without a backend serves nothing.
                let more = served.difference(&served_before).filter(|it| !it.ends_with("Forward([])"));
                let more: Vec<&String> = more.collect();
                assert!(meant || annotation || more.is_empty(), "{what}: serves what it did not: {more:?}");
                if *kind == Kind::Ingress && matches!(&place, Place::Value(at) if at.contains("/annotations/")) {
                    check_guarded(&bench, &what);
                }
            }
        }
    }
}

/// Access restrictions stay in effect, or deny access, whatever their text is.
#[track_caller]
fn check_guarded(bench: &Bench, what: &str) {
    let routes = bench.parts().hosts.iter().flat_map(|(_, host)| host.all());
    for route in routes.filter(|route| &*route.origin.object.name.namespace == "loud") {
        let sources = |it: &Guard| match it {
            Guard::DenyAll => true,
            Guard::AllowSources(networks) => **networks == ["10.0.0.0/8".parse::<IpNet>().unwrap()],
            Guard::RequireTls { .. } | Guard::RequireEndpoints | Guard::Listeners(_) | Guard::ExternalAuth(_) => false,
        };
        assert!(route.guards.iter().any(sources), "{what}: {:?}", route.guards);
        let tls = |it: &Guard| matches!(it, Guard::RequireTls { .. });
        assert!(route.guards.iter().any(tls), "{what}: {:?}", route.guards);
    }
}

#[test]
fn strange_texts_affect_no_other_object() {
    check(&with_slices());
}

#[test]
fn strange_texts_affect_no_other_object_while_a_dns_name_is_resolved() {
    check(&by_name());
}
