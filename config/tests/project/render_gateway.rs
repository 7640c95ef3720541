//! Projections of the Gateway API as text.

use std::fmt::Debug;

use tidegate_config::object::Age;
use tidegate_config::project::gateway::{
    AllowedRoutes, BackendTlsPolicy, BackendValidation, CaBundle, ClientValidation, Gateway, GatewayClass, Listener,
    ListenerSet, ListenerTls, Namespace, Options, ReferenceGrant, Unreadable,
};

use crate::render::line;

/// The projection, or the fact that it cannot be read.
fn shown<T: Debug>(it: &Result<T, Unreadable>) -> String {
    it.as_ref().map_or_else(|_| "(unreadable)".to_owned(), |it| format!("{it:?}"))
}

fn list<T: Debug>(all: &[Result<T, Unreadable>]) -> String {
    all.iter().map(shown).collect::<Vec<_>>().join(", ")
}

pub(crate) fn named(out: &mut String, kind: &str, age: &Age) {
    let created = if age.created_s == i64::MAX { "never".to_owned() } else { age.created_s.to_string() };
    line(out, format_args!("{kind} {} created {created}", age.name));
}

fn texts(out: &mut String, what: &str, texts: &Options) {
    texts.iter().for_each(|(key, value)| line(out, format_args!("{what} {key}={value}")));
}

pub(crate) fn namespace(out: &mut String, it: &Namespace) {
    line(out, format_args!("namespace {}", it.name));
    texts(out, "label", &it.labels);
}

pub(crate) fn gateway_class(out: &mut String, it: &GatewayClass) {
    line(out, format_args!("gateway class {} of {:?}", it.name, it.controller));
    it.parameters.iter().for_each(|it| line(out, format_args!("parameters {}", shown(it))));
}

pub(crate) fn reference_grant(out: &mut String, it: &ReferenceGrant) {
    line(out, format_args!("grant {}", it.name));
    it.from.iter().for_each(|from| line(out, format_args!("from {} in {}", from.kind, from.namespace)));
    for to in &it.to {
        line(out, format_args!("to {} {}", to.kind, to.name.as_deref().unwrap_or("(all)")));
    }
}

pub(crate) fn gateway(out: &mut String, it: &Gateway) {
    named(out, "gateway", &it.age);
    line(out, format_args!("class {:?}", it.class.name));
    it.listeners.iter().for_each(|it| listener(out, it));
    it.addresses.iter().for_each(|it| line(out, format_args!("address {it:?}")));
    texts(out, "infrastructure label", &it.infrastructure.labels);
    texts(out, "infrastructure annotation", &it.infrastructure.annotations);
    it.infrastructure
        .parameters
        .iter()
        .for_each(|it| line(out, format_args!("infrastructure parameters {}", shown(it))));
    line(out, format_args!("listener sets from {}", it.allowed_listeners));
    if let Some(it) = &it.tls.frontend {
        line(out, format_args!("clients: {}", validation(it)));
    }
    for (port, own) in &it.tls.by_port {
        let own = own.as_ref().map_or_else(|| "not asked".to_owned(), validation);
        line(out, format_args!("clients of port {port}: {own}"));
    }
    it.tls.backend.iter().for_each(|it| line(out, format_args!("as a client: {}", shown(it))));
}

pub(crate) fn listener_set(out: &mut String, it: &ListenerSet) {
    named(out, "listener set", &it.age);
    line(out, format_args!("parent {}", shown(&it.parent)));
    it.listeners.iter().for_each(|it| listener(out, it));
}

pub(crate) fn backend_tls_policy(out: &mut String, it: &BackendTlsPolicy) {
    named(out, "backend tls policy", &it.age);
    for target in &it.targets {
        line(out, format_args!("target {} {}", target.object, target.section.as_deref().unwrap_or("(all ports)")));
    }
    match &it.validation {
        Ok(BackendValidation { authorities, hostname, names }) => {
            line(out, format_args!("hostname {hostname}, names {names:?}"));
            match authorities {
                CaBundle::System => line(out, format_args!("authorities of the system")),
                CaBundle::These(all) => line(out, format_args!("authorities {}", list(all))),
            }
        }
        Err(Unreadable) => line(out, format_args!("validation (unreadable)")),
    }
    texts(out, "option", &it.options);
}

fn validation(it: &ClientValidation) -> String {
    format!("{:?} by {}", it.mode, list(&it.authorities))
}

pub(crate) fn listener(out: &mut String, it: &Listener) {
    let Ok(spec) = &it.spec else {
        return line(out, format_args!("listener {} (unreadable) ({})", it.name, it.field));
    };
    line(out, format_args!("listener {} {} {} {} ({})", it.name, spec.protocol, spec.port, spec.host, it.field));
    if let Some(ListenerTls { mode, certificates, options }) = &spec.tls {
        line(out, format_args!("  tls {mode:?} by {}", list(certificates)));
        texts(out, "  tls option", options);
    }
    let AllowedRoutes { namespaces, kinds } = &spec.routes;
    line(out, format_args!("  routes from {namespaces}"));
    if let Some(kinds) = kinds {
        line(out, format_args!("  routes of {}", list(kinds)));
    }
}
