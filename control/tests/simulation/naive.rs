//! An independent model of the serving route and certificate for a request, written without the compiler: it iterates
//! over every rule of every Ingress and keeps the best. Incremental and full compilation share the rules of precedence,
//! so their equality does not verify those.

use std::cmp::Reverse;
use std::sync::Arc;

use tidegate_config::model::{Action, Certificate, Head, PathMatch, Snapshot};
use tidegate_config::object::{Kind, ObjectName};
use tidegate_config::project::{BackendRef, ClassRef, Ingress, PortRef, RulePath, ServiceKind, TlsSecret};
use tidegate_config::published::channel;
use tidegate_control::options::{HostOwnership, Options};
use tidegate_control::{Compiled, World};

const NAMES: [&str; 6] = ["a.example", "b.example", "x.example", "c.test", "y.x.example", "else.where"];
const REQUESTS: [&str; 9] = ["/", "/a", "/a/", "/a/b", "/a/bc", "/z", "/a/b/c/d", "/c/d", "/a/c/x"];

/// Compares the answers for a grid of requests.
pub(crate) fn check(world: &World, options: &Options, compiled: &Compiled, seed: u64) {
    let naive = Naive::new(world, options);
    let (mut publisher, published) = channel();
    let ready = publisher.prepare(compiled.parts.clone());
    publisher.publish(ready);
    let snapshot = published.pin();
    for name in NAMES {
        assert_eq!(shown(&snapshot, name), naive.shown(name), "seed {seed}: certificates of {name}");
        for path in REQUESTS {
            assert_eq!(live(&snapshot, name, path), naive.answer(name, path), "seed {seed}: {name}{path}");
        }
    }
}

/// The rule that serves.
#[derive(PartialEq, Eq, Debug)]
struct Answer {
    object: ObjectName,
    field: String,
    /// The Service and its port; `None` if they cannot be used.
    target: Option<(ObjectName, u16)>,
}

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

fn live(snapshot: &Snapshot, name: &str, path: &str) -> Option<Answer> {
    let route = snapshot.find(&snapshot.binds().first()?.key, name, path, &Get(path)).route?;
    assert!(matches!(route.action, Action::Forward(_)), "an Ingress cannot redirect");
    let target = route.action.targets().next().map(|target| {
        let key = &target.backend;
        assert!(snapshot.backend(key).is_some(), "{name}{path} leads to {key}, which is not there");
        (key.service.clone(), key.port)
    });
    let (object, field) = (route.origin.object.name.clone(), route.origin.field.to_string());
    Some(Answer { object, field, target })
}

fn shown(snapshot: &Snapshot, name: &str) -> Vec<ObjectName> {
    let bind = snapshot.binds().first().map(|bind| bind.key);
    let shown = bind.map(|bind| snapshot.certificates_for(&bind, name)).unwrap_or_default();
    shown.iter().map(|certificate| certificate.secret.clone()).collect()
}

struct Naive<'a> {
    world: &'a World,
    shared: bool,
    /// The Ingresses of our classes, oldest first.
    ours: Vec<&'a Ingress>,
}

impl<'a> Naive<'a> {
    fn new(world: &'a World, options: &Options) -> Self {
        let own = options.sources.ingress.as_ref();
        let ours = |ingress: &&Ingress| {
            let Some(options) = own else { return false };
            let controller = |name: &str| world.classes.values().find(|class| *class.name.name == *name);
            match &ingress.class {
                ClassRef::Annotation(name) => *name == options.class,
                ClassRef::Field(name) => controller(&name.name)
                    .map_or(!world.knows(Kind::IngressClass) && name.name == options.class, |it| {
                        it.controller == options.controller
                    }),
                ClassRef::Default => {
                    world.classes.values().any(|it| it.is_default && it.controller == options.controller)
                }
            }
        };
        let mut ours: Vec<&Ingress> = world.ingresses.values().map(|ingress| &**ingress).filter(ours).collect();
        ours.sort_by_key(|ingress| (ingress.age.created_s, ingress.age.name.clone()));
        Self { world, shared: options.host_ownership == HostOwnership::Shared, ours }
    }

    /// The objects whose claims to a host are in effect, and the namespace of the oldest.
    fn claims(&self, host: &str) -> (Vec<&'a Ingress>, Option<Arc<str>>) {
        let alone = |ingress: &Ingress| ingress.default_backend.as_ref().is_some_and(|default| default.alone);
        let claims = |ingress: &&&Ingress| {
            ingress.rules.iter().any(|rule| rule.host.to_string() == host) || host == "*" && alone(ingress)
        };
        let all = || self.ours.iter().filter(claims).copied();
        let home = all().next().map(|oldest| oldest.age.name.namespace.clone());
        let kept = all().filter(|ingress| self.shared || Some(&ingress.age.name.namespace) == home.as_ref());
        (kept.collect(), home)
    }

    /// The most specific pattern of any rule takes the request, whatever its paths.
    fn host(&self, name: &str) -> Option<String> {
        [name.to_owned(), above(name), "*".to_owned()].into_iter().find(|host| !self.claims(host).0.is_empty())
    }

    fn answer(&self, name: &str, path: &str) -> Option<Answer> {
        let host = self.host(name)?;
        let (claims, home) = self.claims(&host);
        let own = self.best(&claims, &host, path).or_else(|| self.fallback(&claims, |_| true));
        own.or_else(|| {
            let last = self.fallback(&self.claims("*").0, |alone| alone)?;
            (self.shared || Some(&last.object.namespace) == home.as_ref()).then_some(last)
        })
    }

    fn fallback(&self, claims: &[&Ingress], counts: impl Fn(bool) -> bool) -> Option<Answer> {
        let mut offers = claims.iter().filter_map(|ingress| Some((ingress, ingress.default_backend.as_ref()?)));
        let (ingress, default) = offers.find(|(_, default)| counts(default.alone))?;
        Some(self.led(ingress, "spec.defaultBackend", default.backend.as_ref()))
    }

    /// Exact before prefix, the longer prefix first, then the older object (the claims are in that order), then the
    /// earlier rule.
    fn best(&self, claims: &[&Ingress], host: &str, path: &str) -> Option<Answer> {
        let rules = claims.iter().enumerate().flat_map(|(age, ingress)| {
            let rules = ingress.rules.iter().filter(|rule| rule.host.to_string() == host);
            rules.flat_map(|rule| &rule.paths).enumerate().map(move |(place, rule)| (age, place, *ingress, rule))
        });
        let matching = rules.filter_map(|(age, place, ingress, it)| Some((rank(it, path)?, age, place, ingress, it)));
        let (.., ingress, best) = matching.min_by_key(|(rank, age, place, ..)| (*rank, *age, *place))?;
        Some(self.led(ingress, &best.field, best.backend.as_ref()))
    }

    fn led(&self, ingress: &Ingress, field: &str, backend: Option<&BackendRef>) -> Answer {
        let target = backend.and_then(|backend| {
            let name = backend.service.clone();
            assert_eq!(name.namespace, ingress.age.name.namespace);
            let service = self.world.services.get(&name)?;
            let any = service.ports.is_empty() && matches!(service.kind, ServiceKind::ExternalName(_));
            let port = match &backend.port {
                PortRef::Name(name) => service.ports.iter().find(|port| port.name == *name).map(|port| port.number),
                PortRef::Number(number) => {
                    (any || service.ports.iter().any(|port| port.number == *number)).then_some(*number)
                }
            };
            Some((name, port?))
        });
        Answer { object: ingress.age.name.clone(), field: field.to_owned(), target }
    }

    /// The Secrets for a server name, among objects that take its requests: those with an exact entry, otherwise those
    /// of other matching entries. Both are equal for a host of exactly that name.
    fn shown(&self, name: &str) -> Vec<ObjectName> {
        let Some(host) = self.host(name) else { return Vec::new() };
        let (claims, _) = self.claims(&host);
        let secrets = |asked: &[&str], needed: &[&str]| {
            let mut secrets: Vec<ObjectName> = Vec::new();
            for ingress in &claims {
                let mut entries: Vec<_> = ingress.tls.iter().collect();
                entries.sort_by_key(|it| it.entry);
                for TlsSecret { host: wanted, secret, entry: _ } in entries {
                    let wanted = wanted.as_ref().map_or_else(|| host.clone(), ToString::to_string);
                    let listed = wanted != "*" && asked.contains(&&*wanted);
                    let usable = self.world.secrets.get(secret).and_then(|secret| secret.certificate.as_ref().ok());
                    let names = |it: &Arc<Certificate>| it.names.iter().any(|it| needed.contains(&&*it.to_string()));
                    if listed && usable.is_some_and(names) && !secrets.contains(secret) {
                        secrets.push(secret.clone());
                    }
                }
            }
            secrets
        };
        let beside = above(name);
        if host == name {
            return secrets(&[name, &beside], &[name, &beside]);
        }
        let own = secrets(&[name], &[name, &beside]);
        if own.is_empty() { secrets(&[&beside], &[&beside]) } else { own }
    }
}

/// The wildcard above a name.
fn above(name: &str) -> String {
    name.split_once('.').map(|(_, rest)| format!("*.{rest}")).unwrap_or_default()
}

fn rank(rule: &RulePath, path: &str) -> Option<(u8, Reverse<usize>)> {
    match &rule.path {
        PathMatch::Exact(exact) => (**exact == *path).then_some((0, Reverse(0))),
        PathMatch::Prefix(prefix) => {
            let inside = path == &**prefix || path.starts_with(&format!("{prefix}/"));
            inside.then_some((1, Reverse(prefix.len())))
        }
        PathMatch::PrefixCharacters(_) | PathMatch::Regex(..) | PathMatch::AnyService(_) => None,
    }
}
