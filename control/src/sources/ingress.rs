//! Ingress (`networking.k8s.io/v1`): an Ingress of one of our classes claims the hosts of its rules. Its default
//! backend takes requests to these hosts that match no path, and, if it has no rules, requests to hosts that no object
//! claims.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{Action, Certificate, HostPattern, Origin, PathMatch, Route, Transport, WeightedTarget};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::{BackendRef, ClassRef, DefaultBackend, Ingress, IngressClass};

use super::reader::Reader;
use super::spec::SourceSpec;
use crate::attachment::{Attachment, Claim, ClaimTerms, Key, Report, Verdict};
use crate::options::{Ingresses, Options};
use crate::topology::Topology;
use crate::world::World;

/// Ingresses and their classes.
pub(super) const SPEC: SourceSpec = SourceSpec {
    enabled: |options| options.sources.ingress.is_some(),
    kinds: &[Kind::Ingress, Kind::IngressClass],
    required: &[Kind::Ingress],
    beside: None,
    by_name: &[],
    class: Some((Kind::Ingress, Kind::IngressClass)),
    anywhere: |_, _| Vec::new(),
    attached_if_missing: |_| None,
    service_label: None,
};

impl<'w> Reader<'w> {
    /// An IngressClass.
    fn class(&mut self, name: &ObjectName) -> Option<&'w Arc<IngressClass>> {
        self.note(Key::Object(ObjectRef::new(Kind::IngressClass, name.clone())));
        self.world().classes.get(name)
    }

    /// Every IngressClass.
    fn classes(&mut self) -> impl Iterator<Item = &'w Arc<IngressClass>> + use<'w> {
        self.note(Key::Any(Kind::IngressClass));
        self.world().classes.values()
    }
}

/// The controller that an Ingress belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Membership {
    /// Ours, under this class.
    Ours(Arc<str>),
    /// Another controller, or none.
    Others,
    /// The Ingress refers to a class that does not exist.
    UnknownClass(Arc<str>),
}

/// The controller of an Ingress: by the controller of its class; by the class name in the deprecated annotation; or by
/// the default class if it has neither. While IngressClasses cannot be read, a class with our name is ours.
fn membership(reader: &mut Reader<'_>, options: &Ingresses, ingress: &Ingress) -> Membership {
    match &ingress.class {
        ClassRef::Annotation(name) if *name == options.class => Membership::Ours(name.clone()),
        ClassRef::Annotation(_) => Membership::Others,
        ClassRef::Field(name) => match reader.class(name) {
            Some(class) if class.controller == options.controller => Membership::Ours(name.name.clone()),
            Some(_) => Membership::Others,
            None if reader.world().knows(Kind::IngressClass) => Membership::UnknownClass(name.name.clone()),
            None if name.name == options.class => Membership::Ours(name.name.clone()),
            None => Membership::Others,
        },
        ClassRef::Default => {
            let ours = |class: &&Arc<IngressClass>| class.is_default && class.controller == options.controller;
            let class = reader.classes().find(ours);
            class.map_or(Membership::Others, |class| Membership::Ours(class.name.name.clone()))
        }
    }
}

/// The reason why an Ingress is not ours, if it is not.
pub(crate) fn not_ours(world: &World, options: &Options, topology: &Topology, ingress: &Ingress) -> Option<String> {
    let ours = options.sources.ingress.as_ref()?;
    match (membership(&mut Reader::new(world, options, topology), ours, ingress), &ingress.class) {
        (Membership::Ours(_), _) => None,
        (Membership::UnknownClass(class), _) => Some(format!("its IngressClass {class} does not exist")),
        (Membership::Others, ClassRef::Annotation(class)) => {
            Some(format!("its class is {class}, by annotation, and not {}", ours.class))
        }
        (Membership::Others, ClassRef::Field(class)) => match world.classes.get(class) {
            Some(found) => {
                Some(format!("its IngressClass {} is of another controller: {}", class.name, found.controller))
            }
            None => Some(format!("its class is {}, and not {}", class.name, ours.class)),
        },
        (Membership::Others, ClassRef::Default) => {
            Some(format!("it names no class, and no IngressClass of {} is the default", ours.controller))
        }
    }
}

pub(super) fn attach(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let world = reader.world();
    let of_ours = world.ingresses.get(&object.name).zip(reader.options.sources.ingress.as_ref());
    let Some((ingress, options)) = of_ours else { return Attachment::reporting(object, world) };
    let class = match membership(reader, options, ingress) {
        Membership::Ours(class) => class,
        Membership::Others => return without_claims(Verdict::Others, Vec::new()),
        Membership::UnknownClass(class) => {
            let problem = Problem::ClassUnknown { class: class.to_string() };
            let finding = Finding::new(object.clone(), "spec.ingressClassName", problem);
            return without_claims(Verdict::Others, vec![finding]);
        }
    };
    let findings = world.findings_of(object).to_vec();
    let mut claims = Claims { reader, object, ingress, missing: BTreeSet::new(), findings };
    let fallback = ingress.default_backend.as_ref().map(|default| claims.fallback(default));
    let fallback_missing = std::mem::take(&mut claims.missing);
    let all: Vec<Claim> = ingress
        .hosts()
        .map(|host| {
            claims.missing.clone_from(&fallback_missing);
            claims.of(host, fallback.as_ref())
        })
        .collect();
    let mut findings = claims.findings;
    // A broken Secret or Service gives the same finding for each of the hosts.
    findings.sort_unstable();
    findings.dedup();
    let mut attachment = Attachment { claims: all.into(), ..without_claims(Verdict::Served(class), findings) };
    if let Some(policy) = &ingress.policy {
        reader.add_named_policies(object, policy, &mut attachment);
    }
    attachment
}

fn without_claims(verdict: Verdict, findings: Vec<Finding>) -> Attachment {
    let report = Report { verdict: Some(verdict), findings };
    Attachment { report: report.unless_empty(), ..Attachment::default() }
}

/// State for making the claims of one Ingress.
struct Claims<'a, 'w> {
    reader: &'a mut Reader<'w>,
    object: &'a ObjectRef,
    ingress: &'w Ingress,
    /// Missing objects of the current claim.
    missing: BTreeSet<ObjectRef>,
    findings: Vec<Finding>,
}

impl Claims<'_, '_> {
    fn of(&mut self, host: &HostPattern, fallback: Option<&Arc<Route>>) -> Claim {
        let rule = self.ingress.rules.of(host);
        // Positions count among the paths of the host, so that a change of another host's rule does not alter them.
        let paths = (0_u32..).zip(rule.into_iter().flat_map(|rule| &rule.paths));
        let routes = paths.map(|(position, path)| {
            let place =
                RoutePlace { field: &path.field, service: "backend.service", path: path.path.clone(), position };
            self.route(place, path.backend.as_ref())
        });
        let routes: Vec<Arc<Route>> = routes.collect();
        let certificates = self.certificates(host);
        let terms = ClaimTerms {
            object: self.object.clone(),
            age: self.ingress.age.clone(),
            field: if rule.is_some() { "spec.rules" } else { "spec.defaultBackend" },
            routes: routes.into(),
            fallback: fallback.cloned(),
            last_resort: self.ingress.catch_all().is_some(),
            guest: false,
            certificates: certificates.into(),
            missing: std::mem::take(&mut self.missing).into_iter().collect(),
        };
        Claim::new(host.clone(), terms)
    }

    fn fallback(&mut self, default: &DefaultBackend) -> Arc<Route> {
        let everything = PathMatch::Prefix("".into());
        let field: Arc<str> = "spec.defaultBackend".into();
        let place = RoutePlace { field: &field, service: "service", path: everything, position: u32::MAX };
        self.route(place, default.backend.as_ref())
    }

    /// A route to a backend. If the backend is unusable, the route answers 503, and a finding states the reason.
    fn route(&mut self, place: RoutePlace<'_>, backend: Option<&BackendRef>) -> Arc<Route> {
        let RoutePlace { field, service, path, position } = place;
        let protocol = self.ingress.protocol;
        let target = |backend| (backend, self.reader.target_over(Transport::Tcp, backend, protocol));
        let targets = match backend.map(target) {
            None => Vec::new(),
            Some((_, Ok(target))) => vec![WeightedTarget::new(Arc::new(target), 1)],
            Some((backend, Err(problem))) => {
                if matches!(problem, Problem::ServiceMissing { .. }) {
                    self.missing.insert(ObjectRef::new(Kind::Service, backend.service.clone()));
                }
                self.report(format!("{field}.{service}"), problem);
                Vec::new()
            }
        };
        let (object, age) = (self.object.clone(), self.ingress.age.clone());
        let origin = Origin { object, age, field: Arc::clone(field), position };
        Arc::new(Route {
            guards: Arc::clone(&self.ingress.guards),
            filters: Arc::clone(&self.ingress.filters),
            settings: Arc::clone(&self.ingress.settings),
            ..Route::new(origin, path, Action::Forward(targets.into()))
        })
    }

    /// The usable certificates for the names covered by both a TLS entry and the host. There may be several, such as an
    /// ECDSA and an RSA one: the handshake takes the first that the client supports.
    fn certificates(&mut self, host: &HostPattern) -> Vec<(HostPattern, Arc<Certificate>)> {
        let mut certificates = Vec::new();
        for it in self.ingress.tls.of(host) {
            // An entry without hosts applies to those of the rules.
            let asked = it.host.as_ref().unwrap_or(host);
            let Some(name) = asked.meet(host) else { continue };
            match self.reader.certificate(&it.secret, asked, &name) {
                Ok(certificate) => certificates.push((name, Arc::clone(certificate))),
                Err(problem) => {
                    if matches!(problem, Problem::CertificateMissing { .. }) {
                        self.missing.insert(ObjectRef::new(Kind::Secret, it.secret.clone()));
                    }
                    self.report(format!("{}.secretName", it.field()), problem);
                }
            }
        }
        certificates
    }

    fn report(&mut self, field: String, problem: Problem) {
        self.findings.push(Finding::new(self.object.clone(), field, problem));
    }
}

/// The field of a route in its object, and its match.
struct RoutePlace<'a> {
    field: &'a Arc<str>,
    /// The field of the Service, below `field`.
    service: &'static str,
    path: PathMatch,
    position: u32,
}
