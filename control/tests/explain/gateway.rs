//! Explanations of requests to Gateways: the listener, and the reasons why routes match or do not.

use tidegate_control::options::{GatewayApi, GatewayServices, Kuadrant, Sources};

use super::*;

const OLD: u32 = 2020;

pub(super) fn options(addresses: &[&str]) -> Options {
    let gateway = GatewayApi {
        controller: "tidegate.io/gateway".into(),
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        services: GatewayServices::Off,
        optional: false,
    };
    Options { sources: Sources { gateway: Some(gateway), ..Sources::default() }, ..Options::default() }
}

fn object(kind: Kind, name: &str, year: u32, spec: &Value) -> (Kind, Value) {
    let (namespace, name) = name.split_once('/').unwrap_or(("shop", name));
    let created = format!("{year}-01-01T00:00:00Z");
    let metadata = json!({"namespace": namespace, "name": name, "resourceVersion": "1", "creationTimestamp": created});
    (kind, json!({"metadata": metadata, "spec": spec}))
}

fn gateway(name: &str, listeners: Value) -> (Kind, Value) {
    let sets = json!({"namespaces": {"from": "All"}});
    object(
        Kind::Gateway,
        name,
        OLD,
        &json!({"gatewayClassName": "tidegate", "listeners": listeners, "allowedListeners": sets}),
    )
}

fn route(name: &str, year: u32, parent: Value, hostnames: Value, rules: Value) -> (Kind, Value) {
    object(Kind::HttpRoute, name, year, &json!({"parentRefs": [parent], "hostnames": hostnames, "rules": rules}))
}

fn class() -> (Kind, Value) {
    let metadata = json!({"name": "tidegate", "resourceVersion": "1"});
    (Kind::GatewayClass, json!({"metadata": metadata, "spec": {"controllerName": "tidegate.io/gateway"}}))
}

fn rule(name: &str, matches: Value) -> Value {
    json!({"name": name, "matches": matches, "backendRefs": [{"name": "web", "port": 80}]})
}

/// A shop behind a Gateway whose paths have versions by header and method, and one listener of a ListenerSet.
pub(super) fn shop() -> Cluster {
    let edge = || json!({"name": "edge"});
    let header = json!([{"name": "x-version", "value": "secret"}]);
    let cart = json!([
        rule("v2", json!([{"path": {"value": "/cart"}, "headers": header}])),
        rule("put", json!([{"path": {"value": "/cart"}, "method": "PUT"}])),
        rule("cart", json!([{"path": {"value": "/cart"}}])),
    ]);
    let other = json!([{"name": "x-other", "value": "secret"}]);
    let late = json!([
        rule("again", json!([{"path": {"value": "/cart"}}])),
        rule("other", json!([{"path": {"value": "/cart"}, "headers": other}])),
    ]);
    let web = || json!({"path": {"value": "/"}});
    let objects = [
        class(),
        gateway("edge", json!([{"name": "http", "port": 80, "protocol": "HTTP"}])),
        object(
            Kind::ListenerSet,
            "team/more",
            OLD,
            &json!({"parentRef": {"name": "edge", "namespace": "shop"},
                    "listeners": [{"name": "team", "port": 80, "protocol": "HTTP", "hostname": "*.team.example"}]}),
        ),
        object(Kind::Service, "web", OLD, &json!({"ports": [{"port": 80}]})),
        route("cart", 2021, edge(), json!(["shop.example"]), cart),
        route("late", 2022, edge(), json!(["shop.example"]), late),
        route("web", 2021, edge(), json!(["shop.example"]), json!([rule("all", json!([web()]))])),
        route("wide", 2020, edge(), json!(["*.example"]), json!([rule("wide", json!([web()]))])),
        route(
            "blog/away",
            2021,
            json!({"name": "edge", "namespace": "shop"}),
            json!(["shop.example"]),
            json!([rule("x", json!([web()]))]),
        ),
        route(
            "gone",
            2021,
            json!({"name": "edge", "sectionName": "https"}),
            json!(["shop.example"]),
            json!([rule("x", json!([web()]))]),
        ),
        route(
            "elsewhere",
            2021,
            json!({"name": "edge", "sectionName": "https"}),
            json!(["b.example"]),
            json!([rule("x", json!([web()]))]),
        ),
        object(
            Kind::GrpcRoute,
            "calls",
            2023,
            &json!({"parentRefs": [edge()], "hostnames": ["shop.example"], "rules": [{}]}),
        ),
        route(
            "team/app",
            2021,
            json!({"name": "more", "kind": "ListenerSet", "group": "gateway.networking.k8s.io"}),
            json!(["a.team.example"]),
            json!([{}]),
        ),
    ];
    Cluster::of(options(&["192.0.2.1"]), &objects)
}

fn said(cluster: &Cluster, url: &str, method: Option<&str>, headers: &[&str]) -> String {
    let asked = ExplainRequest::new(url, method, headers.iter().copied()).expect("a request");
    cluster.explained(&NotServing::default(), &asked).to_string()
}

#[test]
fn the_gateway_its_listener_and_the_named_rule_are_shown() {
    let text = said(&shop(), "http://shop.example/cart/7", None, &[]);
    check(&text, "gateway", &["Gateway shop/edge, listener http"]);
    check(&text, "object", &["HTTPRoute shop/cart, spec.rules[2].matches[0]"]);
    check(&text, "rule", &["cart"]);
}

#[test]
fn a_listener_of_a_listener_set_is_shown_with_its_set() {
    let text = said(&shop(), "http://a.team.example/", None, &[]);
    check(&text, "gateway", &["Gateway shop/edge, listener team of ListenerSet team/more"]);
    check(&text, "object", &["HTTPRoute team/app, spec.rules[0].matches[0]"]);
}

#[test]
fn method_and_headers_match_as_in_the_proxy_and_reasons_omit_values() {
    let shop = shop();
    let of = |route: &str, rule: &str, field: &str| {
        format!("prefix /cart of HTTPRoute shop/{route}, {field}.matches[0] ({rule})")
    };
    let (v2, put) = (of("cart", "v2", "spec.rules[0]"), of("cart", "put", "spec.rules[1]"));
    let (cart, other) = (of("cart", "cart", "spec.rules[2]"), of("late", "other", "spec.rules[1]"));
    let web = "prefix / of HTTPRoute shop/web, spec.rules[0].matches[0] (all): its path is less specific";
    let wide = "prefix / of HTTPRoute shop/wide, spec.rules[0].matches[0] (wide): its host **.example is less specific";
    let lacks = |route: &str, header: &str| format!("{route}: the request has no header {header}");
    let (no_version, no_other) = (lacks(&v2, "x-version"), lacks(&other, "x-other"));
    let not_put = format!("{put}: the method is not PUT");
    let equal = "HTTPRoute shop/late: spec.rules[0].matches[0]: prefix /cart of shop.example of shop/edge/http is served by \
                 HTTPRoute shop/cart: the older object, or the earlier rule of one object, wins";

    let text = said(&shop, "http://shop.example/cart", None, &[]);
    check(&text, "rule", &["cart"]);
    check(&text, "passed", &[&not_put, &no_version, &no_other]);
    check(&text, "next", &[web, wide]);
    check(&text, "lost", &[equal]);

    let text = said(&shop, "http://shop.example/cart", Some("PUT"), &[]);
    check(&text, "rule", &["put"]);
    check(&text, "passed", &[]);
    check(&text, "next", &[&no_version, &no_other, &format!("{cart}: it matches no method"), web, wide]);

    let text = said(&shop, "http://shop.example/cart", None, &["X-Version: secret", "x-other: secret"]);
    check(&text, "rule", &["v2"]);
    let younger = format!("{other}: its object is younger, or as old and later by name");
    check(&text, "next", &[&younger, &format!("{cart}: it matches fewer headers"), web, wide]);
    let text = said(&shop, "http://shop.example/cart", None, &["X-Version: other"]);
    let differs = format!("{v2}: header x-version does not have the value that is matched");
    check(&text, "passed", &[&not_put, &differs, &no_other]);
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn rejected_routes_for_the_host_are_shown() {
    let text = said(&shop(), "http://shop.example/", None, &[]);
    let refused = [
        "HTTPRoute blog/away: NotAllowedByListeners: no listener of Gateway shop/edge allows HTTPRoutes of namespace blog",
        "HTTPRoute shop/gone: NoMatchingParent: Gateway shop/edge has no such listener",
        "GRPCRoute shop/calls: HostnameConflict: HTTPRoute shop/wide is older and has some of the hostnames on listener http of \
         Gateway shop/edge, which an HTTPRoute and a GRPCRoute cannot share",
    ];
    check(&text, "refused", &refused);
}

/// A Secret with a certificate for `shop.example`, valid until the end of `year`.
fn secret(name: &str, year: i32) -> (Kind, Value) {
    let mut params = rcgen::CertificateParams::new(["shop.example".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(year, 12, 31);
    let key = rcgen::KeyPair::generate().unwrap();
    let bytes = |pem: String| k8s_openapi::ByteString(pem.into_bytes());
    let data =
        json!({"tls.crt": bytes(params.self_signed(&key).unwrap().pem()), "tls.key": bytes(key.serialize_pem())});
    let metadata = json!({"namespace": "shop", "name": name, "resourceVersion": "1"});
    (Kind::Secret, json!({"metadata": metadata, "type": "kubernetes.io/tls", "data": data}))
}

#[test]
fn the_certificate_of_the_handshake_is_shown() {
    let listener = |name: &str, port: u16, secret: &str| {
        let tls = json!({"certificateRefs": [{"name": secret}]});
        json!({"name": name, "port": port, "protocol": "HTTPS", "tls": tls})
    };
    let listeners = json!([listener("new", 443, "new"), listener("old", 8443, "old"), listener("none", 9443, "gone")]);
    let objects = [
        class(),
        gateway("edge", listeners),
        secret("new", 2999),
        secret("old", 2020),
        route("web", OLD, json!({"name": "edge"}), json!(["shop.example", "other.example"]), json!([{}])),
    ];
    let cluster = Cluster::of(options(&["192.0.2.1"]), &objects);
    let check_one = |url: &str, want: &[&str]| check(&said(&cluster, url, None, &[]), "cert", want);
    check_one("https://shop.example/", &["Secret shop/new, valid until 2999-12-31T00:00:00.000Z"]);
    let other = "Secret shop/new, valid until 2999-12-31T00:00:00.000Z, and does not name this host";
    check_one("https://other.example/", &[other]);
    // A client sends no name for an address.
    check_one("https://192.0.2.1/", &[other]);
    check_one("https://shop.example:8443/", &["Secret shop/old, expired since 2020-12-31T00:00:00.000Z"]);
    assert_eq!(
        refused_in(options(&["192.0.2.1"]), &objects, "https://192.0.2.1:9443/"),
        "no listener accepts https://192.0.2.1:9443/"
    );
    check(&said(&shop(), "http://shop.example/", None, &[]), "cert", &[]);
}

#[test]
fn objects_of_other_controllers_are_named_if_nothing_serves_the_host() {
    let named = |name: &str, host: &str, class: Value| {
        let rules = json!([{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix"}]}}]);
        object(Kind::Ingress, name, OLD, &json!({"ingressClassName": class, "rules": rules}))
    };
    let mut by_annotation = named("annotated", "*.example", Value::Null);
    by_annotation.1["metadata"]["annotations"] = json!({"kubernetes.io/ingress.class": "nginx"});
    let cluster_wide =
        |name: &str, spec: Value| json!({"metadata": {"name": name, "resourceVersion": "1"}, "spec": spec});
    let nginx = cluster_wide("nginx", json!({"controller": "k8s.io/ingress-nginx"}));
    let elsewhere = json!({"gatewayClassName": "other", "listeners": []});
    let parent = |kind: &str, name: &str| json!({"kind": kind, "name": name});
    let route = |name: &str, parent| route(name, OLD, parent, json!(["web.example"]), json!([{}]));
    let objects = [
        class(),
        gateway("edge", json!([{"name": "http", "port": 80, "protocol": "HTTP"}])),
        object(Kind::Gateway, "elsewhere", OLD, &elsewhere),
        (Kind::IngressClass, nginx),
        named("nginx", "web.example", json!("nginx")),
        named("typo", "web.example", json!("tidegat")),
        named("classless", "web.example", Value::Null),
        named("another-host", "other.test", json!("nginx")),
        by_annotation,
        named("every-host", "", json!("nginx")),
        route("gone", parent("Gateway", "gone")),
        route("of-another", parent("Gateway", "elsewhere")),
        route("of-a-set", parent("ListenerSet", "gone")),
        route("of-a-mesh", json!({"group": "", "kind": "Service", "name": "web"})),
    ];
    let cluster = Cluster::of(options(&["192.0.2.1"]), &objects);
    let ignored = [
        "Ingress shop/annotated: its class is nginx, by annotation, and not tidegate",
        "Ingress shop/classless: it names no class, and no IngressClass of tidegate.io/ingress is the default",
        "Ingress shop/nginx: its IngressClass nginx is of another controller: k8s.io/ingress-nginx",
        "Ingress shop/typo: its IngressClass tidegat does not exist",
        "HTTPRoute shop/gone: Gateway shop/gone does not exist",
        "HTTPRoute shop/of-a-mesh: Service shop/web is not a Gateway",
        "HTTPRoute shop/of-a-set: ListenerSet shop/gone does not exist",
        "HTTPRoute shop/of-another: Gateway shop/elsewhere is of GatewayClass other, which does not exist",
    ];
    check(&said(&cluster, "http://web.example/", None, &[]), "ignored", &ignored);
    let served = said(&shop(), "http://shop.example/cart", None, &[]);
    check(&served, "ignored", &[]);
}

#[test]
fn a_host_header_goes_to_the_address_that_the_url_names() {
    let listeners = || json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
    let all =
        |name: &str, gateway: &str| route(name, 2021, json!({"name": gateway}), json!(["shop.example"]), json!([{}]));
    let objects = [class(), gateway("one", listeners()), gateway("two", listeners()), all("a", "one"), all("b", "two")];
    let cluster = Cluster::of(options(&["192.0.2.1", "192.0.2.2"]), &objects);
    let gateway = |url: &str| {
        let text = said(&cluster, url, None, &["Host: shop.example"]);
        text.lines().find_map(|line| line.trim().strip_prefix("gateway  ")).unwrap().to_owned()
    };
    assert_eq!(gateway("http://192.0.2.1/"), "Gateway shop/one, listener http");
    assert_eq!(gateway("http://192.0.2.2/"), "Gateway shop/two, listener http");
}

#[test]
fn the_status_of_a_share_without_a_target_is_the_answer() {
    let missing = |weight: u32| json!({"name": "missing", "port": 80, "weight": weight});
    let there = |weight: u32| json!({"name": "web", "port": 80, "weight": weight});
    let rules = [
        ("/missing", json!([missing(1)])),
        ("/nothing", json!([there(0)])),
        ("/unready", json!([there(1)])),
        ("/mixed", json!([missing(1), there(1)])),
    ];
    let rules: Vec<Value> = rules
        .into_iter()
        .map(|(path, backends)| {
            json!({"matches": [{"path": {"type": "PathPrefix", "value": path}}], "backendRefs": backends})
        })
        .collect();
    let objects = [
        class(),
        gateway("edge", json!([{"name": "http", "port": 80, "protocol": "HTTP"}])),
        object(Kind::Service, "web", OLD, &json!({"ports": [{"port": 80}]})),
        route("web", 2021, json!({"name": "edge"}), json!(["shop.example"]), Value::Array(rules)),
    ];
    let cluster = Cluster::of(options(&["192.0.2.1"]), &objects);
    for (path, want) in [("/missing", Some(500)), ("/nothing", Some(500)), ("/unready", Some(503)), ("/mixed", None)] {
        let asked = ExplainRequest::new(&format!("http://shop.example{path}"), None, []).expect("a request");
        assert_eq!(cluster.explained(&NotServing::default(), &asked).answer, want, "{path}");
    }
}

#[test]
fn preflights_are_answered_for_a_rule_and_for_a_share() {
    let cors = || json!([{"type": "CORS", "cors": {"allowOrigins": ["https://app.example"]}}]);
    let share = |weight: u32, filters: Value| json!({"name": "web", "port": 80, "weight": weight, "filters": filters});
    let rule = |path: &str, shares: Value| json!({"matches": [{"path": {"value": path}}], "backendRefs": shares});
    let mut whole = rule("/rule", json!([share(1, json!([]))]));
    whole["filters"] = cors();
    // A rule for `/by-method` or `/by-header`, by the condition.
    let by = |condition: &Value| {
        let mut condition = condition.clone();
        let name = condition.as_object().and_then(|fields| fields.keys().next()).map_or("", |field| field);
        let path = format!("/by-{}", name.trim_end_matches('s'));
        condition["path"] = json!({"value": path});
        json!({"matches": [condition], "filters": cors(), "backendRefs": [share(1, json!([]))]})
    };
    let rules = json!([
        whole,
        rule("/share", json!([share(1, cors()), share(0, json!([]))])),
        rule("/some", json!([share(1, cors()), share(1, json!([]))])),
        rule("/none", json!([share(1, json!([]))])),
        by(&json!({"method": "PUT"})),
        by(&json!({"method": "GET"})),
        by(&json!({"headers": [{"name": "X-Key", "value": "1"}]})),
    ]);
    let endpoints = json!({
        "metadata": {
            "namespace": "shop", "name": "web", "resourceVersion": "1",
            "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": "IPv4", "ports": [{"name": "", "port": 80}], "endpoints": [{"addresses": ["10.0.0.1"]}],
    });
    let objects = [
        class(),
        gateway("edge", json!([{"name": "http", "port": 80, "protocol": "HTTP"}])),
        object(Kind::Service, "web", OLD, &json!({"ports": [{"port": 80}]})),
        (Kind::EndpointSlice, endpoints),
        route("web", OLD, json!({"name": "edge"}), json!(["shop.example"]), rules),
    ];
    let cluster = Cluster::of(options(&["192.0.2.1"]), &objects);
    let preflight = ["Origin: https://app.example", "Access-Control-Request-Method: PUT"];
    for (path, preflight_answer) in [
        ("/rule", &["200, by the edge itself"][..]),
        ("/share", &["200, by the edge itself"]),
        ("/some", &[]),
        ("/none", &[]),
    ] {
        let url = format!("http://shop.example{path}");
        check(&said(&cluster, &url, Some("OPTIONS"), &preflight), "answer", preflight_answer);
        check(&said(&cluster, &url, Some("OPTIONS"), &preflight[..1]), "answer", &[]);
    }
    let names = |method: &'static str, names: &'static str| [preflight[0], method, names];
    let put = names(preflight[1], "Access-Control-Request-Headers: x-key");
    let post = names("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: x-keys");
    let answered = "200, by the edge itself";
    let unknown = "404, by the edge itself";
    for (path, lines, want) in [
        ("/by-method", &preflight[..], answered),
        ("/by-method", &post, unknown),
        ("/by-method", &preflight[..1], unknown),
        ("/by-header", &put, answered),
        ("/by-header", &post, unknown),
        ("/by-header", &preflight[..], unknown),
    ] {
        let said = said(&cluster, &format!("http://shop.example{path}"), Some("OPTIONS"), lines);
        check(&said, "answer", &[want]);
    }
}

#[test]
fn a_policy_of_a_kind_that_is_not_served_is_named_on_its_paths() {
    let policy = |target: Value| {
        let limits = json!({"free": {"rates": [{"limit": 20_000, "window": "24h"}]}});
        object(Kind::TokenRateLimitPolicy, "tokens", 2022, &json!({"targetRef": target, "limits": limits}))
    };
    let target = |kind: &str, name: &str, section: Option<&str>| {
        let mut target = json!({"group": "gateway.networking.k8s.io", "kind": kind, "name": name});
        section.into_iter().for_each(|section| target["sectionName"] = section.into());
        target
    };
    let web = json!([{"matches": [{"path": {"value": "/a"}}]}, {"matches": [{"path": {"value": "/b"}}]}]);
    let options = Options {
        sources: Sources { kuadrant: Some(Kuadrant::default()), ..options(&["192.0.2.1"]).sources },
        ..options(&["192.0.2.1"])
    };
    let line = "TokenRateLimitPolicy shop/tokens has no effect: limits of tokens are not served by this edge";
    for (target, want) in [
        (target("Gateway", "edge", None), [&[line][..], &[line]]),
        (target("HTTPRoute", "web", Some("rule-2")), [&[], &[line]]),
        (target("HTTPRoute", "none", None), [&[], &[]]),
    ] {
        let objects = [
            class(),
            gateway("edge", json!([{"name": "http", "port": 80, "protocol": "HTTP"}])),
            route("web", 2021, json!({"name": "edge"}), json!(["shop.example"]), web.clone()),
            policy(target),
        ];
        let cluster = Cluster::of(options.clone(), &objects);
        for (path, want) in ["/a", "/b"].into_iter().zip(want) {
            check(&said(&cluster, &format!("http://shop.example{path}"), None, &[]), "policy", want);
        }
    }
}
