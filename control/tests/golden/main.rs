//! Golden tests with realistic manifests: the input are manifests, the output the routing table and the reports to
//! owners.
//!
//! `cases/NAME.yaml` has plain manifests in addition to the objects of `cases/_defaults.yaml`; `NAME.routes` is the
//! table, `NAME.findings` the findings, and `NAME.status` the conditions of objects with any. `UPDATE_GOLDEN=1`
//! rewrites all; the diff is the review.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize as _;
use tidegate_config::model::{
    Action, Backend, Bind, Compression, EdgeSettings, Effective, Filter, ForwardedFor, Guard, Listener,
    RequestHeadLimits, ResponseEdits, Route, SnapshotParts, StreamRoute, StreamTarget, UpstreamTls, VirtualHost,
    WeightedBackend, WeightedTarget,
};
use tidegate_config::object::{Kind, ObjectName};
use tidegate_config::project::gateway::{Condition, ListenerStatus, ParentStatus};
use tidegate_config::project::{DeisRouter, Projected, project};
use tidegate_control::options::{
    Deis, GatewayApi, GatewayServices, HostOwnership, Ingresses, Options, ServiceType, Sources, ToPods,
};
use tidegate_control::{Collection, Compiled, Desired, DesiredInfrastructure, Event, Reconciler};

fn cases(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(folder)
}

#[allow(clippy::disallowed_methods, reason = "whether goldens are rewritten comes from the environment")]
fn update() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some()
}

/// The objects of a file, with a resourceVersion as an API server would set it.
fn objects(text: &str) -> Vec<Projected> {
    let options = serde_saphyr::Options::default();
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple_with_options(text, options).expect("YAML");
    let with_version = |mut object: serde_json::Value| {
        object["metadata"]["resourceVersion"] = "1".into();
        let name = object["kind"].as_str().expect("a kind").to_owned();
        let kind = Kind::deserialize(serde_json::Value::from(name)).expect("a kind that is read");
        project(kind, object.to_string().as_bytes()).expect("an identity")
    };
    documents.into_iter().map(with_version).collect()
}

#[allow(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
fn compiled(text: &str, options: Options) -> Reconciler {
    let now = Instant::now();
    let collections = Kind::ALL.map(|kind| Collection { kind, namespace: None });
    let mut reconciler = Reconciler::new(options, collections.clone());
    let mut of_kind: BTreeMap<Kind, Vec<Projected>> = BTreeMap::new();
    for object in objects(text) {
        of_kind.entry(object.meta.object.kind).or_default().push(object);
    }
    for collection in collections {
        let objects = of_kind.remove(&collection.kind).unwrap_or_default();
        reconciler.observe(
            Event::Listed { collection, objects, complete: true, resource_version: "1".into(), received: now },
            now,
        );
    }
    reconciler.reconcile(now).expect("a first model");
    reconciler
}

/// The defaults of routes, which are not shown.
struct Usual {
    effective: Effective,
    compression: Option<Arc<Compression>>,
}

fn table(compiled: &Compiled, usual: &Usual) -> String {
    let mut out = String::new();
    let parts = &compiled.parts;
    let settings = |route: &Route| {
        let effective = settings(&parts.effective(route), &usual.effective);
        effective + &compression(parts.compression(route), usual.compression.as_ref())
    };
    let streams: BTreeMap<VirtualHost, _> = parts.streams.iter().collect();
    for (host, StreamRoute { backends, connect_timeout, idle_timeout, .. }) in
        streams.into_iter().map(|(host, route)| (host, &**route))
    {
        let shares: Vec<String> = backends.iter().map(share).collect();
        let times = format!("connect {connect_timeout:?}, idle {idle_timeout:?}");
        writeln!(out, "connections for {host} -> {}, {times}", shares.join(", ")).unwrap();
    }
    for Bind { key, listeners } in parts.binds.iter() {
        for listener in listeners {
            let Listener { name, host, .. } = listener;
            writeln!(out, "{:?} {} for {host}: {name}", key.protocol, key.address).unwrap();
        }
    }
    if !is_usual(&parts.edge) {
        writeln!(out, "all connections: {}", serde_json::to_string(&parts.edge).unwrap()).unwrap();
    }
    let hosts: BTreeMap<VirtualHost, _> = parts.hosts.iter().collect();
    for (host, routes) in hosts {
        // With a Deis router, unknown hosts answer health checks.
        let is_health =
            |route: &Route| matches!(route.action, Action::Respond(_)) && route.origin.object.kind == Kind::Deployment;
        if routes.all().all(|route| is_health(route)) {
            continue;
        }
        let owner = routes.owner.as_ref().map(|owner| format!(", of {owner}")).unwrap_or_default();
        writeln!(out, "{host}{owner}").unwrap();
        for route in routes.routes() {
            writeln!(out, "  {} -> {}{}", route.path, leads(parts, route), settings(route)).unwrap();
        }
        if let Some(route) = routes.fallback() {
            writeln!(out, "  else -> {}", leads(parts, route)).unwrap();
        }
        if let Some(route) = &routes.last_resort {
            writeln!(out, "  last resort -> {}", leads(parts, route)).unwrap();
        }
        for (name, certificates) in routes.certificates.iter() {
            let secrets: Vec<String> = certificates.iter().map(|certificate| certificate.secret.to_string()).collect();
            writeln!(out, "  certificate for {name}: {}", secrets.join(", ")).unwrap();
        }
    }
    out
}

/// A share of connections.
fn share(share: &WeightedBackend) -> String {
    let Some(StreamTarget { backend, tls, proxy_header }) = &share.to else {
        return format!("closed x{}", share.weight);
    };
    let name = |tls: &UpstreamTls| tls.server_name.as_deref().unwrap_or("any name").to_owned() + &showing(tls);
    let tls = tls.as_ref().map(|tls| format!(" over TLS to {}", name(tls))).unwrap_or_default();
    let header = proxy_header.map(|version| format!(" with PROXY {version:?}")).unwrap_or_default();
    format!("{backend}{tls}{header} x{}", share.weight)
}

/// The certificate that is shown to endpoints.
fn showing(tls: &UpstreamTls) -> String {
    tls.client.as_ref().map(|client| format!(" showing {}", client.secret)).unwrap_or_default()
}

/// The edge settings without any source, or with the Deis router.
fn is_usual(edge: &EdgeSettings) -> bool {
    let heads = RequestHeadLimits { line_bytes_max: Some(32 << 10), bytes_max: Some(128 << 10) };
    let deis = EdgeSettings { request_head: heads, ..EdgeSettings::default() };
    *edge == deis || *edge == EdgeSettings::default()
}

/// The settings of a route that differ from the defaults.
fn settings(its: &Effective, usual: &Effective) -> String {
    let mut out = String::new();
    let mut say = |name: &str, differs: bool, value: String| {
        if differs {
            write!(out, ", {name} {value}").unwrap();
        }
    };
    let seconds = |timeout: Duration| format!("{}s", timeout.as_secs_f32());
    say("connect", its.connect_timeout != usual.connect_timeout, seconds(its.connect_timeout));
    say("read", its.read_timeout != usual.read_timeout, seconds(its.read_timeout));
    say("write", its.write_timeout != usual.write_timeout, seconds(its.write_timeout));
    say("tunnel", its.tunnel_idle_timeout != usual.tunnel_idle_timeout, seconds(its.tunnel_idle_timeout));
    let body = its.body_bytes_max.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
    say("ids", its.request_ids != usual.request_ids, format!("{:?}", its.request_ids));
    say("start", its.request_start != usual.request_start, its.request_start.to_string());
    say("forwarded for", its.forwarded_for != usual.forwarded_for, format!("{:?}", its.forwarded_for));
    say("body", its.body_bytes_max != usual.body_bytes_max, body);
    out
}

/// The compression of a route's responses, if it differs from the default.
fn compression(its: Option<&Arc<Compression>>, usual: Option<&Arc<Compression>>) -> String {
    match its {
        _ if its == usual => String::new(),
        None => ", no compression".to_owned(),
        Some(its) => {
            let Compression { level, length_min, http10, proxied, disabled, vary, .. } = &**its;
            let more = format!("{http10} {proxied:?} {disabled:?} {vary}");
            format!(", compressed by {level} from {length_min} bytes, {more}")
        }
    }
}

fn leads(parts: &SnapshotParts, route: &Route) -> String {
    let targets: &[_] = match &route.action {
        Action::Forward(targets) => targets,
        Action::Redirect(_) | Action::Respond(_) => &[],
    };
    let endpoints = |backend: Option<&std::sync::Arc<Backend>>| match backend {
        None => "no backend".to_owned(),
        Some(backend) if backend.endpoints.is_empty() => "no endpoints".to_owned(),
        Some(backend) => {
            let all: Vec<String> = backend.endpoints.iter().map(|endpoint| endpoint.address.to_string()).collect();
            let max = backend.requests_max.map_or_else(String::new, |max| format!(", at most {max} requests"));
            let draining = backend.draining.iter().map(|endpoint| format!(", draining {}", endpoint.address));
            all.join(" ") + &draining.collect::<String>() + &max
        }
    };
    let otherwise = || match &route.action {
        Action::Forward(_) => "503".to_owned(),
        Action::Redirect(_) => "redirect".to_owned(),
        Action::Respond(response) => format!("response {} {:?}", response.status, response.content_type),
    };
    let share = |share: &WeightedTarget| {
        let weight = if targets.len() > 1 { format!("{} to ", share.weight) } else { String::new() };
        let Some(target) = share.target() else { return format!("{weight}{:?}", share.to) };
        let endpoints = endpoints(target.fixed.as_ref().or(parts.backends.get(&target.backend)));
        let client = target.tls.as_ref().map(showing).unwrap_or_default();
        format!("{weight}{} {:?}{client} [{endpoints}]", target.backend, target.protocol)
    };
    let shares: Vec<String> = targets.iter().map(share).collect();
    let target = if shares.is_empty() { otherwise() } else { shares.join(", ") };
    let guards: String = route
        .guards
        .iter()
        .map(|guard| match guard {
            Guard::AllowSources(networks) => format!(" only from {networks:?}"),
            Guard::RequireTls { status } => format!(" https by {status}"),
            Guard::Listeners(names) => names.iter().map(|name| format!(" over {name}")).collect(),
            Guard::RequireEndpoints => " with endpoints".to_owned(),
            Guard::ExternalAuth(service) => format!(" asks {service}"),
            Guard::DenyAll => " nobody".to_owned(),
        })
        .collect();
    let session = route.settings.session.as_ref().map(|session| format!(", {session}")).unwrap_or_default();
    format!("{target}{guards} ({}){session}{}", route.origin.object.name, filters(route))
}

/// The headers that are added to its responses.
fn filters(route: &Route) -> String {
    let mut out = String::new();
    for filter in route.filters.iter() {
        let Filter::ResponseHeaders(ResponseEdits { edits, scope, statuses, secure_only }) = filter else { continue };
        for (name, value) in &edits.add {
            write!(out, ", {name}: {} on {scope:?}", value.to_str().unwrap()).unwrap();
        }
        let secure = if *secure_only { " by TLS" } else { "" };
        let some = if statuses.is_empty() { String::new() } else { format!(" of {} statuses", statuses.len()) };
        write!(out, " responses{some}{secure}").unwrap();
    }
    out
}

fn compare(path: &Path, got: &str) -> Result<(), String> {
    if update() {
        std::fs::write(path, got).expect("a writable golden");
        return Ok(());
    }
    let want = std::fs::read_to_string(path).unwrap_or_default();
    (want == got).then_some(()).ok_or_else(|| format!("{}:\n--- want\n{want}--- got\n{got}", path.display()))
}

#[test]
fn every_case_compiles_to_its_golden() {
    check("cases", &Sources::default(), &Usual { effective: Effective::DEFAULT, compression: None });
    let timeout = Duration::from_secs(1300);
    let effective = Effective {
        connect_timeout: Duration::from_secs(30),
        read_timeout: timeout,
        write_timeout: timeout,
        tunnel_idle_timeout: timeout,
        body_bytes_max: Some(1 << 20),
        forwarded_for: ForwardedFor::Replace,
        ..Effective::DEFAULT
    };
    let usual = Usual { effective, compression: DeisRouter::default().compression };
    check(
        "deis",
        &Sources { ingress: Some(Ingresses::default()), deis: Some(deis()), gateway: None, kuadrant: None },
        &usual,
    );
    let addresses = (1..4).map(|last| [127, 0, 1, last].into()).collect();
    let controller: Arc<str> = "tidegate.io/gateway".into();
    let gateway = Some(GatewayApi {
        controller: Arc::clone(&controller),
        addresses,
        services: GatewayServices::Off,
        optional: false,
    });
    let usual = Usual { effective: Effective::DEFAULT, compression: None };
    check("gateway", &Sources { ingress: Some(Ingresses::default()), deis: None, gateway, kuadrant: None }, &usual);
    let kind = ServiceType::LoadBalancer;
    let to_pods = ToPods { kind, edge: ObjectName::new("tidegate", "tidegate"), ports: (20000, 20004) };
    let services = GatewayServices::ToPods(to_pods);
    let gateway = Some(GatewayApi { controller, addresses: Arc::default(), services, optional: false });
    check(
        "gateway_services",
        &Sources { ingress: Some(Ingresses::default()), deis: None, gateway, kuadrant: None },
        &usual,
    );
}

/// The desired infrastructure of each object.
fn made(reconciler: &Reconciler) -> String {
    let mut out = String::new();
    for (object, _) in reconciler.model().topology().attachments() {
        let Some(DesiredInfrastructure { desired, stale, .. }) = reconciler.desired_reports().infrastructure(object)
        else {
            continue;
        };
        for (service, _) in stale {
            writeln!(out, "{object} has no Service {service} any more").unwrap();
        }
        let Some((uid, it)) = desired else { continue };
        writeln!(out, "{object}, which is {uid}, has Service {}, {:?} to {:?}", it.service, it.kind, it.endpoints)
            .unwrap();
        writeln!(out, "  labels {:?}\n  annotations {:?}", it.labels, it.annotations).unwrap();
        for (transport, port, target) in &it.ports {
            writeln!(out, "  {transport} {port} to {target}").unwrap();
        }
        for address in &it.addresses {
            writeln!(out, "  address {address}").unwrap();
        }
    }
    out
}

/// The desired status of each object, with a line for each condition.
fn statuses(reconciler: &Reconciler) -> String {
    let mut out = String::new();
    let verdicts = reconciler.model().compiled().verdicts.keys();
    let desired = verdicts.filter_map(|object| Some((object, reconciler.desired_reports().status(object)?)));
    for (object, desired) in desired {
        let Desired::Status { status, .. } = desired else { continue };
        writeln!(out, "{object}").unwrap();
        let conditions = |out: &mut String, indent: &str, conditions: &[Condition]| {
            for Condition { kind, status, reason, message, .. } in conditions {
                let message = if message.is_empty() { String::new() } else { format!(": {message}") };
                writeln!(out, "{indent}{kind} {status} {reason}{message}").unwrap();
            }
        };
        conditions(&mut out, "  ", &status.conditions);
        for address in &status.addresses {
            writeln!(out, "  {} {}", address.kind, address.value).unwrap();
        }
        for ListenerStatus { name, supported_kinds, attached_routes, conditions: own } in &status.listeners {
            let kinds: Vec<&str> = supported_kinds.iter().map(|kind| &*kind.kind).collect();
            writeln!(out, "  listener {name}: {attached_routes} of {}", kinds.join(", ")).unwrap();
            conditions(&mut out, "    ", own);
        }
        if let Some(sets) = status.attached_sets.filter(|sets| *sets > 0) {
            writeln!(out, "  {sets} ListenerSets").unwrap();
        }
        for ParentStatus { parent, conditions: own } in &status.parents {
            writeln!(out, "  parent {}", serde_json::to_string(parent).unwrap()).unwrap();
            conditions(&mut out, "    ", own);
        }
    }
    out
}

/// The router of these tests, and its builder.
fn deis() -> Deis {
    let builder = Some((ObjectName::new("deis", "deis-builder"), ([127, 0, 0, 1], 2222).into()));
    Deis { router: ObjectName::new("deis", "deis-router"), builder }
}

fn check(folder: &str, sources: &Sources, usual: &Usual) {
    let defaults = std::fs::read_to_string(cases(folder).join("_defaults.yaml")).expect("the defaults");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(cases(folder)).expect("cases").map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut wrong = Vec::new();
    let mut read = 0;
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "yaml")) {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        if name == "_defaults" {
            continue;
        }
        read += 1;
        let text = std::fs::read_to_string(file).expect("a case");
        let by_namespace = name.ends_with("_by_namespace");
        let host_ownership = if by_namespace { HostOwnership::Namespace } else { HostOwnership::Shared };
        let options = Options { sources: sources.clone(), host_ownership, ..Options::default() };
        let reconciler = compiled(&format!("{defaults}\n---\n{text}"), options);
        let findings: String =
            reconciler.model().compiled().all_findings().iter().map(|finding| format!("{finding}\n")).collect();
        wrong.extend(compare(&file.with_extension("routes"), &table(reconciler.model().compiled(), usual)).err());
        wrong.extend(compare(&file.with_extension("findings"), &findings).err());
        if sources.gateway.is_some() {
            wrong.extend(compare(&file.with_extension("status"), &(statuses(&reconciler) + &made(&reconciler))).err());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let each = if sources.gateway.is_some() { 4 } else { 3 };
    assert_eq!(files.len(), 1 + each * read, "a golden without its case, or a case without its goldens");
}
