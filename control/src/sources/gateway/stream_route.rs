//! TLSRoute, TCPRoute and UDPRoute: connections to a listener, or to a server name on it, are passed on as bytes, or as
//! datagrams, by the single rule of the route.

use std::sync::Arc;
use std::time::Duration;

use tidegate_config::finding::Problem;
use tidegate_config::model::{
    Effective, Origin, StreamRoute, StreamTarget, Target, Transport, VirtualHost, WeightedBackend,
};
use tidegate_config::object::{Age, Kind, ObjectRef};
use tidegate_config::project::gateway::{self, Hostnames, StreamRule, Unreadable};

use super::client_certificate::shown_by_stream;
use super::parent::RouteParents;
use super::rule::Rules;
use crate::attachment::{Attachment, ConditionReason, Key, OtherClaims, Report, RouteConditions, RouteStatus};
use crate::sources::reader::Reader;

/// The default time without datagrams after which a flow ends, as in Envoy.
const FLOW_IDLE: Duration = Duration::from_secs(60);

/// The field of the only rule.
const RULE: &str = "spec.rules[0]";

pub(in crate::sources) fn attach_tls(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let Some(route) = reader.world().tls_routes.get(&object.name) else {
        return Attachment::reporting(object, reader.world());
    };
    let route_parents = RouteParents { object, age: &route.age, parents: &route.parents, hostnames: &route.hostnames };
    attach(reader, &route_parents, &route.age, route.rule.as_ref())
}

/// Attaches a TCPRoute or UDPRoute, whose listeners have no hostnames.
pub(in crate::sources) fn attach_layer4(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let world = reader.world();
    let routes = if object.kind == Kind::UdpRoute { &world.udp_routes } else { &world.tcp_routes };
    let Some(route) = routes.get(&object.name) else { return Attachment::reporting(object, world) };
    let route_parents = RouteParents { object, age: &route.age, parents: &route.parents, hostnames: &Hostnames::Any };
    attach(reader, &route_parents, &route.age, route.rule.as_ref())
}

fn attach(
    reader: &mut Reader<'_>,
    route_parents: &RouteParents<'_>,
    age: &Age,
    rule: Option<&StreamRule>,
) -> Attachment {
    let object = route_parents.object;
    let joined = route_parents.join(reader);
    if joined.parents.is_empty() {
        return Attachment::default();
    }
    let generation = reader.generation(object);
    // A BackendTLSPolicy applies to connections with TLS terminated here, and not to those passed through.
    let ends_here = |host: &&VirtualHost| object.kind == Kind::TlsRoute && !joined.passed_on.contains(&host.table);
    let mut rules = Rules::of(reader, object);
    let as_they_are = rule.map(|rule| rules.stream(age, rule, false));
    let over_tls = rule.filter(|_| joined.hosts.iter().any(|host| ends_here(&host)));
    let over_tls = over_tls.map(|rule| rules.stream(age, rule, true));
    let Rules { missing, unresolved, mut findings, .. } = rules;
    findings.sort_unstable();
    findings.dedup();
    let lead = |host: &VirtualHost| {
        let route = if ends_here(&host) { &over_tls } else { &as_they_are };
        let show = |route| match joined.clients.get(&host.table) {
            None => Arc::clone(route),
            Some(client) => shown_by_stream(route, client),
        };
        route.as_ref().map(|route| (host.clone(), show(route)))
    };
    let refused = rule.is_none().then(|| ConditionReason::new("UnsupportedValue", format!("{RULE} cannot be read")));
    let streams: Box<[_]> = joined.hosts.iter().filter_map(lead).collect();
    let joined_any = !streams.is_empty();
    let listeners: Box<[Key]> = if refused.is_some() { Box::default() } else { joined.listeners.into_iter().collect() };
    let outcome = RouteConditions { refused, unresolved, ..RouteConditions::default() };
    let status = RouteStatus::new(route_parents.parents, generation, joined.parents, outcome);
    let other_claims = || OtherClaims { streams, missing: missing.into_iter().collect(), ..OtherClaims::default() };
    let other_claims = joined_any.then(|| Box::new(other_claims()));
    Attachment { other_claims, listeners, report: Report::of_route(findings, status), ..Attachment::default() }
}

impl Rules<'_, '_> {
    /// The route of a rule; `secured` applies BackendTLSPolicies.
    fn stream(&mut self, age: &Age, rule: &StreamRule, secured: bool) -> Arc<StreamRoute> {
        let times = Effective::of(&self.reader.options.defaults);
        let origin = Origin { object: self.object.clone(), age: age.clone(), field: RULE.into(), position: 0 };
        Arc::new(StreamRoute {
            origin: Arc::new(origin),
            rule: rule.name.clone(),
            backends: rule.backends.iter().map(|share| self.connections(share, secured)).collect(),
            connect_timeout: times.connect_timeout,
            idle_timeout: match self.object.kind == Kind::UdpRoute {
                true => self.flow_idle(rule),
                false => times.tunnel_idle_timeout,
            },
        })
    }

    /// The time without datagrams after which a flow ends: the longest of the rule's Services, so that none gets less
    /// than it needs.
    fn flow_idle(&mut self, rule: &StreamRule) -> Duration {
        let services = rule.backends.iter().filter_map(|share| share.to.as_ref().ok());
        let granted = services.filter_map(|to| self.reader.granted(self.object, &to.object).then_some(&to.object.name));
        let names: Vec<_> = granted.collect();
        let idle = names.into_iter().filter_map(|name| self.reader.service(name));
        idle.map(|service| service.udp_idle_timeout.unwrap_or(FLOW_IDLE)).max().unwrap_or(FLOW_IDLE)
    }

    /// The backend of a rule. With an unusable one, connections are closed and datagrams dropped.
    fn connections(&mut self, share: &gateway::WeightedBackend, secured: bool) -> WeightedBackend {
        let gateway::WeightedBackend { field, to, weight } = share;
        let target = match to {
            Ok(to) => {
                // The bytes are passed on unchanged, independently of the Service port's protocol.
                let found = self.named(to).map(|target| Target { tls: None, ..target });
                let found = if secured { found.and_then(|target| self.over_tls(target)) } else { found };
                self.usable(field, found, |value, why| Problem::RuleDropped { value, why })
            }
            Err(Unreadable) => self.unreadable(field),
        };
        let to = target.map(|Target { backend, tls, .. }| {
            let service = self.reader.service(&backend.service).filter(|_| backend.transport == Transport::Tcp);
            let proxy_header = service.and_then(|service| service.proxy_header);
            StreamTarget { backend, tls, proxy_header }
        });
        WeightedBackend { to, weight: *weight }
    }
}
