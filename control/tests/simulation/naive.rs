//! A second opinion on who serves a request, written without the compiler's types: walk every rule of every Ingress
//! and keep the best. Incremental and full share the rules of precedence, so their equality says nothing about those.

use std::cmp::Reverse;

use tidegate_config::model::{Action, Head, HostPattern, ListenerName, PathMatch};
use tidegate_config::object::ObjectName;
use tidegate_config::project::{Ingress, RulePath};
use tidegate_control::options::{HostOwnership, Options};
use tidegate_control::{Compiled, Membership, World, membership};

const NAMES: [&str; 5] = ["a.example", "x.example", "c.test", "y.x.example", "else.where"];
const REQUESTS: [&str; 6] = ["/", "/a", "/a/", "/a/b", "/a/bc", "/z"];

/// Compares the answers for a grid of requests.
pub(crate) fn check(world: &World, options: &Options, compiled: &Compiled, seed: u64) {
    for name in NAMES {
        for path in REQUESTS {
            assert_eq!(live(compiled, name, path), naive(world, options, name, path), "seed {seed}: {name}{path}");
        }
    }
}

/// The object and the field of the rule that serves.
type Answer = Option<(ObjectName, String)>;

struct Get<'a>(&'a str);

impl Head for Get<'_> {
    fn method(&self) -> &str {
        "GET"
    }
    fn path(&self) -> &str {
        self.0
    }
    fn query(&self) -> Option<&str> {
        None
    }
    fn authority(&self) -> Option<&str> {
        None
    }
    fn header(&self, _: &str) -> Option<&[u8]> {
        None
    }
    fn each_value(&self, _: &str, _: &mut dyn FnMut(&[u8])) {}
}

fn live(compiled: &Compiled, name: &str, path: &str) -> Answer {
    let listener = ListenerName("http".into());
    let hosts = &compiled.parts.hosts;
    let routes = hosts.matching(name).find(|routes| routes.serves(&listener));
    let route = routes.and_then(|routes| routes.find(&listener, path, &Get(path)));
    let route = route.or_else(|| hosts.get(&HostPattern::Any).and_then(|routes| routes.fallback()))?;
    assert!(matches!(route.action, Action::Forward(_)));
    Some((route.origin.object.name.clone(), route.origin.field.to_string()))
}

fn naive(world: &World, options: &Options, name: &str, path: &str) -> Answer {
    let mut ours: Vec<&Ingress> = world
        .ingresses
        .values()
        .map(|ingress| &**ingress)
        .filter(|ingress| matches!(membership(world, options, ingress), Membership::Ours(_)))
        .collect();
    ours.sort_by_key(|ingress| (ingress.age.created_s, ingress.age.name.clone()));
    // The most specific pattern that any rule names takes the request, whatever its paths.
    let claims = |ingress: &Ingress, host: &str| {
        let rule = ingress.rules.iter().any(|rule| rule.host.to_string() == host);
        rule || host == "*" && ingress.rules.is_empty() && ingress.default_backend.is_some()
    };
    let parent = name.split_once('.').map(|(_, rest)| format!("*.{rest}")).unwrap_or_default();
    let host = [name, &parent, "*"].into_iter().find(|host| ours.iter().any(|ingress| claims(ingress, host)));
    let kept = |host: &str| -> Vec<&Ingress> {
        let all = ours.iter().copied().filter(|ingress| claims(ingress, host));
        let home = all.clone().next().map(|oldest| oldest.age.name.namespace.clone());
        let shared = options.host_ownership == HostOwnership::Shared;
        all.filter(|ingress| shared || Some(&ingress.age.name.namespace) == home.as_ref()).collect()
    };
    let own = host.and_then(|host| best(&kept(host), host, path).or_else(|| fallback(&kept(host))));
    own.or_else(|| fallback(&kept("*")))
}

fn fallback(claims: &[&Ingress]) -> Answer {
    let ingress = claims.iter().find(|ingress| ingress.default_backend.is_some())?;
    Some((ingress.age.name.clone(), "spec.defaultBackend".to_owned()))
}

/// Exact before prefix, the longer prefix first, then the older object (the claims are in that order), then the earlier rule.
fn best(claims: &[&Ingress], host: &str, path: &str) -> Answer {
    let rules = claims.iter().enumerate().flat_map(|(age, ingress)| {
        let rules = ingress.rules.iter().filter(|rule| rule.host.to_string() == host);
        rules.flat_map(|rule| &rule.paths).enumerate().map(move |(place, rule)| (age, place, *ingress, rule))
    });
    let matching = rules.filter_map(|(age, place, ingress, rule)| Some((rank(rule, path)?, age, place, ingress, rule)));
    let best = matching.min_by_key(|(rank, age, place, ..)| (*rank, *age, *place))?;
    Some((best.3.age.name.clone(), best.4.field.to_string()))
}

fn rank(rule: &RulePath, path: &str) -> Option<(u8, Reverse<usize>)> {
    match &rule.path {
        PathMatch::Exact(exact) => (**exact == *path).then_some((0, Reverse(0))),
        PathMatch::Prefix(prefix) => {
            let inside = path == &**prefix || path.starts_with(&format!("{prefix}/"));
            inside.then_some((1, Reverse(prefix.len())))
        }
        PathMatch::PrefixCharacters(_) | PathMatch::Regex(..) => None,
    }
}
