//! Projections as text that can be reviewed: one line for each value that routing reads, then the findings.

use std::fmt::{Debug, Write};

use tidegate_config::model::Settings;
use tidegate_config::project::{
    BackendRef, ClassRef, DeisApp, DeisRouter, EndpointSlice, Ingress, IngressClass, Object, PortRef, Projected,
    RulePath, Secret, Service, ServiceKind,
};

use crate::{render_gateway, render_policy, render_route};

/// The whole outcome.
pub(crate) fn render(projected: &Projected) -> String {
    let mut out = String::new();
    match &projected.object {
        None => out.push_str("unreadable\n"),
        Some(Object::Ingress(it)) => ingress(&mut out, it),
        Some(Object::IngressClass(it)) => ingress_class(&mut out, it),
        Some(Object::Service(it)) => service(&mut out, it),
        Some(Object::EndpointSlice(it)) => slice(&mut out, it),
        Some(Object::Secret(it)) => secret(&mut out, it),
        Some(Object::Deployment(it)) => router(&mut out, &it.router),
        Some(Object::ConfigMap(it)) => {
            let authorities = it.authorities.as_ref().map(|read| read.as_ref().map(|all| all.certificates().len()));
            line(&mut out, format_args!("config map {}: authorities {authorities:?}", it.name));
        }
        Some(Object::Namespace(it)) => render_gateway::namespace(&mut out, it),
        Some(Object::GatewayClass(it)) => render_gateway::gateway_class(&mut out, it),
        Some(Object::Gateway(it)) => render_gateway::gateway(&mut out, it),
        Some(Object::HttpRoute(it)) => render_route::http_route(&mut out, it),
        Some(Object::ListenerSet(it)) => render_gateway::listener_set(&mut out, it),
        Some(Object::BackendTlsPolicy(it)) => render_gateway::backend_tls_policy(&mut out, it),
        Some(Object::GrpcRoute(it)) => render_route::grpc_route(&mut out, it),
        Some(Object::TlsRoute(it)) => render_route::tls_route(&mut out, it),
        Some(Object::TcpRoute(it)) => {
            render_route::stream_route(&mut out, "tcp route", &it.age, &it.parents, it.rule.as_ref())
        }
        Some(Object::UdpRoute(it)) => {
            render_route::stream_route(&mut out, "udp route", &it.age, &it.parents, it.rule.as_ref())
        }
        Some(Object::RateLimitPolicy(it)) => render_policy::rate_limit_policy(&mut out, it),
        Some(Object::TokenRateLimitPolicy(it)) => render_policy::token_rate_limit_policy(&mut out, it),
        Some(Object::AuthPolicy(it)) => render_policy::auth_policy(&mut out, it),
        Some(Object::ReferenceGrant(it)) => render_gateway::reference_grant(&mut out, it),
    }
    for finding in &projected.findings {
        line(&mut out, format_args!("{:?}: {}: {}", finding.problem.severity(), finding.field, finding.problem));
    }
    out
}

pub(crate) fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").unwrap();
}

fn ingress(out: &mut String, it: &Ingress) {
    let created = if it.age.created_s == i64::MAX { "never".to_owned() } else { it.age.created_s.to_string() };
    line(out, format_args!("ingress {} created {created}", it.age.name));
    match &it.class {
        ClassRef::Field(class) => line(out, format_args!("class {:?} by field", class.name)),
        ClassRef::Annotation(class) => line(out, format_args!("class {class:?} by annotation")),
        ClassRef::Default => line(out, format_args!("class by default")),
    }
    for rule in &*it.rules {
        line(out, format_args!("host {}", rule.host));
        rule.paths.iter().for_each(|path| rule_path(out, path));
    }
    if let Some(default) = &it.default_backend {
        let reach = if default.alone { "everything" } else { "else" };
        line(out, format_args!("  {reach} -> {}", backend(default.backend.as_ref())));
    }
    for tls in &*it.tls {
        let host = tls.host.as_ref().map_or_else(|| "hosts of the rules".to_owned(), ToString::to_string);
        line(out, format_args!("tls {host} by {:?} ({})", tls.secret.name, tls.field()));
    }
    it.guards.iter().for_each(|guard| line(out, format_args!("guard {guard:?}")));
    it.filters.iter().for_each(|filter| line(out, format_args!("filter {filter:?}")));
    settings(out, &it.settings);
    if let Some(protocol) = it.protocol {
        line(out, format_args!("protocol {protocol:?}"));
    }
    if let Some(policy) = &it.policy {
        line(out, format_args!("policy {policy}"));
    }
}

fn rule_path(out: &mut String, path: &RulePath) {
    line(out, format_args!("  {} -> {} ({})", path.path, backend(path.backend.as_ref()), path.field));
}

fn backend(backend: Option<&BackendRef>) -> String {
    match backend {
        Some(BackendRef { service, port: PortRef::Name(name) }) => format!("{}:{name:?}", service.name),
        Some(BackendRef { service, port: PortRef::Number(number) }) => format!("{}:{number}", service.name),
        None => "503".to_owned(),
    }
}

fn settings(out: &mut String, it: &Settings) {
    fn set<T: Debug>(out: &mut String, name: &str, value: Option<T>) {
        if let Some(value) = value {
            line(out, format_args!("setting {name} {value:?}"));
        }
    }
    set(out, "connect_timeout", it.connect_timeout);
    set(out, "read_timeout", it.read_timeout);
    set(out, "write_timeout", it.write_timeout);
    set(out, "request_timeout", it.request_timeout);
    set(out, "tunnel_idle_timeout", it.tunnel_idle_timeout);
    set(out, "body_bytes_max", it.body_bytes_max);
    set(out, "tries_max", it.tries_max);
    set(out, "balance", it.balance);
    set(out, "session", it.session.as_ref());
}

fn ingress_class(out: &mut String, it: &IngressClass) {
    let default = if it.is_default { ", the default" } else { "" };
    line(out, format_args!("class {} of {}{default}", it.name, it.controller));
}

fn service(out: &mut String, it: &Service) {
    match &it.kind {
        ServiceKind::Slices => line(out, format_args!("service {} by slices", it.name)),
        ServiceKind::ExternalName(name) => line(out, format_args!("service {} is {name}", it.name)),
    }
    if let Some(max) = it.requests_max {
        line(out, format_args!("at most {max} requests a port"));
    }
    if let Some(idle) = it.udp_idle_timeout {
        line(out, format_args!("flows of datagrams end after {idle:?} of silence"));
    }
    for port in &it.ports {
        line(out, format_args!("port {:?} {} to {:?} {:?}", port.name, port.number, port.target, port.protocol));
    }
    it.deis.iter().for_each(|it| app(out, it));
}

fn app(out: &mut String, it: &DeisApp) {
    it.domains.iter().for_each(|domain| line(out, format_args!("domain {domain:?}")));
    it.certificates.iter().for_each(|(domain, secret)| line(out, format_args!("certificate {domain} in {secret}")));
    if let Some(locations) = &it.locations {
        let paths: Vec<String> = locations.paths.iter().map(ToString::to_string).collect();
        line(out, format_args!("on {:?}: {}", locations.domain, paths.join(", ")));
    }
    line(out, format_args!("whitelist {:?}", it.whitelist));
    line(out, format_args!("connect {:?}, between bytes {:?}", it.connect_timeout, it.tcp_timeout));
    line(out, format_args!("https {}", it.ssl_enforce));
    line(out, format_args!("maintenance {}, referrers {:?}", it.maintenance, it.referrer_policy));
    line(out, format_args!("no request start {}", it.no_request_start));
    if let Some(policy) = &it.policy {
        line(out, format_args!("policy {policy:?}"));
    }
    for finding in &it.findings {
        line(out, format_args!("{:?}: {}: {}", finding.problem.severity(), finding.field, finding.problem));
    }
}

fn router(out: &mut String, it: &DeisRouter) {
    line(out, format_args!("platform domain {:?}", it.platform_domain));
    line(out, format_args!("between bytes {:?}, bodies up to {}", it.default_timeout, it.body_bytes_max));
    line(out, format_args!("whitelist {:?}", it.default_whitelist));
    line(out, format_args!("override {}, enforced {}", it.whitelist_override, it.enforce_whitelists));
    line(out, format_args!("https {}", it.ssl_enforce));
    line(out, format_args!("hsts {:?}, referrers {:?}", it.hsts, it.referrer_policy));
    line(out, format_args!("request ids {}, start {}", it.request_ids, it.request_start));
    line(out, format_args!("trusted proxies {:?}", it.trusted_proxies));
    match &it.compression {
        usual if *usual == DeisRouter::default().compression => line(out, format_args!("the usual compression")),
        Some(compression) => line(out, format_args!("compression {}", serde_json::to_string(compression).unwrap())),
        None => line(out, format_args!("no compression")),
    }
}

fn slice(out: &mut String, it: &EndpointSlice) {
    let service = it.service.as_ref().map(|service| &service.name);
    line(out, format_args!("slice {} of {service:?}", it.name));
    it.ports.iter().for_each(|port| line(out, format_args!("port {:?} {}", port.name, port.number)));
    for endpoint in &it.endpoints {
        let ready = if endpoint.ready { "ready" } else { "not ready" };
        let serving = if endpoint.serving { "serving" } else { "not serving" };
        line(out, format_args!("endpoint {} {ready}, {serving}, pod {:?}", endpoint.address, endpoint.pod));
    }
}

fn secret(out: &mut String, it: &Secret) {
    match &it.certificate {
        Ok(certificate) => line(out, format_args!("secret {}: {certificate:?}", it.name)),
        Err(fault) => line(out, format_args!("secret {}: {fault}", it.name)),
    }
    if let Some(key) = &it.api_key {
        line(out, format_args!("api key {:?} of {}, created {}", key.key, key.identity, key.created_s));
    }
    if !it.texts.is_empty() {
        line(out, format_args!("{:?}", it.texts));
    }
}
