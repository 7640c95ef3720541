//! An explanation as text, with a line for each part.

use std::fmt;

use tidegate_config::model::{Endpoint, Guard};

use super::{Candidate, Explanation, Refused};

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = Some(&*self.method).filter(|method| *method != "GET").map(|method| format!("{method} "));
        let method = method.as_deref().unwrap_or_default();
        writeln!(f, "{method}{} (generation {}, listener {})", self.url, self.generation, self.listener)?;
        if let Some(gateway) = &self.gateway {
            writeln!(f, "  gateway  {gateway}")?;
        }
        if let Some(listener) = &self.misdirected {
            writeln!(f, "  tls      the TLS server name selects listener {listener}, so the answer is 421")?;
        }
        if let Some(certificate) = &self.certificate {
            writeln!(f, "  cert     {certificate}")?;
        }
        match &self.connections {
            Some(connections) => connections.fmt(f)?,
            None => self.write_route(f)?,
        }
        if let Some(status) = self.answer {
            writeln!(f, "  answer   {status}, by the edge itself")?;
        }
        if let Some(held) = &self.held {
            writeln!(f, "  held     {held}")?;
        }
        if let Some(wait) = &self.waits {
            writeln!(f, "  waiting  {wait}")?;
        }
        self.passed_over.iter().try_for_each(|candidate| write_candidate(f, "passed", candidate))?;
        self.next.iter().try_for_each(|candidate| write_candidate(f, "next", candidate))?;
        self.others.iter().try_for_each(|candidate| write_candidate(f, "other", candidate))?;
        if self.omitted > 0 {
            writeln!(f, "           and {} more", self.omitted)?;
        }
        for Refused { object, reason, message } in &self.refused {
            writeln!(f, "  refused  {object}: {reason}: {message}")?;
        }
        self.ignored.iter().try_for_each(|ignored| ignored.fmt(f))?;
        for finding in &self.lost {
            writeln!(f, "  lost     {finding}")?;
        }
        for finding in &self.findings {
            writeln!(f, "  finding  {finding}")?;
        }
        Ok(())
    }
}

impl Explanation {
    fn write_route(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  host     {}", self.host.as_deref().unwrap_or("no rule has it"))?;
        let Some(route) = &self.route else { return writeln!(f, "  route    none") };
        writeln!(f, "  route    {}", route.candidate.path)?;
        writeln!(f, "  object   {}, {}", route.candidate.object, route.candidate.field)?;
        if let Some(rule) = &route.candidate.rule {
            writeln!(f, "  rule     {rule}")?;
        }
        for guard in &*route.guards {
            write_guard(f, guard)?;
        }
        if let Some(policies) = &route.policies {
            fmt::Display::fmt(policies, f)?;
        }
        if let Some(session) = &route.session {
            writeln!(f, "  session  {session}")?;
        }
        for target in &route.targets {
            writeln!(f, "  backend  {} (weight {})", target.backend, target.weight)?;
            if let Some(service) = &target.external_auth {
                writeln!(f, "           asks {service}")?;
            }
            if target.protocol.is_some() {
                write_endpoints(f, &target.endpoints)?;
            }
            for endpoint in &target.draining {
                writeln!(f, "           {} (draining: existing sessions only)", endpoint.address)?;
            }
        }
        Ok(())
    }
}

fn write_candidate(f: &mut fmt::Formatter<'_>, word: &str, candidate: &Candidate) -> fmt::Result {
    let Candidate { object, field, rule, path, why } = candidate;
    let rule = rule.as_ref().map(|rule| format!(" ({rule})")).unwrap_or_default();
    let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    writeln!(f, "  {word:8} {path} of {object}, {field}{rule}{why}")
}

pub(super) fn write_endpoints(f: &mut fmt::Formatter<'_>, endpoints: &[Endpoint]) -> fmt::Result {
    if endpoints.is_empty() {
        writeln!(f, "           no endpoint is ready")?;
    }
    endpoints.iter().try_for_each(|endpoint| writeln!(f, "           {}", endpoint.address))
}

fn write_guard(f: &mut fmt::Formatter<'_>, guard: &Guard) -> fmt::Result {
    match guard {
        Guard::AllowSources(networks) => {
            let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
            writeln!(f, "  guard    403 for clients outside {}", networks.join(", "))
        }
        Guard::RequireTls { status } => writeln!(f, "  guard    {status} to https for plain-text requests"),
        Guard::Listeners(names) => {
            let names: Vec<&str> = names.iter().map(|name| &*name.0).collect();
            writeln!(f, "  guard    404 except over {}", names.join(", "))
        }
        Guard::RequireEndpoints => writeln!(f, "  guard    requires an endpoint (else 503)"),
        Guard::ExternalAuth(service) => writeln!(f, "  guard    asks {service}"),
        Guard::DenyAll => writeln!(f, "  guard    403 for all clients"),
    }
}
