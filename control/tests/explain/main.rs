//! The output of `tidegate explain` about guards and about rules that lost.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

mod gateway;
mod tree;

use std::time::{Instant, SystemTime};

use serde_json::{Value, json};
use tidegate_config::model::{Bind, BindKey, BindProtocol, Generation, HostPattern, Listener, TableName, VirtualHost};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::{Projected, project};
use tidegate_config::published::{Published, channel};
use tidegate_control::options::{Kuadrant, Options, Sources};
use tidegate_control::{
    ByCommand, Collection, Command, Event, ExplainRequest, Explanation, NotServing, Reconciler, Unit, Wait, explain,
};

fn ingress(name: &str, year: u32, annotations: &Value, paths: &[(&str, &str)]) -> Value {
    let backend = json!({"service": {"name": "missing", "port": {"number": 80}}});
    let path = |(kind, path): &(&str, &str)| json!({"path": path, "pathType": kind, "backend": backend});
    let paths: Vec<Value> = paths.iter().map(path).collect();
    let created = format!("{year}-01-01T00:00:00Z");
    let metadata = json!({
        "namespace": "shop", "name": name, "resourceVersion": "1", "creationTimestamp": created,
        "annotations": annotations,
    });
    json!({
        "metadata": metadata,
        "spec": {"ingressClassName": "tidegate", "rules": [{"host": "web.example", "http": {"paths": paths}}]},
    })
}

fn ingress_class() -> Value {
    json!({"metadata": {"name": "tidegate", "resourceVersion": "1"}, "spec": {"controller": "tidegate.io/ingress"}})
}

#[test]
fn session_persistence_is_shown_with_its_cookie() {
    let annotations = json!({"tidegate.io/session-cookie": "route", "tidegate.io/session-cookie-max-age": "1h"});
    let mut ingress = ingress("web", 2020, &annotations, &[("Prefix", "/")]);
    ingress["metadata"]["uid"] = json!("6f1de5f4-3f0c-4d5e-9a1c-2f6a0c1b7d3e");
    let text = explained(&[ingress], "http://web.example/");
    assert!(text.contains("\n  session  cookie route, at most 3600 s\n"), "{text}");
}

/// The explanation of a URL in a cluster with these Ingresses.
fn explained(ingresses: &[Value], url: &str) -> String {
    explained_beside(ingresses, &NotServing::default(), url)
}

/// The same, while some routes do not serve.
fn explained_beside(ingresses: &[Value], withheld: &NotServing, url: &str) -> String {
    let listener = Listener::for_every_host("http");
    let key = BindKey { address: ([127, 0, 0, 1], 80).into(), protocol: BindProtocol::Http };
    let binds = [Bind { key, listeners: [listener].into() }].into();
    let class = ingress_class();
    let ingresses = ingresses.iter().map(|ingress| (Kind::Ingress, ingress.clone()));
    let objects: Vec<(Kind, Value)> = ingresses.chain([(Kind::IngressClass, class)]).collect();
    explained_in(Options { binds, ..Options::default() }, &objects, withheld, url)
}

/// The explanation of a URL in a cluster with these objects.
fn explained_in(options: Options, objects: &[(Kind, Value)], withheld: &NotServing, url: &str) -> String {
    Cluster::of(options, objects)
        .explained(withheld, &ExplainRequest::new(url, None, []).expect("a request"))
        .to_string()
}

/// The error for a URL without an explanation.
fn refused_in(options: Options, objects: &[(Kind, Value)], url: &str) -> String {
    let (cluster, asked) = (Cluster::of(options, objects), ExplainRequest::new(url, None, []).expect("a request"));
    let findings = cluster.reconciler.model().compiled().all_findings();
    explain(&cluster.published.pin(), &findings, &NotServing::default(), &asked).expect_err("no explanation")
}

/// A cluster and its published model.
struct Cluster {
    reconciler: Reconciler,
    published: Published,
}

impl Cluster {
    fn explained(&self, withheld: &NotServing, asked: &ExplainRequest) -> Explanation {
        let findings = self.reconciler.model().compiled().all_findings();
        let mut explained = explain(&self.published.pin(), &findings, withheld, asked).expect("an explanation");
        if !explained.is_served() {
            explained.ignored = self.reconciler.model().ignored(asked.host());
        }
        if let Some(gateway) = &explained.gateway {
            explained.refused = self.reconciler.model().refused(&gateway.gateway, asked.host());
        }
        explained
    }

    #[allow(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn of(options: Options, objects: &[(Kind, Value)]) -> Self {
        let collections = Kind::ALL.map(|kind| Collection { kind, namespace: None });
        let mut reconciler = Reconciler::new(options, collections.clone());
        let now = Instant::now();
        for collection in collections {
            let of_kind = objects.iter().filter(|(kind, _)| *kind == collection.kind);
            let read = |object: &Value| project(collection.kind, object.to_string().as_bytes()).expect("an identity");
            let objects: Vec<Projected> = of_kind.map(|(_, object)| read(object)).collect();
            reconciler.observe(
                Event::Listed { collection, objects, complete: true, resource_version: "1".into(), received: now },
                now,
            );
        }
        let step = reconciler.reconcile(now).expect("a first model");
        let (mut publisher, published) = channel();
        let ready = publisher.prepare(step.published.expect("a model").0);
        publisher.publish(ready);
        Self { reconciler, published }
    }
}

#[track_caller]
fn check(text: &str, word: &str, want: &[&str]) {
    let got: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix(word)).map(str::trim).collect();
    assert_eq!(got, want, "{text}");
}

#[test]
fn guards_are_shown_with_their_conditions() {
    let annotations = json!({"tidegate.io/allow-source-range": "10.0.0.0/8", "tidegate.io/ssl-redirect": "true"});
    let text = explained(&[ingress("web", 2026, &annotations, &[("Prefix", "/")])], "http://web.example/");
    let redirect = "308 to https for plain-text requests";
    check(&text, "guard", &["403 for clients outside 10.0.0.0/8", redirect]);
    check(&text, "answer", &["308, by the edge itself"]);

    let closed = json!({"tidegate.io/allow-source-range": "office"});
    let text = explained(&[ingress("web", 2026, &closed, &[("Prefix", "/")])], "http://web.example/");
    check(&text, "guard", &["403 for all clients"]);
    check(&text, "answer", &["403, by the edge itself"]);

    let naming = json!({"tidegate.io/policy": "calm"});
    let text = explained(&[ingress("web", 2026, &naming, &[("Prefix", "/")])], "http://web.example/");
    check(&text, "policy", &["403 for all clients: a policy that the route needs cannot be used"]);
    check(&text, "answer", &["403, by the edge itself"]);
    assert!(text.contains("\"calm\" names a policy, and policies are not read"), "{text}");
}

#[test]
fn a_rule_that_lost_to_an_older_ingress_is_shown() {
    let none = json!({});
    let old = ingress("old", 2025, &none, &[("Exact", "/a"), ("Prefix", "/a")]);
    let young = ingress("young", 2026, &none, &[("Prefix", "/a")]);
    let lost = "Ingress shop/young: spec.rules[0].http.paths[0]: prefix /a of web.example is served by Ingress shop/old: \
                the older object, or the earlier rule of one object, wins";
    let text = |url| explained(&[old.clone(), young.clone()], url);
    check(&text("web.example/a"), "route", &["exact /a"]);
    check(&text("web.example/a"), "lost", &[]);
    check(&text("web.example/a/b"), "route", &["prefix /a"]);
    check(&text("web.example/a/b"), "lost", &[lost]);
}

#[test]
fn without_a_matching_path_the_other_routes_of_the_host_are_shown() {
    let all = [
        ingress("web", 2020, &json!({}), &[("Prefix", "/ws"), ("Exact", "/robots.txt")]),
        ingress("old", 2021, &json!({}), &[("Exact", "/robots.txt")]),
    ];
    let text = explained(&all, "http://web.example/cart");
    let others: Vec<&str> = text.lines().filter(|line| line.starts_with("  other ")).collect();
    let want = [
        "  other    exact /robots.txt of Ingress shop/web, spec.rules[0].http.paths[1]",
        "  other    prefix /ws of Ingress shop/web, spec.rules[0].http.paths[0]",
    ];
    assert_eq!(others, want, "{text}");
    assert!(!explained(&all, "http://web.example/ws").contains("  other "), "a served request needs none");
}

#[test]
fn waiting_routes_are_shown_with_their_reason() {
    let (since, until) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH);
    let wait = |host: &str, service| Wait {
        unit: Unit::Host(HostPattern::Exact(host.into()).into()),
        until,
        awaited: vec![ObjectRef::new(Kind::Service, ObjectName::new("shop", service))],
    };
    let waits = vec![wait("other.example", "other"), wait("web.example", "new")];
    let held = ByCommand { command: Command::Freeze, generation: Generation(7), since };
    let web = [ingress("web", 2026, &json!({}), &[("Prefix", "/")])];
    let text = |withheld: &NotServing, url| explained_beside(&web, withheld, url);
    let frozen = "frozen at generation 7 since 1970-01-01T00:00:00.000Z, regardless of the cluster's routes";
    let waiting =
        "unchanged until 1970-01-01T00:00:00.000Z at the latest, waiting for Service shop/new or its endpoints";
    let both = NotServing { held: Some(held), waits: waits.clone() };
    check(&text(&both, "web.example/"), "held", &[frozen]);
    check(&text(&both, "web.example/"), "waiting", &[waiting]);
    check(&text(&both, "none.example/"), "held", &[frozen]);
    check(&text(&NotServing { held: None, waits }, "web.example/"), "waiting", &[waiting]);
    check(&text(&NotServing::default(), "web.example/"), "held", &[]);
}

/// The listeners that addresses and ports in URLs mean.
#[track_caller]
fn check_addresses(objects: &[(Kind, Value)], explained: impl Fn(&str) -> String) {
    let text = explained("udp://192.0.2.1:5353");
    check(&text, "object", &["UDPRoute shop/names, spec.rules[0]"]);
    check(&text, "dropped", &["(weight 1)"]);
    check(&explained("http://192.0.2.1/"), "object", &["HTTPRoute shop/web, spec.rules[0].matches[0]"]);
    // Of an address of its own, the edge knows all ports; it knows none that a load balancer in front of it has, except
    // for bytes.
    for url in [
        "tcp://192.0.2.1:5433",
        "udp://192.0.2.1:5432",
        "http://192.0.2.1:5432/",
        "http://192.0.2.1:8080/",
        "tcp://192.0.2.9:1",
    ] {
        assert_eq!(refused_in(gateway::options(&["192.0.2.1"]), objects, url), format!("no listener accepts {url}"));
    }
    check(&explained("http://192.0.2.9:8080/"), "object", &["HTTPRoute shop/web, spec.rules[0].matches[0]"]);
}

/// A Gateway with TLS passthrough and TCP listeners, and their routes.
#[test]
fn tcp_and_tls_routes_are_explained() {
    let object = |kind: Kind, name: &str, year: u32, spec: Value| {
        let created = format!("{year}-01-01T00:00:00Z");
        let metadata = json!({"namespace": "shop", "name": name, "resourceVersion": "1", "creationTimestamp": created});
        (kind, json!({"metadata": metadata, "spec": spec}))
    };
    let route = |section: &str, to: &str| {
        json!({
            "parentRefs": [{"name": "edge", "sectionName": section}], "hostnames": ["a.pass.example"],
            "rules": [{"backendRefs": [{"name": to, "port": 5432, "weight": 3}, {"name": "none", "port": 1}]}],
        })
    };
    let class = json!({
        "metadata": {"name": "tidegate", "resourceVersion": "1"}, "spec": {"controllerName": "tidegate.io/gateway"},
    });
    let objects = [
        (Kind::GatewayClass, class),
        object(
            Kind::Gateway,
            "edge",
            2020,
            json!({"gatewayClassName": "tidegate", "listeners": [
                {"name": "db", "port": 5432, "protocol": "TCP"},
                {"name": "dns", "port": 5353, "protocol": "UDP"},
                {"name": "http", "port": 80, "protocol": "HTTP"},
                {"name": "pass", "port": 443, "protocol": "TLS", "hostname": "*.pass.example", "tls": {"mode": "Passthrough"}},
            ]}),
        ),
        object(Kind::Service, "db", 2020, json!({"ports": [{"port": 5432}, {"port": 5432, "protocol": "UDP"}]})),
        object(Kind::UdpRoute, "names", 2021, route("dns", "db")),
        object(Kind::HttpRoute, "web", 2021, json!({"parentRefs": [{"name": "edge", "sectionName": "http"}]})),
        object(Kind::TcpRoute, "older", 2021, route("db", "db")),
        object(Kind::TcpRoute, "younger", 2022, route("db", "db")),
        object(Kind::TlsRoute, "pass", 2021, route("pass", "db")),
    ];
    let explained = |url: &str| explained_in(gateway::options(&["192.0.2.1"]), &objects, &NotServing::default(), url);
    let text = explained("tcp://192.0.2.1:5432");
    check(&text, "object", &["TCPRoute shop/older, spec.rules[0]"]);
    check(&text, "backend", &["shop/db:5432 (weight 3)"]);
    check(&text, "closed", &["(weight 1)"]);
    let lost = "TCPRoute shop/younger: spec.rules[0]: connections for * of shop/edge/db go to TCPRoute shop/older, which is older";
    check(&text, "lost", &[lost]);
    for url in ["tls://a.pass.example:443", "https://a.pass.example/"] {
        let text = explained(url);
        check(&text, "tls  ", &["passthrough"]);
        check(&text, "object", &["TLSRoute shop/pass, spec.rules[0]"]);
    }
    check_addresses(&objects, explained);
    check(&explained("tls://b.pass.example"), "route", &["none, so connections are closed"]);
    let db = VirtualHost::new(TableName::Named("shop/edge/db".into()), HostPattern::Any);
    let new = ObjectRef::new(Kind::Service, ObjectName::new("shop", "new"));
    let wait = Wait { unit: Unit::Stream(db), until: SystemTime::UNIX_EPOCH, awaited: vec![new] };
    let withheld = NotServing { held: None, waits: vec![wait] };
    let explained = |url: &str| explained_in(gateway::options(&["192.0.2.1"]), &objects, &withheld, url);
    let waiting =
        "unchanged until 1970-01-01T00:00:00.000Z at the latest, waiting for Service shop/new or its endpoints";
    check(&explained("tcp://192.0.2.1:5432"), "waiting", &[waiting]);
    check(&explained("tls://a.pass.example:443"), "waiting", &[]);
}

/// Neither a key nor a constant, which may be a secret, is shown.
#[test]
fn rules_of_access_are_shown_without_their_secrets() {
    let rules = json!({
        "authentication": {
            "partners": {"apiKey": {"selector": {"matchLabels": {"app": "shop"}}}, "credentials": {"customHeader": {"name": "x-api-key"}}},
            "staff": {"jwt": {"issuerUrl": "https://login.example"}, "priority": 1},
        },
        "authorization": {"office": {"patternMatching": {"patterns": [{"predicate": "true"}]}}, "rego": {"opa": {}}},
        "response": {
            "unauthenticated": {"code": 302, "body": {"value": "constant"}},
            "success": {"headers": {"x-token": {"plain": {"value": "constant"}}}},
        },
    });
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "none"});
    let metadata = json!({"namespace": "shop", "name": "calm", "resourceVersion": "1"});
    let policy = json!({"metadata": metadata, "spec": {"targetRef": target, "rules": rules}});
    let metadata = json!({"namespace": "shop", "name": "key", "resourceVersion": "1", "labels": {"app": "shop"}});
    let secret = json!({"metadata": metadata, "data": {"api_key": "c2VjcmV0"}});
    let naming = json!({"tidegate.io/policy": "calm"});
    let web = ingress("web", 2026, &naming, &[("Prefix", "/")]);
    let objects = [
        (Kind::Ingress, web),
        (Kind::IngressClass, ingress_class()),
        (Kind::AuthPolicy, policy),
        (Kind::Secret, secret),
    ];
    let listener = Listener::for_every_host("http");
    let key = BindKey { address: ([127, 0, 0, 1], 80).into(), protocol: BindProtocol::Http };
    let sources = Sources { kuadrant: Some(Kuadrant::default()), ..Sources::default() };
    let options = Options { binds: [Bind { key, listeners: [listener].into() }].into(), sources, ..Options::default() };
    let cluster = Cluster::of(options, &objects);
    let asked = ExplainRequest::new("http://web.example/", None, []).expect("a request");
    let explained = cluster.explained(&NotServing::default(), &asked);
    let text = explained.to_string();
    let unsupported = "spec.rules.authorization[rego].opa: \"{}\" is not supported yet";
    let of = "(AuthPolicy shop/calm)";
    let want = [
        format!("unusable rego: refuses every request: {unsupported} {of}"),
        format!("authentication partners: accepts API keys (1) in the header x-api-key {of}"),
        format!(
            "authentication staff: accepts tokens of https://login.example in the header authorization with Bearer, \
             once its keys are fetched {of}"
        ),
        format!("authorization office: requires patterns (1) {of}"),
        format!("response.success x-token: sets the header x-token {of}"),
        format!("response.unauthenticated: answers 302 {of}"),
    ];
    check(&text, "auth", &want.iter().map(String::as_str).collect::<Vec<_>>());
    check(&text, "answer", &["403, by the edge itself"]);
    let json = serde_json::to_string(&explained).unwrap();
    assert!(!(text + &json).contains("constant") && json.contains("\"rules\""), "{json}");
}
