//! Memory of projections: they hold no reference to the input's bytes, have limits for a single object, and share equal
//! parts.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_config::object::Kind;
use tidegate_config::project::{Ingress, Object, PortRef, Unidentified, project};

use crate::manifest::projected;

#[track_caller]
fn check_unidentified(text: &str, want: Unidentified) {
    assert_eq!(project(Kind::Secret, text.as_bytes()).map(|it| it.meta).unwrap_err(), want, "{text}");
    assert!(!want.to_string().contains("hunter2"));
}

#[test]
fn bytes_without_an_object_name_are_unidentified() {
    check_unidentified("", Unidentified::NotJson { line: 1, column: 0 });
    check_unidentified("{", Unidentified::NotJson { line: 1, column: 1 });
    check_unidentified("\"hunter2\"", Unidentified::NotJson { line: 1, column: 9 });
    check_unidentified("{}", Unidentified::NoMetadata);
    check_unidentified(r#"{"metadata":null}"#, Unidentified::NoMetadata);
    check_unidentified(r#"{"metadata":"hunter2"}"#, Unidentified::NoMetadata);
    check_unidentified(r#"{"metadata":{"resourceVersion":"1"}}"#, Unidentified::NoName);
    check_unidentified(r#"{"metadata":{"name":"","resourceVersion":"1"}}"#, Unidentified::NoName);
    check_unidentified(r#"{"metadata":{"name":["hunter2"],"resourceVersion":"1"}}"#, Unidentified::NoName);
    for name in [".", "..", "../../etc/passwd", "a/b", "%2e", "a\\u0000", "a\\n", "\\u001b[2J"] {
        check_unidentified(
            &format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"1"}}}}"#),
            Unidentified::BadName,
        );
        check_unidentified(
            &format!(r#"{{"metadata":{{"name":"a","namespace":"{name}","resourceVersion":"1"}}}}"#),
            Unidentified::BadName,
        );
    }
    check_unidentified(r#"{"metadata":{"name":"a"}}"#, Unidentified::NoVersion);
    check_unidentified(r#"{"metadata":{"name":"a","resourceVersion":7}}"#, Unidentified::NoVersion);
    check_unidentified(r#"{"metadata":{"name":"a","namespace":{},"resourceVersion":"1"}}"#, Unidentified::NoMetadata);
}

#[test]
fn the_namespace_of_a_cluster_scoped_object_is_empty() {
    let json = json!({"metadata": {"name": "tidegate", "namespace": "stray", "uid": "u-1", "resourceVersion": "5"}});
    let meta = projected(Kind::IngressClass, &json).meta;
    assert_eq!(meta.object.to_string(), "IngressClass tidegate");
    assert_eq!((&*meta.resource_version, meta.generation), ("5", None));
}

fn ingress(spec: &Value) -> (Arc<Ingress>, Vec<String>) {
    let json = json!({"metadata": {"name": "web", "namespace": "shop", "resourceVersion": "1"}, "spec": spec});
    let projected = projected(Kind::Ingress, &json);
    let findings = projected.findings.iter().map(ToString::to_string).collect();
    let Some(Object::Ingress(ingress)) = projected.object else { panic!("no Ingress") };
    (ingress, findings)
}

fn path(text: &str, service: &str) -> Value {
    json!({"path": text, "pathType": "Prefix", "backend": {"service": {"name": service, "port": {"number": 80}}}})
}

#[test]
fn rules_beyond_the_limit_are_dropped_with_a_finding() {
    let rules: Vec<Value> = (0..4100).map(|number| json!({"host": format!("h{number}.example")})).collect();
    let (ingress, findings) = ingress(&json!({"rules": rules}));
    assert_eq!(ingress.rules.len(), 4096);
    assert_eq!(
        findings,
        [r#"Ingress shop/web: spec.rules[4096]: "4 more entries" exceed the limit of 4096, so it is dropped"#]
    );
}

#[test]
fn findings_per_object_are_limited() {
    let rules: Vec<Value> = (0..1000).map(|_| json!({"host": "not a host"})).collect();
    let (ingress, findings) = ingress(&json!({"rules": rules}));
    assert_eq!((ingress.rules.len(), findings.len()), (0, 257));
    assert!(findings[256].contains("744 more findings"), "{}", findings[256]);
}

/// Compares the Secrets of the entries, and the findings about the others.
#[track_caller]
fn check_tls(tls: &Value, want: usize, told: &[&str]) {
    let rules: Vec<Value> = (0..4096).map(|number| json!({"host": format!("h{number}.a")})).collect();
    let (ingress, findings) = ingress(&json!({"rules": rules, "tls": tls}));
    assert_eq!(ingress.tls.len(), want);
    let findings: Vec<&str> = findings.iter().filter_map(|it| it.strip_prefix("Ingress shop/web: ")).collect();
    assert_eq!(findings, told);
    // All hosts together look only at the matching entries, whose number is limited for each host.
    let looks: usize = ingress.rules.iter().map(|rule| ingress.tls.of(&rule.host).len()).sum();
    assert!(looks <= 16 * 4096 + want, "{looks} looks");
}

#[test]
fn each_secret_of_a_host_is_read_once_and_their_number_is_limited() {
    let entry = |host: &str, secret: usize| json!({"hosts": [host], "secretName": format!("s{secret}")});
    let entries =
        |number: usize, entry: &dyn Fn(usize) -> Value| Value::from((0..number).map(entry).collect::<Vec<_>>());
    check_tls(&entries(4096, &|_| entry("*.a", 0)), 1, &[]);
    check_tls(&entries(4096, &|number| entry(&format!("h{number}.A"), number)), 4096, &[]);
    check_tls(
        &entries(17, &|number| entry("*.a", number)),
        16,
        &[r#"spec.tls[16].hosts[0]: "*.a" has 16 Secrets already, which is the limit, so it is dropped"#],
    );
    check_tls(
        &entries(17, &|number| json!({"secretName": format!("s{number}")})),
        16,
        &[r#"spec.tls[16]: "an entry without hosts" has 16 Secrets already, which is the limit, so it is dropped"#],
    );
    let all: Vec<String> = (0..4096).map(|number| format!("h{number}.a")).collect();
    let mut wide: Vec<Value> = (0..4).map(|number| json!({"hosts": all, "secretName": format!("s{number}")})).collect();
    wide.push(json!({"hosts": ["h7.a"], "secretName": "s0"}));
    wide.push(json!({"hosts": ["h7.a"], "secretName": "t"}));
    check_tls(
        &wide.into(),
        16_384,
        &[r#"spec.tls[5].hosts[0]: "h7.a" exceeds the limit of 16384 hosts of all entries, so it is dropped"#],
    );
}

#[test]
fn a_path_that_is_too_long_is_dropped() {
    let longest = format!("/{}", "a".repeat(4095));
    let paths = [path(&longest, "web"), path(&format!("{longest}a"), "web")];
    let (ingress, findings) = ingress(&json!({"rules": [{"http": {"paths": paths}}]}));
    assert_eq!((ingress.rules[0].paths.len(), findings.len()), (1, 1));
    assert!(findings[0].ends_with("…\" is longer than 4096 bytes, so it is dropped"), "{}", findings[0]);
}

#[test]
fn equal_parts_are_shared() {
    let spec = json!({"rules": [{"http": {"paths": [path("/a", "web"), path("/b", "web")]}}]});
    let ((one, _), (two, _)) = (ingress(&spec), ingress(&spec));
    assert!(Arc::ptr_eq(&one.settings, &two.settings));
    assert!(Arc::ptr_eq(&one.guards, &two.guards));
    assert!(Arc::ptr_eq(&one.filters, &two.filters));
    let backends: Vec<_> = one.rules[0].paths.iter().map(|path| path.backend.as_ref().unwrap()).collect();
    assert_eq!(backends[0].port, PortRef::Number(80));
    assert!(std::ptr::eq(&*backends[0].service, &*backends[1].service));
}
