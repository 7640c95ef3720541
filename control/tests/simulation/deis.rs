//! Deis applications of the simulation.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tidegate_config::model::{Expression, HostExpression, HostPattern, PathMatch};
use tidegate_config::object::{Age, ObjectName};
use tidegate_config::project::gateway::Unreadable;
use tidegate_config::project::{DeisApp, DeisDomain, DeisExpression, DeisLocations, Whitelist};

use crate::cluster::{host, policy};

/// Sometimes, paths on the hosts of another application.
fn locations(die: &mut Rng) -> Option<DeisLocations> {
    let domain = DeisDomain::Short(["a", "b"][die.usize(0..2)].into());
    let paths = ["/a", "/b"].map(|path| PathMatch::prefix_characters(path).expect("a path"));
    (die.u32(0..4) == 0).then(|| DeisLocations { domain, paths: paths[..die.usize(1..3)].into() })
}

/// An application with short names and domains that Ingresses claim as well.
pub(crate) fn app(die: &mut Rng, name: &ObjectName) -> DeisApp {
    let domain = |die: &mut Rng| match host(die) {
        HostPattern::Any => DeisDomain::Short(["a", "b"][die.usize(0..2)].into()),
        full @ (HostPattern::Exact(_)
        | HostPattern::Wildcard(..)
        | HostPattern::FirstLabel(_)
        | HostPattern::Expression(_)) => DeisDomain::Full(full),
    };
    let domains: Vec<DeisDomain> = (0..die.usize(0..3)).map(|_| domain(die)).collect();
    let mapped = |domain: &DeisDomain| match domain {
        DeisDomain::Short(name) => Arc::clone(name),
        DeisDomain::Full(pattern) => pattern.to_string().into(),
    };
    let certificates = domains.iter().filter(|_| die.bool()).map(|domain| (mapped(domain), name.beside("s0-cert")));
    let certificates = certificates.collect();
    let expression = (die.u32(0..4) == 0 && !domains.is_empty()).then(|| {
        let text = format!(r"(?:{}|[ab][0-9])\..+", domains[0].to_string().replace('*', "x"));
        let host = HostExpression::new(0, Expression::new(&text, HostExpression::COMPARISON).expect("an expression"));
        DeisExpression { domains: [domains[0].clone()].into(), host }
    });
    DeisApp {
        age: Age { created_s: die.i64(0..3), name: name.clone() },
        log_name: Arc::clone(&name.name),
        locations: locations(die),
        certificates,
        expression,
        domains: domains.into(),
        whitelist: if die.u32(0..4) == 0 { Whitelist::Closed } else { Whitelist::None },
        connect_timeout: Duration::from_secs(30),
        tcp_timeout: None,
        ssl_enforce: die.bool(),
        maintenance: die.u32(0..4) == 0,
        no_request_start: die.bool(),
        referrer_policy: die.bool().then_some("origin"),
        policy: policy(die).map(|policy| if die.u32(0..8) == 0 { Err(Unreadable) } else { Ok(policy) }),
        findings: Box::default(),
    }
}
