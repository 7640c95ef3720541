//! The tree as text: a line for each class, Gateway, listener, object, host, rule and backend, each below its parent.

use std::fmt;

use super::{BackendNode, ClassNode, GatewayNode, HostNode, ListenerNode, MatchNode, RouteNode, RuleNode, Tree};
use crate::explain::Refused;

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.classes.is_empty() {
            writeln!(f, "nothing")?;
        }
        self.classes.iter().try_for_each(|class| write_class(f, class))?;
        match &self.next {
            Some(next) => writeln!(f, "and more: --after {next}"),
            None => Ok(()),
        }
    }
}

fn write_class(f: &mut fmt::Formatter<'_>, class: &ClassNode) -> fmt::Result {
    writeln!(f, "{} {}", class.kind, class.name)?;
    class.gateways.iter().try_for_each(|gateway| write_gateway(f, gateway))?;
    class.routes.iter().try_for_each(|route| write_route(f, "  ", route))
}

fn write_gateway(f: &mut fmt::Formatter<'_>, gateway: &GatewayNode) -> fmt::Result {
    let at = if gateway.addresses.is_empty() { "no address".to_owned() } else { gateway.addresses.join(", ") };
    writeln!(f, "  {} ({at})", gateway.object)?;
    gateway.listeners.iter().try_for_each(|listener| write_listener(f, listener))?;
    for Refused { object, reason, message } in &gateway.refused {
        writeln!(f, "    refused {object}: {reason}: {message}")?;
    }
    Ok(())
}

fn write_listener(f: &mut fmt::Formatter<'_>, listener: &ListenerNode) -> fmt::Result {
    let ListenerNode { name, set, protocol, port, host, sockets, idle, routes } = listener;
    let set = set.as_ref().map(|set| format!(" of {set}")).unwrap_or_default();
    let on = if sockets.is_empty() { String::new() } else { format!(" on {}", sockets.join(", ")) };
    writeln!(f, "    listener {name}{set}: {protocol} {port} for {host}{on}")?;
    if let Some(why) = idle {
        writeln!(f, "      accepts nothing: {why}")?;
    }
    routes.iter().try_for_each(|route| write_route(f, "      ", route))
}

fn write_route(f: &mut fmt::Formatter<'_>, indent: &str, route: &RouteNode) -> fmt::Result {
    writeln!(f, "{indent}{}", route.object)?;
    for HostNode { hosts, rules } in &route.hosts {
        writeln!(f, "{indent}  {}", hosts.join(", "))?;
        rules.iter().try_for_each(|rule| write_rule(f, indent, rule))?;
    }
    Ok(())
}

fn write_rule(f: &mut fmt::Formatter<'_>, indent: &str, rule: &RuleNode) -> fmt::Result {
    let name = rule.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let matches: Vec<String> = rule.matches.iter().map(ToString::to_string).collect();
    let matches = if matches.is_empty() { String::new() } else { format!(": {}", matches.join(" or ")) };
    writeln!(f, "{indent}    {}{name}{matches}", rule.field)?;
    if let Some(answer) = &rule.answer {
        writeln!(f, "{indent}      -> {answer}")?;
    }
    rule.backends.iter().try_for_each(|backend| writeln!(f, "{indent}      -> {backend}"))
}

impl fmt::Display for MatchNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path)?;
        let named = [("method", &self.methods), ("header", &self.headers), ("query", &self.queries)];
        let named = named.into_iter().flat_map(|(word, names)| names.iter().map(move |name| (word, name)));
        named.into_iter().try_for_each(|(word, name)| write!(f, ", {word} {name}"))
    }
}

impl fmt::Display for BackendNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.backend, self.status) {
            (Some(backend), _) => {
                let endpoints = if self.endpoints == 1 { "endpoint" } else { "endpoints" };
                write!(f, "{backend} (weight {}, {} {endpoints})", self.weight, self.endpoints)
            }
            (None, Some(status)) => write!(f, "status {status} (weight {})", self.weight),
            (None, None) => write!(f, "no backend (weight {})", self.weight),
        }
    }
}
