//! Projections of routes of the Gateway API as text.

use std::fmt::Debug;

use tidegate_config::model::{Conditions, Filter, HeaderEdits, TextMatch, ValueMatch};
use tidegate_config::object::Age;
use tidegate_config::project::gateway::{
    GrpcRoute, GrpcRule, Hostnames, HttpFilter, HttpFilters, HttpMatch, HttpRoute, HttpRule, ParentRef, StreamRule,
    TlsRoute, Unreadable, WeightedBackend,
};

use crate::render::line;
use crate::render_gateway::named;

pub(crate) fn http_route(out: &mut String, it: &HttpRoute) {
    named(out, "http route", &it.age);
    it.parents.iter().for_each(|it| parent(out, it));
    hostnames(out, &it.hostnames);
    it.rules.iter().for_each(|it| http_rule(out, it));
    if !it.dropped.is_empty() {
        line(out, format_args!("dropped rules {:?}", it.dropped));
    }
}

fn parent(out: &mut String, it: &ParentRef) {
    let own = if it.namespace_written { "" } else { " by default" };
    let section = it.section.as_ref().map(|it| format!(" listener {it}")).unwrap_or_default();
    let port = it.port.map(|it| format!(" port {it}")).unwrap_or_default();
    line(out, format_args!("parent {}{own}{section}{port}", it.parent));
}

fn hostnames(out: &mut String, it: &Hostnames) {
    match it {
        Hostnames::Any => line(out, format_args!("hosts of the listener")),
        Hostnames::These(hosts) => line(out, format_args!("hosts {hosts:?}")),
    }
}

fn http_rule(out: &mut String, it: &HttpRule) {
    line(out, format_args!("rule {} {:?}", it.index, it.name.as_deref().unwrap_or_default()));
    it.matches.iter().for_each(|it| http_match(out, it));
    filters(out, "  ", &it.filters);
    for backend in &it.backends {
        share(out, &backend.share);
        filters(out, "    ", &backend.filters);
    }
    if let Some(it) = &it.settings {
        set(out, "request timeout", it.timeouts.request.as_ref());
        set(out, "backend request timeout", it.timeouts.backend_request.as_ref());
        set(out, "retry", it.retry.as_ref());
        set(out, "session", it.session.as_ref());
    }
}

fn set<T: Debug>(out: &mut String, what: &str, value: Option<&T>) {
    value.into_iter().for_each(|value| line(out, format_args!("  {what} {value:?}")));
}

fn http_match(out: &mut String, it: &HttpMatch) {
    line(out, format_args!("  {}{}", it.path, conditions(&it.conditions)));
}

fn conditions(it: &Conditions) -> String {
    let value = |what: &str, it: &ValueMatch| match &it.value {
        TextMatch::Exact(text) => format!(" {what} {}={text}", it.name),
        TextMatch::Regex(_) | TextMatch::Present => format!(" {what} {}~{:?}", it.name, it.value),
    };
    let methods = it.methods.iter().map(|method| format!(" {method}"));
    let headers = it.headers.iter().map(|it| value("header", it));
    methods.chain(headers).chain(it.queries.iter().map(|it| value("query", it))).collect()
}

fn share(out: &mut String, it: &WeightedBackend) {
    let to = match &it.to {
        Ok(to) => {
            let port = to.port.map(|port| format!(":{port}")).unwrap_or_default();
            format!("{}{port}", to.object)
        }
        Err(Unreadable) => "nothing".to_owned(),
    };
    line(out, format_args!("  {} -> {to} ({})", it.weight, it.field));
}

fn filters(out: &mut String, indent: &str, it: &HttpFilters) {
    for filter in &it.list {
        match filter {
            HttpFilter::Edit(Filter::RequestHeaders(edits)) => header_edits(out, indent, "request", edits),
            HttpFilter::Edit(Filter::ResponseHeaders(edits)) => header_edits(out, indent, "response", &edits.edits),
            HttpFilter::Edit(edit) => line(out, format_args!("{indent}rewrite {edit:?}")),
            HttpFilter::Redirect(_)
            | HttpFilter::Mirror(_)
            | HttpFilter::Cors(_)
            | HttpFilter::ExternalAuth(_)
            | HttpFilter::Extension(_) => line(out, format_args!("{indent}{filter:?}")),
        }
    }
    if let Some(fault) = it.fault {
        line(out, format_args!("{indent}500: {fault:?}"));
    }
}

fn header_edits(out: &mut String, indent: &str, what: &str, it: &HeaderEdits) {
    it.remove.iter().for_each(|name| line(out, format_args!("{indent}{what} remove {name}")));
    it.set.iter().for_each(|(name, value)| line(out, format_args!("{indent}{what} set {name}: {value:?}")));
    it.add.iter().for_each(|(name, value)| line(out, format_args!("{indent}{what} add {name}: {value:?}")));
}

pub(crate) fn grpc_route(out: &mut String, it: &GrpcRoute) {
    named(out, "grpc route", &it.age);
    it.parents.iter().for_each(|it| parent(out, it));
    hostnames(out, &it.hostnames);
    it.rules.iter().for_each(|it| grpc_rule(out, it));
    if !it.dropped.is_empty() {
        line(out, format_args!("dropped rules {:?}", it.dropped));
    }
}

fn grpc_rule(out: &mut String, it: &GrpcRule) {
    line(out, format_args!("rule {} {:?}", it.index, it.name.as_deref().unwrap_or_default()));
    for one in &it.matches {
        let headers = Conditions { headers: one.headers.clone(), ..Conditions::default() };
        line(out, format_args!("  {}{}", one.path, conditions(&headers)));
    }
    filters(out, "  ", &it.filters);
    for backend in &it.backends {
        share(out, &backend.share);
        filters(out, "    ", &backend.filters);
    }
    set(out, "session", it.session.as_ref());
}

pub(crate) fn tls_route(out: &mut String, it: &TlsRoute) {
    stream_route(out, "tls route", &it.age, &it.parents, it.rule.as_ref());
    hostnames(out, &it.hostnames);
}

pub(crate) fn stream_route(out: &mut String, kind: &str, age: &Age, parents: &[ParentRef], rule: Option<&StreamRule>) {
    named(out, kind, age);
    parents.iter().for_each(|it| parent(out, it));
    match rule {
        Some(rule) => {
            line(out, format_args!("rule {:?}", rule.name.as_deref().unwrap_or_default()));
            rule.backends.iter().for_each(|it| share(out, it));
        }
        None => line(out, format_args!("no rule")),
    }
}
